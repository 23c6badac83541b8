# SPDX-License-Identifier: Apache-2.0
"""A `tokenizer.json` that is wrong, or has components that are not compiled, ends with one clear
error."""

from __future__ import annotations

import copy
import json
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relax_aot.emit.tokenizer import emit_tokenizer
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.llm.tokenizer import read_tokenizer

BASE: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
        {
            "id": 4, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True,
        }
    ],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ],
    },
    "pre_tokenizer": {
        "type": "Split", "pattern": {"Regex": "b+|[^b]"}, "behavior": "Isolated", "invert": False,
    },
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}},
    },
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    },
    "model": {
        "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": False,
        "ignore_merges": False, "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3},
        "merges": [["a", "b"]],
    },
}  # fmt: skip
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
TWO = [["<unk>", 0.0], ["a", -1.0], ["a", -2.0]]

LONG = "a\n" * 5000
CHANGES: dict[str, tuple[str, Any, str]] = {
    "a long name of a special token": (
        "post_processor.single", [{"SpecialToken": {"id": LONG}}],
        "special_tokens, " + "a?" * 40 + "... is None, expected an object",
    ),
    "an unknown component": ("reranker", {}, "the component reranker is not supported"),
    "truncation": ("truncation", {"max_length": 5}, "truncation={'max_length': 5}"),
    "lower case": ("normalizer", {"type": "Lowercase"}, "normalizer: Lowercase is not supported"),
    "a charsmap": ("normalizer", {"type": "Precompiled"}, "Precompiled is not supported"),
    "NFC behind others": (
        "normalizer.normalizers",
        [{"type": "Prepend", "prepend": "x"}, {"type": "NFC"}],
        "normalizers[1]: NFC is not supported; supported: NFC as the first one",
    ),
    "a replaced pattern": (
        "normalizer.normalizers", [{"type": "Replace", "pattern": {"Regex": " "}, "content": "x"}],
        "only a pattern of the kind String",
    ),
    "a replaced word": (
        "normalizer.normalizers", [{"type": "Replace", "pattern": {"String": "ab"}, "content": ""}],
        "only one character",
    ),
    "a normalizer that is a number": ("normalizer", 3, "normalizer is 3, expected an object"),
    "a sequence of a number": ("normalizer.normalizers", 7, "normalizers is 7, expected a list"),
    "whitespace": ("pre_tokenizer", {"type": "Whitespace"}, "pre_tokenizer: Whitespace is not"),
    "a pattern of the wrong kind": ("pre_tokenizer.pattern", {"Glob": "a"}, "pattern is {'Glob'"),
    "a pattern that is a list": ("pre_tokenizer.pattern", {"Regex": []}, "expected a text"),
    "merged words": ("pre_tokenizer.behavior", "MergedWithNext", "MergedWithNext with invert=Fal"),
    "a look-behind": ("pre_tokenizer.pattern", {"Regex": "(?<=a)b"}, "is not supported, at 1"),
    "a long look-ahead": ("pre_tokenizer.pattern", {"Regex": "a(?!bc)"}, "at more than one code"),
    "a property": ("pre_tokenizer.pattern", {"Regex": r"\p{Han}"}, "'Han', which is no general"),
    "a possessive": ("pre_tokenizer.pattern", {"Regex": "a++"}, "possessive"),
    "an anchor": ("pre_tokenizer.pattern", {"Regex": "a$"}, "'$', which is not supported, at 2"),
    "a group without end": ("pre_tokenizer.pattern", {"Regex": "(a"}, "does not end"),
    "an end without group": ("pre_tokenizer.pattern", {"Regex": "a)"}, "')' without its start"),
    "a class without end": ("pre_tokenizer.pattern", {"Regex": "[a"}, "an unexpected end"),
    "a class in a class": ("pre_tokenizer.pattern", {"Regex": "[a[b]]"}, "a class in a class"),
    "a reversed range": ("pre_tokenizer.pattern", {"Regex": "[b-a]"}, "a range"),
    "an open property": ("pre_tokenizer.pattern", {"Regex": r"\p{L"}, "a property"),
    "an open repetition": ("pre_tokenizer.pattern", {"Regex": "a{2"}, "a repetition"),
    "a million": ("pre_tokenizer.pattern", {"Regex": "(a{99}){99}{99}"}, "double repetition"),
    "many": ("pre_tokenizer.pattern", {"Regex": "((a{99}){99}){99}"}, "more than 4000"),
    "many states": ("pre_tokenizer.pattern", {"Regex": "[ab]*a[ab]{12}c"}, "more than 2000 states"),
    "deep": ("pre_tokenizer.pattern", {"Regex": "(" * 5000 + ")"}, "5001 characters"),
    "deep groups": ("pre_tokenizer.pattern", {"Regex": "(" * 1500 + "a" + ")" * 1500}, "20 groups"),
    "an empty match": ("pre_tokenizer.pattern", {"Regex": "a*"}, "matches the empty text"),
    "folds": ("pre_tokenizer.pattern", {"Regex": "(?i:ss)"}, "(?i:) around 'ss'"),
    "folded properties": ("pre_tokenizer.pattern", {"Regex": r"(?i:[\p{Lu}])"}, "a property in a"),
    "dropped text": (
        "pre_tokenizer",
        {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed", "invert": True},
        "would be dropped",
    ),
    "behind ByteLevel": (
        "pre_tokenizer",
        {"type": "Sequence", "pretokenizers": [BYTE_LEVEL, {"type": "Digits"}]},
        "pretokenizers[1]: a component behind ByteLevel",
    ),
    "ByteLevel without its decoder": ("pre_tokenizer", BYTE_LEVEL, "decoder of a pre-tokenizer"),
    "a prefix too many": ("pre_tokenizer", {"type": "Metaspace", "replacement": "_"}, "prefix"),
    "another processor": ("post_processor", {"type": "BertProcessing"}, "BertProcessing is not"),
    "a template of nothing": ("post_processor.single", [], "no place for the text"),
    "a template of a number": ("post_processor.single", [3], "single[0] is 3"),
    "a template of the second text": (
        "post_processor.single", [{"Sequence": {"id": "B"}}], "Sequence: id=B is not supported",
    ),
    "two templates": (
        "post_processor", {"type": "Sequence", "processors": [BASE["post_processor"]] * 2},
        "processors[1]: TemplateProcessing is not supported; supported: ByteLevel, and one Templ",
    ),
    "no such token": ("post_processor.special_tokens", {}, "<s> is None, expected an object"),
    "a frame beyond": (
        "post_processor.special_tokens", {"<s>": {"ids": [99]}}, "adds 99, which is no token",
    ),
    "no decoder": ("decoder", None, "decoder: none is not supported"),
    "WordPiece text": ("decoder", {"type": "WordPiece"}, "decoder: WordPiece is not supported"),
    "no model": ("model", None, "model is None, expected an object"),
    "WordPiece": ("model.type", "WordPiece", "model: WordPiece is not supported"),
    "dropout": ("model.dropout", 0.1, "dropout=0.1 is not supported"),
    "a suffix": ("model.end_of_word_suffix", "</w>", "end_of_word_suffix=</w> is not supported"),
    "no vocabulary": ("model.vocab", None, "vocab is None, expected an object"),
    "a negative token": ("model.vocab", {"a": -1}, "the token a has the number -1"),
    "a huge token": ("model.vocab", {"a": 2**40}, "has the number 1099511627776"),
    "one number twice": ("model.vocab", {"<unk>": 0, "a": 1, "b": 1}, "two tokens"),
    "half a pair": ("model.vocab", {"\ud800": 1}, "is no Unicode text"),
    "a long token": ("model.vocab", {"a" * 5000: 1}, "a token has 5000 bytes; at most 4096"),
    "a merge of one": ("model.merges", ["a"], "merge 0 is a, expected two tokens"),
    "an unknown merge": ("model.merges", [["a", "c"]], "merge 0 has c, which is not in"),
    "an unknown result": ("model.merges", [["b", "a"]], "merge 0 has ba, which is not in"),
    "an unknown unknown": ("model.unk_token", "?", "unk_token ? is not in the vocabulary"),
    "some bytes": (
        "model", {**BASE["model"], "byte_fallback": True,
                  "vocab": {**BASE["model"]["vocab"], "<0x41>": 9}}, "1 of the 256 tokens",
    ),
    "a flag of text": ("model.fuse_unk", "yes", "fuse_unk is yes, expected true or false"),
    "unigram without unknown": ("model", {**UNIGRAM, "unk_id": None}, "unk_id is None"),
    "unigram beyond": ("model", {**UNIGRAM, "unk_id": 2}, "unk_id is 2, expected a number from 0"),
    "a score of text": ("model", {**UNIGRAM, "vocab": [["a", "b"]]}, "expected a text and"),
    "a score of infinity": ("model", {**UNIGRAM, "vocab": [["a", 1e999]]}, "expected a text and"),
    "unigram twice": ("model", {**UNIGRAM, "vocab": TWO}, "vocab[2]: a is there twice"),
    "an empty unigram": ("model", {**UNIGRAM, "vocab": []}, "vocab is empty"),
    "added without number": ("added_tokens", [{"content": "x"}], "id is None"),
    "added as single words": (
        "added_tokens", [{**BASE["added_tokens"][0], "single_word": True}], "single_word=True is",
    ),
    "added and normalized": (
        "added_tokens", [{**BASE["added_tokens"][0], "normalized": True}], "<s>: normalized=True",
    ),
    "added in a taken place": (
        "added_tokens", [{**BASE["added_tokens"][0], "id": 1}], "the number 1 of another token",
    ),
    "added behind a gap": (
        "added_tokens", [{**BASE["added_tokens"][0], "id": 6}],
        "<s> has the number 6, but tokens that are not in the vocabulary are counted, and this",
    ),
    "added twice": ("added_tokens", BASE["added_tokens"] * 2, "there twice"),
}  # fmt: skip


def changed(path: str, value: Any) -> dict[str, Any]:
    fields = copy.deepcopy(BASE)
    at: Any = fields
    *outer, last = path.split(".")
    for name in outer:
        at = at[name]
    at[last] = value
    return fields


def load(fields: Any, folder: Path) -> None:
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    (folder / "tokenizer.json").write_bytes(text)
    emit_tokenizer(read_tokenizer(folder), "toy")


def test_the_unchanged_file_is_read(tmp_path: Path) -> None:
    load(BASE, tmp_path)
    assert read_tokenizer(tmp_path).before == (4,)


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_is_not_compiled(name: str, tmp_path: Path) -> None:
    path, value, expected = CHANGES[name]
    with pytest.raises(RelaxAotError) as found:
        load(changed(path, value), tmp_path)
    said = str(found.value)
    assert expected in said
    assert "tokenizer.json" in said
    assert len(said) < 600
    assert "\n" not in said


def test_tokens_that_overlap_are_found_as_the_reference_finds_them_or_refused(
    tmp_path: Path,
) -> None:
    first = BASE["added_tokens"][0]
    fields = {**BASE, "normalizer": None}
    late = {**first, "content": "a<s>", "id": 5, "normalized": True}
    with pytest.raises(RelaxAotError, match="a<s> and <s> overlap, and only one of them"):
        load({**fields, "added_tokens": [first, late]}, tmp_path)
    load({**fields, "added_tokens": [first, {**late, "content": "<t>"}]}, tmp_path)


@pytest.mark.parametrize(("name", "kept"), [("  ", True), ("12|_", True), ("\U0001f600", True),
                                            ("a", False), ("=", False), (";", False),
                                            ("\u00e9", False), ("\u0301", False),
                                            ("\u1161", False)])  # fmt: skip
def test_normalized_names_are_found_where_the_form_keeps_them(
    name: str, kept: bool, tmp_path: Path
) -> None:
    """Others join marks behind them, or come of other characters."""
    late = {**BASE["added_tokens"][0], "content": name, "normalized": True, "id": 5}
    fields = {**BASE, "normalizer": {"type": "NFC"}}
    fields["added_tokens"] = [*BASE["added_tokens"], late]
    fields["model"] = {**BASE["model"], "vocab": {"<unk>": 0, "b": 1, "<s>": 4}, "merges": []}
    fields["added_tokens"][1]["id"] = 5
    if kept:
        load(fields, tmp_path)
        return
    with pytest.raises(RelaxAotError, match="with a normalizer that may change it"):
        load(fields, tmp_path)


def test_spaces_of_a_token_are_no_part_of_another_one(tmp_path: Path) -> None:
    first = {**BASE["added_tokens"][0], "rstrip": True}
    fields = {**BASE, "normalizer": None}
    other = {**first, "content": "x \n", "id": 5, "rstrip": False}
    for late in (False, True):
        both = [first, {**other, "normalized": late}]
        with pytest.raises(RelaxAotError, match=r"'x \\n' has spaces at an end, and others have"):
            load({**fields, "added_tokens": both}, tmp_path)
    with pytest.raises(RelaxAotError, match=r"' ' has spaces at an end"):
        load({**fields, "added_tokens": [{**first, "content": " "}]}, tmp_path)
    for one in ([{**first, "rstrip": False}, other], [first, {**other, "content": "x"}]):
        load({**fields, "added_tokens": one}, tmp_path)


def test_tokens_of_bytes_need_a_decoder_of_bytes(tmp_path: Path) -> None:
    fields = changed("model.vocab", {**BASE["model"]["vocab"], "<s>": 4, "<0x41>": 5})
    load(fields, tmp_path)
    mark = "\u2581"
    replace = {"type": "Replace", "pattern": {"String": mark}, "content": " "}
    for decoder in (replace, {"type": "Metaspace", "replacement": mark}):
        load({**fields, "model": BASE["model"], "decoder": decoder}, tmp_path)
        with pytest.raises(RelaxAotError, match=r"decoder: .* is not supported"):
            load({**fields, "decoder": decoder}, tmp_path)


def test_a_split_sees_the_prefix(tmp_path: Path) -> None:
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext"}
    fields = changed("pre_tokenizer", split)
    load(fields, tmp_path)
    steps = fields["normalizer"]["normalizers"]
    steps[:] = [steps[1], {**steps[0], "prepend": " "}]
    with pytest.raises(RelaxAotError, match="MergedWithNext with invert=False"):
        load(fields, tmp_path)


def test_repeated_empty_groups_take_no_time(tmp_path: Path) -> None:
    pattern = "b|[^b]" + "(" * 20 + "){100}" * 20
    load(changed("pre_tokenizer.pattern", {"Regex": pattern}), tmp_path)
    plain = changed("pre_tokenizer.pattern", {"Regex": "b|[^b]"})
    (table,) = read_tokenizer(tmp_path).patterns
    load(plain, tmp_path)
    assert np.array_equal(table, read_tokenizer(tmp_path).patterns[0])


VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**70, 1.5, 1e308, "", "x", "\u2581", "\ud800", "(", "[", "a{", [],
    {}, [[]], {"type": "Sequence"}, {"type": []}, "ByteLevel", "Sequence",
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return [at]
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return [at, *(place for key, one in inside for place in places(one, (*at, key)))]


def mutated(rng: random.Random) -> Any:
    """The file with one to three fields of other values or without them, or with other bytes."""
    if rng.random() < 0.2:
        text = bytearray(json.dumps(BASE).encode())
        for _ in range(rng.randrange(1, 6)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        return bytes(text[: rng.randrange(1, len(text) + 1)] if rng.random() < 0.3 else text)
    fields = copy.deepcopy(BASE)
    if rng.random() < 0.3:
        fields["model"] = copy.deepcopy(UNIGRAM)
    for _ in range(rng.randrange(1, 4)):
        *outer, last = rng.choice(places(fields)[1:])
        at: Any = fields
        for key in outer:
            at = at[key]
        if rng.random() < 0.2:
            del at[last]
        else:
            at[last] = copy.deepcopy(rng.choice(VALUES))
    return fields


def check_mutants(seed: int, count: int, folder: Path) -> None:
    rng, refused = random.Random(seed), 0
    for _ in range(count):
        fields = mutated(rng)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                load(fields, folder)
        except RelaxAotError:
            refused += 1
    assert count // 3 < refused <= count


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    check_mutants(1, 30, tmp_path)


def test_the_time_of_a_pattern_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = changed("pre_tokenizer.pattern", {"Regex": "([a-f]*e|[c-h]*f|[b-g]*d)+"})
    load(hostile, tmp_path)
    monkeypatch.setattr("relax_aot.frontends.llm.tokenizer.automaton.MOST_STEPS", 1000)
    with pytest.raises(RelaxAotError, match="the pattern takes more than 1000 steps"):
        load(hostile, tmp_path)


@pytest.mark.slow
@pytest.mark.long
def test_many_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    check_mutants(2, 4000, tmp_path)
