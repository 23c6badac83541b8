# SPDX-License-Identifier: Apache-2.0
"""Normalization Form C as tables, from Python's `unicodedata`."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np

from relax_aot.frontends.llm.tokenizer.points import CHANGING, POINTS, table_of
from relax_aot.frontends.llm.tokenizer.tables import Nfc

DECOMPOSES, JOINS = 1, 2
_HANGUL_PARTS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))


def _decomposing() -> dict[int, list[int]]:
    """Code points but Hangul with a canonical decomposition, and its first step."""
    forms = ((point, unicodedata.decomposition(chr(point))) for point in range(CHANGING))
    return {p: [int(part, 16) for part in f.split()] for p, f in forms if f and f[0] != "<"}


@cache
def _active() -> frozenset[str]:
    """Code points that the form replaces, joins with others, or makes of others."""
    steps = _decomposing()
    whole = {part for point in steps for part in unicodedata.normalize("NFD", chr(point))}
    hangul = map(chr, (*range(0x1100, 0x1200), *range(0xAC00, 0xD7A4)))
    marks = (chr(point) for point in range(CHANGING) if unicodedata.combining(chr(point)))
    return frozenset({*map(chr, steps), *whole, *hangul, *marks})


def is_inert(text: str) -> bool:
    """Whether the form of every text has this part where the text has it."""
    return not _active() & {*text}


@cache
def nfc() -> Nfc:
    steps = _decomposing()
    pairs = {
        (parts[0], parts[1]): point
        for point, parts in steps.items()
        if len(parts) == 2 and unicodedata.normalize("NFC", chr(point)) == chr(point)
    }
    joins = {second for _, second in pairs} | set(_HANGUL_PARTS)
    decomposed = {p: [ord(part) for part in unicodedata.normalize("NFD", chr(p))] for p in steps}
    order = np.zeros(POINTS, np.uint8)
    order[:CHANGING] = [unicodedata.combining(chr(point)) for point in range(CHANGING)]
    flags = np.where(order > 0, JOINS, 0).astype(np.uint8)
    flags[list(decomposed)] |= DECOMPOSES
    flags[list(joins)] |= JOINS
    flags[[p for p, parts in decomposed.items() if flags[parts[0]] & JOINS]] |= JOINS
    both = order.astype(np.int64) * 4 + flags
    used = np.bincount(both) > 0
    kind_of = (np.cumsum(used) - 1)[both]
    kinds = np.stack(np.divmod(np.flatnonzero(used), 4), axis=1)
    lengths = [len(parts) for parts in decomposed.values()]
    return Nfc(
        table_of(kind_of.astype(np.uint8)),
        kinds.astype(np.uint8),
        np.array(list(decomposed), np.uint32),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint16),
        np.array([part for parts in decomposed.values() for part in parts], np.uint32),
        np.array([(*pair, point) for pair, point in sorted(pairs.items())], np.uint32),
    )
