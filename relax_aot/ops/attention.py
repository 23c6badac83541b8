# SPDX-License-Identifier: Apache-2.0
"""attention_mask: -inf where a query may not see a key; cache_update: new rows in a cache.

attention_mask shuts places of a matrix of scores,
linear_attention and causal_conv carry a state from step to step, cache_update writes new
rows into a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from relax_aot.ir.builder import KernelBuilder
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
    must_fit,
    must_not_exceed,
    normal_axis,
    require,
)
from relax_aot.ops._samples import normals

# attention_mask: x[b, ..., i, j] where query i may see key j, else -inf


@dataclass(frozen=True, kw_only=True)
class Mask:
    shift: int | Dim = 0
    left: int = -1
    right: int = -1


def _mask_type(attrs: Mask, x: TensorType, lengths: TensorType | None = None) -> TensorType:
    require(x.dtype.is_float and x.rank >= 2, f"attention_mask needs scores, got {x}")
    fits = lengths is None or (lengths.dtype is DType.I64 and lengths.rank == 1 and x.rank > 2)
    require(fits, f"attention_mask of {x} with the lengths {lengths}")
    bounded = min(attrs.left, attrs.right) >= -1
    require(bounded, "attention_mask needs windows from -1 (unbounded) on")
    return x


def _mask_conditions(
    attrs: Mask, x: TensorType, lengths: TensorType | None = None
) -> list[Condition]:
    return must_fit(lengths, x.shape[:1], "one length per batch")


def _mask_lower(
    attrs: Mask, k: KernelBuilder, x: Buffer, lengths: Buffer | None, y: Buffer
) -> None:
    with k.loops(*y.shape) as at:
        row, column = at[-2], at[-1]
        seen: list[Expr] = []
        if lengths is None:
            place = row + Dim.of(attrs.shift)
            seen += [binary("<=", place, column + attrs.left)] if attrs.left >= 0 else []
            seen += [binary("<=", column, place + attrs.right)] if attrs.right >= 0 else []
        else:
            length = lengths[(at[0],)]
            # How far the key lies before the end of what is there, and the query likewise.
            seen.append(binary("<", Index(column), length))
            ahead = Index(column - row + x.shape[-2])
            seen += [binary("<=", length, ahead + attrs.left)] if attrs.left >= 0 else []
            seen += [binary("<=", ahead, length + attrs.right)] if attrs.right >= 0 else []
        value: Expr = x[at]
        for condition in reversed(seen):
            value = Select(condition, value, Lit(-inf, x.dtype))
        k.store(y[at], value)


def _mask_reference(attrs: Mask, x: Array, lengths: Array | None = None) -> Array:
    rows, columns = x.shape[-2:]
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    place = i + int(attrs.shift)
    seen = np.ones((1,) * (x.ndim - 2) + (rows, columns), np.bool_)
    if lengths is not None:
        ends = lengths.reshape(-1, *[1] * (x.ndim - 1))
        place, seen = i + ends - rows, seen & (j < ends)
    if attrs.left >= 0:
        seen = seen & (j >= place - attrs.left)
    if attrs.right >= 0:
        seen = seen & (j <= place + attrs.right)
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
    conditions=_mask_conditions, traits=Trait.EXACT, record=Mask,
)  # fmt: skip


# cache_update: new rows written into a cache, from a place per sample on


@dataclass(frozen=True, kw_only=True)
class Update:
    axis: int = -2
    circular: bool = False


def _update_type(
    attrs: Update, cache: TensorType, update: TensorType, starts: TensorType | None = None
) -> TensorType:
    same = cache.dtype is update.dtype and cache.rank == update.rank and cache.rank > 1
    require(same, f"cache_update of {cache} by {update}")
    require(normal_axis(attrs.axis, cache.rank) > 0, "cache_update along the axis of samples")
    fits = starts is None or (starts.dtype is DType.I64 and starts.rank == 1)
    require(fits, f"cache_update needs one i64 per sample, got {starts}")
    return cache


def _update_conditions(
    attrs: Update, cache: TensorType, update: TensorType, starts: TensorType | None = None
) -> list[Condition]:
    along = normal_axis(attrs.axis, cache.rank)
    conditions = [
        must_not_exceed(n, m, "rows of a cache") if i == along else must_equal(n, m, "a cache")
        for i, (n, m) in enumerate(zip(update.shape, cache.shape, strict=True))
    ]
    return conditions + must_fit(starts, cache.shape[:1], "one start per sample")


def _update_lower(
    attrs: Update, k: KernelBuilder, cache: Buffer, update: Buffer, starts: Buffer | None, y: Buffer
) -> None:
    along = normal_axis(attrs.axis, cache.rank)
    size, length = cache.shape[along], update.shape[along]
    with k.loops(cache.shape[0]) as sample:
        start = Dim.of(0)
        if starts is not None:
            given: Expr = starts[sample]
            if attrs.circular:
                given = binary("%", given, Index(size))
            start = k.index("start", given, 0, size - 1 if attrs.circular else size - length)
        with k.loops(*cache.shape[1:]) as rest_at:
            at = (*sample, *rest_at)
            row = at[along] - start
            if attrs.circular:
                row = (row + size) % size
            new = update[(*at[:along], row, *at[along + 1 :])]
            value: Expr = Select(binary("<", row, length), new, cache[at])
            if not attrs.circular and starts is not None:
                value = Select(binary("<", row, 0), cache[at], value)
            k.store(y[at], value)


def _update_reference(
    attrs: Update, cache: Array, update: Array, starts: Array | None = None
) -> Array:
    y = cache.copy()
    along = normal_axis(attrs.axis, cache.ndim)
    size = cache.shape[along]
    for sample in range(cache.shape[0]):
        start = 0 if starts is None else int(starts[sample])
        target, source = (np.moveaxis(a[sample], along - 1, 0) for a in (y, update))
        for row in range(update.shape[along]):
            place = (start + row) % size if attrs.circular else start + row
            if not 0 <= place < size:
                raise IndexError(place)
            target[place] = source[row]
    return y


def _update_samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)
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
    conditions=_update_conditions, any_type=True, record=Update,
)  # fmt: skip

OPS = (MASK, UPDATE)
