# SPDX-License-Identifier: Apache-2.0
"""fixed_resize: bilinear resize of quantized values (ResizeBilinearInteger of TensorFlow Lite's
reference kernels), with row and column coordinates in units of 1/1024.

x is [n, height, width, c]; `align` puts the corners on each other, `half` the middles of places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, dim_max, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Select, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_not_exceed, require

Sizes = Sequence[int | Dim]
ONE = 1 << 10
I64 = DType.I64


def deduce(x: TensorType, *, sizes: Sizes, align: bool, half: bool) -> TensorType:
    codes = x.dtype in (DType.I8, DType.I16)
    require(codes and x.rank == 4 and len(sizes) == 2, f"fixed_resize does not take {x}")
    return TensorType(x.dtype, (x.shape[0], *map(Dim.of, sizes), x.shape[3]))


def conditions(x: TensorType, *, sizes: Sizes, align: bool, half: bool) -> list[Condition]:
    return [must_not_exceed(1, n, "fixed_resize") for n in (*x.shape[1:3], *map(Dim.of, sizes))]


def _step(before: Dim, after: Dim, align: bool) -> Dim:
    """How far the next sample is; of one sample alone it does not matter where the corners are."""
    if align and after != Dim.of(1):
        return (ONE * (before - 1) + (after - 1) // 2) // (after - 1)
    return (ONE * before + after // 2) // after


def lower(k: KernelBuilder, x: Buffer, y: Buffer, *, sizes: Sizes, align: bool, half: bool) -> None:
    with k.loops(*y.shape) as (image, row, column, channel):
        places = []
        for name, at, before, after in zip(
            ("row", "column"), (row, column), x.shape[1:3], y.shape[1:3], strict=True
        ):
            step = _step(before, after, align)
            place = at * step + (step // 2 - ONE // 2 if half else 0)
            place = k.let(f"{name}_place", place)
            low = k.let(f"{name}_low", dim_max(place, 0) // ONE)
            above = dim_max(place + ONE - 1, 0) // ONE
            high = k.let(f"{name}_high", dim_min(above, before - 1))
            places.append((low, high, place - low * ONE))
        (top, bottom, down), (left, right, across) = places
        total: Expr = Lit(0, I64)
        for line, weight in ((top, ONE - down), (bottom, down)):
            for spot, share in ((left, ONE - across), (right, across)):
                value = Cast(x[(image, line, spot, channel)], I64)
                total = total + binary("*", value, Index(weight * share))
        sum_ = k.local("sum", I64, total)
        nearest = Select(binary("<", Lit(0, I64), sum_), Lit(1 << 19, I64), Lit(-(1 << 19), I64))
        rounded = binary("/", sum_ + nearest, Lit(1 << 20, I64))
        k.store(y[(image, row, column, channel)], Cast(rounded, y.dtype))


def reference(x: Array, *, sizes: Sequence[int], align: bool, half: bool) -> Array:
    parts = []
    for before, after in zip(x.shape[1:3], sizes, strict=True):
        step = _step(Dim.of(before), Dim.of(int(after)), align).constant
        place = np.arange(int(after)) * step + (step // 2 - ONE // 2 if half else 0)
        low = np.maximum(place, 0) // ONE
        high = np.minimum(np.maximum(place + ONE - 1, 0) // ONE, before - 1)
        parts.append((low, high, place - low * ONE))
    (top, bottom, down), (left, right, across) = parts
    wide = x.astype(np.int64)
    down, across = down[None, :, None, None], across[None, None, :, None]
    total = np.zeros((x.shape[0], len(top), len(left), x.shape[3]), np.int64)
    for line, weight in ((top, ONE - down), (bottom, down)):
        for spot, share in ((left, ONE - across), (right, across)):
            total += wide[:, line][:, :, spot] * weight * share
    # Halves away from 0; what is not above 0 goes down.
    moved = total + np.where(total > 0, 1 << 19, -(1 << 19))
    return np.asarray(np.sign(moved) * (np.abs(moved) >> 20)).astype(x.dtype)


def samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.integers(-128, 128, (2, 3, 4, 2)).astype(np.int8)
    wide = rng.integers(-32768, 32768, (1, 5, 2, 1)).astype(np.int16)
    return [
        Sample((x,), {"sizes": (7, 9), "align": False, "half": False}, symbolic=False),
        Sample((x,), {"sizes": (7, 9), "align": False, "half": True}, symbolic=False),
        Sample((x,), {"sizes": (2, 1), "align": True, "half": False},
               symbolic=False),
        Sample((wide,), {"sizes": (3, 5), "align": True, "half": False}, symbolic=False),
    ]  # fmt: skip


OP = Op("fixed_resize", deduce, lower, reference, samples, conditions=conditions)
