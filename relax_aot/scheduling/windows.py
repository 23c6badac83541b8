# SPDX-License-Identifier: Apache-2.0
"""Windows of convolutions: where one lies inside its input, and how it moves along an axis.

The loop over the taps of a padded window runs over `max(first(v), low)..min(last(v), high)`,
where `v` is an output position. `interior` solves for the `v` at which it runs over all of
`low..high`, so that most output positions need no such bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from relax_aot.ir.dims import Dim, FloorDiv, Max, Min, ceildiv, dim_max, dim_min
from relax_aot.ir.loops import For, Load
from relax_aot.scheduling.contraction import Weighted, moved
from relax_aot.scheduling.nest import Nest, coefficient


@dataclass(frozen=True, slots=True)
class Interior:
    """For `start <= v < stop`, each loop of `full` runs over these bounds."""

    start: Dim
    stop: Dim
    full: tuple[tuple[str, tuple[Dim, Dim]], ...]


def interior(loop: For, nest: Nest) -> Interior | None:
    """The interior of an output loop; the whole loop where no window depends on it, None
    where it cannot be solved, or differs between iterations of another output loop."""
    others = {other.variable for other in nest.loops} - {loop.variable}
    lows, highs = [loop.start], [loop.stop]
    full: list[tuple[str, tuple[Dim, Dim]]] = []
    for window in nest.reductions:
        used = window.start.symbols | window.stop.symbols
        if loop.variable not in used:
            continue
        first = _solved(window.start, loop.variable, Max)
        last = _solved(window.stop, loop.variable, Min)
        if first is None or last is None or used & others:
            return None
        lows += first[1]
        highs += last[1]
        full.append((window.variable, (first[0], last[0])))
    if not full:
        return Interior(loop.start, loop.stop, ())
    low = dim_min(dim_max(*lows), loop.stop)
    return Interior(low, dim_max(dim_min(*highs), low), tuple(full))


def reaching(pixel: For, window: For, tap: Dim) -> tuple[Dim, Dim] | None:
    """The iterations of an output loop whose window holds `tap`, from the first to beyond the
    last: `interior` for one tap. None where that cannot be solved."""
    first = _solved(window.start, pixel.variable, Max, tap)
    last = _solved(window.stop, pixel.variable, Min, tap + 1)
    if first is None or last is None:
        return None
    return dim_max(pixel.start, *first[1]), dim_min(pixel.stop, *last[1])


def whole(window: For, nest: Nest) -> For | None:
    """An inner loop as it is where nothing of it is cut off; None where that is not known."""
    start, stop = window.start, window.stop
    for outer in nest.loops:
        if outer.variable in start.symbols | stop.symbols:
            inside = interior(outer, nest)
            ends = dict(inside.full).get(window.variable) if inside else None
            if ends is None:
                return None
            start, stop = ends
    return For(window.variable, start, stop, ())


def _solved(
    bound: Dim, name: str, kind: type[Max] | type[Min], goal: Dim | None = None
) -> tuple[Dim, list[Dim]] | None:
    """The goal, and the limits of `name` for the bound to reach it. Without a goal: the bound
    where nothing of the window is cut off."""
    if name not in bound.symbols:
        return bound, []
    atom = bound.terms[0][1][0][0] if len(bound.terms) == 1 and bound.terms[0][1] else None
    if not isinstance(atom, kind) or bound.terms[0] != (1, ((atom, 1),)):
        return None
    fixed = [arg for arg in atom.args if name not in arg.symbols]
    if goal is None:
        if not fixed:
            return None
        goal = dim_max(*fixed) if kind is Max else dim_min(*fixed)
    limits = [_limit(arg, name, goal, kind) for arg in atom.args if arg not in fixed]
    known = [limit for limit in limits if limit is not None]
    return (goal, known) if len(known) == len(limits) else None


def _limit(arg: Dim, name: str, whole: Dim, kind: type[Max] | type[Min]) -> Dim | None:
    """Max: the least `name` with arg <= whole. Min: one more than the greatest with
    arg >= whole. `arg` falls as `name` grows, as the first and last tap of a window do."""
    divisor = 1
    atoms = [atom for _, factors in arg.terms for atom, _ in factors]
    quotients = [atom for atom in atoms if isinstance(atom, FloorDiv)]
    atom = next((atom for atom in quotients if name in Dim.of(atom).symbols), None)
    if atom is not None:
        added = arg - Dim.of(atom)
        if not added.is_constant or not atom.denominator.is_constant:
            return None
        # floor(n / d) + k = floor((n + k * d) / d)
        divisor = atom.denominator.constant
        arg = atom.numerator + added * divisor
    slope = coefficient(arg, name)
    if slope is None or slope >= 0 or divisor <= 0:
        return None
    rest = arg - Dim.of(name) * slope
    if kind is Max:
        # floor(arg / divisor) <= whole where arg <= whole * divisor + divisor - 1
        return ceildiv(rest - whole * divisor - (divisor - 1), -slope)
    # floor(arg / divisor) >= whole where arg >= whole * divisor
    return (rest - whole * divisor) // -slope + 1


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of an image and the loops along it: tap k of output position i is element
    `stride * i + dilation * k - before` of `size`, elements `step` apart. `dimension`: its
    place in the index."""

    dimension: int
    loop: For | None
    reduction: For | None
    taps: int
    stride: int
    dilation: int
    before: int
    size: Dim
    step: Dim

    @property
    def positions(self) -> Dim:
        return Dim.of(1) if self.loop is None else self.loop.stop

    @property
    def variable(self) -> str:
        return "" if self.loop is None else self.loop.variable

    @property
    def tap(self) -> str:
        return "" if self.reduction is None else self.reduction.variable

    @property
    def phases(self) -> int:
        """How many of `stride` residues windows reach."""
        return min(self.stride, (self.taps - 1) * self.dilation + 1)

    @property
    def overlap(self) -> int:
        """Elements of one phase that a window reaches beyond its first one."""
        return (self.taps - 1) * self.dilation // self.stride

    @property
    def clips(self) -> tuple[bool, bool] | None:
        """Whether windows are clipped at the first and at the last element of the axis; None
        where they are clipped elsewhere."""
        if self.reduction is None:
            return False, False
        start, stop = self.reduction.start, self.reduction.stop
        begin = self.before - Dim.of(self.variable) * self.stride
        low = start == dim_max(ceildiv(begin, self.dilation), 0)
        high = stop == dim_min(ceildiv(self.size + begin, self.dilation), self.taps)
        if not (low or start == 0) or not (high or stop == self.taps):
            return None
        return low, high


LINE = Axis(-1, None, None, 1, 1, 1, 0, Dim.of(1), Dim.of(0))
"""The only line of an image without lines."""


def axis_at(load: Load, at: int, loop: For | None, reduction: For | None, taps: int) -> Axis | None:
    """The axis `at` of what is loaded; None where its index is no sum of these loops."""
    dim = load.index[at]
    names = [lp.variable for lp in (loop, reduction) if lp is not None]
    stride = coefficient(dim, loop.variable) if loop is not None else 1
    dilation = coefficient(dim, reduction.variable) if reduction is not None else 1
    if stride is None or dilation is None or min(stride, dilation) < 1:
        return None
    if not dim.symbols <= set(names):
        return None
    before = -dim.substitute(dict.fromkeys(names, 0)).constant
    shape = load.buffer.shape
    step = prod(shape[at + 1 :], start=Dim.of(1))
    return Axis(at, loop, reduction, taps, stride, dilation, before, shape[at], step)


def axis_of(load: Load, loop: For, reductions: Sequence[For], counts: Sequence[int]) -> Axis | None:
    """The axis that a loop moves a window along; None where there are several."""
    own = [at for at, dim in enumerate(load.index) if loop.variable in dim.symbols]
    if len(own) != 1:
        return None
    pairs = zip(reductions, counts, strict=True)
    inner = [pair for pair in pairs if pair[0].variable in load.index[own[0]].symbols]
    if len(inner) > 1:
        return None
    reduction, taps = inner[0] if inner else (None, 1)
    return axis_at(load, own[0], loop, reduction, taps)


def window_axes(found: Weighted) -> tuple[Axis, Axis] | None:
    """The axes of two-dimensional windows of one channel, along the last two loops over
    positions; None where windows are no such, or are clipped elsewhere than at the ends."""
    if found.channel is not None or len(found.reductions) != 2 or len(found.positions) < 2:
        return None
    loops = found.positions[-2:]
    lines, columns = (axis_of(found.x, lp, found.reductions, found.counts) for lp in loops)
    if lines is None or columns is None or None in (lines.reduction, columns.reduction):
        return None
    axes = (lines, columns)
    fits = all(axis.clips is not None and axis.before >= 0 and axis.dilation == 1 for axis in axes)
    return axes if fits and lines.reduction != columns.reduction else None


def image_of(found: Weighted, axes: Sequence[Axis]) -> Load:
    """The first element of the image that windows move over."""
    own = {axis.dimension for axis in axes}
    load = moved(found.x, {loop.variable: Dim.of(0) for loop in found.reductions})
    index = (Dim.of(0) if at in own else dim for at, dim in enumerate(load.index))
    return Load(load.buffer, tuple(index))
