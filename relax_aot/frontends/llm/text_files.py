# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint says of text: its tokenizer, the tokens that end one, and its chat template."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relax_aot.frontends.llm.chat import read_chat
from relax_aot.frontends.llm.chat.source import read_source
from relax_aot.frontends.llm.chat.table import Chat
from relax_aot.frontends.llm.checkpoint import GGUF, require_folder
from relax_aot.frontends.llm.ends import end_tokens
from relax_aot.frontends.llm.gguf import read_gguf
from relax_aot.frontends.llm.gguf_text import gguf_ends, gguf_source
from relax_aot.frontends.llm.llama2c import SUFFIX, llama2c_text, read_llama2c
from relax_aot.frontends.llm.tokenizer import FILE, read_tokenizer
from relax_aot.frontends.llm.tokenizer.gguf import gguf_tokenizer
from relax_aot.frontends.llm.tokenizer.tables import Tokenizer
from relax_aot.ir.entries import Entries


@dataclass(frozen=True, slots=True)
class TextFiles:
    """The tokenizer of a checkpoint, the tokens that end a text, and what is written around the
    messages of a conversation."""

    tokenizer: Tokenizer
    ends: tuple[int, ...]
    chat: Chat


def tokenizer_of(model: Path) -> Tokenizer | None:
    """Of a folder or a file; None if it has no tokenizer."""
    metadata = _metadata(model)
    if metadata is not None:
        return gguf_tokenizer(str(model), metadata)
    return read_tokenizer(model) if (model / FILE).is_file() else None


def read_text_files(model: Path, template: str | None = None) -> TextFiles | None:
    """None if the checkpoint has no tokenizer. A `template` replaces that of the checkpoint."""
    tokenizer = tokenizer_of(model)
    if tokenizer is None:
        return None
    metadata = _metadata(model)
    if metadata is None:
        ends, chat = end_tokens(model), read_chat(lambda: read_source(model), template)
    else:
        ends = gguf_ends(str(model), metadata)
        chat = read_chat(lambda: gguf_source(str(model), metadata), template)
    return TextFiles(tokenizer, ends, chat)


def _metadata(model: Path) -> dict[str, Any] | None:
    """What a GGUF file says of its tokenizer, or would say; None of a folder."""
    if model.suffix == SUFFIX:
        return llama2c_text(model, read_llama2c(model)[0]["vocab_size"]) or {}
    if model.suffix == GGUF:
        return read_gguf(model)[0]
    require_folder(model)
    return None


@dataclass(frozen=True)
class LanguageModel(Entries):
    """The entries of a language model, whose projects have its tokenizer."""

    text: TextFiles | None = field(default=None, compare=False, repr=False)
    pool: tuple[int, int] | None = None
    """The tokens of all texts that share caches, and those of one."""
