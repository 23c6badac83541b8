# SPDX-License-Identifier: Apache-2.0
"""Components of the package `tokenizers` -> tables of a tokenizer in C.

Those that checkpoints of language models use are compiled; the tokens are those of the package, for
every text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.llm.tokenizer.components import MARK, Division, divide, frame, normalize
from relax_aot.frontends.llm.tokenizer.components import spaces as spaces_of
from relax_aot.frontends.llm.tokenizer.normal_form import is_inert, nfc
from relax_aot.frontends.llm.tokenizer.part import Part, part, shown
from relax_aot.frontends.llm.tokenizer.tables import Added, Tokenizer, listed
from relax_aot.frontends.llm.tokenizer.vocabulary import MOST_TOKENS, Vocabulary

MOST_ADDED = 20_000
_BYTE = re.compile(rb"<0x[0-9A-Fa-f]{2}>")
"""A token that the decoder ByteFallback reads as a byte, and `raot/decode_text.h` always."""


def compiled(root: Part, vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer with these components and this model."""
    division = Division()
    normalize(root, division)
    divide(root, division)
    byte_level = division.byte_level
    has_bytes = bool(vocabulary.bytes)
    if byte_level and (vocabulary.merges is None or has_bytes):
        raise UnsupportedError(
            f"{root.where}: ByteLevel is supported with a BPE without byte_fallback"
        )
    if not division.patterns and _ends_at_marks(vocabulary):
        division.divide(root.where, f"{MARK}*[^{MARK}]+|{MARK}+")
    added = _added(root, vocabulary)
    texts = _texts(vocabulary, added, byte_level=byte_level)
    before, behind = frame(root)
    for token in (*before, *behind):
        if token >= len(texts):
            raise ModelError(f"{root.where}: the post-processor adds {token}, which is no token")
    classes, patterns = division.automata()
    model = "UNIGRAM" if vocabulary.merges is None else "BPE_BYTES" if byte_level else "BPE_POINTS"
    return Tokenizer(
        root.where,
        model,
        listed(texts, _listed(vocabulary, texts, model)),
        added,
        frozenset(one.token for one in added if one.special),
        _bytes_of(vocabulary) if byte_level else vocabulary.bytes,
        spaces_of(root, byte_level=byte_level, has_bytes=any(map(_BYTE.fullmatch, texts))),
        vocabulary.merges,
        vocabulary.scores,
        vocabulary.unknown,
        vocabulary.fuses,
        vocabulary.whole_words,
        classes,
        patterns,
        nfc() if division.nfc else None,
        tuple((ord(char), text.encode()) for char, text in division.replaced.items()),
        division.prefix.encode(),
        division.prefix_rule,
        before,
        behind,
    )


def _is_kept(root: Part, text: str) -> bool:
    """Whether the normalizer finds and leaves a name as it is in every text."""
    return all(step.type == "NFC" and is_inert(text) for step in root.steps("normalizer"))


def _ends_at_marks(vocabulary: Vocabulary) -> bool:
    """Whether no merge joins a mark with what is before it: words can be encoded by themselves."""
    merges = vocabulary.merges
    if merges is None or vocabulary.whole_words or MARK not in vocabulary.tokens:
        return False
    texts = {token: text for text, token in vocabulary.tokens.items()}
    return all(
        texts[left].endswith(MARK) or not texts[right].startswith(MARK)
        for left, right, _, _ in merges.rows.tolist()
    )


def _added(root: Part, vocabulary: Vocabulary) -> tuple[Added, ...]:
    """The added tokens, in the order of their names."""
    found: dict[str, Added] = {}
    late: set[str] = set()
    taken = {token: text for text, token in vocabulary.tokens.items()}
    if len(root.values("added_tokens")) > MOST_ADDED:
        raise ModelError(f"{root.where}: more than {MOST_ADDED} added tokens")
    for number, value in enumerate(root.values("added_tokens")):
        one = part(value, f"{root.where}, added_tokens[{number}]")
        text, token = one.text("content"), one.number("id", 0, MOST_TOKENS - 1)
        one.only("single_word", False)
        if one.flag("normalized") and not _is_kept(root, text):
            raise UnsupportedError(
                f"{one.where}: {shown(text)}: normalized=True with a normalizer that may change it"
                " is not supported"
            )
        if not text or "\ufffd" in text or text in found:
            raise ModelError(f"{one.where}: {shown(text)!r} is empty, there twice, or has U+FFFD")
        if taken.setdefault(token, text) != text or vocabulary.tokens.get(text, token) != token:
            raise ModelError(f"{one.where}: {shown(text)} has the number {token} of another token")
        strips = one.flag("lstrip"), one.flag("rstrip")
        found[text] = Added(text.encode(), token, one.flag("special"), *strips)
        late |= {text} if one.flag("normalized") else set()
    _require_apart(root, found.keys() - late, late)
    _require_solid(root, found.values())
    return tuple(sorted(found.values(), key=lambda one: one.text))


def _require_apart(root: Part, early: set[str], late: set[str]) -> None:
    """Tokens with normalized=False are found before the others. All are found together here, which
    is the same if none of them begins in another one."""
    starts = {text[:end] for text in early for end in range(1, len(text) + 1)}
    for text in late:
        for start in range(len(text)):
            for end in range(start + 1, len(text) + 1):
                if text[start:end] not in starts:
                    break
                if text[start:end] in early or (end == len(text) and start > 0):
                    raise UnsupportedError(
                        f"{root.where}: the added tokens {shown(text)} and {shown(text[start:end])}"
                        " overlap, and only one of them is normalized, which is not supported"
                    )


def _require_solid(root: Part, added: Collection[Added]) -> None:
    """Spaces that belong to a token are no part of another one: the package fails where a name
    begins within them, and looks for normalized names behind the others."""
    strips = any(one.takes_before or one.takes_behind for one in added)
    names = (one.text.decode() for one in added)
    loose = next((name for name in names if name != name.strip()), None)
    if strips and loose is not None:
        raise UnsupportedError(
            f"{root.where}: the added token {shown(repr(loose))} has spaces at an end, and others"
            " have lstrip or rstrip, which is not supported together"
        )


@cache
def _byte_of() -> Mapping[str, int]:
    """The characters that ByteLevel writes for bytes: printable ones of Latin-1 are themselves, the
    others follow from U+0100 on."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(256 + i): b for i, b in enumerate(rest)}


def _plain(text: str) -> bytes | None:
    """The bytes of a token of ByteLevel; None where its characters are not those of bytes."""
    table = _byte_of()
    found = [table.get(char, -1) for char in text]
    return None if -1 in found else bytes(found)


def _texts(
    vocabulary: Vocabulary, added: tuple[Added, ...], *, byte_level: bool
) -> tuple[bytes, ...]:
    """The bytes of every token; empty where a number has none."""
    names = {token: text for text, token in vocabulary.tokens.items()}
    names |= {one.token: one.text.decode() for one in added}
    texts = [b""] * (max(names, default=-1) + 1)
    for token, text in names.items():
        plain = _plain(text) if byte_level else None
        texts[token] = text.encode() if plain is None else plain
    return tuple(texts)


def _listed(vocabulary: Vocabulary, texts: tuple[bytes, ...], model: str) -> list[int]:
    """The tokens that are looked up by their bytes."""
    tokens = vocabulary.tokens.items()
    if model == "BPE_BYTES":
        kept = [t for text, t in tokens if vocabulary.whole_words and _plain(text) is not None]
    else:
        every = vocabulary.whole_words or model == "UNIGRAM"
        kept = [token for text, token in tokens if every or len(text) == 1]
    return [token for token in kept if texts[token]]


def _bytes_of(vocabulary: Vocabulary) -> tuple[int, ...]:
    """The token of each byte."""
    names = {byte: char for char, byte in _byte_of().items()}
    return tuple(vocabulary.tokens.get(names[byte], -1) for byte in range(256))
