# SPDX-License-Identifier: Apache-2.0
"""Data movement: reshape, copy, transpose, slice, concat, expand, tile, pad."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Bounds, Dim, Proof, dim_max, dim_min, prove, prove_le
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Binary, Buffer, Expr, Lit, Select, binary
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    Trait,
    broadcast,
    code_limits,
    must_equal,
    must_not_exceed,
    must_stretch,
    normal_axis,
    not_negative,
    plainly,
    require,
    stretched,
)
from relax_aot.ops._ranges import union

Sizes = Sequence[int | Dim]


def _dims(sizes: Sizes) -> tuple[Dim, ...]:
    return tuple(Dim.of(size) for size in sizes)


def _counting(*shape: int, dtype: Any = np.float32) -> Array:
    return np.arange(prod(shape)).reshape(shape).astype(dtype)


# reshape, copy


def _reshape_type(x: TensorType, *, shape: Sizes) -> TensorType:
    return TensorType(x.dtype, _dims(shape))


def _reshape_conditions(x: TensorType, *, shape: Sizes) -> list[Condition]:
    return [must_equal(x.elements, TensorType(x.dtype, _dims(shape)).elements, "element counts")]


def _copy_lower(k: KernelBuilder, x: Buffer, y: Buffer, **_attrs: Any) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], x[at])


def _no_lower(_k: KernelBuilder, *_buffers: Buffer, **_attrs: Any) -> None:
    raise AssertionError("a view needs no code")


RESHAPE = Op(
    "reshape",
    _reshape_type,
    _no_lower,
    lambda x, *, shape: np.reshape(x, [int(n) for n in shape]),
    lambda rng: [Sample((_counting(2, 6),), {"shape": (3, 4)}, symbolic=False)],
    conditions=_reshape_conditions,
    symbolic=plainly(lambda x, *, shape: np.reshape(x, [int(n) for n in shape])),
    view=True,
    any_type=True,
    traits=Trait.MOVES | Trait.SAME | Trait.PERMUTES,
)

COPY = Op(
    "copy",
    lambda x: x,
    _copy_lower,
    lambda x: x.copy(),
    lambda rng: [Sample((_counting(2, 3),)), Sample((_counting(dtype=np.int64),))],
    symbolic=plainly(lambda x: x),
    any_type=True,
    traits=Trait.MOVES | Trait.SAME,
)


# transpose, expand, tile


def _transpose_type(x: TensorType, *, perm: Sequence[int]) -> TensorType:
    require(sorted(perm) == list(range(x.rank)), f"transpose: perm {list(perm)} is not one of {x}")
    return TensorType(x.dtype, tuple(x.shape[p] for p in perm))


def _transpose_lower(k: KernelBuilder, x: Buffer, y: Buffer, *, perm: Sequence[int]) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], x[tuple(at[perm.index(axis)] for axis in range(x.rank))])


TRANSPOSE = Op(
    "transpose",
    _transpose_type,
    _transpose_lower,
    lambda x, *, perm: np.transpose(x, perm),
    lambda rng: [
        Sample((_counting(2, 3, 5),), {"perm": (2, 0, 1)}),
        Sample((_counting(4, 3, dtype=np.int8),), {"perm": (1, 0)}),
        Sample((_counting(0, 3),), {"perm": (1, 0)}),
    ],
    symbolic=plainly(lambda x, *, perm: np.transpose(x, perm)),
    any_type=True,
    traits=Trait.MOVES | Trait.PERMUTES,
)


def _expand_lower(k: KernelBuilder, x: Buffer, y: Buffer, *, shape: Sizes) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], x[stretched(at, x.shape, y.shape)])


def _expand_conditions(x: TensorType, *, shape: Sizes) -> list[Condition]:
    whole = _dims(shape)
    require(x.rank <= len(whole), f"expand: {x} has more axes than {list(map(str, whole))}")
    broadcast(x.shape, whole)  # refuses constants that differ
    added, own = whole[: len(whole) - x.rank], whole[len(whole) - x.rank :]
    pairs = [(size, n) for size, n in zip(x.shape, own, strict=True) if size != n]
    return [
        *(must_stretch(size, n) for size, n in pairs if size != 1),
        *not_negative("shape")(shape=(*added, *(n for _, n in pairs))),
    ]


EXPAND = Op(
    "expand",
    _reshape_type,
    _expand_lower,
    lambda x, *, shape: np.broadcast_to(x, [int(n) for n in shape]),
    lambda rng: [
        Sample((_counting(3, 1),), {"shape": (2, 3, 4)}, symbolic=False),
        Sample((_counting(),), {"shape": (5,)}, symbolic=False),
    ],
    conditions=_expand_conditions,
    symbolic=plainly(lambda x, *, shape: np.broadcast_to(x, [int(n) for n in shape])),
    any_type=True,
    traits=Trait.MOVES | Trait.SAME,
)


def _tile_type(x: TensorType, *, repeats: Sizes) -> TensorType:
    require(len(repeats) == x.rank, f"tile needs one repeat per axis of {x}")
    return TensorType(x.dtype, tuple(n * Dim.of(r) for n, r in zip(x.shape, repeats, strict=True)))


def _tile_lower(k: KernelBuilder, x: Buffer, y: Buffer, *, repeats: Sizes) -> None:
    with k.loops(*repeats) as copy, k.loops(*x.shape) as at:
        where = tuple(c * n + i for c, n, i in zip(copy, x.shape, at, strict=True))
        k.store(y[where], x[at])


TILE = Op(
    "tile",
    _tile_type,
    _tile_lower,
    lambda x, *, repeats: np.tile(x, [int(r) for r in repeats]),
    lambda rng: [Sample((_counting(2, 3),), {"repeats": (3, 2)})],
    conditions=not_negative("repeats"),
    symbolic=plainly(lambda x, *, repeats: np.tile(x, [int(r) for r in repeats])),
    any_type=True,
    traits=Trait.MOVES,
)


def _tile_to_type(x: TensorType, *, shape: Sizes) -> TensorType:
    require(len(shape) == x.rank, f"tile_to needs one size per axis of {x}, got {shape}")
    return _reshape_type(x, shape=shape)


def _tile_to_lower(k: KernelBuilder, x: Buffer, y: Buffer, *, shape: Sizes) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], x[tuple(i % n for i, n in zip(at, x.shape, strict=True))])


TILE_TO = Op(
    "tile_to",
    _tile_to_type,
    _tile_to_lower,
    lambda x, *, shape: np.tile(
        x, [int(n) // max(m, 1) for n, m in zip(shape, x.shape, strict=True)]
    ),
    lambda rng: [Sample((_counting(2, 3),), {"shape": (6, 9)}, sizes=("shape",))],
    conditions=not_negative("shape"),
    traits=Trait.MOVES,
)


# slice, concat, pad


def normalize_slice(
    start: Dim | None, end: Dim | None, step: int, size: Dim, bounds: Bounds
) -> tuple[Dim, Dim, Proof]:
    """ONNX's start and end (None: open) -> (first element, number of elements, their proof).

    Indices below zero count from the end; both are clamped as the specification says. The
    result is right for raised highs too, where the signs of the indices are.
    """
    top = size if step > 0 else size - 1
    bottom = Dim.of(0) if step > 0 else Dim.of(-1)
    first, start_sign = _clamped(start, size, Dim.of(0), top, bounds, opened=step > 0)
    last, end_sign = _clamped(end, size, bottom, size, bounds, opened=step < 0)
    if step > 0:
        length = (last - first + step - 1) // step
    else:
        length = (first - last - step - 1) // -step
    return first, _at_least_zero(length, bounds), start_sign & end_sign


def _clamped(
    index: Dim | None, size: Dim, low: Dim, high: Dim, bounds: Bounds, *, opened: bool
) -> tuple[Dim, Proof]:
    if index is None:
        return low if opened else high, Proof(True)
    negative = prove(index, "<", 0, bounds)
    sign = negative or prove(0, "<=", index, bounds)
    if not sign:
        require(False, f"slice: the sign of {index} depends on sizes; bound them more tightly")
    if negative:
        index = index + size
    if not prove_le(low, index, bounds):
        index = low if prove_le(index, low, bounds) else dim_max(index, low)
    if not prove_le(index, high, bounds):
        index = high if prove_le(high, index, bounds) else dim_min(index, high)
    return index, sign


def _at_least_zero(length: Dim, bounds: Bounds) -> Dim:
    if prove_le(0, length, bounds):
        return length
    return Dim.of(0) if prove_le(length, 0, bounds) else dim_max(length, 0)


def _slice_type(
    x: TensorType, *, starts: Sizes, lengths: Sizes, axes: Sequence[int], steps: Sizes
) -> TensorType:
    shape = list(x.shape)
    for axis, length, step in zip(axes, lengths, steps, strict=True):
        require(0 <= axis < x.rank and step != 0, f"slice: axis {axis}, step {step} of {x}")
        shape[axis] = Dim.of(length)
    return TensorType(x.dtype, tuple(shape))


def _slice_conditions(
    x: TensorType, *, starts: Sizes, lengths: Sizes, axes: Sequence[int], steps: Sizes
) -> list[Condition]:
    """First and last element lie inside; for no elements the last is one step before the first."""
    found: list[Condition] = []
    for axis, start, length, step in zip(axes, starts, lengths, steps, strict=True):
        if isinstance(step, Dim):
            continue  # data decide the direction; who made start and length has clamped them
        last = Dim.of(start) + (Dim.of(length) - 1) * step
        low, high = (start, last) if step > 0 else (last, start)
        why = f"slice of axis {axis}"
        found += [
            must_not_exceed(0, low, why),
            must_not_exceed(Dim.of(high) + 1, x.shape[axis], why),
        ]
    return found


def _slice_lower(
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    *,
    starts: Sizes,
    lengths: Sizes,
    axes: Sequence[int],
    steps: Sizes,
) -> None:
    with k.loops(*y.shape) as at:
        where = list(at)
        for axis, start, step in zip(axes, starts, steps, strict=True):
            where[axis] = at[axis] * step + start
        k.store(y[at], x[tuple(where)])


def _slice_reference(
    x: Array, *, starts: Sizes, lengths: Sizes, axes: Sequence[int], steps: Sizes
) -> Array:
    for axis, start, length, step in zip(axes, starts, lengths, steps, strict=True):
        x = np.take(x, [int(start) + int(step) * i for i in range(int(length))], axis=axis)
    return x


SLICE = Op(
    "slice",
    _slice_type,
    _slice_lower,
    _slice_reference,
    lambda rng: [
        Sample((_counting(5, 7),),
               {"starts": (1, 6), "lengths": (3, 4), "axes": (0, 1), "steps": (1, -2)},
               symbolic=False),
        Sample((_counting(5),), {"starts": (5,), "lengths": (0,), "axes": (0,), "steps": (1,)},
               symbolic=False),
    ],
    conditions=_slice_conditions,
    symbolic=plainly(_slice_reference),
    any_type=True, traits=Trait.MOVES
)  # fmt: skip


def _concat_type(*xs: TensorType, axis: int) -> TensorType:
    first = xs[0]
    require(all(x.dtype is first.dtype for x in xs), "concat needs equal element types")
    require(all(x.rank == first.rank for x in xs), "concat needs equal ranks")
    axis = normal_axis(axis, first.rank)
    shape = list(first.shape)
    shape[axis] = sum((x.shape[axis] for x in xs[1:]), first.shape[axis])
    return TensorType(first.dtype, tuple(shape))


def _concat_conditions(*xs: TensorType, axis: int) -> list[Condition]:
    at = normal_axis(axis, xs[0].rank)
    return [
        must_equal(a, b, "concat")
        for x in xs[1:]
        for i, (a, b) in enumerate(zip(x.shape, xs[0].shape, strict=True))
        if i != at
    ]


def _concat_lower(k: KernelBuilder, *buffers: Buffer, axis: int) -> None:
    *inputs, y = buffers
    at_axis = normal_axis(axis, y.rank)
    offset = Dim.of(0)
    for x in inputs:
        with k.loops(*x.shape) as at:
            where = (*at[:at_axis], at[at_axis] + offset, *at[at_axis + 1 :])
            k.store(y[where], x[at])
        offset = offset + x.shape[at_axis]


CONCAT = Op(
    "concat",
    _concat_type,
    _concat_lower,
    lambda *xs, axis: np.concatenate(xs, axis=axis),
    lambda rng: [
        Sample((_counting(2, 3), _counting(2, 5), _counting(2, 1)), {"axis": 1}),
        Sample((_counting(0, 3), _counting(4, 3)), {"axis": -2}),
    ],
    conditions=_concat_conditions,
    symbolic=plainly(lambda *xs, axis: np.concatenate(xs, axis=axis)),
    any_type=True,
    traits=Trait.QUANTIZABLE | Trait.PERMUTES,
    value_range=union,
)


def _pad_type(
    x: TensorType, value: TensorType | None = None, *, before: Sizes, after: Sizes, mode: str
) -> TensorType:
    known = len(before) == len(after) == x.rank
    require(known, f"pad needs two widths per axis of {x}, got {before} and {after}")
    one = value is None or (value.dtype is x.dtype and value.elements == Dim.of(1))
    require(one, f"pad of {x} needs a number of its type, got {value}")
    sizes = zip(before, x.shape, after, strict=True)
    return TensorType(x.dtype, tuple(n + Dim.of(a) + Dim.of(b) for a, n, b in sizes))


def _pad_conditions(
    x: TensorType, value: TensorType | None = None, *, before: Sizes, after: Sizes, mode: str
) -> list[Condition]:
    conditions = []
    for low, size, high in zip(before, x.shape, after, strict=True):
        conditions.append(must_not_exceed(0, size + Dim.of(low) + Dim.of(high), "padded size"))
        padded = [p for p in (Dim.of(low), Dim.of(high)) if p != Dim.of(0)]
        if mode == "reflect":
            conditions += [must_not_exceed(p + 1, size, "reflected padding") for p in padded]
        elif mode in ("edge", "wrap") and padded:
            conditions.append(must_not_exceed(1, size, "padding of an empty axis"))
    return conditions


def _pad_lower(k: KernelBuilder, *buffers: Buffer, before: Sizes, after: Sizes, mode: str) -> None:
    x, value, y = buffers if len(buffers) == 3 else (buffers[0], None, buffers[1])
    with k.loops(*y.shape) as at:
        where, inside = _pad_source(k, x, at, before, mode)
        if not inside:
            k.store(y[at], x[where])
            return
        condition = inside[0]
        for part in inside[1:]:
            condition = Binary("&&", condition, part)
        fill = value[(Dim.of(0),) * value.rank] if value is not None else _zero(x)
        k.store(y[at], Select(condition, x[where], fill))


def _zero(x: Buffer) -> Expr:
    if x.dtype.is_float:
        return Lit(0.0, x.dtype)
    return Lit(0 if x.dtype.is_int else False, x.dtype)


def _pad_source(
    k: KernelBuilder, x: Buffer, at: At, before: Sizes, mode: str
) -> tuple[At, list[Expr]]:
    """Where an element comes from, and the conditions under which it comes from x at all."""
    where: list[Dim] = []
    inside: list[Expr] = []
    for axis, (index, low, size) in enumerate(zip(at, before, x.shape, strict=True)):
        source = index - Dim.of(low)
        match mode:
            case "constant":
                if source != index:
                    inside.append(binary("<=", 0, source))
                inside.append(binary("<", source, size))
            case "edge":
                source = dim_max(dim_min(source, size - 1), 0)
            case "wrap":
                source = (source + size * _turns(low)) % size
            case _:
                # |i| folds at the start, (size-1) - |(size-1) - i| at the end.
                folded = dim_max(source, -source)
                rest = size - 1 - folded
                source = size - 1 - dim_max(rest, -rest)
        where.append(k.let(f"s{axis}", source))
    return tuple(where), inside


def _turns(low: int | Dim) -> int:
    return 1 if isinstance(low, Dim) else max(int(low), 1)


def _pad_reference(
    x: Array, value: Array | None = None, *, before: Sizes, after: Sizes, mode: str
) -> Array:
    widths = [(int(a), int(b)) for a, b in zip(before, after, strict=True)]
    positive = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        fill = x.dtype.type(0) if value is None else value.reshape(())
        # Cut behind padding: a side may lose more than x has there.
        padded = np.pad(x, positive, constant_values=fill)
        ends = zip(widths, padded.shape, strict=True)
        return padded[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in ends)]
    cut = tuple(
        slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(widths, x.shape, strict=True)
    )
    return np.pad(x[cut], positive, mode=mode)  # type: ignore[call-overload, no-any-return]


PAD = Op(
    "pad",
    _pad_type,
    _pad_lower,
    _pad_reference,
    values={"mode": ("constant", "reflect", "edge", "wrap")},
    samples=lambda rng: [
        Sample((_counting(3, 5),), {"before": (1, 0), "after": (2, 3), "mode": "constant"}),
        Sample((_counting(3, 5), np.array(7, np.float32)),
               {"before": (0, 2), "after": (0, 0), "mode": "constant"}),
        Sample((_counting(3, 5),), {"before": (-1, 2), "after": (1, -2), "mode": "constant"}),
        Sample((_counting(3, 5),), {"before": (4, -6), "after": (-5, 3), "mode": "constant"}),
        Sample((_counting(3, 5),), {"before": (2, 1), "after": (1, 4), "mode": "reflect"}),
        Sample((_counting(3, 5),), {"before": (2, 1), "after": (1, 6), "mode": "edge"}),
        Sample((_counting(3, 5),), {"before": (2, 1), "after": (1, 4), "mode": "wrap"}),
    ],
    conditions=_pad_conditions, traits=Trait.EXACT,
    quantization={"value": code_limits},
)  # fmt: skip

OPS = (RESHAPE, COPY, TRANSPOSE, EXPAND, TILE, TILE_TO, SLICE, CONCAT, PAD)
