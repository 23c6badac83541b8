# SPDX-License-Identifier: Apache-2.0
"""resize: interpolates x axis by axis, with the coordinate transformations of ONNX.

`sizes` are the result's. The scale of an axis is, in this order: the number in `scales`
(0 means none), the element of the argument `factors`, the least or largest ratio of `wanted`
to the input (`policy`), or the ratio of the sizes. Coordinates are f32, in the order of
operations of ONNX Runtime, so that ties of `nearest` are equal. Where ONNX's text, its reference
evaluator and ONNX Runtime disagree, this op follows ONNX Runtime:

- `align_corners` and `tf_crop_and_resize` divide by the integral length of the result;
- an axis of scale 1 is copied, whatever the coordinates; with `antialias`, an axis of equal sizes;
- a fraction within TIE of one half is a tie;
- `half_pixel_symmetric` computes in double and rounds once to f32.

docs/reference/where_sources_disagree.md lists the other sources.

The samples of an axis and their shares are computed once, in tables, if their number is known.
Where `nearest` repeats each element, each is read once and stored several times, which is the same
below 2^23 elements, as long as coordinates are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, dim_max, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Local, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, must_not_exceed, require
from relax_aot.ops._resample import REACH, TIE, Resize, centers, matrix_of, rounded
from relax_aot.ops._resize_samples import ROUNDING, TRANSFORMS, samples_of

VALUES = {
    "mode": ("nearest", *REACH), "transform": TRANSFORMS, "rounding": ROUNDING,
    "policy": ("", "not_larger", "not_smaller"),
}  # fmt: skip
NOT_IDENTITY = ("tf_half_pixel_for_nn", "tf_crop_and_resize")
"""Coordinates that would move elements at a scale of 1."""
FAR = 1 << 20
"""A sample this far outside reads the edge all the same."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One resized axis: its number, its sizes before and after, and its scale as f32."""

    number: int
    before: Dim
    after: Dim
    scale: Expr
    exact: bool
    """The scale is the ratio of the sizes; else it may be rounded in the size."""
    widest: Expr
    """A lower bound of the scale, from which the number of taps follows."""


def _type(
    attrs: Resize,
    x: TensorType,
    factors: TensorType | None = None,
    region: TensorType | None = None,
) -> TensorType:
    fits = len(attrs.sizes) == x.rank == len(attrs.scales)
    require(fits, f"resize needs one size per axis of {x}")
    known = factors is None or (factors.dtype is DType.F32 and factors.rank == 1)
    require(known, f"resize needs a list of scales of f32, got {factors}")
    require(x.dtype is not DType.BOOL or attrs.mode == "nearest", f"resize cannot interpolate {x}")
    return TensorType(x.dtype, tuple(Dim.of(n) for n in attrs.sizes))


def _conditions(attrs: Resize, x: TensorType, *_rest: TensorType | None) -> list[Condition]:
    """An axis without elements can only become an axis without elements."""
    changed = [
        (before, Dim.of(after)) for before, after in zip(x.shape, attrs.sizes, strict=True)
        if before != Dim.of(after)
    ]  # fmt: skip
    return [c for before, after in changed for c in (
        must_not_exceed(dim_min(after, 1), before, "resize of an empty axis"),
        must_not_exceed(0, after, "resize"),
    )]  # fmt: skip


def _f32(dim: Dim) -> Expr:
    return Lit(float(dim.constant), DType.F32) if dim.is_constant else Cast(Index(dim), DType.F32)


def _lower(
    attrs: Resize,
    k: KernelBuilder,
    x: Buffer,
    factors: Buffer | None,
    region: Buffer | None,
    y: Buffer,
) -> None:
    given_scales = [_scale(attrs, i, x, y, factors) for i in range(x.rank)]
    exact = [not (scale or factors is not None or attrs.policy) for scale in attrs.scales]
    axes = _resized(x, y, given_scales, exact, antialias=attrs.antialias)
    ends = [_region(axis.number, region, attrs.roi, x.rank) for axis in axes]
    work = x.dtype if x.dtype.is_float else DType.F32
    tables = [_table(attrs, k, axis, own, work) for axis, own in zip(axes, ends, strict=True)]
    times = {axis.number: _repeats(attrs, axis) for axis in axes}
    sizes = [
        (x.shape[i], Dim.of(times[i])) if times.get(i) else (size,)
        for i, size in enumerate(y.shape)
    ]
    with k.loops(*(size for part in sizes for size in part)) as at:
        index, places = _places(sizes, at)
        outside: Expr | None = None
        if attrs.transform == "tf_crop_and_resize" and axes:
            own = [_center(k, places[axis.number], axis, attrs, end)
                   for axis, end in zip(axes, ends, strict=True)]  # fmt: skip
            outside = _outside(axes, own)
        if attrs.mode == "nearest":
            for axis, table in zip(axes, tables, strict=True):
                if table is not None:
                    near = table.sample(k, axis, places[axis.number], Dim.of(0))
                    index[axis.number] = near
            value: Expr = x[tuple(index)]
        else:
            value = _mixed(attrs, k, x, places, list(zip(axes, ends, tables, strict=True)), work)
        if outside is not None:
            fill = attrs.extrapolation if x.dtype.is_float else int(attrs.extrapolation)
            value = Select(outside, Lit(fill, x.dtype), value)
        k.store(y[tuple(places)], value)


def _places(sizes: Sequence[tuple[Dim, ...]], at: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """The indices of x and of y by the variables of loops: of an axis that is repeated, its
    elements and their copies."""
    rest = iter(at)
    index, places = [], []
    for size in sizes:
        index.append(next(rest))
        places.append(index[-1] * size[1] + next(rest) if len(size) > 1 else index[-1])
    return index, places


# What an axis reads


@dataclass(frozen=True, slots=True)
class _Table:
    """The samples of x that each element of an axis reads, and their shares; `nearest` has none."""

    samples: Buffer
    shares: Buffer | None

    def sample(self, k: KernelBuilder, axis: _Axis, at: Dim, tap: Dim) -> Dim:
        found = Cast(self.samples[(tap, at)], DType.I64)
        return k.placed(f"tap{axis.number}", found, 0, axis.before - 1)

    def share(self, k: KernelBuilder, axis: _Axis, at: Dim, tap: Dim) -> Local:
        assert self.shares is not None
        return k.local(f"share{axis.number}", self.shares.dtype, self.shares[(tap, at)])


Part = tuple[_Axis, tuple[Expr, Expr], _Table | None]


def _table(
    attrs: Resize, k: KernelBuilder, axis: _Axis, ends: tuple[Expr, Expr], work: DType
) -> _Table | None:
    """None where the number of samples is not known, or nothing is to be computed."""
    count = _count(attrs, axis)
    if not count or _repeats(attrs, axis):
        return None
    shape = (Dim.of(count), axis.after)
    samples = k.scratch(f"samples{axis.number}", DType.I32, shape)
    if attrs.mode == "nearest":
        with k.loops(axis.after) as (at,):
            near = _nearest(k, _center(k, at, axis, attrs, ends), axis, attrs.rounding)
            k.store(samples[(Dim.of(0), at)], Cast(Index(near), DType.I32))
        return _Table(samples, None)
    shares = k.scratch(f"shares{axis.number}", work, shape)
    with k.loops(axis.after) as (at,), ExitStack() as taps:
        tap, place, share = _tap(attrs, k, taps, _center(k, at, axis, attrs, ends), axis, work)
        k.store(samples[(tap, at)], Cast(Index(place), DType.I32))
        k.store(shares[(tap, at)], share)
    return _Table(samples, shares)


def _count(attrs: Resize, axis: _Axis) -> int:
    """How many samples are mixed; 0 where that is not known."""
    if attrs.mode == "nearest":
        return 1
    reach = REACH[attrs.mode]
    if not attrs.antialias:
        return 2 * reach
    first = _first_known(axis, reach)
    return 2 - 2 * first.constant if first is not None and first.is_constant else 0


def _repeats(attrs: Resize, axis: _Axis) -> int:
    """How often `nearest` takes each element, one copy after the other; 0 where that is unknown."""
    halves = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    if attrs.mode != "nearest":
        return 0
    nearest = attrs.transform in halves and attrs.rounding.startswith("round_prefer")
    below = attrs.transform == "asymmetric" and attrs.rounding in ("floor", "legacy")
    if not (nearest or below) or not (axis.exact or isinstance(axis.scale, Lit)):
        return 0
    ones = dict.fromkeys(axis.before.symbols | axis.after.symbols, 1)
    times = axis.after.evaluate(ones) // max(axis.before.evaluate(ones), 1)
    given = isinstance(axis.scale, Lit) and axis.scale.value != times
    return 0 if given or times < 2 or axis.before * times != axis.after else times


def _mixed(
    attrs: Resize, k: KernelBuilder, x: Buffer, places: Sequence[Dim], parts: list[Part],
    work: DType,
) -> Expr:  # fmt: skip
    """The sum of the samples around an element by their shares. Two samples of each axis are
    written out, so that loops over elements contain no others."""
    total = k.local("total", work, 0.0)

    def add(chosen: Iterable[tuple[_Axis, Dim, Expr]]) -> None:
        index = list(places)
        weight: Expr | None = None
        for axis, place, share in chosen:
            index[axis.number] = place
            weight = share if weight is None else k.local("weight", work, weight * share)
        value: Expr = x[tuple(index)]
        part = value if x.dtype is work else Cast(value, work)
        k.assign(total, total + (part if weight is None else part * weight))

    counts = [0 if table is None else _count(attrs, axis) for axis, _, table in parts]
    if all(count == 2 for count in counts):
        pairs = []
        for axis, _, table in parts:
            assert table is not None
            at, taps = places[axis.number], (Dim.of(0), Dim.of(1))
            pairs.append([
                (axis, table.sample(k, axis, at, tap), table.share(k, axis, at, tap))
                for tap in taps
            ])  # fmt: skip
        for chosen in product(*pairs):
            add(chosen)
    else:
        with ExitStack() as stack:
            found: list[tuple[_Axis, Dim, Expr]] = []
            for (axis, ends, table), count in zip(parts, counts, strict=True):
                at = places[axis.number]
                if table is None:
                    center = _center(k, at, axis, attrs, ends)
                    _, place, share = _tap(attrs, k, stack, center, axis, work)
                else:
                    (tap,) = stack.enter_context(k.loops(count))
                    place = table.sample(k, axis, at, tap)
                    share = table.share(k, axis, at, tap)
                found.append((axis, place, share))
            add(found)
    return total if x.dtype is work else Cast(total, x.dtype, "saturate")


def _resized(
    x: Buffer, y: Buffer, given: Sequence[Expr], exact: Sequence[bool], *, antialias: bool
) -> list[_Axis]:
    """The axes whose scale is not known to be 1."""
    axes = []
    for i, (before, after) in enumerate(zip(x.shape, y.shape, strict=True)):
        scale = given[i]
        if antialias and not exact[i]:
            scale = _one_where_equal(scale, before, after)
        if not _copied(scale, exact[i], before, after):
            axes.append(_Axis(i, before, after, scale, exact[i], given[i]))
    return axes


def _copied(scale: Expr, exact: bool, before: Dim, after: Dim) -> bool:
    """The scale is known to be 1."""
    if exact:
        return before == after
    return isinstance(scale, Lit) and scale.value == 1.0


def _one_where_equal(scale: Expr, before: Dim, after: Dim) -> Expr:
    """The scale, but 1 where the sizes are equal."""
    one = Lit(1.0, DType.F32)
    if before == after:
        return one
    if (before.is_constant and after.is_constant) or (
        # floor(n * scale) is never n.
        isinstance(scale, Lit) and not 1.0 <= float(scale.value) < 2.0
    ):
        return scale
    return Select(binary("==", Index(before), Index(after)), one, scale)


def _scale(attrs: Resize, i: int, x: Buffer, y: Buffer, factors: Buffer | None) -> Expr:
    if attrs.scales[i]:
        return Lit(float(np.float32(attrs.scales[i])), DType.F32)
    if factors is not None:
        return factors[(Dim.of(i),)]
    if attrs.policy:
        ratios = [
            binary("/", _f32(Dim.of(size)), _f32(x.shape[axis]))
            for axis, size in enumerate(attrs.wanted)
            if Dim.of(size) != Dim.of(0)
        ]
        function = "min" if attrs.policy == "not_larger" else "max"
        best: Expr = ratios[0]
        for ratio in ratios[1:]:
            best = apply(function, best, ratio)
        return best
    return binary("/", _f32(y.shape[i]), _f32(x.shape[i]))


def _region(i: int, region: Buffer | None, roi: Sequence[float], rank: int) -> tuple[Expr, Expr]:
    if region is not None:
        wide = (region[(Dim.of(i),)], region[(Dim.of(i + rank),)])
        start, end = (w if w.dtype is DType.F32 else Cast(w, DType.F32) for w in wide)
        return start, end
    ends = (roi[i], roi[i + rank]) if roi else (0.0, 1.0)
    return Lit(float(np.float32(ends[0])), DType.F32), Lit(float(np.float32(ends[1])), DType.F32)


def _center(
    k: KernelBuilder, at: Dim, axis: _Axis, attrs: Resize, region: tuple[Expr, Expr]
) -> Local:
    """Where in x the element `at` lies, as f32."""
    place, scale, transform = _f32(at), axis.scale, attrs.transform
    if transform in NOT_IDENTITY and not isinstance(scale, Lit):
        scale = k.local(f"scale{axis.number}", DType.F32, scale)
    before, after = _f32(axis.before), _f32(axis.after)
    one_only = binary("<=", Index(axis.after), Lit(1, DType.I64))
    half = (place + 0.5) / scale - 0.5
    match transform:
        case "half_pixel":
            value: Expr = half
        case "pytorch_half_pixel":
            value = Select(one_only, Lit(0.0, DType.F32), half)
        case "asymmetric":
            value = place / scale
        case "tf_half_pixel_for_nn":
            value = (place + 0.5) / scale
        case "align_corners":
            spread = place * (before - 1.0) / (after - 1.0)
            value = Select(one_only, Lit(0.0, DType.F32), spread)
        case "half_pixel_symmetric":
            offset = before / 2.0 * (1.0 - after / (scale * before))
            if attrs.mode == "nearest":
                wide = Cast(offset, DType.F64) + (Cast(place, DType.F64) + 0.5) / Cast(
                    scale, DType.F64
                )
                value = Cast(wide - 0.5, DType.F32)
            else:
                value = offset + half
        case _:
            start, end = region
            spread = place * (end - start) * (before - 1.0) / (after - 1.0)
            spread = start * (before - 1.0) + spread
            value = Select(one_only, (start + end) * (before - 1.0) * 0.5, spread)
    if isinstance(scale, Local):
        value = Select(binary("==", scale, Lit(1.0, DType.F32)), place, value)
    return k.local(f"position{axis.number}", DType.F32, value)


def _outside(axes: list[_Axis], positions: list[Local]) -> Expr:
    """Some coordinate is beyond the input."""
    parts = [
        binary("||", binary("<", c, 0.0), binary("<", _f32(axis.before - 1), c))
        for axis, c in zip(axes, positions, strict=True)
    ]
    return reduce(lambda whole, part: binary("||", whole, part), parts[1:], parts[0])


def _nearest(k: KernelBuilder, position: Local, axis: _Axis, rounding: str) -> Dim:
    floor: Expr = apply("floor", position)
    match rounding:
        case "floor":
            value = floor
        case "ceil":
            value = apply("ceil", position)
        case "legacy":
            value = Select(binary("<", axis.scale, 1.0), apply("ceil", position), floor)
        case _:
            upper = rounding == "round_prefer_ceil"
            least = k.local("least", DType.F32, floor)
            tie = Lit(0.5 - TIE if upper else 0.5 + TIE, DType.F32)
            above = binary("<=" if upper else "<", tie, position - least)
            value = Select(above, least + 1.0, least)
    return k.clamped("near", value, 0, axis.before - 1)


def _tap(
    attrs: Resize, k: KernelBuilder, stack: ExitStack, position: Local, axis: _Axis, work: DType
) -> tuple[Dim, Dim, Expr]:
    """A loop over the samples that one axis mixes: its variable, the place in x, the share."""
    mode, antialias = attrs.mode, attrs.antialias
    reach, last = REACH[mode], axis.before - 1
    shrink: Expr = Lit(1.0, DType.F32)
    start, count = Dim.of(1 - reach), Dim.of(2 * reach)
    base: Expr = apply("floor", position)
    if mode == "linear" and not antialias:
        # Beyond the edge lies the edge: no sample outside is mixed in.
        position = k.local(
            "inner", DType.F32, apply("max", apply("min", position, _f32(last)), 0.0)
        )
        base = apply("floor", position)
    if antialias:
        shrink = k.local("shrink", DType.F32, apply("min", axis.scale, Lit(1.0, DType.F32)))
        start = _first(k, axis, reach, shrink)
        count = 2 - start * 2
        base = apply("ceil", position) - 1.0
    left = k.local("left", DType.F32, base)
    ratio = k.local("ratio", DType.F32, position - left)
    first = k.clamped("from", left, -FAR, FAR)

    def weight(tap: Dim) -> Expr:
        distance = k.local(
            "distance", DType.F32, apply("abs", (_f32(start + tap) - ratio) * shrink)
        )
        value = k.local("share", DType.F32, _kernel(mode, distance, attrs.cubic_a))
        if not attrs.exclude_outside:
            return value
        place = first + start + tap
        inside = binary(
            "&&", binary("<=", Lit(0, DType.I64), Index(place)),
            binary("<", Index(place), Index(axis.before)),
        )  # fmt: skip
        return Select(inside, value, Lit(0.0, DType.F32))

    norm: Expr | None = None
    if attrs.exclude_outside or antialias:
        sum_ = k.local("norm", DType.F32, 0.0)
        with k.loops(count) as (tap,):
            k.assign(sum_, sum_ + weight(tap))
        norm = sum_
    (tap,) = stack.enter_context(k.loops(count))
    value = weight(tap)
    if norm is not None:
        value = value / (_or_one(norm) if antialias else norm)
    share = k.local(f"share{axis.number}", work, value if work is DType.F32 else Cast(value, work))
    place = k.let(f"tap{axis.number}", dim_min(dim_max(first + start + tap, 0), last))
    return tap, place, share


def _or_one(norm: Expr) -> Expr:
    return Select(binary("==", norm, 0.0), Lit(1.0, DType.F32), norm)


def _first(k: KernelBuilder, axis: _Axis, reach: int, shrink: Expr) -> Dim:
    """The leftmost tap: floor(-reach / min(scale, 1)) + 1."""
    known = _first_known(axis, reach)
    if known is not None:
        return known
    wide = Cast(apply("ceil", float(reach) / shrink), DType.I64, "saturate")
    return 1 - k.index("reach", wide, 1, FAR)


def _first_known(axis: _Axis, reach: int) -> Dim | None:
    """The same, where no data changes it."""
    if isinstance(axis.widest, Lit):
        scale = min(float(axis.widest.value), 1.0)
        return Dim.of(int(np.floor(-reach / scale)) + 1)
    if axis.exact:
        return dim_min(-(axis.before * reach) // axis.after, -reach) + 1
    return None


def _kernel(mode: str, s: Expr, a: float) -> Expr:
    """The weight at distance s >= 0: a triangle, or the cubic of Keys with parameter a."""
    if mode == "linear":
        return apply("max", 1.0 - s, 0.0)
    near = ((a + 2.0) * s - (a + 3.0)) * s * s + 1.0
    far = ((a * s - 5.0 * a) * s + 8.0 * a) * s - 4.0 * a
    zero = Lit(0.0, DType.F32)
    return Select(binary("<=", s, 1.0), near, Select(binary("<", s, 2.0), far, zero))


# The same in NumPy, one axis after the other as a matrix


def _reference(
    attrs: Resize, x: Array, factors: Array | None = None, region: Array | None = None
) -> Array:
    result = x if attrs.mode == "nearest" else x.astype(np.float64)
    outside = np.zeros([int(n) for n in attrs.sizes], np.bool_)
    spans = np.asarray(attrs.roi if region is None else region, np.float32)
    for axis in range(x.ndim):
        before, after = x.shape[axis], int(attrs.sizes[axis])
        scale = np.float32(attrs.scales[axis])
        if not scale and factors is not None:
            scale = factors[axis]
        elif not scale and attrs.policy:
            pairs = zip(attrs.wanted, x.shape, strict=True)
            ratios = [np.float32(int(w)) / np.float32(n) for w, n in pairs if w]
            scale = min(ratios) if attrs.policy == "not_larger" else max(ratios)
        elif not scale:
            scale = np.float32(after) / np.float32(max(before, 1))
        crop = attrs.transform == "tf_crop_and_resize"
        if scale == 1 or (attrs.antialias and before == after):
            continue
        ends = (spans[axis], spans[axis + x.ndim]) if len(spans) else (np.float32(0), np.float32(1))
        positions = centers(before, after, scale, attrs.transform, ends)
        if crop:
            lying = (positions < 0) | (positions > before - 1)
            outside |= lying.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        if attrs.mode == "nearest":
            result = np.take(result, rounded(positions, before, scale, attrs.rounding), axis=axis)
        else:
            matrix = matrix_of(attrs, positions, before, scale)
            result = np.moveaxis(np.tensordot(matrix, result, (1, axis)), 0, axis)
    if attrs.mode != "nearest" and x.dtype.kind in "iu":
        result = np.clip(np.trunc(result), np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    return np.where(outside, attrs.extrapolation, result).astype(x.dtype)


OP = Op("resize", _type, _lower, _reference, samples_of, conditions=_conditions, values=VALUES,
        record=Resize)  # fmt: skip
