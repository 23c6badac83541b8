"""Memory for contractions whose vectors are output positions (`dot_positions.py`): how many
lines and positions are done at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from relax_aot.ir.dims import Dim, ceildiv, interval, simplify
from relax_aot.ir.loops import Buffer, For
from relax_aot.ir.types import DType
from relax_aot.microkernels.dot2 import COLUMNS, EIGHT
from relax_aot.scheduling.contraction import Weighted, clipped
from relax_aot.scheduling.epilogue import Requantization, direct_store
from relax_aot.scheduling.packing import round_up
from relax_aot.scheduling.strategies.dot_channels import Form
from relax_aot.scheduling.weighted import (
    Weights,
)
from relax_aot.scheduling.windows import Axis, axis_of
from relax_aot.scheduling.writer import ONE, ZERO, Writer

MOST_BYTES = 5120
"""Of 8-bit values that wait for their lines."""
MOST_SUMS = 2048
"""Sums that are kept at once, where they become no bytes."""
MOST_POSITIONS = 256
MOST_CHANNELS = 16
"""Of which sums are kept until they are bytes."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Loops over positions as lines (one at least) of positions, and the reduction that is
    along neither. `direct`: the image is read in place."""

    outer: tuple[For, ...]
    down: Axis | None
    across: Axis
    deep: For | None
    direct: bool

    @property
    def axes(self) -> list[Axis]:
        return [axis for axis in (self.down, self.across) if axis is not None]


def grid_of(found: Weighted) -> Grid | None:
    axes = [_axis(found, loop) for loop in found.positions[-2:]]
    if not axes or axes[-1] is None:
        return None
    across, down = axes[-1], axes[0] if len(axes) > 1 else None
    along = [axis.reduction for axis in (down, across) if axis is not None]
    deep = [loop for loop in found.reductions if loop not in along]
    if len(deep) > 1 or any(clipped(loop) for loop in deep):
        return None
    outer = found.positions[: -1 if down is None else -2]
    direct = across.reduction is None and across.stride == 1 and across.step == 1
    if direct and down is not None:
        direct = down.reduction is None and down.step * down.stride == across.positions
    return Grid(outer, down, across, deep[0] if deep else None, direct)


def _axis(found: Weighted, loop: For) -> Axis | None:
    axis = axis_of(found.x, loop, found.reductions, found.counts)
    known = axis is not None and axis.clips in ((False, False), (True, True)) and axis.step != 0
    return axis if known else None


@dataclass
class Positions:
    """`wide` positions are done at once, of `lines` lines or of one, `pitch` apart; `room` for
    all of them, and for sums of `high` channels that become bytes; `widest` is a line."""

    found: Weighted
    w: Writer
    grid: Grid
    form: Form
    pack: Weights
    weights: Buffer
    bias: Buffer
    result: tuple[Requantization, Weighted] | None
    pitch: Dim = ZERO
    wide: int = 0
    widest: int = 0
    lines: int = 1
    room: Dim = ZERO
    high: int = 1
    sums: Buffer = field(init=False)
    offsets: Buffer = field(init=False)
    panel: Buffer = field(init=False)
    strip: Buffer = field(init=False)

    @property
    def tiled(self) -> bool:
        return self.found.channel is not None


# Memory


def allocate(p: Positions) -> None:
    """How many lines and positions are done at once, and the memory that they take."""
    found, w, grid = p.found, p.w, p.grid
    across = grid.across.positions
    p.pitch = across if grid.direct else across + grid.across.overlap
    p.wide = _most(p)
    p.widest = max(interval(across, w.bounds.open)[1], 1)
    p.lines = _line_count(p)
    p.room = Dim.of(round_up(min(p.wide, p.widest), COLUMNS))
    if p.lines > 1:
        spare = EIGHT if p.result is None or not p.tiled else 0
        several = (p.lines - 1) * p.pitch + across + spare
        p.room = simplify(ceildiv(several, COLUMNS) * COLUMNS, w.bounds)
    p.high = min(found.channels, MOST_CHANNELS)
    if not p.tiled:
        shape = (ONE, p.room)
    elif p.result is None:
        shape = (Dim.of(found.channels), p.room)
    else:
        shape = (Dim.of(p.high), Dim.of(COLUMNS))
    p.sums = w.buffer("sums", DType.I32, *shape)
    p.offsets = w.buffer("offsets", DType.I32, found.depth)
    if p.tiled:
        group = p.form.group
        steps = round_up(found.depth, group) // group
        p.panel = w.buffer("panel", p.form.dtype, steps, COLUMNS, group)
    if not grid.direct:
        size = prod(strip_shape(p, p.lines), start=ONE) + COLUMNS
        p.strip = w.buffer("strip", found.x.dtype, size)


def _most(p: Positions) -> int:
    """Positions that are done at once."""
    direct = p.result is not None and p.grid.direct and direct_store(p.result[1])
    if not p.tiled or direct:
        return MOST_POSITIONS
    kept = MOST_SUMS if p.result is None else MOST_BYTES
    most = min(kept // p.found.channels // COLUMNS * COLUMNS, MOST_POSITIONS)
    return max(most, COLUMNS)


def _line_count(p: Positions) -> int:
    """As few lines at once as need hardly more tiles than the best number does."""
    grid, bounds = p.grid, p.w.bounds
    longest = max(interval(p.pitch, bounds)[1], 1)
    widest = max(interval(grid.across.positions, bounds)[1], 1)
    tallest = 1 if grid.down is None else max(interval(grid.down.positions, bounds)[1], 1)
    most = max(1, min(tallest, p.wide // longest))
    if grid.direct:
        return most
    work = [_work(p, lines, tallest, longest, widest) for lines in range(1, most + 1)]
    return next(at for at, one in enumerate(work, 1) if 20 * one <= 21 * min(work))


def _work(p: Positions, lines: int, tallest: int, longest: int, widest: int) -> int:
    """The cost of an image, about in instructions."""
    tiles = -(-((lines - 1) * longest + widest) // COLUMNS)
    tiles = tiles * p.found.depth * (5 * p.found.channels + 8) // 2
    *planes, high, _ = strip_shape(p, lines)
    strip = prod(planes, start=high).constant * (20 + longest // 4)
    return -(-tallest // lines) * (tiles + strip)


def strip_shape(p: Positions, high: int) -> tuple[Dim, ...]:
    """Channels, phases of rows and of columns, lines, positions; for `high` lines."""
    found, grid = p.found, p.grid
    deep = 1 if grid.deep is None else found.counts[found.reductions.index(grid.deep)]
    rows, lines = 1, 1
    if grid.down is not None:
        rows, lines = grid.down.phases, high + grid.down.overlap
    return (*map(Dim.of, (deep, rows, grid.across.phases, lines)), p.pitch)
