"""Parts of attention that are not matrix products: masks, caches, causal and linear attention.

attention_mask shuts places of a matrix of scores,
linear_attention and causal_conv carry a state from step to step, cache_update writes new
rows into a cache.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder, exp, less, less_equal, sqrt
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Select, binary
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


# linear_attention


def _linear_type(
    q: TensorType,
    key: TensorType,
    value: TensorType,
    state: TensorType | None = None,
    decay: TensorType | None = None,
    beta: TensorType | None = None,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
) -> tuple[TensorType, TensorType]:
    parts = [p for p in (q, key, value, decay, beta) if p is not None]
    same = all(p.rank == 3 and p.dtype is q.dtype for p in parts) and q.dtype.is_float
    require(same, "linear_attention needs float tensors [batch, time, heads * size]")
    require(kv_heads > 0 and heads % kv_heads == 0, f"{heads} heads for {kv_heads}")
    rows, columns = key.shape[2] // kv_heads, value.shape[2] // kv_heads
    kept = TensorType(q.dtype if state is None else state.dtype,
                      (q.shape[0], Dim.of(kv_heads), rows, columns))  # fmt: skip
    require(state is None or state.rank == 4, f"linear_attention: a state of {state}")
    return TensorType(q.dtype, (*q.shape[:2], columns * heads)), kept


def _linear_conditions(
    q: TensorType,
    key: TensorType,
    value: TensorType,
    state: TensorType | None = None,
    decay: TensorType | None = None,
    beta: TensorType | None = None,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
) -> list[Condition]:
    rows, columns = key.shape[2] // kv_heads, value.shape[2] // kv_heads
    why = "sizes of a linear attention"
    found = [
        must_equal(rows * kv_heads, key.shape[2], why), must_equal(rows * heads, q.shape[2], why),
        must_equal(columns * kv_heads, value.shape[2], why),
    ]  # fmt: skip
    if decay is not None:
        # One number a head, or one for each row of its state.
        width = decay.shape[2] // kv_heads
        found.append(must_equal(width * kv_heads, decay.shape[2], why))
        found.append(must_equal((width - 1) * (rows - width), 0, why))
    if beta is not None:
        width = beta.shape[2]
        found.append(must_equal((width - 1) * (width - kv_heads), 0, why))
    for part in (key, value, decay, beta):
        if part is not None:
            pairs = zip(part.shape[:2], q.shape[:2], strict=True)
            found += [must_equal(n, m, why) for n, m in pairs]
    if state is not None:
        wanted = (q.shape[0], Dim.of(kv_heads), rows, columns)
        found += [must_equal(n, m, why) for n, m in zip(state.shape, wanted, strict=True)]
    return found


def _linear_lower(
    k: KernelBuilder,
    q: Buffer,
    key: Buffer,
    value: Buffer,
    *rest: Buffer | None,
    heads: int,
    kv_heads: int,
    scale: float,
) -> None:
    *optional, y, last = rest
    state, decay, beta = (*optional, None, None, None)[:3]
    assert y is not None and last is not None
    rows, columns = last.shape[2:]
    group = heads // kv_heads
    wide = DType.F64 if q.dtype is DType.F64 else DType.F32

    def load(x: Buffer, at: tuple[Dim, ...]) -> Expr:
        return x[at] if x.dtype is wide else Cast(x[at], wide)

    memory = k.scratch("memory", wide, (rows, columns))
    with k.loops(q.shape[0], kv_heads) as (batch, head):
        with k.loops(rows, columns) as (d, m):
            start = Lit(0.0, wide) if state is None else load(state, (batch, head, d, m))
            k.store(memory[(d, m)], start)
        with k.loops(q.shape[1]) as (step,):
            here = (batch, step)
            if decay is not None:
                width = decay.shape[2] // kv_heads
                with k.loops(rows) as (d,):
                    row = d if width == rows else d % width
                    gate = (*here, head * width + row)
                    factor = k.local("factor", wide, exp(load(decay, gate)))
                    with k.loops(columns) as (m,):
                        k.store(memory[(d, m)], binary("*", memory[(d, m)], factor))
            with k.loops(columns) as (m,):
                new = k.local("new", wide, load(value, (*here, head * columns + m)))
                if beta is not None:
                    held = k.local("held", wide, 0.0)
                    with k.loops(rows) as (d,):
                        part = load(key, (*here, head * rows + d))
                        k.assign(held, held + binary("*", memory[(d, m)], part))
                    width = beta.shape[2]
                    rate = load(beta, (*here, head if width == Dim.of(kv_heads) else head % width))
                    k.assign(new, rate * (new - held))
                with k.loops(rows) as (d,):
                    part = load(key, (*here, head * rows + d))
                    k.store(memory[(d, m)], memory[(d, m)] + part * new)
                with k.loops(group) as (member,):
                    found = k.local("found", wide, 0.0)
                    reader = head * group + member
                    with k.loops(rows) as (d,):
                        asked = load(q, (*here, reader * rows + d))
                        k.assign(found, found + asked * memory[(d, m)])
                    result: Expr = found * _scale(scale, rows, wide)
                    if q.dtype is not wide:
                        result = Cast(result, q.dtype)
                    k.store(y[(*here, reader * columns + m)], result)
        with k.loops(rows, columns) as (d, m):
            kept: Expr = memory[(d, m)]
            k.store(last[(batch, head, d, m)],
                    kept if last.dtype is wide else Cast(kept, last.dtype))  # fmt: skip


def _scale(scale: float, size: Dim, dtype: DType) -> Expr:
    """0 stands for 1 / sqrt(size)."""
    if scale:
        return Lit(scale, dtype)
    return binary("/", 1.0, sqrt(Cast(Index(size), dtype)))


def _linear_reference(
    q: Array,
    key: Array,
    value: Array,
    state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
) -> tuple[Array, Array]:
    batch, steps = q.shape[:2]

    def split(x: Array, count: int) -> Array:
        return x.astype(np.float64).reshape(batch, steps, count, -1)

    queries, keys, values = split(q, heads), split(key, kv_heads), split(value, kv_heads)
    rows, columns = keys.shape[-1], values.shape[-1]
    memory = np.zeros((batch, kv_heads, rows, columns))
    if state is not None:
        memory = state.astype(np.float64)
    y = np.zeros((batch, steps, heads, columns))
    for t in range(steps):
        if decay is not None:
            memory = memory * np.exp(split(decay, kv_heads)[:, t])[..., None]
        new = values[:, t]
        if beta is not None:
            rate = split(beta, beta.shape[2])[:, t]
            new = rate * (new - np.einsum("bhdm,bhd->bhm", memory, keys[:, t]))
        memory = memory + keys[:, t][..., None] * new[..., None, :]
        shared = np.repeat(memory, heads // kv_heads, axis=1)
        y[:, t] = (scale or rows**-0.5) * np.einsum("bhd,bhdm->bhm", queries[:, t], shared)
    kind = q.dtype if state is None else state.dtype
    return y.reshape(batch, steps, -1).astype(q.dtype), memory.astype(kind)


def _linear_samples(rng: np.random.Generator) -> list[Sample]:
    def normal(*shape: int) -> Array:
        return np.asarray(rng.normal(size=shape) * 0.5).astype(np.float32)

    def case(heads: int, kv: int, *rest: Array | None, scale: float = 0.6) -> Sample:
        x = normal(2, 5, heads * 3), normal(2, 5, kv * 3), normal(2, 5, kv * 4)
        attrs = {"heads": heads, "kv_heads": kv, "scale": scale}
        return Sample((*x, *rest), attrs, symbolic=False, rtol=1e-4, atol=1e-5)

    half = case(2, 2, None, normal(2, 5, 2))
    return [
        case(2, 2),
        case(4, 2, normal(2, 2, 3, 4), normal(2, 5, 6)),
        case(4, 2, normal(2, 2, 3, 4), scale=0.0),
        case(2, 1, None, normal(2, 5, 1), normal(2, 5, 1)),
        case(2, 2, normal(2, 2, 3, 4), None, normal(2, 5, 2)),
        case(4, 2, None, normal(2, 5, 2), normal(2, 5, 1)),
        Sample(tuple(None if a is None else a.astype(np.float16) for a in half.args), half.attrs,
               symbolic=False, rtol=2e-3, atol=2e-3),
    ]  # fmt: skip


LINEAR = Op(
    "linear_attention", _linear_type, _linear_lower, _linear_reference, _linear_samples,
    conditions=_linear_conditions,
)  # fmt: skip


# causal_conv: each channel by its own taps, over what came before and what is there


def _causal_type(
    x: TensorType,
    w: TensorType,
    bias: TensorType | None = None,
    past: TensorType | None = None,
) -> tuple[TensorType, TensorType]:
    parts = [p for p in (x, w, bias, past) if p is not None]
    same = x.dtype.is_float and all(p.dtype is x.dtype for p in parts)
    ranks = x.rank == 3 and w.rank == 3 and (past is None or past.rank == 3)
    require(same and ranks, "causal_conv needs float tensors of rank 3")
    return x, TensorType(x.dtype, (*x.shape[:2], w.shape[2] - 1))


def _causal_conditions(
    x: TensorType,
    w: TensorType,
    bias: TensorType | None = None,
    past: TensorType | None = None,
) -> list[Condition]:
    why = "sizes of a causal convolution"
    found = [
        must_equal(w.shape[0], x.shape[1], why), must_equal(w.shape[1], 1, why),
        must_not_exceed(1, w.shape[2], why),
    ]  # fmt: skip
    if bias is not None:
        found.append(must_equal(bias.shape[0], x.shape[1], why))
    if past is not None:
        wanted = (*x.shape[:2], w.shape[2] - 1)
        found += [must_equal(n, m, why) for n, m in zip(past.shape, wanted, strict=True)]
    return found


def _causal_lower(k: KernelBuilder, x: Buffer, w: Buffer, *rest: Buffer | None) -> None:
    *optional, y, last = rest
    bias, past = (*optional, None, None)[:2]
    assert y is not None and last is not None
    width = w.shape[2]
    zero = Lit(0.0, x.dtype)

    def before(batch: Dim, channel: Dim, place: Dim) -> Expr:
        """The element at `place`, counted from the first of the past."""
        earlier: Expr = zero if past is None else past[(batch, channel, place)]
        now = x[(batch, channel, place - (width - 1))]
        return Select(less(place, width - 1), earlier, now)

    with k.loops(*y.shape) as at:
        batch, channel, step = at
        start = 0.0 if bias is None else bias[(channel,)]
        total = k.local("total", x.dtype, start)
        with k.loops(width) as (tap,):
            value = before(batch, channel, step + tap)
            k.assign(total, total + value * w[(channel, Dim.of(0), tap)])
        k.store(y[at], total)
    with k.loops(*last.shape) as at:
        k.store(last[at], before(at[0], at[1], at[2] + x.shape[2]))


def _causal_reference(
    x: Array, w: Array, bias: Array | None = None, past: Array | None = None
) -> tuple[Array, Array]:
    width = w.shape[2]
    start = np.zeros((*x.shape[:2], width - 1), x.dtype) if past is None else past
    long = np.concatenate([start, x], axis=2)
    wide = long.astype(np.float64)
    taps = w.astype(np.float64)
    y = sum(wide[:, :, t : t + x.shape[2]] * taps[:, :, t] for t in range(width))
    if bias is not None:
        y = y + bias.astype(np.float64)[:, None]
    return np.asarray(y).astype(x.dtype), long[:, :, x.shape[2] :]


def _causal_samples(rng: np.random.Generator) -> list[Sample]:
    def normal(*shape: int) -> Array:
        return np.asarray(rng.normal(size=shape)).astype(np.float32)

    return [
        Sample((normal(2, 3, 5), normal(3, 1, 4)), fixed=(4,)),
        Sample((normal(2, 3, 5), normal(3, 1, 4), normal(3), normal(2, 3, 3)), symbolic=False),
        Sample((normal(2, 3, 2), normal(3, 1, 4), None, normal(2, 3, 3)), symbolic=False),
        Sample((normal(2, 5, 1), normal(5, 1, 4), normal(5)), fixed=(4,)),
        Sample((normal(2, 3, 5), normal(3, 1, 1)), {}),
    ]


CAUSAL = Op(
    "causal_conv", _causal_type, _causal_lower, _causal_reference, _causal_samples,
    conditions=_causal_conditions,
)  # fmt: skip

OPS = (MASK, UPDATE, LINEAR, CAUSAL)
