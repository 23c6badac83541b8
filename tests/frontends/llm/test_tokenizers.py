# SPDX-License-Identifier: Apache-2.0
"""Tokens and texts of tokenizers in C are those of the package `tokenizers`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers

from tests.frontends.llm.tokenizer_files import BYTES, KINDS, texts
from tests.frontends.llm.tokenizer_program import (
    FRAME,
    SANITIZED,
    SPECIAL,
    STRICT,
    Program,
    program_of,
)

INDEX, CAPACITY, ARENA = -6, -7, -2


@cache
def made(kind: str) -> Tokenizer:
    return KINDS[kind]()


@cache
def folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def built(kind: str, *flags: str) -> Program:
    place = Path(folder().name) / "-".join([kind, *flags]).replace("/", "")
    place.mkdir()
    made(kind).save(str(place / "tokenizer.json"))
    return program_of(place, flags or STRICT)


@pytest.fixture(scope="module", autouse=True)
def removed() -> Iterator[None]:
    yield
    built.cache_clear()
    folder().cleanup()
    folder.cache_clear()


def number(reference: Tokenizer, name: str) -> int:
    found = reference.token_to_id(name)
    assert found is not None
    return found


def read(text: bytes) -> str:
    """Text with bytes that may be invalid, as the reference takes it."""
    return text.decode("utf-8", "replace")


def assert_encodes(program: Program, reference: Tokenizer, given: list[bytes]) -> None:
    found = program.encode(given)
    for text, tokens in zip(given, found, strict=True):
        assert tokens == reference.encode(read(text)).ids, text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_the_reference(kind: str) -> None:
    assert_encodes(built(kind), made(kind), [b"", *texts(1, 400)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_tokens_are_those_of_the_reference(kind: str) -> None:
    rng = random.Random(2)
    reference = made(kind)
    escaped = {reference.token_to_id(name) for name in BYTES}
    tokens = [n for n in range(reference.get_vocab_size()) if n not in escaped]
    for text in texts(3, 10):
        drawn = rng.choices(tokens, k=30)
        for given in (drawn, reference.encode(read(text)).ids):
            assert built(kind).decoded(given).decode() == reference.decode(given)


@pytest.mark.slow
def test_invalid_bytes_of_tokens_are_replaced_one_by_one() -> None:
    reference = made("llama2")
    euro = [number(reference, f"<0x{byte:02X}>") for byte in "\u20ac".encode()]
    word = number(reference, "a")
    for tokens in ([*euro[:2], word], [euro[1], euro[1]], euro, [*euro, *euro, word], euro[:1]):
        assert built("llama2").decoded(tokens).decode() == reference.decode(tokens)


@pytest.mark.slow
def test_texts_are_written_as_soon_as_they_are_complete() -> None:
    reference = made("gpt2")
    tokens = [number(reference, char) for char in "\u00e2\u0124\u00ac"]  # the bytes of a sign
    assert built("gpt2").decode(tokens) == [b"", b"", "\u20ac".encode(), b""]
    assert built("gpt2").decode(tokens[:2]) == [b"", b"", "\ufffd".encode()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama3", "qwen2", "llama2", "undivided", "unigram_bytes"])
def test_sanitizers_find_nothing(kind: str) -> None:
    program = built(kind, *SANITIZED)
    assert_encodes(program, made(kind), [*texts(4, 150)])
    given = list(texts(5, 60))
    found = [tokens for longest in (16, 17, 40) for tokens in program.encode(given, 0, longest)]
    exact = made(kind)
    for text, tokens in zip(given * 3, found, strict=True):
        expected = exact.encode(read(text), add_special_tokens=False).ids
        assert tokens in (CAPACITY, expected) or "<" in read(text)
    assert CAPACITY in found


@pytest.mark.slow
def test_names_of_special_tokens_are_text_unless_requested() -> None:
    reference, program = made("llama3"), built("llama3")
    text = b"<s>a<|end|>"
    end = reference.token_to_id("<|end|>")
    assert program.encode([text], SPECIAL) == [reference.encode(text.decode()).ids[1:]]
    (plain,) = program.encode([text], FRAME)
    reference.encode_special_tokens = True
    try:
        assert plain == reference.encode(text.decode()).ids
        assert end not in reference.encode(text.decode()).ids
    finally:
        reference.encode_special_tokens = False


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["phi3", "phi4"])
def test_names_of_tokens_take_the_spaces_around_them(kind: str) -> None:
    """All spaces, also in front of bytes that are no text, and as names that follow each other."""
    rng, names = random.Random(9), ["<s>", "</s>", "<|end|>", "<unk>"]
    spaces = ["", " ", "  ", "\n", "\t\r\x0b\x0c", "\x85", "\xa0", "\u1680", "\u2000\u200a",
              "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\x1c"]  # fmt: skip
    given = []
    for _ in range(600):
        parts = rng.choices([*names, *names, "a", "\u00e9", "x y", "<"], k=rng.randrange(1, 7))
        text = "".join(rng.choice(spaces) + part + rng.choice(spaces) for part in parts).encode()
        at = rng.randrange(len(text) + 1)
        given.append(text[:at] + rng.choice([b"", b"", b"\xe2", b"\xe2\x80", b"\xff"]) + text[at:])
    assert_encodes(built(kind, *SANITIZED), made(kind), given)


@pytest.mark.slow
def test_words_and_texts_have_limits() -> None:
    program = built("llama3")
    word = b"a" * 100
    (tokens,) = program.encode([word])
    assert program.encode([word], longest=96) == [CAPACITY]
    assert program.encode([word + b" b"] * 2, longest=101)[0] not in (CAPACITY, ARENA)
    assert isinstance(tokens, list)
    assert program.encode([word], capacity=len(tokens)) == [tokens]
    assert program.encode([word], capacity=len(tokens) - 1) == [CAPACITY]
    assert program.encode([b"a"], longest=15) == [ARENA]
    many = b"a b " * 1000
    assert program.encode([many], longest=16) == [made("llama3").encode(many.decode()).ids]


@pytest.mark.slow
def test_more_marks_than_are_normalized_are_refused_everywhere() -> None:
    program, reference = built("qwen2"), made("qwen2")
    for before in ("", "a b", "<|end|>"):
        fits, long = (before + "e" + "\u0301" * count for count in (124, 125))
        given = [fits.encode(), long.encode()]
        assert program.encode(given) == [reference.encode(fits).ids, CAPACITY]


@pytest.mark.slow
def test_a_negative_capacity_has_no_room() -> None:
    assert built("llama3", *SANITIZED).encode([b"a"], capacity=-1) == [CAPACITY]


@pytest.mark.slow
def test_unknown_tokens_have_no_text() -> None:
    size = made("gpt2").get_vocab_size()
    assert built("gpt2").decode([size, -2]) == [INDEX, INDEX, b""]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O1", "-O2", "-Os", "-O3"])
def test_a_tokenizer_without_special_tokens_has_no_warning(level: str, tmp_path: Path) -> None:
    words = {text: number for number, text in enumerate([*map(chr, range(97, 123)), "ab"])}
    plain = Tokenizer(models.BPE(vocab=words, merges=[("a", "b")]))
    plain.normalizer = normalizers.Replace(" ", "\u2581")
    plain.decoder = decoders.Replace("\u2581", " ")
    plain.save(str(tmp_path / "tokenizer.json"))
    assert program_of(tmp_path, (*STRICT, level)).encode([b"abba"]) == [plain.encode("abba").ids]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["llama3", "qwen2", "llama2", "unigram_bytes"])
def test_ten_megabytes(kind: str) -> None:
    size = 0
    for seed in range(10, 1000):
        given = list(texts(seed, 2000))
        assert_encodes(built(kind, *STRICT, "-O2"), made(kind), given)
        size += sum(map(len, given))
        if size > 10_000_000:
            return
    assert size > 10_000_000
