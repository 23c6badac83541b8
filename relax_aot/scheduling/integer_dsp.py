"""Integer contractions for Arm's DSP extension: two places of the output at a time.

What the windows of two places cover is gathered into columns, which all channels read:
an implicit matrix product, with no image of columns as large as the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, interval, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Binary, Buffer, Expr, For, If, Index, Load, Stmt
from relax_aot.ir.types import DType
from relax_aot.microkernels import by_position
from relax_aot.scheduling.integer_match import Contraction, stride
from relax_aot.scheduling.integer_parts import (
    NO_LEVEL,
    Arrays,
    Derived,
    Level,
    Written,
    extent,
    finish,
    place_at,
    place_count,
    shared_by,
    starts_known,
    starts_of,
    weights_of,
    window,
)
from relax_aot.scheduling.jam import Names, over

LEVELS = 3
LEAST_DEPTH = 4
"""Shorter sums are not worth columns."""


def suits(what: Contraction, constants: frozenset[str]) -> bool:
    depth = int(np.prod(what.counts))
    return (
        what.channel is not None
        and len(what.levels) <= LEVELS
        and depth >= LEAST_DEPTH
        and starts_known(what, constants)
    )


def write(what: Contraction, names: Names, bounds: Bounds, wide: bool) -> Written:
    """`wide`: weights are 16-bit numbers in memory, which saves taking them apart."""
    return _Columns(what, names, wide).write(bounds)


@dataclass
class _Columns:
    what: Contraction
    names: Names
    wide: bool

    def __post_init__(self) -> None:
        what = self.what
        assert what.channel is not None
        self.order, self.taps = _order(what)
        pair = what.counts[self.order[-2 if self.taps else -1]]
        depth = int(np.prod(what.counts))
        self.pairs = depth // pair * ((pair + 1) // 2)
        self.quads = (self.pairs + 1) // 2
        self.channels = (extent(what.channel) + 1) // 2 * 2
        self.outer = shared_by(what, (what.w.load, what.start))
        name = what.w.load.buffer.name
        lead = tuple(Dim.of(extent(loop)) for loop in self.outer)
        two, four = Dim.of(2), Dim.of(4)
        dtype = DType.I16 if self.wide else DType.I8
        shape = (*lead, Dim.of(self.channels // 2), Dim.of(self.quads), two, four)
        self.weights = Buffer(self.names.fresh(f"{name}.pairs"), dtype, shape)
        self.bias = Buffer(
            self.names.fresh(f"{name}.start"), DType.I32, (*lead, Dim.of(self.channels))
        )
        self.columns = Buffer(
            self.names.fresh("columns"), DType.I16, (Dim.of(2 * self.quads), two, two)
        )
        self.sums = Buffer(self.names.fresh("sums"), DType.I32, (Dim.of(self.channels), two))

    def write(self, bounds: Bounds) -> Written:
        what = self.what
        written = Written()
        for loop in what.shared:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        body = self._tiles(bounds)
        for loop in reversed(what.shared):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        written.body = body
        written.scratch = [self.columns, self.sums]
        written.derived = [Derived(self.weights, self._weights), Derived(self.bias, self._bias)]
        return written

    def _tiles(self, bounds: Bounds) -> list[Stmt]:
        count = place_count(self.what)
        result: list[Stmt] = []
        twos = simplify(count // 2, bounds)
        if twos != 0:
            tile = self.names.fresh("two")
            inner = over(bounds, tile, Dim.of(0), twos)
            place = Dim.of(tile) * 2
            body = self._tile([place, place + 1], inner)
            result.append(For(tile, Dim.of(0), twos, tuple(body)))
        odd = simplify(count - twos * 2, bounds)
        if odd != 0:
            if interval(odd, bounds.open) == (1, 1):
                result += self._tile([simplify(count - 1, bounds)], bounds)
            else:
                last = self.names.fresh("last")
                inner = over(bounds, last, twos * 2, count)
                body = self._tile([Dim.of(last)], inner)
                result.append(For(last, twos * 2, count, tuple(body)))
        return result

    def _tile(self, places: Sequence[Dim], bounds: Bounds) -> list[Stmt]:
        what = self.what
        assert what.channel is not None
        result: list[Stmt] = []
        ats, windows = [], []
        zero = Dim.of(0)
        for place in places:
            at, bounds = place_at(what, place, self.names, bounds, result)
            levels, image, bounds = window(what, self.order, at, self.names, bounds, result)
            windows.append((self._levels(levels), image))
            ats.append(at)
        result += self._gather(windows)
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        operands = (
            Load(self.sums, (zero, zero)),
            Load(self.weights, (*outer, zero, zero, zero, zero)),
            Load(self.columns, (zero, zero, zero)),
            Load(self.bias, (*outer, zero)),
        )
        multiply = "raot_multiply_s16" if self.wide else "raot_multiply_s8"
        sizes = (Dim.of(self.channels), Dim.of(self.quads))
        result.append(by_position(multiply, operands, sizes))
        channel = self.names.fresh(what.channel.variable)
        body: list[Stmt] = []
        for lane, at in enumerate(ats):
            here = {**at, what.channel.variable: Dim.of(channel)}
            value = Load(self.sums, (Dim.of(channel), Dim.of(lane)))
            body += finish(what, here, value, self.names)
        result.append(For(channel, Dim.of(0), what.channel.stop, tuple(body)))
        return result

    def _levels(self, levels: list[Level]) -> list[Level]:
        """Those that micro-kernels take and the contraction lacks, in front and behind."""
        levels = levels if self.taps else [*levels, NO_LEVEL]
        return [NO_LEVEL] * (LEVELS + 1 - len(levels)) + levels

    def _gather(self, windows: Sequence[tuple[list[Level], Load]]) -> list[Stmt]:
        """Both columns at once where no window is cut off, else one by one."""
        kind = "u8" if self.what.x.load.dtype is DType.U8 else "s8"
        zero = Dim.of(0)
        single: list[Stmt] = []
        whole: list[Expr] = []
        for lane, (levels, image) in enumerate(windows):
            column = Load(self.columns, (zero, Dim.of(lane), zero))
            sizes = [s for lv in levels for s in (Dim.of(lv.count), lv.first, lv.last, lv.step)]
            operands = (column, image)
            sizes = [Dim.of(self.what.x.zero), *sizes]
            single.append(by_position(f"raot_column_{kind}", operands, tuple(sizes)))
            for level in levels:
                sides = ((level.first, zero), (level.last, Dim.of(level.count)))
                whole += [Binary("==", Index(a), Index(b)) for a, b in sides if a != b]
        if len(windows) < 2:
            return single
        steps = [s for level in windows[0][0] for s in (Dim.of(level.count), level.step)]
        images = (image for _, image in windows)
        first = Load(self.columns, (zero, zero, zero))
        both = by_position(f"raot_columns_{kind}", (first, *images), tuple(steps))
        if not whole:
            return [both]
        return [If(reduce(lambda a, b: Binary("&&", a, b), whole), (both,), tuple(single))]

    def _weights(self, data: Arrays) -> Array:
        what = self.what
        found = weights_of(what, self.outer, self.order, data[what.w.load.buffer.name])
        lead = found.shape[: len(self.outer)]
        if not self.taps:
            found = found[..., None]
        # Pairs side by side, an odd one with a zero beside it, then taps.
        odd = found.shape[-2] % 2
        found = np.pad(found, [(0, 0)] * (found.ndim - 2) + [(0, odd), (0, 0)])
        *rest, pair, taps = found.shape
        found = np.swapaxes(found.reshape(*rest, pair // 2, 2, taps), -1, -2)
        flat = found.reshape(*lead, rest[len(lead)], -1)
        missing = (self.channels - flat.shape[-2], 4 * self.quads - flat.shape[-1])
        flat = np.pad(flat, [(0, 0)] * len(lead) + [(0, missing[0]), (0, missing[1])])
        cut = flat.reshape(*lead, self.channels // 2, 2, self.quads, 4)
        packed = np.swapaxes(cut, -3, -2)
        if not self.wide:
            packed = packed[..., [0, 2, 1, 3]]
        return np.ascontiguousarray(packed.astype(self.weights.dtype.numpy))

    def _bias(self, data: Arrays) -> Array:
        found = starts_of(self.what, self.outer, data)
        missing = self.channels - found.shape[-1]
        return np.pad(found, [(0, 0)] * (found.ndim - 1) + [(0, missing)])


def _order(what: Contraction) -> tuple[list[int], bool]:
    """Levels in the order of columns: pairs go along the one that wastes least, and are the
    last but for taps that lie side by side (True)."""
    counts = what.counts
    pair = min(range(len(counts)), key=lambda i: ((counts[i] + 1) // 2 * 2 / counts[i], -i))
    rest = [i for i in range(len(counts)) if i != pair]
    beside = [
        i for i in rest if counts[i] == 3 and stride(what.x.load, what.levels[i].variable) == 1
    ]
    if not beside or counts[pair] % 2:
        return [*rest, pair], False
    rest.remove(beside[-1])
    return [*rest, pair, beside[-1]], True
