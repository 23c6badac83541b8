"""Convolutions as calls of one function of the runtime, for programs that shall be small.

A nest is one where its indices are those of a dense image with channels first or last, and the
taps that it leaves out are those beyond the image, which is tried for every place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Apply, Binary, Buffer, For, Lit, Load, Stmt, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels import all_micro_kernels, by_position
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.scheduling.jam import Names
from relax_aot.scheduling.nest import coefficient
from relax_aot.scheduling.packing import Packing, packing
from relax_aot.scheduling.sums import Sum
from relax_aot.scheduling.targets import Target

GREATEST = (1 << 15) - 1
"""What int16_t holds."""
LEAST = 8
"""Results side by side for which tiles are worth it."""
SELDOM = 1 / 64
"""Of a model's work; what does no more may be slow."""


@dataclass(frozen=True, slots=True)
class Convolved:
    """A nest as one call; the scratch memory and the rearranged constant that it needs."""

    stmt: Stmt
    scratch: tuple[Buffer, ...]
    packing: Packing | None


@dataclass(frozen=True, slots=True)
class _Axis:
    """Lines or pixels: index = place * step + tap * apart - pad, of `extent`."""

    extent: int
    places: int
    taps: int
    step: int
    apart: int
    pad: int

    @property
    def cut(self) -> bool:
        """Some taps lie beyond the image."""
        far = (self.places - 1) * self.step + (self.taps - 1) * self.apart - self.pad
        return self.pad > 0 or far >= self.extent

    @property
    def dense(self) -> bool:
        return (self.step, self.taps, self.pad, self.places) == (1, 1, 0, self.extent)


@dataclass(frozen=True, slots=True)
class _End:
    """What becomes of a sum: `other` is added, then it is clipped."""

    other: Load | None
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True, slots=True)
class _Shape:
    """A convolution."""

    filters: For
    channels: int
    lines: _Axis
    pixels: _Axis


def convolved(
    sum_: Sum,
    names: Names,
    constants: frozenset[str],
    finite: frozenset[str],
    target: Target,
    share: float,
) -> Convolved | None:
    """None where the nest is no such convolution, or does too much of the work for one that is
    slow: `share` of it."""
    for way in (sum_, sum_.turned):
        end = _end(way)
        fixed = way.left.buffer.name in constants and way.right.buffer.name not in constants
        if not fixed or end is None:
            continue
        found = (
            _channels_last(way, _shape(way, last=True), end, names)
            or _channels_first(way, _shape(way, last=False), end, names, finite, target)
            or _each_channel("each", way, _each(way, last=True), end)
            or _planes(way, _each(way, last=False), end, share)
        )
        if found is not None:
            return found
    return None


# What is computed


def _shape(sum_: Sum, last: bool) -> _Shape | None:
    weights, image, store = sum_.left, sum_.right, sum_.after[-1]
    rank = len(image.index)
    if not isinstance(store, Store) or rank not in (3, 4):
        return None
    if not len(weights.index) == len(store.index) == rank:
        return None
    if any(not _known(load.buffer) for load in (weights, image)) or not _known(store.buffer):
        return None
    filters = _loop(weights.index[0], sum_.nest.loops)
    channel, *places = (rank - 1, *range(1, rank - 1)) if last else range(1, rank)
    axes = [_axis(sum_, store, place, place) for place in places]
    depth = image.buffer.shape[channel].constant
    known = [axis for axis in axes if axis is not None]
    if filters is None or len(known) < len(axes) or not _channel(sum_, channel, depth):
        return None
    if _extent(filters) != weights.buffer.shape[0].constant:
        return None
    if store.index[channel] != Dim.of(filters.variable):
        return None
    ordered = _in_order(sum_, weights.index[1:])
    if _extent(filters) != store.buffer.shape[channel].constant or not ordered:
        return None
    one = _Axis(1, 1, 1, 1, 1, 0)
    lines, pixels = (one, *known)[-2:]
    found = _Shape(filters, depth, lines, pixels)
    return found if _rest(sum_, found, store) else None


def _each(sum_: Sum, last: bool) -> _Shape | None:
    """One filter for each channel; channels last, or first in image and weights."""
    weights, image, store = sum_.left, sum_.right, sum_.after[-1]
    if not isinstance(store, Store) or (len(image.index), len(store.index)) != (4, 4):
        return None
    known = all(_known(buffer) for buffer in (weights.buffer, image.buffer, store.buffer))
    at, own = (3, 2) if last else (1, 0)
    filters = _loop(image.index[at], sum_.nest.loops)
    if not known or filters is None or len(weights.index) != (3 if last else 4):
        return None
    if not last and (weights.index[1] != 0 or weights.buffer.shape[1] != 1):
        return None
    channel = Dim.of(filters.variable)
    extents = {image.buffer.shape[at], store.buffer.shape[at], weights.buffer.shape[own]}
    if {weights.index[own], store.index[at]} != {channel} or extents != {filters.stop}:
        return None
    places = ((1, 0), (2, 1)) if last else ((2, 2), (3, 3))
    lines, pixels = (_axis(sum_, store, *place) for place in places)
    taps = weights.index[:2] if last else weights.index[2:]
    if lines is None or pixels is None or not _in_order(sum_, taps):
        return None
    found = _Shape(filters, _extent(filters), lines, pixels)
    return found if _rest(sum_, found, store) else None


def _known(buffer: Buffer) -> bool:
    return all(dim.is_constant for dim in buffer.shape[1:])


def _loop(dim: Dim, loops: Sequence[For]) -> For | None:
    """The loop whose variable an index is."""
    return next((loop for loop in loops if dim == Dim.of(loop.variable)), None)


def _extent(loop: For) -> int:
    """0 where it is not known or does not begin at 0; such a loop fits no image."""
    return loop.stop.constant if loop.start == 0 and loop.stop.is_constant else 0


def _channel(sum_: Sum, at: int, depth: int) -> bool:
    """Whether all channels are summed up, in weights and image alike."""
    ends = (sum_.right.index[at], sum_.left.index[at])
    if sum_.left.buffer.shape[at].constant != depth:
        return False
    level = _loop(ends[0], sum_.levels)
    if level is None:
        return depth == 1 and ends[0] == ends[1] == 0
    return ends[0] == ends[1] and _extent(level) == depth


def _axis(sum_: Sum, store: Store, at: int, tap_at: int) -> _Axis | None:
    """The place `at` of the image's index and of the store's, `tap_at` of the weights'."""
    index, tap = sum_.right.index[at], sum_.left.index[tap_at]
    place = store.index[at]
    loop, level = _loop(place, sum_.nest.loops), _loop(tap, sum_.levels)
    names = {found.variable for found in (loop, level) if found is not None}
    if not index.symbols <= names or (loop is None and place != 0):
        return None
    if level is None and tap != 0:
        return None
    places = _extent(loop) if loop is not None else 1
    extents = [b.shape[i].constant for b, i in ((store.buffer, at), (sum_.left.buffer, tap_at))]
    step = coefficient(index, loop.variable) if loop is not None else 1
    apart = coefficient(index, level.variable) if level is not None else 1
    if step is None or apart is None or min(step, apart) < 1 or extents[0] != places:
        return None
    pad = -index.substitute(dict.fromkeys(names, 0)).constant
    extent = sum_.right.buffer.shape[at].constant
    found = _Axis(extent, places, extents[1], step, apart, pad)
    return found if places and _reached(found, loop, level) else None


def _reached(axis: _Axis, loop: For | None, level: For | None) -> bool:
    """Whether the taps of each place are those that lie in the image."""
    for place in range(axis.places):
        at = {} if loop is None else {loop.variable: place}
        taps = range(1)
        if level is not None:
            if not level.start.symbols | level.stop.symbols <= at.keys():
                return False
            taps = range(level.start.evaluate(at), level.stop.evaluate(at))
        first = place * axis.step - axis.pad
        inside = [k for k in range(axis.taps) if 0 <= first + k * axis.apart < axis.extent]
        if list(taps) != inside:
            return False
    return True


def _in_order(sum_: Sum, taps: Sequence[Dim]) -> bool:
    """Whether sums are added up in the order of the weights."""
    used = (_loop(dim, sum_.levels) for dim in taps)
    return tuple(level for level in used if level is not None) == sum_.levels


def _rest(sum_: Sum, shape: _Shape, store: Store) -> bool:
    """Whether the loops that are left, if any, are over whole images."""
    free, loops = sum_.nest.free, sum_.nest.loops
    image = sum_.right
    batch = _loop(image.index[0], loops)
    inner = {name for dim in store.index[1:] for name in dim.symbols} | {shape.filters.variable}
    outer = [loop for loop in loops if loop.variable not in inner]
    if store.index[0] != image.index[0] or (batch is None and image.index[0] != 0):
        return False
    return outer == ([] if batch is None else [batch]) and all(lp.variable in free for lp in loops)


def _starts(sum_: Sum, shape: _Shape) -> bool:
    match sum_.start:
        case Lit(value):
            return value == 0 and not np.signbit(value)
        case Load(buffer, index):
            known = buffer.shape == (shape.filters.stop,)
            return known and index == (Dim.of(shape.filters.variable),)
        case _:
            return False


def _end(sum_: Sum) -> _End | None:
    if len(sum_.after) != 1 or not isinstance(sum_.after[0], Store):
        return None
    store = sum_.after[0]
    value, low, high = store.value, -np.inf, np.inf
    for _ in range(2):
        match value:
            case Apply("max", (inner, Lit(limit)) | (Lit(limit), inner)) if low == -np.inf:
                value, low = inner, float(limit)
            case Apply("min", (inner, Lit(limit)) | (Lit(limit), inner)) if high == np.inf:
                value, high = inner, float(limit)
    if not low <= high or None in (_upper(low), _upper(high)):
        return None
    match value:
        case Binary("+", Load() as other, mine) | Binary("+", mine, Load() as other):
            fits = (other.index, other.buffer.shape) == (store.index, store.buffer.shape)
            return _End(other, low, high) if fits and mine == sum_.local else None
        case _:
            return _End(None, low, high) if value == sum_.local else None


def _upper(value: float) -> int | None:
    """The upper half of a float32, where the lower one is zero."""
    bits = int(np.float32(value).view(np.int32))
    return bits >> 16 if float(np.float32(value)) == value and bits & 0xFFFF == 0 else None


# The call


def _channels_last(sum_: Sum, shape: _Shape | None, end: _End, names: Names) -> Convolved | None:
    if shape is None or not _starts(sum_, shape) or _extent(shape.filters) < LEAST:
        return None
    if shape.pixels.taps > 1 and shape.pixels.apart > 1:
        return None
    shape, weights = _one_line(shape), sum_.left
    taps = {
        level.variable: weights.buffer.shape[at]
        for at, dim in enumerate(weights.index)
        if (level := _loop(dim, sum_.levels)) is not None
    }
    levels = [For(lv.variable, Dim.of(0), taps[lv.variable], ()) for lv in sum_.levels]
    name = names.fresh(f"{weights.buffer.name}.packed")
    pack = packing(weights, name, sum_.nest.loops, shape.filters, levels, COLUMNS)
    sizes = _sizes(sum_, shape, end, direct=False, tile=0)
    if pack is None or sizes is None:
        return None
    operands = _operands(sum_, Load(pack.packed, (Dim.of(0),) * len(pack.packed.shape)), end)
    return Convolved(
        _looped(sum_, by_position("raot_convolve_last_f32", operands, sizes)), (), pack
    )


def _one_line(shape: _Shape) -> _Shape:
    """Where each result has one pixel, lines are one after another."""
    axes = (shape.lines, shape.pixels)
    if not all(axis.dense for axis in axes):
        return shape
    pixels = prod(axis.extent for axis in axes)
    line = _Axis(1, 1, 1, 1, 1, 0)
    return replace(shape, lines=line, pixels=replace(line, extent=pixels, places=pixels))


def _each_channel(form: str, sum_: Sum, shape: _Shape | None, end: _End) -> Convolved | None:
    if shape is None or not _starts(sum_, shape):
        return None
    sizes = _sizes(sum_, shape, end, direct=False, tile=0)
    if sizes is None:
        return None
    weights = Load(sum_.left.buffer, (Dim.of(0),) * len(sum_.left.index))
    micro = by_position(f"raot_convolve_{form}_f32", _operands(sum_, weights, end), sizes)
    return Convolved(_looped(sum_, micro), (), None)


def _planes(sum_: Sum, shape: _Shape | None, end: _End, share: float) -> Convolved | None:
    """Short lines are slow."""
    slow = shape is not None and shape.pixels.places < LEAST and share > SELDOM
    return None if slow else _each_channel("planes", sum_, shape, end)


def _channels_first(
    sum_: Sum,
    shape: _Shape | None,
    end: _End,
    names: Names,
    finite: frozenset[str],
    target: Target,
) -> Convolved | None:
    if shape is None or not _starts(sum_, shape):
        return None
    axes, weights = (shape.lines, shape.pixels), sum_.left
    if prod(axis.places for axis in axes) < LEAST:
        return None
    if any(axis.cut for axis in axes) and weights.buffer.name not in finite:
        return None
    taps = shape.channels * prod(axis.taps for axis in axes)
    direct = all(axis.dense for axis in axes)
    columns = COLUMNS
    if not direct:
        fits = target.panel // (taps * DType.F32.bytes)
        columns = min(COLUMNS, fits // target.lanes * target.lanes)
    sizes = _sizes(sum_, shape, end, direct=direct, tile=columns)
    if columns == 0 or sizes is None:
        return None
    operands = _operands(sum_, Load(weights.buffer, (Dim.of(0),) * len(weights.index)), end)
    scratch: tuple[Buffer, ...] = ()
    panel = operands[0]
    if not direct:
        scratch = (Buffer(names.fresh("panel"), DType.F32, (Dim.of(taps), Dim.of(columns))),)
        panel = Load(scratch[0], (Dim.of(0), Dim.of(0)))
    micro = by_position("raot_convolve_f32", (*operands, panel), sizes)
    return Convolved(_looped(sum_, micro), scratch, None)


def _sizes(
    sum_: Sum, shape: _Shape, end: _End, *, direct: bool, tile: int
) -> tuple[Dim, ...] | None:
    """None where one is too great for its place in the table."""
    found: dict[str, int] = {
        "filters": _extent(shape.filters),
        "channels": shape.channels,
        "low": _upper(end.low) or 0,
        "high": _upper(end.high) or 0,
        "starts": isinstance(sum_.start, Load),
        "adds": end.other is not None,
        "direct": direct,
        "tile": tile,
    }
    for name, axis in (("line", shape.lines), ("pixel", shape.pixels)):
        found |= {f"{name}s": axis.extent, f"out_{name}s": axis.places, f"{name}_taps": axis.taps}
        found |= {f"{name}_{what}": getattr(axis, what) for what in ("step", "pad", "apart")}
    fits = all(-GREATEST <= value <= GREATEST for value in found.values())
    micro = all_micro_kernels()["raot_convolve_f32"]
    return tuple(Dim.of(int(found[name])) for name in micro.sizes) if fits else None


def _operands(sum_: Sum, weights: Load, end: _End) -> tuple[Load, ...]:
    """What is not there is where the results are: it is not read."""
    store = sum_.after[0]
    assert isinstance(store, Store)
    out = _begin(Load(store.buffer, store.index))
    start = _begin(sum_.start) if isinstance(sum_.start, Load) else out
    other = _begin(end.other) if end.other is not None else out
    return out, _begin(sum_.right), weights, start, other


def _begin(load: Load) -> Load:
    """The first element of the image that an element belongs to."""
    images = load.index[:1] if len(load.index) > 1 else (Dim.of(0),)
    return Load(load.buffer, (*images, *(Dim.of(0),) * (len(load.index) - 1)))


def _looped(sum_: Sum, stmt: Stmt) -> Stmt:
    """Once for each image."""
    batch = _loop(sum_.right.index[0], sum_.nest.loops)
    return stmt if batch is None else For(batch.variable, batch.start, batch.stop, (stmt,))
