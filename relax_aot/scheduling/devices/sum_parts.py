# SPDX-License-Identifier: Apache-2.0
"""The parts of a sum, of which one is copied to one half of shared memory while the part before it
is multiplied in the other half (double buffering).

A loop takes two parts at a time, one for each half. The fewer conditions it has, the fewer
instructions it takes, and addresses that two parts share are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relax_aot.ir.dims import ZERO, Dim, ceildiv, simplify
from relax_aot.ir.loops import Expr
from relax_aot.scheduling.devices.operands import below
from relax_aot.scheduling.writer import Writer

UNROLLED = 8
"""Parts that compilers may unroll, which makes no loop of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """`half`: of shared memory, in which the part is. `another`: whether one follows. `second`:
    whether two may follow. `behind`: it is the first one behind a loop."""

    number: Dim
    half: Dim
    another: Expr | bool
    second: bool = False
    behind: bool = False


def parts_of(w: Writer, parts: Dim, behind: int) -> Iterator[Part]:
    """Every part in its order. Two parts are no loop, so that compilers know all their addresses.
    `behind`: of a known number of parts, 2 and one more of an odd number are behind the loop, or
    this one alone for 1. Nothing is tested in the loop then. Others have no registers for it."""
    known = parts.constant if parts.is_constant else 0
    tail = known if known <= 2 else min(behind, 1) * (known % 2) + behind // 2 * 2
    even = simplify(parts % 2, w.bounds) == 0
    pairs = simplify(ceildiv(parts - tail, 2), w.bounds)
    if pairs != 0:
        with w.range("pair", pairs) as pair, w.range("half", 2) as half:
            part = pair * 2 + half
            with w.when(*() if tail or even else (below(part, parts),)):
                later = below(pair + half, pairs) if even else below(part + 1, parts)
                yield Part(part, half, tail > 0 or later, second=True)
    for left in reversed(range(tail)):
        number, first = known - 1 - left, left == tail - 1 and pairs != 0
        yield Part(Dim.of(number), Dim.of(number % 2), left > 0, left > 1, first)


def steady_parts(w: Writer, parts: Dim) -> Iterator[Part]:
    """As parts_of, of a known number of parts. Where it is odd, the first part is before the loop,
    which tests nothing but whether a part follows the second one."""
    known = parts.constant
    if known % 2 == 0 or known <= UNROLLED:
        yield from parts_of(w, parts, behind=0)
        return
    yield Part(ZERO, ZERO, another=True)
    pairs = parts // 2
    with w.range("pair", pairs) as pair, w.range("half", 2) as half:
        yield Part(pair * 2 + half + 1, 1 - half, below(pair + half, pairs))
