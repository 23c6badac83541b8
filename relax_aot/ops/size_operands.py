# SPDX-License-Identifier: Apache-2.0
"""Shape operands as sizes: each op computes the sizes that `define` then makes symbols.

Each op here converts an operand of ONNX (negative numbers, clamping, 0 and -1, a list
of axes) into plain sizes, one for each axis, as int64. An operand that makes no sense ends the
run with a status.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_equal, must_not_exceed, require
from relax_aot.ops._size_lists import (
    FARTHEST,
    ONE,
    OPEN_ENDS,
    ZERO,
    Sizes,
    axis_at,
    check_operands,
    entry,
    length_of,
    list_type,
    require_valid,
    spread_sizes,
    wide,
)

# slice_sizes: first element, number of elements, step, of every axis


def _slice_type(
    starts: TensorType,
    ends: TensorType,
    axes: TensorType | None = None,
    steps: TensorType | None = None,
    *,
    sizes: Sizes,
) -> TensorType:
    check_operands(starts, ends, axes, steps)
    return list_type(3 * len(sizes))


def _slice_conditions(
    starts: TensorType,
    ends: TensorType,
    axes: TensorType | None = None,
    steps: TensorType | None = None,
    *,
    sizes: Sizes,
) -> list[Condition]:
    count, others = length_of(starts), (ends, axes, steps)
    same = [must_equal(length_of(o), count, "lists of a Slice") for o in others if o is not None]
    return same if axes else [*same, must_not_exceed(count, len(sizes), "axes of a Slice")]


def _slice_lower(
    k: KernelBuilder,
    starts: Buffer,
    ends: Buffer,
    axes: Buffer | None,
    steps: Buffer | None,
    y: Buffer,
    *,
    sizes: Sizes,
) -> None:
    rank = len(sizes)

    def whole(axis: Dim, size: Expr) -> None:
        k.store(y[(axis,)], ZERO)
        k.store(y[(axis + rank,)], size)
        k.store(y[(axis + 2 * rank,)], ONE)

    spread_sizes(k, sizes, whole)
    with k.loops(length_of(starts)) as (i,):
        axis = i if axes is None else axis_at(k, axes, i, rank)
        size = k.local("size", DType.I64, y[(axis + rank,)])
        step = k.local("step", DType.I64, ONE if steps is None else wide(entry(i, steps)))
        valid = require_valid(k, binary("!=", step, 0))
        forward = binary("<", ZERO, step)
        ends_of = []
        for name, given in (("start", starts), ("end", ends)):
            place = k.local(name, DType.I64, wide(entry(i, given)))
            least: Expr = ZERO
            most = Select(forward, size, size - 1)
            if name == "end":
                # Backwards, the end may lie before the first element, as an open end does.
                least = Select(forward, ZERO, Lit(-1, DType.I64))
                before = Select(forward, place, least - size)
                for opened in OPEN_ENDS:
                    k.assign(place, Select(binary("==", place, opened), before, place))
            k.assign(place, Select(binary("<", place, 0), place + size, place))
            k.assign(place, apply("max", apply("min", place, most), least))
            ends_of.append(place)
        start, end = ends_of
        # No step is longer than the axis, as far as anybody can tell.
        k.assign(
            step,
            apply("max", apply("min", step, apply("max", size, ONE)), -apply("max", size, ONE)),
        )
        reach = Select(forward, end - start + step - 1, start - end - step - 1)
        length = apply("max", reach / apply("abs", step), ZERO)
        k.store(y[(axis + valid,)], apply("max", start, ZERO))
        k.store(y[(axis + rank,)], length)
        k.store(y[(axis + 2 * rank,)], step)


def _slice_reference(
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
    *,
    sizes: Sequence[int],
) -> Array:
    rank = len(sizes)
    y = np.array([0] * rank + [int(n) for n in sizes] + [1] * rank, np.int64)
    for i, (start, end) in enumerate(zip(starts.reshape(-1), ends.reshape(-1), strict=True)):
        axis = i if axes is None else int(axes.reshape(-1)[i]) % rank
        step = 1 if steps is None else int(steps.reshape(-1)[i])
        size = int(sizes[axis])
        first, last = (int(v) + size if v < 0 else int(v) for v in (start, end))
        if step < 0 and last in OPEN_ENDS:
            last = -1
        first = min(max(first, 0), size if step > 0 else size - 1)
        # Backwards, the end may lie before the first element.
        last = min(max(last, 0 if step > 0 else -1), size)
        y[axis], y[axis + rank] = max(first, 0), len(range(first, last, step))
        y[axis + 2 * rank] = max(min(step, max(size, 1)), -max(size, 1))
    return y


def _slice_samples(rng: np.random.Generator) -> list[Sample]:
    def case(starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Sample:
        args = tuple(None if v is None else np.array(v) for v in (starts, ends, axes, steps))
        return Sample(args, {"sizes": (5, 7)}, symbolic=False)

    far = 2**63 - 1
    return [
        case([1, 0], [3, far]),
        case([-3], [-1], [-1]),
        case([6], [-far], [1], [-2]),
        case([9, 2], [1, 0], [0, 1], [-1, 3]),
        case([-100, 100], [100, -100], [1, 0], [9, -9]),
        case([4], [0], [0], [-1]),
        case([3, 5], [far, FARTHEST], [0, 1], [-1, -2]),
        case([-9, 1], [-far, far], [0, 1], [-1, 2]),
    ]


SLICE = Op(
    "slice_sizes", _slice_type, _slice_lower, _slice_reference, _slice_samples,
    conditions=_slice_conditions,
)  # fmt: skip


# pad_sizes: the elements before, and the size after padding, of every axis


def _pad_type(pads: TensorType, axes: TensorType | None = None, *, sizes: Sizes) -> TensorType:
    check_operands(pads, axes)
    require(pads.rank == 1, f"a list of elements to pad is needed, got {pads}")
    return list_type(2 * len(sizes))


def _pad_conditions(
    pads: TensorType, axes: TensorType | None = None, *, sizes: Sizes
) -> list[Condition]:
    count = Dim.of(len(sizes)) if axes is None else length_of(axes)
    return [must_equal(pads.shape[0], 2 * count, "numbers of a Pad")]


def _pad_lower(
    k: KernelBuilder, pads: Buffer, axes: Buffer | None, y: Buffer, *, sizes: Sizes
) -> None:
    rank = len(sizes)

    def whole(axis: Dim, size: Expr) -> None:
        k.store(y[(axis,)], ZERO)
        k.store(y[(axis + rank,)], size)

    spread_sizes(k, sizes, whole)
    half = length_of(pads) // 2
    with k.loops(half) as (i,):
        axis = i if axes is None else axis_at(k, axes, i, rank)
        before = wide(entry(i, pads))
        k.store(y[(axis,)], before)
        k.store(y[(axis + rank,)], y[(axis + rank,)] + before + wide(entry(i + half, pads)))


def _pad_reference(pads: Array, axes: Array | None = None, *, sizes: Sequence[int]) -> Array:
    rank = len(sizes)
    y = np.array([0] * rank + [int(n) for n in sizes], np.int64)
    half = len(pads) // 2
    for i in range(half):
        axis = i if axes is None else int(axes.reshape(-1)[i]) % rank
        y[axis] = pads[i]
        y[axis + rank] += pads[i] + pads[i + half]
    return y


PAD = Op(
    "pad_sizes",
    _pad_type,
    _pad_lower,
    _pad_reference,
    lambda rng: [
        Sample((np.array([1, 2, 3, -1]), None), {"sizes": (5, 7)}, symbolic=False),
        Sample((np.array([1, 3]), np.array([-1])), {"sizes": (5, 7)}, symbolic=False),
    ],
    conditions=_pad_conditions,
)


# expand_sizes: the sizes of broadcasting to a shape


def _expand_type(shape: TensorType, *, sizes: Sizes) -> TensorType:
    check_operands(shape)
    require(shape.rank == 1, f"an Expand needs a list of sizes, got {shape}")
    given = shape.shape[0]
    return list_type(max(len(sizes), given.constant if given.is_constant else 0))


def _expand_conditions(shape: TensorType, *, sizes: Sizes) -> list[Condition]:
    """A list of dynamic length has at most as many sizes as the operand."""
    given = shape.shape[0]
    return [] if given.is_constant else [must_not_exceed(given, len(sizes), "sizes of an Expand")]


def _expand_lower(k: KernelBuilder, shape: Buffer, y: Buffer, *, sizes: Sizes) -> None:
    def write(axis: Dim, size: Expr, place: Dim) -> None:
        requested = k.local("requested", DType.I64, wide(shape[(place,)]))
        same = binary("||", binary("==", requested, size), binary("==", size, ONE))
        valid = require_valid(k, binary("||", binary("==", requested, ONE), same))
        k.store(y[(valid + axis,)], Select(binary("==", size, ONE), requested, size))

    if not shape.shape[0].is_constant:
        spread_sizes(k, sizes, lambda axis, size: k.store(y[(axis,)], size))
        with k.loops(shape.shape[0]) as (i,):
            at = i + len(sizes) - shape.shape[0]
            write(at, k.local("size", DType.I64, y[(at,)]), i)
        return
    rank, given = y.shape[0].constant, shape.shape[0].constant
    for axis in range(rank):
        place = axis - (rank - len(sizes))
        size: Expr = Index(Dim.of(sizes[place])) if place >= 0 else ONE
        if axis < rank - given:
            k.store(y[(Dim.of(axis),)], size)
        else:
            write(Dim.of(axis), size, Dim.of(axis - (rank - given)))


def _expand_reference(shape: Array, *, sizes: Sequence[int]) -> Array:
    return np.array(np.broadcast_shapes(tuple(shape), tuple(int(n) for n in sizes)), np.int64)


EXPAND = Op(
    "expand_sizes",
    _expand_type,
    _expand_lower,
    _expand_reference,
    lambda rng: [
        Sample((np.array([2, 3, 1]),), {"sizes": (3, 4)}, symbolic=False),
        Sample((np.array([4]),), {"sizes": (3, 1)}, symbolic=False),
        Sample((np.array([3, 1]),), {"sizes": (3, 1, 4)}),
    ],
    conditions=_expand_conditions,
)


# reshape_sizes: 0 keeps a size (unless `allow_zero`), -1 takes what is left


def _reshape_type(shape: TensorType, *, sizes: Sizes, allow_zero: bool) -> TensorType:
    check_operands(shape)
    known = shape.rank == 1 and shape.shape[0].is_constant
    require(known, f"a shape needs a rank that is known, got {shape}")
    return list_type(shape.shape[0].constant)


def _reshape_lower(
    k: KernelBuilder, shape: Buffer, y: Buffer, *, sizes: Sizes, allow_zero: bool
) -> None:
    rank = y.shape[0].constant
    elements = TensorType(DType.I64, tuple(map(Dim.of, sizes))).elements
    known = k.local("known", DType.I64, ONE)
    for axis in range(rank):
        requested = k.local("requested", DType.I64, wide(shape[(Dim.of(axis),)]))
        if not allow_zero and axis < len(sizes):
            size = Index(Dim.of(sizes[axis]))
            k.assign(requested, Select(binary("==", requested, ZERO), size, requested))
        k.assign(known, Select(binary("==", requested, -1), known, known * requested))
        k.store(y[(Dim.of(axis),)], requested)
    with k.loops(rank) as (i,), k.when(binary("==", y[(i,)], -1)):
        k.store(y[(i,)], Index(elements) / known)


def _reshape_reference(shape: Array, *, sizes: Sequence[int], allow_zero: bool) -> Array:
    y = [int(n) if n or allow_zero else int(sizes[i]) for i, n in enumerate(shape)]
    rest = int(np.prod([int(n) for n in sizes])) // max(int(np.prod([n for n in y if n >= 0])), 1)
    return np.array([rest if n == -1 else n for n in y], np.int64)


RESHAPE = Op(
    "reshape_sizes",
    _reshape_type,
    _reshape_lower,
    _reshape_reference,
    lambda rng: (
        [
            Sample((np.array(shape),), {"sizes": (2, 3, 4), "allow_zero": False}, symbolic=False)
            for shape in ([4, 6], [-1, 2], [0, 0, -1], [2, -1, 1, 3])
        ]
        + [Sample((np.array([3, 0]),), {"sizes": (0, 3), "allow_zero": True}, symbolic=False)]
    ),
)


# reduce_sizes: of every axis 1 where it is reduced; then those that are left, in order


def _reduce_type(axes: TensorType, *, sizes: Sizes) -> TensorType:
    check_operands(axes)
    # Where the number of axes is unknown, so is how many sizes are left.
    left = len(sizes) - axes.elements.constant if axes.elements.is_constant else 0
    require(left >= 0, f"{axes} name more axes than there are")
    return list_type(len(sizes) + left)


def _reduce_lower(k: KernelBuilder, axes: Buffer, y: Buffer, *, sizes: Sizes) -> None:
    rank = len(sizes)
    gone = k.scratch("gone", DType.BOOL, (rank,))
    with k.loops(rank) as (i,):
        k.store(gone[(i,)], False)
    with k.loops(length_of(axes)) as (i,):
        axis = axis_at(k, axes, i, rank)
        valid = require_valid(k, ~gone[(axis,)])
        k.store(gone[(axis + valid,)], True)
    shorter = y.shape[0].constant > rank
    left = k.local("left", DType.I64, rank) if shorter else None
    for number, size in enumerate(sizes):
        at = Dim.of(number)
        k.store(y[(at,)], Select(gone[(at,)], ONE, Index(Dim.of(size))))
        if left is not None:
            with k.when(~gone[(at,)]):
                k.store(y[(k.placed("place", left, rank, y.shape[0] - 1),)], Index(Dim.of(size)))
                k.assign(left, left + 1)


def _reduce_reference(axes: Array, *, sizes: Sequence[int]) -> Array:
    over = {int(a) % len(sizes) for a in axes.reshape(-1)}
    kept = [1 if i in over else int(n) for i, n in enumerate(sizes)]
    return np.array(kept + [int(n) for i, n in enumerate(sizes) if i not in over], np.int64)


REDUCE = Op(
    "reduce_sizes",
    _reduce_type,
    _reduce_lower,
    _reduce_reference,
    lambda rng: [
        Sample((np.array(axes),), {"sizes": (5, 6, 7)}, symbolic=False)
        for axes in ([1], [0, -1], [-2, 0, 2])
    ],
)


# unsqueeze_sizes: sizes with 1 at some places of the result


def _unsqueeze_type(axes: TensorType, *, sizes: Sizes) -> TensorType:
    check_operands(axes)
    require(axes.elements.is_constant, f"axes need a number that is known, got {axes}")
    return list_type(len(sizes) + axes.elements.constant)


def _unsqueeze_lower(k: KernelBuilder, axes: Buffer, y: Buffer, *, sizes: Sizes) -> None:
    rank = y.shape[0].constant
    own = k.scratch("own", DType.I64, (max(len(sizes), 1),))
    with k.loops(rank) as (i,):
        k.store(y[(i,)], Lit(-1, DType.I64))
    for number, size in enumerate(sizes):
        k.store(own[(Dim.of(number),)], Index(Dim.of(size)))
    with k.loops(length_of(axes)) as (i,):
        axis = axis_at(k, axes, i, rank)
        valid = require_valid(k, binary("<", y[(axis,)], 0))
        k.store(y[(axis + valid,)], ONE)
    if not sizes:
        return
    taken = k.local("taken", DType.I64, 0)
    with k.loops(rank) as (i,), k.when(binary("<", y[(i,)], 0)):
        k.store(y[(i,)], own[(k.placed("place", taken, 0, len(sizes) - 1),)])
        k.assign(taken, taken + 1)


def _unsqueeze_reference(axes: Array, *, sizes: Sequence[int]) -> Array:
    shape = np.expand_dims(
        np.empty([int(n) for n in sizes]), tuple(int(a) for a in axes.reshape(-1))
    ).shape
    return np.array(shape, np.int64)


UNSQUEEZE = Op(
    "unsqueeze_sizes",
    _unsqueeze_type,
    _unsqueeze_lower,
    _unsqueeze_reference,
    lambda rng: [
        Sample((np.array(axes),), {"sizes": (5, 6)}, symbolic=False)
        for axes in ([1], [0, -1], [2, 4, 3])
    ],
)


# tile_sizes, resize_sizes: products of sizes with numbers


def _tile_type(repeats: TensorType, *, sizes: Sizes) -> TensorType:
    check_operands(repeats)
    require(repeats.rank == 1, f"a list of repeats is needed, got {repeats}")
    return list_type(len(sizes))


def _tile_conditions(repeats: TensorType, *, sizes: Sizes) -> list[Condition]:
    return [must_equal(repeats.shape[0], len(sizes), "repeats of a Tile")]


def _tile_lower(k: KernelBuilder, repeats: Buffer, y: Buffer, *, sizes: Sizes) -> None:
    def scaled(axis: Dim, size: Expr) -> None:
        k.store(y[(axis,)], size * wide(repeats[(axis,)]))

    spread_sizes(k, sizes, scaled)


TILE = Op(
    "tile_sizes",
    _tile_type,
    _tile_lower,
    lambda repeats, *, sizes: repeats.astype(np.int64) * [int(n) for n in sizes],
    lambda rng: [Sample((np.array([2, 0, 3]),), {"sizes": (5, 6, 7)}, symbolic=False)],
    conditions=_tile_conditions,
)


def _resize_type(scales: TensorType, *, sizes: Sizes) -> TensorType:
    fits = scales.dtype is DType.F32 and scales.shape == (Dim.of(len(sizes)),)
    require(fits, f"a float for each of {len(sizes)} axes is needed, got {scales}")
    return list_type(len(sizes))


def _resize_lower(k: KernelBuilder, scales: Buffer, y: Buffer, *, sizes: Sizes) -> None:
    def scaled(axis: Dim, size: Expr) -> None:
        product = Cast(size, DType.F32) * scales[(axis,)]
        k.store(y[(axis,)], Cast(apply("floor", product), DType.I64, "saturate"))

    spread_sizes(k, sizes, scaled)


RESIZE = Op(
    "resize_sizes",
    _resize_type,
    _resize_lower,
    lambda scales, *, sizes: np.floor(np.float32(sizes) * scales).astype(np.int64),
    lambda rng: [
        Sample((np.array([1, 0.6, 2.5], np.float32),), {"sizes": (5, 6, 7)}, symbolic=False)
    ],
)

OPS = (SLICE, PAD, EXPAND, RESHAPE, REDUCE, UNSQUEEZE, TILE, RESIZE)
