# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions of any window for Arm's DSP extension, four positions of a line at a time.

Some lines of a channel at a time are gathered as 16-bit integers (`depthwise_windows.h`), of which
two adjacent ones are multiplied by two weights. Lines run along the axis on which a position takes
fewer cycles; those of one residue by a dilation are adjacent to each other. Works for
channels-first and channels-last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import gcd

from relax_aot.ir.dims import ONE, ZERO, Dim, ceildiv
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, Load, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Weighted, moved, stride
from relax_aot.scheduling.epilogue import by_channel, direct_store
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Packed, round_up
from relax_aot.scheduling.strategies._results import Table
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, LONG_WINDOWS
from relax_aot.scheduling.strategies.dsp_depthwise import depthwise_pairs
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Weights
from relax_aot.scheduling.windows import LINE, Axis, axis_of, image_of
from relax_aot.scheduling.writer import Writer

FILTERS = 4
"""Of a channel, which are computed one by one."""
POSITIONS = 128
"""Of a line that are computed at once."""
GATHERED, SUMS = 4096, 4096
"""Bytes of lines and of sums that are kept at once, if one line of results takes no more."""
STEP, TURN, TILE, GATHER = 8.0, 6.0, 12.0, 2.5
"""Cycles, about: of a pair of weights at four positions, of a line of their windows, of the windows
themselves, and of gathering an element."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How windows lie: `along` is the axis of adjacent elements. Positions of each of `phases`
    residues are computed separately; elements that are a dilation apart are adjacent there, and
    windows move by `move` of them, which is one or a whole number of pairs."""

    lines: Axis
    along: Axis

    @property
    def phases(self) -> int:
        return self._parity * self.along.dilation // gcd(self.along.stride, self.along.dilation)

    @property
    def move(self) -> int:
        return self._parity * self._stride

    @property
    def _stride(self) -> int:
        return self.along.stride // gcd(self.along.stride, self.along.dilation)

    @property
    def _parity(self) -> int:
        """Two where every second window begins with the second element of a pair."""
        return 2 if self._stride > 1 and self._stride % 2 else 1

    @property
    def pairs(self) -> int:
        """Pairs of weights in a line of a window, one more where an odd position shifts them."""
        return (self.along.taps + (2 if self.move == 1 else 1)) // 2

    @property
    def reached(self) -> int:
        """Lines of the image that a line of results reads."""
        return (self.lines.taps - 1) * self.lines.dilation + 1

    def length(self, positions: Dim) -> Dim:
        """Elements of a line that so many positions read."""
        return (positions - 1) * self.move + self.along.taps

    def pitch(self, positions: Dim) -> Dim:
        """Elements from line to line: tiles of four positions read beyond the last one."""
        whole = ceildiv(positions, 4) * 4
        if self.move == 1:
            return whole + 2 * self.pairs - 2
        return (whole - 1) * self.move + 2 * self.pairs


def filters(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """A few filters for each of several channels, each by itself: gathering windows for two of them
    would take longer."""
    if found.channel is None or found.channels > FILTERS or not found.shared:
        return None
    alone = replace(found, shared=(*found.shared, found.channel), channel=None, collapsed=None)
    return depthwise_pairs(alone, w, context) or depthwise_windows(alone, w, context)


def depthwise_windows(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Windows of one channel each."""
    if context.target.compact or context.lean or found.channel is not None:
        return None
    if not found.fits_bytes or not found.known_by_channel(found.start, context.constants):
        return None
    axes = _axes(found)
    if axes is None:
        return None
    forms = [_Form(*pair) for pair in (axes, axes[::-1]) if pair[1] is not LINE]
    best = min(forms, key=lambda form: _cost(form, w))
    return partial(_emit, found, w, best, context)


def _axes(found: Weighted) -> tuple[Axis, Axis] | None:
    """The axes along the last two loops over positions, or along the only one; None where windows
    move in another way, or are clipped elsewhere than at the ends."""
    if not found.positions or not found.reductions:
        return None
    moving = found.positions[-2:]
    axes = [axis_of(found.x, loop, found.reductions, found.counts) for loop in moving]
    known = [axis for axis in axes if axis is not None and axis.clips is not None]
    if len(known) < len(axes) or any(axis.before < 0 for axis in known):
        return None
    used = [axis.reduction for axis in known if axis.reduction is not None]
    if len(used) != len(found.reductions) or len(set(used)) < len(used):
        return None
    return (LINE, known[0]) if len(known) == 1 else (known[0], known[1])


def _cost(form: _Form, w: Writer) -> float:
    """Cycles of a channel."""
    rows, wide = (greatest(axis.positions, w.bounds) for axis in (form.lines, form.along))
    count = -(-wide // form.phases)
    tile = TILE + form.lines.taps * (TURN + form.pairs * STEP)
    tiles = rows * form.phases * -(-count // 4) * tile
    elements = (rows * form.lines.stride + form.reached) * (wide * form.along.stride)
    return tiles + elements * (GATHER if form.along.step == 1 else 2 * GATHER)


def _emit(found: Weighted, w: Writer, form: _Form, context: Context) -> None:
    lines, along = form.lines, form.along
    one, rest = by_channel(found, context.constants) or (None, found)
    steps = _steps(rest, form) if one is not None else None
    order = [found.reductions.index(axis.reduction) for axis in (lines, along) if axis.reduction]
    pack = Weights(found, order, *(one.loads if one is not None and steps else ()))
    weights = pack.buffer(w, "windows", DType.I8, (*pack.lead, lines.taps, along.taps))
    shape = [dim.constant for dim in weights.shape]
    w.constant(Packed(weights, lambda data: pack.values(data).reshape(shape)))
    bias = pack.packed_starts(w, 0)
    table = Table(w, pack, one, context.calls) if one is not None and steps else None
    with w.nest([*found.shared, *found.positions[: -1 if lines is LINE else -2]]):
        height, width, phases = lines.taps, along.taps, 2 if form.move == 1 else 1
        wide = w.buffer("window", DType.I16, height, form.pairs, phases, 2)
        w.micro(
            f"raot_widen_window_{phases}", to=wide, weights=pack.first(weights), height=height,
            width=width, count=form.pairs,
        )  # fmt: skip
        channel = _Channel(found, w, form, wide, pack.first(bias))
        with channel.tiles() as (first, sums, extents):
            if table is None or steps is None:
                channel.each(first, sums, extents)
                return
            (store, far, near), at = steps, dict(zip(_names(form), first, strict=True))
            apart = w.short("apart", ceildiv(extents[1], 4) * 4)
            moves = (far, near * form.phases)
            table.requantize(w, moved(store, at), sums, None, extents, moves, apart)


def _names(form: _Form) -> tuple[str, str]:
    return form.lines.variable, form.along.variable


def _steps(rest: Weighted, form: _Form) -> tuple[Store, Dim, Dim] | None:
    """The store of bytes, and how far it moves from line to line and along a line; None where
    something else is made of sums."""
    store = direct_store(rest)
    if store is None:
        return None
    far, near = (ONE if not name else stride(store, name) for name in _names(form))
    return None if far is None or near is None else (store, far, near)


@dataclass(frozen=True, slots=True)
class _Channel:
    """The loops over the positions of a channel."""

    found: Weighted
    w: Writer
    form: _Form
    window: Buffer
    bias: Load

    @contextmanager
    def tiles(self) -> Iterator[tuple[tuple[Dim, Dim], Buffer, tuple[Dim, Dim]]]:
        """Yields the first position of a tile, its sums, and its lines and positions."""
        found, w, form = self.found, self.w, self.form
        lines, along = form.lines, form.along
        wide = min(-(-greatest(along.positions, w.bounds) // form.phases), POSITIONS)
        pitch, rows = form.pitch(Dim.of(wide)), self._rows(wide)
        reached = (rows - 1) * lines.stride + form.reached
        gathered = w.buffer("lines", DType.I16, reached, pitch)
        image = image_of(found, (lines, along))
        sums = w.buffer("sums", DType.I32, rows * round_up(wide, 4))
        with ExitStack() as loops:
            phase = ZERO
            if form.phases > 1:
                phase = loops.enter_context(w.range("phase", form.phases))
            count = ceildiv(along.positions - phase, form.phases)
            first, high = loops.enter_context(w.tiles(("band", "rows"), lines.positions, rows))
            start, long = loops.enter_context(w.tiles(("tile", "positions"), count, wide))
            place = phase + start * form.phases
            w.micro(
                f"raot_gather_lines_{found.suffix}", to=gathered, image=image, zero=found.x_zero,
                lines=(high - 1) * lines.stride + form.reached,
                top=first * lines.stride - lines.before, image_lines=lines.size,
                line_step=ONE if lines is LINE else lines.step, length=form.length(long),
                left=place * along.stride - along.before, image_columns=along.size,
                advance=along.dilation, step=along.step, pitch=pitch,
            )  # fmt: skip
            sizes = {"apart": form.move // 2} if form.move > 1 else {}
            w.micro(
                f"raot_depthwise_windows_{2 if sizes else 1}", sums=sums, lines=gathered,
                weights=self.window, bias=self.bias, rows=high, positions=long, height=lines.taps,
                count=form.pairs, line_step=lines.stride, dilation=lines.dilation, pitch=pitch,
                **sizes,
            )  # fmt: skip
            yield (first, place), sums, (high, long)

    def _rows(self, wide: int) -> int:
        """Lines of results in a tile."""
        form, most = self.form, greatest(self.form.lines.positions, self.w.bounds)
        pitch = form.pitch(Dim.of(wide)).constant
        fits = (GATHERED // (2 * pitch) - form.reached) // form.lines.stride + 1
        return max(1, min(most, fits, SUMS // (4 * round_up(wide, 4))))

    def each(self, first: tuple[Dim, Dim], sums: Buffer, extents: tuple[Dim, Dim]) -> None:
        """The statements that follow each sum."""
        found, w, (name, own) = self.found, self.w, _names(self.form)
        apart = w.short("apart", ceildiv(extents[1], 4) * 4)
        with w.range("row", extents[0]) as r, w.range("column", extents[1]) as c:
            at = {own: first[1] + c * self.form.phases} | ({name: first[0] + r} if name else {})
            w.finish(found.after, found.sum, Load(sums, (r * apart + c,)), at)


EXAMPLES = (
    Example(
        why="windows of five taps",
        target="dsp",
        before=LONG_WINDOWS,
        after="""
            kernel @conv(...
              for c in 0..2 {
                micro raot_widen_window_2(...
                micro raot_gather_lines_s8(...
                micro raot_depthwise_windows_1(...
                micro raot_requantize_rows_f32(...
              }
            }""",
    ),
    Example(why="windows of all channels", target="dsp", before=INTEGER_MATMUL),
)
