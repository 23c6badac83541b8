# SPDX-License-Identifier: Apache-2.0
"""The tokenizer in the metadata of a GGUF file -> tables of a tokenizer in C.

The model `gpt2` is a BPE of bytes, whose pre-tokenizer has a name instead of a pattern; `llama` is
the BPE of SentencePiece, whose merges follow from the scores of its pieces.

Sources: ggml's docs/gguf.md; the names of pre-tokenizers: `llama_vocab` of llama.cpp; the merges:
`bpe_model.cc` of SentencePiece. Patterns are those of the checkpoints that the names stand for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.llm.json_file import json_object
from relax_aot.frontends.llm.tokenizer import tokenizer_of
from relax_aot.frontends.llm.tokenizer.compiled import compiled
from relax_aot.frontends.llm.tokenizer.components import GPT2, MARK
from relax_aot.frontends.llm.tokenizer.part import Part, shown
from relax_aot.frontends.llm.tokenizer.tables import Merges, Tokenizer
from relax_aot.frontends.llm.tokenizer.vocabulary import (
    MOST_TOKENS,
    Vocabulary,
    byte_tokens,
    check_text,
    read_model,
)

PREFIX, WHOLE = "tokenizer.ggml.", "tokenizer.huggingface.json"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of tokens."""

_CASES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    rf"{_CASES}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SIGNS = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
_WORDS = r"[^\r\n\p{L}\p{N}]?"
_GPT4O = (
    rf"{_WORDS}{_UPPER}*{_LOWER}+{_CASES}?|{_WORDS}{_UPPER}+{_LOWER}*{_CASES}?|\p{{N}}{{1,3}}"
    rf"|{_SIGNS}"
)
_TEKKEN = rf"{_WORDS}{_UPPER}*{_LOWER}+|{_WORDS}{_UPPER}+{_LOWER}*|\p{{N}}|{_SIGNS}"


@dataclass(frozen=True, slots=True)
class _Rule:
    """What the name of a pre-tokenizer stands for."""

    pattern: str
    digits: bool = False
    """Whether each digit is a word."""
    nfc: bool = False
    whole: bool = False
    """Whether a word that is a token is this token, whatever the merges are."""
    begins: bool = False
    """Whether texts begin with `bos_token_id` if the file does not say it."""


_RULES: Mapping[str, _Rule] = {
    "gpt-2": _Rule(GPT2),
    "phi-2": _Rule(GPT2),
    "smollm": _Rule(GPT2, digits=True),
    "starcoder": _Rule(GPT2, digits=True),
    "llama-bpe": _Rule(_LLAMA3, whole=True, begins=True),
    "llama3": _Rule(_LLAMA3, whole=True, begins=True),
    "llama-v3": _Rule(_LLAMA3, whole=True, begins=True),
    "dbrx": _Rule(_LLAMA3),
    "qwen2": _Rule(_QWEN2, nfc=True),
    "deepseek-r1-qwen": _Rule(_QWEN2),
    "gpt-4o": _Rule(_GPT4O),
    "llama4": _Rule(_GPT4O),
    "tekken": _Rule(_TEKKEN, whole=True, begins=True),
}


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The tokens of a file by number, and their types."""

    texts: Sequence[str]
    types: Sequence[int]

    def of(self, *types: int) -> dict[str, int]:
        return {t: n for n, t in enumerate(self.texts) if self.types[n] in types}


def gguf_tokenizer(file: str, metadata: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a file; None if it has none."""
    if WHOLE in metadata:
        text, where = metadata[WHOLE], f"{file}: {WHOLE}"
        if not isinstance(text, str):
            raise ModelError(f"{where} is no text")
        root = Part(where, json_object(text.encode("utf-8", "surrogateescape"), where))
        return tokenizer_of(root)
    own = own_fields(file, metadata)
    kind = own.text("model", "none")
    if kind == "none" or kind == "no_vocab":
        return None
    if kind not in ("gpt2", "llama"):
        raise UnsupportedError(
            f"{own.where}.model: {shown(kind)} is not supported, only gpt2 and llama;"
            " --no-tokenizer leaves it out"
        )
    tokens = _tokens(own)
    return _bytes(own, tokens) if kind == "gpt2" else _pieces(own, tokens)


def own_fields(file: str, metadata: Mapping[str, Any]) -> Part:
    """The fields of the tokenizer."""
    fields = {
        key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)
    }
    return Part(f"{file}: {PREFIX[:-1]}", fields)


def _tokens(own: Part) -> _Tokens:
    texts = own.values("tokens")
    if len(texts) > MOST_TOKENS or not all(isinstance(text, str) for text in texts):
        raise own.wrong("tokens", f"a list of at most {MOST_TOKENS} texts")
    types = own.fields.get("token_type", [NORMAL] * len(texts))
    known = range(NORMAL, BYTE + 1)
    if not isinstance(types, list) or len(types) != len(texts) or not {*types} <= {*known}:
        raise own.wrong("token_type", f"a number of 1 to {BYTE} for each of {len(texts)} tokens")
    for text in texts:
        check_text(own, text)
    if len({*texts}) < len(texts):
        twice = next(text for text, count in Counter(texts).items() if count > 1)
        raise ModelError(f"{own.where}.tokens has {shown(twice)} twice")
    return _Tokens(texts, types)


def _bytes(own: Part, tokens: _Tokens) -> Tokenizer:
    """A BPE of bytes."""
    name = own.text("pre", "default")
    if name not in _RULES:
        raise UnsupportedError(
            f"{own.where}.pre: the pre-tokenizer {shown(name)} is not supported, only "
            f"{', '.join(_RULES)}; --no-tokenizer leaves the tokenizer out"
        )
    rule = _RULES[name]
    model = {
        "type": "BPE", "vocab": tokens.of(NORMAL, BYTE), "merges": own.values("merges"),
        "ignore_merges": rule.whole,
    }  # fmt: skip
    split = {"type": "Split", "pattern": {"Regex": rule.pattern}, "behavior": "Isolated"}
    steps = [
        *([{"type": "Digits", "individual_digits": True}] if rule.digits else ()),
        split,
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
    ]
    root = {
        "normalizer": {"type": "NFC"} if rule.nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": _added(tokens),
        "post_processor": _frame(own, tokens, begins=rule.begins),
    }
    return compiled(Part(own.where, root), read_model(Part(own.where, model)))


def _pieces(own: Part, tokens: _Tokens) -> Tokenizer:
    """The BPE of SentencePiece."""
    own.only("remove_extra_whitespaces", False)
    own.only("precompiled_charsmap", [])
    begins = own.flag("add_space_prefix", default=True)
    to_marks = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    to_spaces = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
    first = [{"type": "Prepend", "prepend": MARK}] if begins else []
    last = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if begins else []
    decoders = [to_spaces, {"type": "ByteFallback"}, {"type": "Fuse"}, *last]
    root = {
        "normalizer": {"type": "Sequence", "normalizers": [*first, to_marks]},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "added_tokens": _added(tokens),
        "post_processor": _frame(own, tokens, begins=True),
    }
    return compiled(Part(own.where, root), _vocabulary(own, tokens))


def _vocabulary(own: Part, tokens: _Tokens) -> Vocabulary:
    """Every pair of pieces that is a piece is merged, first that with the best score, of equal ones
    the leftmost."""
    scores = own.values("scores")
    real = all(isinstance(score, float) and isfinite(score) for score in scores)
    if not real or len(scores) != len(tokens.texts):
        raise own.wrong("scores", f"a number for each of {len(tokens.texts)} tokens")
    _, ranks = np.unique(-np.array(scores), return_inverse=True)
    pieces = tokens.of(NORMAL, UNUSED)
    rows = []
    for text, number in pieces.items():
        for at in range(1, len(text)):
            left, right = pieces.get(text[:at]), pieces.get(text[at:])
            if left is None or right is None:
                continue
            if tokens.types[number] == UNUSED:
                raise UnsupportedError(
                    f"{own.where}: {shown(text)} is unused, but two pieces make it, which is not"
                    " supported"
                )
            rows.append((left, right, number, int(ranks[number])))
    merges = Merges(np.array(sorted(rows), np.uint32).reshape(-1, 4))
    kept = tokens.of(NORMAL, BYTE)
    escapes = byte_tokens(Part(own.where, {"byte_fallback": True}), kept)
    unknown = tokens.of(UNKNOWN)
    return Vocabulary(
        {**kept, **unknown}, merges, unknown=next(iter(unknown.values()), -1), fuses=True,
        bytes=escapes,
    )  # fmt: skip


def _added(tokens: _Tokens) -> list[dict[str, Any]]:
    """Tokens that are found by their names. SentencePiece looks for them where spaces are marks."""
    return [
        {"id": number, "content": text.replace(MARK, " "), "special": kind != USER_DEFINED}
        for number, (text, kind) in enumerate(zip(tokens.texts, tokens.types, strict=True))
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]


def _frame(own: Part, tokens: _Tokens, *, begins: bool) -> dict[str, Any] | None:
    """The tokens before and behind a text."""
    sides: list[dict[str, Any]] = [{"Sequence": {"id": "A"}}]
    known = {}
    for place, name in enumerate(("bos", "eos")):
        expected = begins and name == "bos" and "bos_token_id" in own.fields
        if not own.flag(f"add_{name}_token", default=expected):
            continue
        number = own.number(f"{name}_token_id", 0, len(tokens.texts) - 1)
        known[name] = {"id": name, "ids": [number], "tokens": [tokens.texts[number]]}
        sides.insert(place * len(sides), {"SpecialToken": {"id": name}})
    return {"type": "TemplateProcessing", "single": sides, "special_tokens": known}
