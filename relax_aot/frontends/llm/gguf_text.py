# SPDX-License-Identifier: Apache-2.0
"""The tokens that end a text, and the chat template, in the metadata of a GGUF file.

Source: ggml's docs/gguf.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from relax_aot.frontends.llm.chat.source import Source, source_of
from relax_aot.frontends.llm.tokenizer.gguf import own_fields

TEMPLATE = "tokenizer.chat_template"
_ENDS = "eos", "eot", "eom"
"""The end of a text, of an answer, and of a message."""
_VARIABLES = {
    "bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token",
}  # fmt: skip
"""What templates call tokens."""


def gguf_ends(file: str, metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens that end a text."""
    return tuple(dict.fromkeys(_numbers(file, metadata, _ENDS).values()))


def gguf_source(file: str, metadata: Mapping[str, Any]) -> Source | None:
    """The chat template, if there is one."""
    if TEMPLATE not in metadata:
        return None
    texts = own_fields(file, metadata).values("tokens")
    numbers = _numbers(file, metadata, _VARIABLES)
    fields = {_VARIABLES[name]: texts[number] for name, number in numbers.items()}
    return source_of(f"{file}: {TEMPLATE}", metadata[TEMPLATE], fields)


def _numbers(file: str, metadata: Mapping[str, Any], names: Iterable[str]) -> dict[str, int]:
    """The numbers of tokens with these names, as far as they are there."""
    own = own_fields(file, metadata)
    most = len(own.values("tokens")) - 1
    return {
        name: own.number(f"{name}_token_id", 0, most)
        for name in names
        if f"{name}_token_id" in own.fields
    }
