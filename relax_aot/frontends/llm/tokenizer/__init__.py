# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a checkpoint -> tables of a tokenizer in C."""

from __future__ import annotations

from pathlib import Path

from relax_aot.frontends import UnsupportedError
from relax_aot.frontends.llm.json_file import read_json
from relax_aot.frontends.llm.tokenizer.compiled import compiled
from relax_aot.frontends.llm.tokenizer.part import Part, shown
from relax_aot.frontends.llm.tokenizer.tables import Tokenizer
from relax_aot.frontends.llm.tokenizer.vocabulary import read_model

FILE = "tokenizer.json"
_FIELDS = {
    "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
    "post_processor", "decoder", "model",
}  # fmt: skip


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint in a folder, by its `tokenizer.json`."""
    path = folder / FILE
    return tokenizer_of(Part(str(path), read_json(path)))


def tokenizer_of(root: Part) -> Tokenizer:
    """The tokenizer that a `tokenizer.json` describes."""
    unknown = sorted(root.fields.keys() - _FIELDS)
    if unknown:
        raise UnsupportedError(f"{root.where}: the component {shown(unknown[0])} is not supported")
    root.only("truncation")
    root.only("padding")
    return compiled(root, read_model(root.object("model")))
