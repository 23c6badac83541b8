# SPDX-License-Identifier: Apache-2.0
"""Sets of code points, as Python's `unicodedata` knows them, and tables over all code points."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.bool_]
"""[POINTS]: whether a code point is in a set."""

POINTS = sys.maxunicode + 1
CHANGING = 0x32000
"""No code point from here on has another case or normal form, or a combining class."""
_WHITE = (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000)  # fmt: skip
"""The property White_Space."""
_SHIFTS = range(5, 10)
_MOST_CLASSES = 255


@cache
def _categories() -> tuple[dict[str, int], NDArray[np.uint8]]:
    """Numbers of general categories by their names, and that of each code point."""
    names: dict[str, int] = {}
    numbers = (
        names.setdefault(unicodedata.category(chr(point)), len(names)) for point in range(POINTS)
    )
    found = np.fromiter(numbers, np.uint8, POINTS)
    return names, found


def category(name: str) -> Points | None:
    """The code points of a general category, such as `Lu`, or of a group of them, such as `L`."""
    names, numbers = _categories()
    wanted = [number for one, number in names.items() if name in (one, one[0])]
    return np.isin(numbers, wanted) if wanted else None


def white() -> Points:
    return of(_WHITE)


def of(points: Iterable[int]) -> Points:
    found = np.zeros(POINTS, np.bool_)
    found[list(points)] = True
    return found


@cache
def _folded() -> dict[str, list[int]]:
    """Code points by what they fold to, where this is another one."""
    groups: dict[str, list[int]] = {}
    for point in range(CHANGING):
        folded = chr(point).casefold()
        if folded != chr(point):
            groups.setdefault(folded, []).append(point)
    return groups


def any_case(letter: str) -> list[int]:
    """All code points that fold to the same one as an ASCII character."""
    folded = letter.casefold()
    return [ord(folded), *_folded().get(folded, ())]


@cache
def joined_folds() -> tuple[str, ...]:
    """Strings of several ASCII characters to which one code point folds, such as `ss`."""
    return tuple(text for text in _folded() if len(text) > 1 and text.isascii())


@dataclass(frozen=True, slots=True)
class Table:
    """A number for each code point: values[(blocks[point >> shift] << shift) + rest]."""

    shift: int
    blocks: NDArray[np.uint16]
    values: NDArray[np.uint8]


def table_of(values: NDArray[np.uint8]) -> Table:
    """The smallest table of [POINTS] numbers with blocks of one size."""
    found = []
    stored = values.tobytes()
    for shift in _SHIFTS:
        size = 1 << shift
        distinct: dict[bytes, int] = {}
        blocks = [
            distinct.setdefault(stored[at : at + size], len(distinct))
            for at in range(0, POINTS, size)
        ]
        joined = np.frombuffer(b"".join(distinct), np.uint8)
        found.append(Table(shift, np.array(blocks, np.uint16), joined))
    return min(found, key=lambda one: one.blocks.nbytes + one.values.nbytes)


def partition(sets: Sequence[Points]) -> tuple[NDArray[np.uint8], list[list[bool]]]:
    """Classes of code points that no set tells from each other: the class of each code point, and
    for each class which sets contain it. At most 255 classes."""
    classes = np.zeros(POINTS, np.int64)
    for one in sets:
        split = classes * 2 + one
        used = np.bincount(split) > 0
        classes = (np.cumsum(used) - 1)[split]
        if used.sum() > _MOST_CLASSES:
            raise OverflowError
    first = [int(np.argmax(classes == number)) for number in range(int(classes.max()) + 1)]
    return classes.astype(np.uint8), [[bool(one[at]) for one in sets] for at in first]
