# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a checkpoint -> tables of a tokenizer in C."""

from __future__ import annotations

from pathlib import Path

from relax_aot.frontends import UnsupportedError
from relax_aot.frontends.llm.json_file import read_json
from relax_aot.frontends.llm.tokenizer.compiled import compiled
from relax_aot.frontends.llm.tokenizer.part import Part, part, shown
from relax_aot.frontends.llm.tokenizer.tables import Tokenizer
from relax_aot.frontends.llm.tokenizer.vocabulary import Vocabulary, read_model

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
    vocabulary = read_model(root.object("model"))
    found = compiled(root, vocabulary)
    _require_numbers(root, vocabulary)
    return found


def _require_numbers(root: Part, vocabulary: Vocabulary) -> None:
    """Refuse numbers of added tokens that the package does not take from the file: it counts those
    that are not in the vocabulary."""
    following = len(vocabulary.tokens)
    for number, value in enumerate(root.values("added_tokens")):
        one = part(value, f"{root.where}, added_tokens[{number}]")
        text, token = one.text("content"), one.number("id")
        if text not in vocabulary.tokens and token != following:
            raise UnsupportedError(
                f"{one.where}: {shown(text)} has the number {token}, but tokens that are not in the"
                f" vocabulary are counted, and this one would be {following}"
            )
        following = max(following, token + 1)
