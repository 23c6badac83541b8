# SPDX-License-Identifier: Apache-2.0
"""What the C of a tokenizer needs, as arrays. `raot/tokenizer.h` describes their use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends.llm.tokenizer.points import Table

MODELS = ("BPE_BYTES", "BPE_POINTS", "UNIGRAM")
SPACES = ("PLAIN", "MARKED", "STRIP_TEXT", "STRIP_TOKEN")
PREFIXES = ("NEVER", "ALWAYS", "ONCE", "FIRST")


@dataclass(frozen=True, slots=True)
class Words:
    """Byte strings by number, and the numbers of those that texts contain, in the order of their
    bytes."""

    texts: tuple[bytes, ...]
    listed: tuple[int, ...]

    @property
    def first(self) -> NDArray[np.uint32]:
        """[257]: how many listed words are below each first byte."""
        counts = np.bincount([self.texts[n][0] for n in self.listed] or [0], minlength=256)
        counts = counts if self.listed else counts * 0
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)


def listed(texts: Sequence[bytes], numbers: Sequence[int]) -> Words:
    return Words(tuple(texts), tuple(sorted(numbers, key=lambda number: texts[number])))


@dataclass(frozen=True, slots=True)
class Merges:
    """Rows of left, right, result and rank, by left and right."""

    rows: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Nfc:
    """Normalization Form C. `kinds`: rows of class and flags."""

    kind_of: Table
    kinds: NDArray[np.uint8]
    decomposed: NDArray[np.uint32]
    starts: NDArray[np.uint16]
    parts: NDArray[np.uint32]
    pairs: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Added:
    """A token that is found in texts by its name."""

    text: bytes
    token: int
    special: bool
    takes_before: bool = False
    takes_behind: bool = False
    """Whether the spaces before and behind its name are a part of it."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer. `source` names the file."""

    source: str
    model: str
    words: Words
    added: tuple[Added, ...]
    special: frozenset[int]
    byte_tokens: tuple[int, ...]
    """The token of each byte, or -1; empty without such tokens."""
    spaces: str
    merges: Merges | None = None
    scores: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    unknown: int = -1
    fuses: bool = False
    whole_words: bool = False
    classes: Table | None = None
    patterns: tuple[NDArray[np.uint16], ...] = ()
    nfc: Nfc | None = None
    replacements: tuple[tuple[int, bytes], ...] = ()
    prefix: bytes = b""
    prefix_rule: str = "NEVER"
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.words.texts)

    @property
    def longest(self) -> int:
        """The most bytes of a token."""
        return max(map(len, self.words.texts), default=0)
