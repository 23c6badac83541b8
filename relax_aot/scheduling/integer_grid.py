"""Places of integer convolutions as lines of places, and how windows move along them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import For
from relax_aot.scheduling.integer_match import Contraction
from relax_aot.scheduling.integer_parts import clipped_along
from relax_aot.scheduling.nest import coefficient

ZERO, ONE = Dim.of(0), Dim.of(1)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of the image and a loop along it: place i and tap k lie at
    `stride * i + dilation * k - before` of `size`, elements `step` apart."""

    loop: For
    level: int | None
    taps: int
    stride: int
    dilation: int
    before: int
    size: Dim
    step: Dim

    @property
    def phases(self) -> int:
        """How many of `stride` windows reach."""
        return min(self.stride, (self.taps - 1) * self.dilation + 1)

    def frame(self, places: Dim) -> Dim:
        """Elements of one phase that so many places cover."""
        return places + (self.taps - 1) * self.dilation // self.stride


def axis_of(what: Contraction, loop: For) -> Axis | None:
    """None where the loop moves windows along several axes, or they are cut off elsewhere than
    at the ends of one."""
    load = what.x.load
    own = [at for at, dim in enumerate(load.index) if loop.variable in dim.symbols]
    if len(own) != 1:
        return None
    dim = load.index[own[0]]
    levels = [n for n, level in enumerate(what.levels) if level.variable in dim.symbols]
    step = coefficient(dim, loop.variable)
    if len(levels) > 1 or step is None or step < 1:
        return None
    taps, dilation, rest = 1, 1, dim.substitute({loop.variable: ZERO})
    if levels:
        level = what.levels[levels[0]]
        found = coefficient(dim, level.variable)
        if found is None or found < 1 or not clipped_along(what, levels[0], loop, own[0]):
            return None
        taps, dilation = what.counts[levels[0]], found
        rest = rest.substitute({level.variable: ZERO})
    if not rest.is_constant:
        return None
    shape = load.buffer.shape
    apart = prod(shape[own[0] + 1 :], start=ONE)
    at = levels[0] if levels else None
    return Axis(loop, at, taps, step, dilation, -rest.constant, shape[own[0]], apart)


@dataclass(frozen=True, slots=True)
class Grid:
    """Loops over places as lines (one at least) of places, and the level that is neither."""

    outer: tuple[For, ...]
    down: Axis | None
    across: Axis
    deep: int | None
    direct: bool
    """Whether the image is read where it is: places lie side by side, lines one after another."""


def grid_of(what: Contraction) -> Grid | None:
    if not what.places:
        return None
    across = axis_of(what, what.places[-1])
    down = axis_of(what, what.places[-2]) if len(what.places) > 1 else None
    if across is None:
        return None
    if down is not None and down.step * down.stride == 0:
        down = None
    taken = {axis.level for axis in (across, down) if axis is not None}
    deep = [n for n in range(len(what.levels)) if n not in taken]
    cut = [n for n in deep if what.levels[n].start.symbols | what.levels[n].stop.symbols]
    if len(deep) > 1 or cut:
        return None
    outer = what.places[: -1 if down is None else -2]
    direct = across.level is None and across.stride == 1 and across.step == 1
    if direct and down is not None:
        direct = down.level is None and down.step * down.stride == across.loop.stop
    return Grid(tuple(outer), down, across, deep[0] if deep else None, direct)
