"""attention_mask: -inf where a query may not see a key; cache_update: new rows in a cache.

attention_mask shuts places of a matrix of scores,
linear_attention and causal_conv carry a state from step to step, cache_update writes new
rows into a cache.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder, less, less_equal
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Expr, Index, Lit, Select, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    Trait,
    must_equal,
    must_not_exceed,
    normal_axis,
    require,
)

# attention_mask: x[b, ..., i, j] where query i may see key j, else -inf


def _mask_type(
    x: TensorType,
    lengths: TensorType | None = None,
    *,
    shift: int | Dim = 0,
    left: int = -1,
    right: int = -1,
) -> TensorType:
    require(x.dtype.is_float and x.rank >= 2, f"attention_mask needs scores, got {x}")
    fits = lengths is None or (lengths.dtype is DType.I64 and lengths.rank == 1 and x.rank > 2)
    require(fits, f"attention_mask of {x} with the lengths {lengths}")
    require(left >= -1 and right >= -1, "attention_mask needs windows from -1 (unbounded) on")
    return x


def _mask_conditions(
    x: TensorType, lengths: TensorType | None = None, **_attrs: Any
) -> list[Condition]:
    if lengths is None:
        return []
    return [must_equal(lengths.shape[0], x.shape[0], "one length per batch")]


def _mask_lower(
    k: KernelBuilder,
    x: Buffer,
    *rest: Buffer | None,
    shift: int | Dim = 0,
    left: int = -1,
    right: int = -1,
) -> None:
    *optional, y = rest
    lengths = optional[0] if optional else None
    assert y is not None
    with k.loops(*y.shape) as at:
        row, column = at[-2], at[-1]
        seen: list[Expr] = []
        if lengths is None:
            place = row + Dim.of(shift)
            seen += [less_equal(place, column + left)] if left >= 0 else []
            seen += [less_equal(column, place + right)] if right >= 0 else []
        else:
            length = lengths[(at[0],)]
            # How far the key lies before the end of what is there, and the query likewise.
            seen.append(binary("<", Index(column), length))
            ahead = Index(column - row + x.shape[-2])
            seen += [binary("<=", length, ahead + left)] if left >= 0 else []
            seen += [binary("<=", ahead, length + right)] if right >= 0 else []
        value: Expr = x[at]
        for condition in reversed(seen):
            value = Select(condition, value, Lit(-inf, x.dtype))
        k.store(y[at], value)


def _mask_reference(
    x: Array,
    lengths: Array | None = None,
    *,
    shift: int = 0,
    left: int = -1,
    right: int = -1,
) -> Array:
    rows, columns = x.shape[-2:]
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    place = i + int(shift)
    seen = np.ones((1,) * (x.ndim - 2) + (rows, columns), np.bool_)
    if lengths is not None:
        ends = lengths.reshape(-1, *[1] * (x.ndim - 1))
        place, seen = i + ends - rows, seen & (j < ends)
    if left >= 0:
        seen = seen & (j >= place - left)
    if right >= 0:
        seen = seen & (j <= place + right)
    return np.where(seen, x, x.dtype.type(-inf))


def _mask_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(2, 3, 4, 6)).astype(np.float32)
    lengths = np.array([3, 6])
    return [
        Sample((x,), {"right": 0}),
        Sample((x,), {"shift": 2, "right": 0}, ("shift",)),
        Sample((x,), {"shift": 1, "left": 1, "right": 2}),
        Sample((x,), {"left": 0}),
        Sample((x, lengths), {}),
        Sample((x, lengths), {"right": 0}),
        Sample((x, np.array([0, 99])), {"left": 1, "right": 0}),
        Sample((x[0],), {"right": 0}),
        Sample((x.astype(np.float16), lengths), {"left": 2}),
    ]


MASK = Op(
    "attention_mask", _mask_type, _mask_lower, _mask_reference, _mask_samples,
    conditions=_mask_conditions, traits=Trait.EXACT
)  # fmt: skip


# cache_update: new rows written into a cache, from a place per sample on


def _update_type(
    cache: TensorType,
    update: TensorType,
    starts: TensorType | None = None,
    *,
    axis: int = -2,
    circular: bool = False,
) -> TensorType:
    same = cache.dtype is update.dtype and cache.rank == update.rank and cache.rank > 1
    require(same, f"cache_update of {cache} by {update}")
    require(normal_axis(axis, cache.rank) > 0, "cache_update along the axis of samples")
    fits = starts is None or (starts.dtype is DType.I64 and starts.rank == 1)
    require(fits, f"cache_update needs one i64 per sample, got {starts}")
    return cache


def _update_conditions(
    cache: TensorType,
    update: TensorType,
    starts: TensorType | None = None,
    *,
    axis: int = -2,
    circular: bool = False,
) -> list[Condition]:
    along = normal_axis(axis, cache.rank)
    conditions = [
        must_not_exceed(n, m, "rows of a cache") if i == along else must_equal(n, m, "a cache")
        for i, (n, m) in enumerate(zip(update.shape, cache.shape, strict=True))
    ]
    if starts is not None:
        conditions.append(must_equal(starts.shape[0], cache.shape[0], "one start per sample"))
    return conditions


def _update_lower(
    k: KernelBuilder,
    cache: Buffer,
    update: Buffer,
    *rest: Buffer | None,
    axis: int = -2,
    circular: bool = False,
) -> None:
    *optional, y = rest
    starts = optional[0] if optional else None
    assert y is not None
    along = normal_axis(axis, cache.rank)
    size, length = cache.shape[along], update.shape[along]
    with k.loops(cache.shape[0]) as sample:
        start = Dim.of(0)
        if starts is not None:
            given: Expr = starts[sample]
            if circular:
                given = binary("%", given, Index(size))
            start = k.index("start", given, 0, size - 1 if circular else size - length)
        with k.loops(*cache.shape[1:]) as rest_at:
            at = (*sample, *rest_at)
            row = at[along] - start
            if circular:
                row = (row + size) % size
            new = update[(*at[:along], row, *at[along + 1 :])]
            value: Expr = Select(less(row, length), new, cache[at])
            if not circular and starts is not None:
                value = Select(less(row, 0), cache[at], value)
            k.store(y[at], value)


def _update_reference(
    cache: Array,
    update: Array,
    starts: Array | None = None,
    *,
    axis: int = -2,
    circular: bool = False,
) -> Array:
    y = cache.copy()
    along = normal_axis(axis, cache.ndim)
    size = cache.shape[along]
    for sample in range(cache.shape[0]):
        start = 0 if starts is None else int(starts[sample])
        target, source = (np.moveaxis(a[sample], along - 1, 0) for a in (y, update))
        for row in range(update.shape[along]):
            place = (start + row) % size if circular else start + row
            if not 0 <= place < size:
                raise IndexError(place)
            target[place] = source[row]
    return y


def _update_samples(rng: np.random.Generator) -> list[Sample]:
    def normal(*shape: int) -> Array:
        return np.asarray(rng.normal(size=shape)).astype(np.float32)

    cache = normal(2, 3, 5, 4)
    return [
        Sample((cache, normal(2, 3, 2, 4)), {}),
        Sample((cache, normal(2, 3, 2, 4), np.array([0, 3])), {}, symbolic=False),
        Sample((cache, normal(2, 3, 2, 4), np.array([4, 7])), {"circular": True}),
        Sample((cache, normal(2, 3, 5, 4), np.array([2, 0])), {"circular": True}),
        Sample((normal(2, 5), normal(2, 1), np.array([4, 0])), {"axis": 1}, symbolic=False),
    ]


UPDATE = Op(
    "cache_update", _update_type, _update_lower, _update_reference, _update_samples,
    conditions=_update_conditions, any_type=True,
)  # fmt: skip

OPS = (MASK, UPDATE)
