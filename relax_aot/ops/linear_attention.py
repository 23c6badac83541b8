# SPDX-License-Identifier: Apache-2.0
"""linear_attention: attention without softmax, as a recurrence over a state per head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    must_equal,
    must_fit,
    require,
)
from relax_aot.ops._samples import normals

# linear_attention


@dataclass(frozen=True, kw_only=True)
class Heads:
    heads: int
    kv_heads: int
    scale: float


def _type(
    attrs: Heads,
    q: TensorType,
    key: TensorType,
    value: TensorType,
    state: TensorType | None = None,
    decay: TensorType | None = None,
    beta: TensorType | None = None,
) -> tuple[TensorType, TensorType]:
    parts = [p for p in (q, key, value, decay, beta) if p is not None]
    same = all(p.rank == 3 and p.dtype is q.dtype for p in parts) and q.dtype.is_float
    require(same, "linear_attention needs float tensors [batch, time, heads * size]")
    heads, kv_heads = attrs.heads, attrs.kv_heads
    require(kv_heads > 0 and heads % kv_heads == 0, f"{heads} heads for {kv_heads}")
    rows, columns = key.shape[2] // kv_heads, value.shape[2] // kv_heads
    kept = TensorType(q.dtype if state is None else state.dtype,
                      (q.shape[0], Dim.of(kv_heads), rows, columns))  # fmt: skip
    require(state is None or state.rank == 4, f"linear_attention: a state of {state}")
    return TensorType(q.dtype, (*q.shape[:2], columns * heads)), kept


def _conditions(
    attrs: Heads,
    q: TensorType,
    key: TensorType,
    value: TensorType,
    state: TensorType | None = None,
    decay: TensorType | None = None,
    beta: TensorType | None = None,
) -> list[Condition]:
    heads, kv_heads = attrs.heads, attrs.kv_heads
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
            found += must_fit(part, (*q.shape[:2], part.shape[2]), why)
    return found + must_fit(state, (q.shape[0], kv_heads, rows, columns), why)


def _lower(
    attrs: Heads,
    k: KernelBuilder,
    q: Buffer,
    key: Buffer,
    value: Buffer,
    state: Buffer | None,
    decay: Buffer | None,
    beta: Buffer | None,
    y: Buffer,
    last: Buffer,
) -> None:
    rows, columns = last.shape[2:]
    kv_heads = attrs.kv_heads
    group = attrs.heads // kv_heads
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
                _decay(k, memory, width, lambda d: load(decay, (*here, head * width + d)))
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
                    result: Expr = found * _scale(attrs.scale, rows, wide)
                    if q.dtype is not wide:
                        result = Cast(result, q.dtype)
                    k.store(y[(*here, reader * columns + m)], result)
        with k.loops(rows, columns) as (d, m):
            kept: Expr = memory[(d, m)]
            k.store(last[(batch, head, d, m)],
                    kept if last.dtype is wide else Cast(kept, last.dtype))  # fmt: skip


def _decay(k: KernelBuilder, memory: Buffer, width: Dim, gate: Callable[[Dim], Expr]) -> None:
    """Multiplies each row of the state by exp of its gate; `width` gates serve all rows."""
    rows, columns = memory.shape
    with k.loops(rows) as (d,):
        row = d if width == rows else d % width
        factor = k.local("factor", memory.dtype, apply("exp", gate(row)))
        with k.loops(columns) as (m,):
            k.store(memory[(d, m)], binary("*", memory[(d, m)], factor))


def _scale(scale: float, size: Dim, dtype: DType) -> Expr:
    """0 stands for 1 / sqrt(size)."""
    if scale:
        return Lit(scale, dtype)
    return binary("/", 1.0, apply("sqrt", Cast(Index(size), dtype)))


def _reference(
    attrs: Heads,
    q: Array,
    key: Array,
    value: Array,
    state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
) -> tuple[Array, Array]:
    batch, steps = q.shape[:2]

    def split(x: Array, count: int) -> Array:
        return x.astype(np.float64).reshape(batch, steps, count, x.shape[-1] // count)

    heads, kv_heads = attrs.heads, attrs.kv_heads
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
        y[:, t] = (attrs.scale or rows**-0.5) * np.einsum("bhd,bhdm->bhm", queries[:, t], shared)
    kind = q.dtype if state is None else state.dtype
    return y.reshape(batch, steps, heads * columns).astype(q.dtype), memory.astype(kind)


def _samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng, 0.5)

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


OP = Op(
    "linear_attention", _type, _lower, _reference, _samples, conditions=_conditions, record=Heads
)
