"""Transposed convolution with channels first: each output element gathers the inputs that reach it.

Output o takes input i through tap t where o + pad == i * stride + t * dilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, binary
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import Array, Op, Sample, must_equal, must_not_exceed, require
from relax_aot.ops._window import Sizes, reaching


def _type(
    x: TensorType,
    w: TensorType,
    b: TensorType | None = None,
    *,
    strides: Sequence[int],
    pads: Sizes,
    output_padding: Sizes,
    dilations: Sequence[int],
    group: int,
) -> TensorType:
    both = f"{x} and {w}"
    require(x.rank >= 3 and w.rank == x.rank, f"conv_transpose needs one rank, got {both}")
    require(x.dtype is w.dtype, f"conv_transpose needs equal element types, got {both}")
    rank = x.rank - 2
    spatial = []
    for axis in range(rank):
        reach = (w.shape[axis + 2] - 1) * dilations[axis] + 1
        begin, end = Dim.of(pads[axis]), Dim.of(pads[axis + rank])
        full = (x.shape[axis + 2] - 1) * strides[axis] + Dim.of(output_padding[axis]) + reach
        spatial.append(full - begin - end)
    return TensorType(x.dtype, (x.shape[0], w.shape[1] * group, *spatial))


def _conditions(
    x: TensorType, w: TensorType, b: TensorType | None = None, **attrs: Any
) -> list[Condition]:
    y = _type(x, w, b, **attrs)
    conditions = [must_not_exceed(0, n, "conv_transpose's output size") for n in y.shape[2:]]
    conditions.append(must_equal(x.shape[1], w.shape[0], "conv_transpose's channels"))
    if b is not None:
        conditions.append(must_equal(b.shape[0], y.shape[1], "conv_transpose's bias"))
    return conditions


def _lower(
    k: KernelBuilder,
    x: Buffer,
    w: Buffer,
    *rest: Buffer | None,
    strides: Sequence[int],
    pads: Sizes,
    output_padding: Sizes,
    dilations: Sequence[int],
    group: int,
) -> None:
    *optional, y = rest
    b = optional[0] if optional else None
    assert y is not None
    filters, per_group = w.shape[1], w.shape[0] // group
    zero = 0.0 if y.dtype.is_float else 0
    with k.loops(y.shape[0], group, filters, *y.shape[2:]) as (image, part, filter_, *at):
        channel = part * filters + filter_
        total = k.local("total", y.dtype, zero if b is None else b[(channel,)])
        with k.loops(per_group) as (c,):
            source = part * per_group + c
            taps = reaching(k, tuple(at), x.shape[2:], w.shape[2:], strides, pads, dilations)
            with taps as (tap, place):
                left = x[(image, source, *place)]
                k.assign(total, total + binary("*", left, w[(source, filter_, *tap)]))
        k.store(y[(image, channel, *at)], total)


def _reference(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    output_padding: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> Array:
    """Every input scatters its taps into the unpadded output, which is then cut."""
    rank = x.ndim - 2
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    n, channels = x.shape[:2]
    filters = w.shape[1]
    sizes = [
        (x.shape[a + 2] - 1) * strides[a] + output_padding[a] + (w.shape[a + 2] - 1) * dilations[a]
        + 1 - int(pads[a]) - int(pads[a + rank])
        for a in range(rank)
    ]  # fmt: skip
    room = [
        (x.shape[a + 2] - 1) * strides[a] + (w.shape[a + 2] - 1) * dilations[a] + 1
        for a in range(rank)
    ]
    full = [max(r, s + int(pads[a]), 0) for a, (r, s) in enumerate(zip(room, sizes, strict=True))]
    y = np.zeros((n, group * filters, *full), wide.dtype)
    weights = w.astype(wide.dtype)
    per_group = channels // group
    for part in range(group):
        source = wide[:, part * per_group : (part + 1) * per_group]
        rows = weights[part * per_group : (part + 1) * per_group]
        for tap in np.ndindex(*w.shape[2:]):
            piece = np.einsum("nc...,cf->nf...", source, rows[(slice(None), slice(None), *tap)])
            where = tuple(
                slice(t * d, t * d + (size - 1) * s + 1, s)
                for t, d, s, size in zip(tap, dilations, strides, x.shape[2:], strict=True)
            )
            if piece.size:
                y[(slice(None), slice(part * filters, (part + 1) * filters), *where)] += piece
    cut = tuple(slice(max(int(pads[a]), 0), int(pads[a]) + sizes[a]) for a in range(rank))
    widths = [(0, 0), (0, 0)] + [(max(-int(pads[a]), 0), 0) for a in range(rank)]
    y = np.pad(y[(slice(None), slice(None), *cut)], widths)
    if b is not None:
        y = y + b.reshape(1, -1, *[1] * rank)
    return np.asarray(y).astype(x.dtype)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def normal(*shape: int) -> Array:
        return np.asarray(rng.normal(size=shape)).astype(np.float32)

    def case(x: Array, w: Array, b: Array | None = None, **attrs: Any) -> Sample:
        rank = x.ndim - 2
        usual = {
            "strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank,
            "output_padding": (0,) * rank, "group": 1,
        }  # fmt: skip
        return Sample((x, w, b), {**usual, **attrs}, symbolic=x.shape[1] == 7)

    return [
        case(normal(1, 3, 5), normal(3, 2, 3), normal(2)),
        case(normal(2, 2, 4), normal(2, 3, 4), strides=(2,), pads=(1, 1), output_padding=(1,)),
        case(normal(1, 2, 5), normal(2, 1, 3), dilations=(2,), pads=(1, 2)),
        case(normal(1, 2, 5), normal(2, 1, 3), strides=(3,), dilations=(2,), output_padding=(2,)),
        case(normal(1, 4, 3, 4), normal(4, 2, 3, 2), normal(4), group=2, strides=(2, 1)),
        case(normal(1, 2, 2, 3, 2), normal(2, 2, 2, 2, 3), strides=(1, 2, 3)),
        case(normal(1, 2, 3), normal(2, 2, 2), strides=(4,)),
        case(normal(1, 7, 5, 6), normal(7, 3, 4, 4), normal(3), strides=(2, 3), pads=(1, 0, 2, 1)),
        case(normal(0, 2, 3), normal(2, 2, 2)),
    ]


OP = Op("conv_transpose", _type, _lower, _reference, _samples, conditions=_conditions)
