# SPDX-License-Identifier: Apache-2.0
"""The models of a `tokenizer.json`: tokens, merges and scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.llm.tokenizer.part import Part, shown
from relax_aot.frontends.llm.tokenizer.tables import Merges

MOST_TOKENS = 2**21
MOST_BYTES = 4096
"""Of a token."""
_GREATEST_SCORE = 1e9
_UNKNOWN_PENALTY = 10.0
"""By which an unknown code point is less likely than any token."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by their text in the file."""

    tokens: Mapping[str, int]
    merges: Merges | None = None
    scores: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    unknown: int = -1
    fuses: bool = False
    whole_words: bool = False
    bytes: tuple[int, ...] = ()
    """The tokens <0x00> to <0xFF> that stand for bytes of what has no token."""


def read_model(model: Part) -> Vocabulary:
    """BPE or Unigram."""
    # Older files leave out the type of a BPE.
    kind = model.text("type", "BPE" if "merges" in model.fields else None)
    if kind == "BPE":
        return _bpe(model)
    if kind == "Unigram":
        return _unigram(model)
    raise model.unsupported("BPE, Unigram")


def _bpe(model: Part) -> Vocabulary:
    model.only("dropout", 0, 0.0)
    model.only("continuing_subword_prefix", "")
    model.only("end_of_word_suffix", "")
    vocab = model.object("vocab").fields
    for text, token in vocab.items():
        check_text(model, text)
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < MOST_TOKENS:
            raise ModelError(
                f"{model.where}: the token {shown(text)} has the number {shown(token)}, "
                f"expected one from 0 to {MOST_TOKENS - 1}"
            )
    if len(set(vocab.values())) < len(vocab):
        raise ModelError(f"{model.where}: two tokens of the vocabulary have one number")
    unknown = None if model.fields.get("unk_token") is None else model.text("unk_token")
    if unknown is not None and unknown not in vocab:
        raise ModelError(f"{model.where}: unk_token {shown(unknown)} is not in the vocabulary")
    return Vocabulary(
        vocab,
        _merges(model, vocab),
        unknown=-1 if unknown is None else vocab[unknown],
        fuses=model.flag("fuse_unk"),
        whole_words=model.flag("ignore_merges"),
        bytes=byte_tokens(model, vocab),
    )


def _merges(model: Part, vocab: Mapping[str, int]) -> Merges:
    """The rows of the merges; of equal ones the last counts."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, merge in enumerate(model.values("merges")):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(one, str) for one in pair)
        ):
            raise ModelError(f"{model.where}: merge {rank} is {shown(merge)}, expected two tokens")
        left, right = pair
        for text in (left, right, left + right):
            if text not in vocab:
                raise ModelError(
                    f"{model.where}: merge {rank} has {shown(text)}, which is not in the vocabulary"
                )
        found[vocab[left], vocab[right]] = (vocab[left + right], rank)
    rows = np.array([(*key, *value) for key, value in sorted(found.items())], np.uint32)
    return Merges(rows.reshape(-1, 4))


def _unigram(model: Part) -> Vocabulary:
    tokens: dict[str, int] = {}
    scores = []
    listed = model.values("vocab")
    if len(listed) >= MOST_TOKENS:
        raise ModelError(f"{model.where}: {len(listed)} tokens; at most {MOST_TOKENS}")
    for number, row in enumerate(listed):
        pair: list[Any] = row if isinstance(row, list) and len(row) == 2 else [None, None]
        text, score = pair
        real = isinstance(score, int | float) and abs(score) <= _GREATEST_SCORE
        if not isinstance(text, str) or isinstance(score, bool) or not real:
            raise ModelError(
                f"{model.where}: vocab[{number}] is {shown(row)}, expected a text and a number"
            )
        check_text(model, text)
        if text in tokens:
            raise ModelError(f"{model.where}: vocab[{number}]: {shown(text)} is there twice")
        tokens[text] = number
        scores.append(float(score))
    unknown = model.number("unk_id", 0, max(len(tokens) - 1, 0))
    if not tokens:
        raise ModelError(f"{model.where}: vocab is empty")
    return Vocabulary(
        tokens,
        scores=np.array([*scores, min(scores) - _UNKNOWN_PENALTY]),
        unknown=unknown,
        fuses=model.flag("fuse_unk", default=True),
        bytes=byte_tokens(model, tokens),
    )


def byte_tokens(model: Part, tokens: Mapping[str, int]) -> tuple[int, ...]:
    """The tokens of bytes; none without the field byte_fallback."""
    if not model.flag("byte_fallback"):
        return ()
    found = [tokens.get(f"<0x{byte:02X}>", -1) for byte in range(256)]
    missing = found.count(-1)
    if missing == 256:
        return ()
    if missing:
        raise UnsupportedError(
            f"{model.where}: byte_fallback with {256 - missing} of the 256 tokens <0x00> to <0xFF>"
            " is not supported"
        )
    return tuple(found)


def check_text(model: Part, text: Any) -> None:
    """Refuse a token that is no Unicode text, or too long."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ModelError(f"{model.where}: the token {shown(text)} is no Unicode text") from None
    if size > MOST_BYTES:
        raise ModelError(f"{model.where}: a token has {size} bytes; at most {MOST_BYTES}")
