# SPDX-License-Identifier: Apache-2.0
"""The parts of a sum, of which one is copied to one half of shared memory while the part before it
is multiplied in the other half (double buffering).

A loop takes two parts at a time, one for each half, or twice as many. The fewer conditions it has,
the fewer instructions it takes, and addresses that two parts share are computed once. A factor that
is decoded may be in shared memory in pairs of parts: a thread decodes more at once then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from relax_aot.ir.dims import ONE, ZERO, Dim, ceildiv, simplify
from relax_aot.ir.loops import Expr
from relax_aot.scheduling.contraction import stride
from relax_aot.scheduling.devices.copies import Side
from relax_aot.scheduling.devices.operands import below, extent
from relax_aot.scheduling.writer import Writer

MOST_COPIES, MOST_STEADY = 4, 12
"""Vectors that a thread copies without most of its registers, and short ones without spills."""
UNROLLED = 8
"""Parts that compilers may unroll, which makes no loop of them."""
FEW_PAIRS = 5
"""Pairs of parts of which a loop would have one iteration."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What a tile of few columns says of steady sides, in place of the rules for others: the
    `parts` of a round, and what both sides have (Side.few_lines, Side.kept)."""

    parts: int
    few_lines: bool
    kept: bool


@dataclass(frozen=True, slots=True)
class PairOfParts:
    """`half`: of shared memory, in which the pair is. `begins`: the conditions for a part to be its
    first one. `another` and `second`: whether one and two pairs follow."""

    number: Dim
    half: Dim
    begins: tuple[Expr, ...]
    another: bool
    second: bool


@dataclass(frozen=True, slots=True)
class Part:
    """`half`: of shared memory, in which the part is. `another`: whether one follows. `second`:
    whether two may follow. `behind`: it is the first one behind a loop. `pair`: of which it is the
    first part, or may be."""

    number: Dim
    half: Dim
    another: Expr | bool
    second: bool = False
    behind: bool = False
    pair: PairOfParts | None = None
    place: Dim = ZERO
    """The half of shared memory of its pair."""


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


def round_of(sides: Sequence[Side]) -> int:
    """Parts in a round of the loop. More parts share the instructions for tests and addresses, most
    of which lines of the shortest vectors need; of known sums, numbers are in registers that more
    parts need."""
    short = all(side.rows and side.vector == 2 for side in sides)
    return 4 if short and not extent(sides[0].product.steps).is_constant else 2


def steady_sides(
    sides: Sequence[Side], copies: int, rounds: Rounds | None = None
) -> tuple[Side, Side]:
    """The sides, of which one keeps no addresses from one half to the other where registers do not
    hold them: the left one where those of the right one differ from step to step, the right one
    where vectors are short and many in rounds of two parts, or where a thread copies more than a
    few, and the last part is no whole one, steps are those of several loops (windows without
    padding), or they are neighbors in this factor alone. None keeps any where steps are
    neighbors in both, of no known number, and lines of a known one: their ends take registers,
    and a thread has several vectors of a line then. Few neighbors copy vectors of 8 bytes of a
    line, or shorter ones of the left factor where the lines of the other one are neighbors: a
    thread has more of them in one line, which takes fewer addresses. Of bytes, the right one
    keeps none. `copies`: vectors of both factors that a thread copies. `rounds`: what a tile
    says."""
    left, right = sides
    steps = left.product.steps
    short, many = min(left.vector, right.vector) < left.width, copies >= MOST_STEADY
    step = stride(right.load, steps[-1].variable)
    total = extent(steps)
    known = total.is_constant
    ends = known and total.constant > UNROLLED * left.steps and total.constant % left.steps != 0
    several = sum(loop.extent != 1 for loop in steps) > 1
    far = ends or several or (right.rows and not left.rows)
    crowded = copies > MOST_COPIES and not short and far
    least = left.rows and not right.rows and left.vector <= 4
    fixed = any(extent(side.loops).is_constant for side in sides) and not known
    none = fixed and left.rows and right.rows and copies > MOST_COPIES and round_of(sides) == 2
    left, right = (replace(side, few_lines=side.few_lines or none) for side in sides)
    left, right = (
        replace(side, steady=True, sector=side.sector // 2)
        if side.rows and (side.vector == 4 or (least and side is left))
        else replace(side, steady=True)
        for side in (left, right)
    )
    kept = step is not None and step.is_constant and not none
    crowded = crowded or none or (short and many and round_of(sides) == 2)
    kept_right = left.kind.is_half and not crowded
    if rounds is not None:
        few, kept, kept_right = rounds.few_lines, rounds.kept, rounds.kept
        left, right = (replace(side, few_lines=few) for side in (left, right))
    return replace(left, kept=kept), replace(right, kept=kept_right)


def steady_parts(w: Writer, parts: Dim, each: int) -> Iterator[Part]:
    """As parts_of, from half `first_half` on, `each` in a round of the loop, which tests nothing
    but whether another round follows. Parts that are left over are before it."""
    known = parts.constant if parts.is_constant else None
    if known is not None and known <= UNROLLED:
        yield from parts_of(w, parts, behind=0)
        return
    before, rounds = w.short("before", parts % each), parts // each
    if each == 2 and before != 0:
        with w.when(*() if known else (below(ZERO, before),)):
            yield Part(ZERO, ONE, known is not None or below(ONE, parts))
    elif before != 0:
        with w.range("part", before) as part:
            yield Part(part, (before - part) % 2, below(part + 1, parts))
    with w.range("round", rounds) as at:
        for n in range(each):
            another = n + 1 < each or below(at + 1, rounds)
            yield Part(at * each + before + n, Dim.of(n % 2), another)


def first_half(w: Writer, parts: Dim, each: int) -> Dim:
    """The half of shared memory in which the first part is."""
    if parts.is_constant and parts.constant <= UNROLLED:
        return ZERO
    return w.short("first", parts % each % 2)


def paired_parts(w: Writer, parts: int) -> Iterator[Part]:
    """As parts_of, of an even number of parts. A loop takes two pairs at a time, and nothing is
    tested in it: the last two pairs are behind it, and the first one of an odd number before it.
    """
    pairs = parts // 2
    if pairs <= FEW_PAIRS:
        yield from _known_pairs(range(parts), parts)
        return
    head = pairs % 2
    yield from _known_pairs(range(2 * head), parts)
    with w.range("turn", (pairs - 2) // 2) as turn, w.range("part", 4) as part:
        number, begins = turn * 2 + part // 2 + head, (below(part % 2, ONE),)
        place = 1 - part // 2 if head else part // 2
        pair = PairOfParts(number, place, begins, another=True, second=True)
        own = turn * 4 + part + 2 * head
        yield Part(own, part % 2, another=True, second=True, pair=pair, place=place)
    yield from _known_pairs(range(parts - 4, parts), parts, behind=True)


def _known_pairs(numbers: range, parts: int, *, behind: bool = False) -> Iterator[Part]:
    for number in numbers:
        left, place = parts - 1 - number, Dim.of(number // 2 % 2)
        pair = PairOfParts(Dim.of(number // 2), place, (), left > 1, left > 3)
        yield Part(
            Dim.of(number), Dim.of(number % 2), left > 0, left > 1,
            behind and number == numbers.start, None if number % 2 else pair, place,
        )  # fmt: skip
