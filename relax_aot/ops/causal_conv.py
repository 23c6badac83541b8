# SPDX-License-Identifier: Apache-2.0
"""causal_conv: depthwise convolution over the current and past positions of a sequence."""

from __future__ import annotations

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Expr, Lit, Select, binary
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    must_equal,
    must_fit,
    must_not_exceed,
    require,
)
from relax_aot.ops._samples import normals

# causal_conv: each channel by its own taps, over what came before and what is there


def _type(
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


def _conditions(
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
    found += must_fit(bias, x.shape[1:2], why)
    return found + must_fit(past, (*x.shape[:2], w.shape[2] - 1), why)


def _lower(
    k: KernelBuilder,
    x: Buffer,
    w: Buffer,
    bias: Buffer | None,
    past: Buffer | None,
    y: Buffer,
    last: Buffer,
) -> None:
    width = w.shape[2]
    zero = Lit(0.0, x.dtype)

    def before(batch: Dim, channel: Dim, place: Dim) -> Expr:
        """The element at `place`, counted from the first of the past."""
        earlier: Expr = zero if past is None else past[(batch, channel, place)]
        now = x[(batch, channel, place - (width - 1))]
        return Select(binary("<", place, width - 1), earlier, now)

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


def _reference(
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


def _samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)
    return [
        Sample((normal(2, 3, 5), normal(3, 1, 4)), fixed=(4,)),
        Sample((normal(2, 3, 5), normal(3, 1, 4), normal(3), normal(2, 3, 3)), symbolic=False),
        Sample((normal(2, 3, 2), normal(3, 1, 4), None, normal(2, 3, 3)), symbolic=False),
        Sample((normal(2, 5, 1), normal(5, 1, 4), normal(5)), fixed=(4,)),
        Sample((normal(2, 3, 5), normal(3, 1, 1)), {}),
    ]


OP = Op(
    "causal_conv", _type, _lower, _reference, _samples,
    conditions=_conditions,
)  # fmt: skip
