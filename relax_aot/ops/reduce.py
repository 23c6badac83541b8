# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes; arg_max and arg_min."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Bounds, Dim, dim_max, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import (
    Apply,
    Binary,
    Buffer,
    Cast,
    Expr,
    Index,
    Lit,
    Local,
    Select,
    apply,
    binary,
)
from relax_aot.ir.types import DType, Shape, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    is_float,
    must_not_exceed,
    normal_axis,
    not_negative,
    require,
)

KINDS = (
    "sum", "mean", "max", "min", "prod", "l1", "l2", "log_sum", "log_sum_exp", "sum_square",
)  # fmt: skip


def _axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(sorted(normal_axis(a, rank) for a in axes))


def _reduced(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    return tuple(
        Dim.of(1) if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes
    )


def _type(x: TensorType, *, kind: str, axes: Sequence[int], keepdims: bool) -> TensorType:
    require(x.dtype is not DType.BOOL or kind in ("max", "min"), f"reduce {kind} of {x}")
    return TensorType(x.dtype, _reduced(x.shape, _axes(axes, x.rank), keepdims))


def _exact_where(*, kind: str, **_attrs: Any) -> bool:
    return kind in ("max", "min")


def _start(kind: str, dtype: DType) -> float | int:
    if kind in ("max", "min", "log_sum_exp"):
        if dtype.is_float:
            return inf if kind == "min" else -inf
        if dtype is DType.BOOL:
            return kind == "min"
        info = np.iinfo(dtype.numpy)
        return int(info.max if kind == "min" else info.min)
    return 1 if kind == "prod" else 0


def _lower(
    k: KernelBuilder, x: Buffer, y: Buffer, *, kind: str, axes: Sequence[int], keepdims: bool
) -> None:
    inner = _axes(axes, x.rank)
    outer = tuple(i for i in range(x.rank) if i not in inner)
    with k.loops(*(x.shape[i] for i in outer)) as row:

        def element(at: At) -> Expr:
            where: dict[int, Dim] = dict(zip(outer, row, strict=True))
            where |= dict(zip(inner, at, strict=True))
            return x[tuple(where[i] for i in range(x.rank))]

        value = _reduced_value(k, kind, x.dtype, [x.shape[i] for i in inner], element)
        place = iter(row)
        index = tuple(Dim.of(0) if i in inner else next(place) for i in range(x.rank))
        k.store(y[index if keepdims else row], value)


def _reduced_value(
    k: KernelBuilder, kind: str, dtype: DType, sizes: Sequence[Dim], element: Callable[[At], Expr]
) -> Expr:
    """One element of the result, from those at all indices below `sizes`."""
    total = k.local("total", dtype, _start(kind, dtype))
    with k.loops(*sizes) as at:
        k.assign(total, _step(kind, total, element(at)))
    if kind != "log_sum_exp":
        return _finish(kind, total, dtype, sizes)
    # log(sum(exp(x - peak))) + peak, which does not overflow; peak alone when infinite.
    shift = k.local("shift", dtype, Select(Apply("isinf", (total,)), Lit(0.0, dtype), total))
    powers = k.local("exps", dtype, 0.0)
    with k.loops(*sizes) as at:
        k.assign(powers, powers + apply("exp", element(at) - shift))
    return apply("log", powers) + shift


def _step(kind: str, total: Local, value: Expr) -> Expr:
    match kind:
        case "max" | "log_sum_exp":
            if value.dtype is DType.BOOL:
                return Binary("||", total, value)
            return apply("max", total, value)
        case "min":
            if value.dtype is DType.BOOL:
                return Binary("&&", total, value)
            return apply("min", total, value)
        case "prod":
            return total * value
        case "l1":
            return total + apply("abs", value)
        case "l2" | "sum_square":
            return total + binary("*", value, value)
        case _:
            return total + value


def _finish(kind: str, total: Expr, dtype: DType, sizes: Sequence[Dim]) -> Expr:
    if kind == "mean":
        count = TensorType(dtype, tuple(sizes)).elements
        return binary("/", total, Cast(Index(count), dtype))
    if kind == "l2":
        return _through_float("sqrt", total)
    if kind == "log_sum":
        return _through_float("log", total)
    return total


def _through_float(function: str, value: Expr) -> Expr:
    if value.dtype.is_float:
        return apply(function, value)
    return Cast(apply(function, Cast(value, DType.F64)), value.dtype)


FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "l1": (np.abs, np.asarray), "l2": (np.square, np.sqrt), "sum_square": (np.square, np.asarray),
    "log_sum": (np.asarray, np.log), "log_sum_exp": (np.exp, np.log),
}  # fmt: skip
"""What is summed of each element, and what is made of the sum."""


def _reference(x: Array, *, kind: str, axes: Sequence[int], keepdims: bool) -> Array:
    over: dict[str, Any] = {"axis": tuple(axes), "keepdims": keepdims}
    wide = x.astype(np.float64) if is_float(x) else x
    with np.errstate(all="ignore"):
        match kind:
            case "max" | "min":
                function = np.max if kind == "max" else np.min
                value = function(wide, **over, initial=_start(kind, DType.of(x.dtype)))
            case "prod":
                value = np.prod(wide, **over, dtype=wide.dtype)
            case _:
                begin, finish = FUNCTIONS.get(kind, (np.asarray, np.asarray))
                dtype = None if kind.startswith("log") else wide.dtype
                value = finish(np.sum(begin(wide), **over, dtype=dtype))
        if kind == "mean":
            value = value / int(np.prod([x.shape[a] for a in axes]))
            value = value if is_float(x) else np.trunc(value)
    return np.asarray(value).astype(x.dtype)


def _samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.uniform(0.1, 2, (2, 5, 3)).astype(np.float32)
    every = [Sample((x,), {"kind": kind, "axes": (1,), "keepdims": True}) for kind in KINDS]
    more = [
        Sample((x,), {"kind": "sum", "axes": (0, 2), "keepdims": False}),
        Sample((x,), {"kind": "max", "axes": (0, 1, 2), "keepdims": False}),
        Sample((x,), {"kind": "sum", "axes": (), "keepdims": False}),
        Sample((np.zeros((3, 0), np.float32),), {"kind": "sum", "axes": (1,), "keepdims": True}),
        Sample((rng.integers(-9, 9, (3, 4)).astype(np.int32),),
               {"kind": "min", "axes": (1,), "keepdims": False}),
        Sample((np.array([[1, np.nan], [2, 3]], np.float32),),
               {"kind": "max", "axes": (1,), "keepdims": False}),
    ]  # fmt: skip
    return every + more


def _to_type(x: TensorType, *, kind: str, shape: Sequence[int | Dim]) -> TensorType:
    require(len(shape) == x.rank, f"reduce_to needs a size for each axis of {x}")
    return replace(_type(x, kind=kind, axes=(), keepdims=True), shape=tuple(map(Dim.of, shape)))


def _to_lower(
    k: KernelBuilder, x: Buffer, y: Buffer, *, kind: str, shape: Sequence[int | Dim]
) -> None:
    """Where the result has a size of 1 the axis is reduced, else it has the size of x."""
    with k.loops(*y.shape) as row:
        sizes = [
            k.let("over", n // dim_max(m, 1)) if n != m else Dim.of(1)
            for n, m in zip(x.shape, y.shape, strict=True)
        ]

        def element(at: At) -> Expr:
            return x[tuple(i + j for i, j in zip(row, at, strict=True))]

        k.store(y[row], _reduced_value(k, kind, x.dtype, sizes, element))


def _to_reference(x: Array, *, kind: str, shape: Sequence[int]) -> Array:
    pairs = zip(x.shape, shape, strict=True)
    axes = [axis for axis, (n, m) in enumerate(pairs) if n != int(m)]
    return _reference(x, kind=kind, axes=axes, keepdims=True)


def _to_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.uniform(0.1, 2, (2, 5, 3)).astype(np.float32)
    return [
        Sample((x,), {"kind": kind, "shape": shape}, sizes=("shape",))
        for kind in KINDS
        for shape in ((2, 1, 3), (1, 5, 1))
    ]


REDUCE_TO = Op(
    "reduce_to",
    _to_type,
    _to_lower,
    _to_reference,
    _to_samples,
    conditions=not_negative("shape"),
    values={"kind": KINDS},
    exact_where=_exact_where,
)


def _of_sizes(
    bounds: Bounds, x: Array, *, kind: str, axes: Sequence[int], keepdims: bool
) -> Array | None:
    """The product of a shape, say; a mean truncates, and is not used for sizes."""
    combine = {"sum": operator.add, "prod": operator.mul, "max": dim_max, "min": dim_min}.get(kind)
    plain = not any(isinstance(value, float | Condition) for value in x.flat)
    if combine is None or not plain:
        return None
    over = tuple(axis % x.ndim for axis in axes)
    if any(x.shape[axis] == 0 for axis in over):
        return None
    for axis in sorted(over, reverse=True):
        x = np.frompyfunc(combine, 2, 1).reduce(x, axis=axis, keepdims=True)
    return x if keepdims else np.asarray(x, object).squeeze(over)


REDUCE = Op(
    "reduce",
    _type,
    _lower,
    _reference,
    _samples,
    symbolic=_of_sizes,
    values={"kind": KINDS},
    exact_where=_exact_where,
)


def _arg_type(x: TensorType, *, axis: int, keepdims: bool, select_last: bool) -> TensorType:
    return TensorType(DType.I64, _reduced(x.shape, _axes([axis], x.rank), keepdims))


def _arg_lower(name: str) -> Any:
    def lower(
        k: KernelBuilder, x: Buffer, y: Buffer, *, axis: int, keepdims: bool, select_last: bool
    ) -> None:
        at_axis = normal_axis(axis, x.rank)
        with k.loops(*x.shape[:at_axis], *x.shape[at_axis + 1 :]) as row:
            before, after = row[:at_axis], row[at_axis:]
            first = x[(*before, Dim.of(0), *after)]
            best = k.local("best", x.dtype, first)
            place = k.local("place", DType.I64, 0)
            with k.span(1, x.shape[at_axis]) as j:
                value = x[(*before, j, *after)]
                a, b = (best, value) if name == "arg_max" else (value, best)
                better = binary("<=" if select_last else "<", a, b)
                if x.dtype.is_float:
                    # Not a number is the extreme, as NumPy has it.
                    strange: Expr = apply("isnan", value)
                    if not select_last:
                        strange = binary("&&", strange, ~apply("isnan", best))
                    better = binary("||", better, strange)
                with k.when(better):
                    k.assign(best, value)
                    k.assign(place, Index(j))
            target = (*before, Dim.of(0), *after) if keepdims else row
            k.store(y[target], place)

    return lower


def _arg_reference(name: str) -> Any:
    def reference(x: Array, *, axis: int, keepdims: bool, select_last: bool) -> Array:
        function = np.argmax if name == "arg_max" else np.argmin
        if not select_last:
            return np.asarray(function(x, axis=axis, keepdims=keepdims), np.int64)
        flipped = function(np.flip(x, axis), axis=axis, keepdims=keepdims)
        return np.asarray(x.shape[axis] - 1 - flipped, np.int64)

    return reference


def _arg_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.integers(-3, 3, (2, 5, 3)).astype(np.float32)
    strange = np.where(rng.uniform(size=x.shape) < 0.2, np.float32(np.nan), x)
    return [
        Sample((values,), {"axis": axis, "keepdims": keep, "select_last": last})
        for axis, keep, last in ((1, True, False), (-1, False, True), (0, False, False))
        for values in (x, strange)
    ]


def _arg_conditions(x: TensorType, *, axis: int, **_attrs: Any) -> list[Any]:
    return [must_not_exceed(1, x.shape[normal_axis(axis, x.rank)], "arg of an empty axis")]


OPS = (
    REDUCE,
    REDUCE_TO,
    *(
        Op(name, _arg_type, _arg_lower(name), _arg_reference(name), _arg_samples, _arg_conditions)
        for name in ("arg_max", "arg_min")
    ),
)
