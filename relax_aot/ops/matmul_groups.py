# SPDX-License-Identifier: Apache-2.0
"""Products with quantized weights that have a scale for each group along the inner axis.

    matmul_groups   y[..., n] = sum over groups g of k: scales[g, n] * (sum of x[..., k] * w[k, n])
    quantize_rows   rows of floats as bytes of -127..127, with one scale per row: the largest
                    magnitude divided by 127. A row with NaN or infinity has bytes 0 and that scale.
                    With `most` above 127, they are 16-bit integers of -most..most

Scales are f32 or f16. With `x` of quantize_rows, the inner sums are exact integers, and
`row_scales` multiply the result; or the sums of groups, where each group of a row has a scale of
its own. `x` may then be longer than the inner axis of `w`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, ceildiv, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Lit, Load, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_fit, require

GREATEST_GROUP = 4096
"""Inner sums of so many products of bytes stay below 2^26."""
MOST, WIDE_MOST = 127, 32767
"""The greatest absolute value of a quantized activation, of 8 and of 16 bits."""
LEAST_NORMAL = 2.0**-126
"""Rows with smaller steps are quantized to 0."""
ROUNDER, ROUNDER_BITS = 12582912.0, 0x4B400000
"""A float whose last bit is worth 1: what is added to it is rounded to nearest even."""


# matmul_groups


@dataclass(frozen=True, kw_only=True)
class Groups:
    group: int


def _product_type(
    attrs: Groups,
    x: TensorType,
    w: TensorType,
    scales: TensorType,
    row_scales: TensorType | None = None,
) -> TensorType:
    require(1 <= attrs.group <= GREATEST_GROUP, f"matmul_groups with groups of {attrs.group}")
    require(w.rank == 2 and w.dtype in (DType.I8, DType.I4), f"matmul_groups by {w}")
    known = scales.rank == 2 and scales.dtype in (DType.F32, DType.F16)
    require(known, f"matmul_groups: scales {scales}")
    kind = DType.F32 if row_scales is None else DType.I8
    require(x.rank >= 1 and x.dtype is kind, f"matmul_groups of {x}, expected {kind.value}")
    fits = row_scales is None or (
        row_scales.dtype is DType.F32 and row_scales.rank in (x.rank - 1, x.rank)
    )
    require(fits, f"matmul_groups of {x} with the scales of rows {row_scales}")
    return TensorType(DType.F32, (*x.shape[:-1], w.shape[1]))


def _product_conditions(
    attrs: Groups,
    x: TensorType,
    w: TensorType,
    scales: TensorType,
    row_scales: TensorType | None = None,
) -> list[Condition]:
    why = "sizes of weights in groups"
    depth = w.shape[0]
    groups = ceildiv(depth, attrs.group)
    inner = depth if row_scales is None else groups * attrs.group
    own = (groups,) if row_scales is not None and row_scales.rank == x.rank else ()
    return [
        *must_fit(x, (*x.shape[:-1], inner), why),
        *must_fit(scales, (groups, w.shape[1]), why),
        *must_fit(row_scales, (*x.shape[:-1], *own), why),
    ]


def _product_lower(
    attrs: Groups,
    k: KernelBuilder,
    x: Buffer,
    w: Buffer,
    scales: Buffer,
    row_scales: Buffer | None,
    y: Buffer,
) -> None:
    kind = DType.F32 if row_scales is None else DType.I32
    own = row_scales if row_scales is not None and row_scales.rank == x.rank else None

    def number(value: Expr) -> Expr:
        return value if value.dtype is kind else Cast(value, kind)

    with k.loops(*y.shape) as at:
        *row, column = at
        total = k.local("total", DType.F32, 0.0)
        with k.loops(scales.shape[0]) as (part,):
            sum_ = k.local("sum", kind, Lit(0, kind) if kind is DType.I32 else Lit(0.0, kind))
            start = k.let("start", part * attrs.group)
            with k.loops(dim_min(Dim.of(attrs.group), w.shape[0] - start)) as (j,):
                weight = w[(start + j, column)]
                k.assign(sum_, sum_ + number(x[(*row, start + j)]) * number(weight))
            group: Expr = sum_ if kind is DType.F32 else Cast(sum_, DType.F32)
            scale: Expr = scales[(part, column)]
            scale = scale if scale.dtype is DType.F32 else Cast(scale, DType.F32)
            if own is not None:
                scale = scale * own[(*row, part)]
            k.assign(total, total + group * scale)
        last = total if row_scales is None or own is not None else total * row_scales[tuple(row)]
        k.store(y[at], last)


def _product_reference(
    attrs: Groups, x: Array, w: Array, scales: Array, row_scales: Array | None = None
) -> Array:
    depth = w.shape[0]
    wide = np.repeat(scales.astype(np.float64), attrs.group, axis=0)[:depth]
    left = x[..., :depth].astype(np.float64)
    in_groups = row_scales is not None and row_scales.ndim == x.ndim
    if row_scales is not None and in_groups:
        left = left * np.repeat(row_scales.astype(np.float64), attrs.group, axis=-1)[..., :depth]
    y = left @ (w.astype(np.float64) * wide)
    if row_scales is not None and not in_groups:
        y = y * row_scales.astype(np.float64)[..., None]
    doubles = scales.dtype == np.float64  # of an error model
    return np.asarray(y if doubles else y.astype(np.float32))


def _product_samples(rng: np.random.Generator) -> list[Sample]:
    def case(
        group: int, depth: int, *, bits: int = 8, rows: bool = False, blocks: bool = False
    ) -> Sample:
        groups, columns, low = -(-depth // group), 5, -(2 ** (bits - 1))
        w = rng.integers(low, -low, (depth, columns)).astype(np.int8)
        scales = rng.uniform(0.1, 1, (groups, columns)).astype(np.float32)
        kind = DType.I8 if bits == 8 else DType.I4
        x: Array = rng.normal(size=(3, depth)).astype(np.float32)
        row_scales: Array | None = None
        if rows:
            x = rng.integers(-MOST, MOST + 1, (3, groups * group)).astype(np.int8)
            shape = (3, groups) if blocks else (3,)
            row_scales = rng.uniform(0.1, 1, shape).astype(np.float32)
        scales = scales.astype(np.float16) if blocks else scales
        args = (x, w.astype(kind.numpy), scales, row_scales)
        return Sample(args, {"group": group}, symbolic=False, rtol=1e-4, atol=1e-3)

    return [
        case(16, 32), case(16, 40), case(32, 32, bits=4), case(16, 33, bits=4),
        case(16, 48, rows=True), case(16, 41, bits=4, rows=True),
        case(16, 40, rows=True, blocks=True), case(32, 32, bits=4, blocks=True),
    ]  # fmt: skip


MATMUL = Op(
    "matmul_groups", _product_type, _product_lower, _product_reference, _product_samples,
    conditions=_product_conditions, record=Groups, any_type=True,
    traits=Trait.QUANTIZED | Trait.ROUNDS,
)  # fmt: skip


# quantize_rows


def _rows_type(x: TensorType, *, multiple: int, most: int = MOST) -> tuple[TensorType, TensorType]:
    require(x.rank >= 1 and x.dtype is DType.F32, f"quantize_rows of {x}")
    require(multiple >= 1, f"quantize_rows in multiples of {multiple}")
    known = most == MOST or MOST < most <= WIDE_MOST
    require(known, f"quantize_rows to -{most}..{most}: it is {MOST} to {WIDE_MOST}")
    inner = ceildiv(x.shape[-1], multiple) * multiple
    return (
        TensorType(DType.I8 if most == MOST else DType.I16, (*x.shape[:-1], inner)),
        TensorType(DType.F32, x.shape[:-1]),
    )


def _rows_lower(
    k: KernelBuilder, x: Buffer, y: Buffer, scales: Buffer, *, multiple: int, most: int = MOST
) -> None:
    depth = x.shape[-1]
    staged = k.scratch("staged", DType.F32, (depth,)) if most > MOST else None
    with k.loops(*x.shape[:-1]) as row:
        quantized_row(
            k, depth, lambda j: x[(*row, j)], lambda j: y[(*row, j)], scales[tuple(row)],
            most, staged,
        )  # fmt: skip


def quantized_row(
    k: KernelBuilder,
    depth: Dim,
    x: Callable[[Dim], Expr],
    y: Callable[[Dim], Load],
    scale: Load,
    most: int = MOST,
    staged: Buffer | None = None,
) -> None:
    """The bytes of `depth` floats, zeros up to the end of the row of `y`, and their scale.
    Magnitudes are compared as their bits, and sums with ROUNDER round to integers, which are
    their lowest byte: compilers make vectors of both. Integers of 16 bits are made by a factor
    in place of a division, of floats that are computed once."""
    one = Lit(1.0, DType.F32)
    bits = k.local("bits", DType.I32, Lit(0, DType.I32))
    with k.loops(depth) as (j,):
        if staged is not None:
            k.store(staged[(j,)], x(j))
            x = _element_of(staged)
        magnitude = binary("&", Cast(x(j), DType.I32, "bits"), 0x7FFFFFFF)
        k.assign(bits, apply("max", bits, magnitude))
    peak = k.local("peak", DType.F32, Cast(bits, DType.F32, "bits"))
    step = k.local("step", DType.F32, binary("/", peak, float(most)))
    used = k.local("used", DType.F32, Select(binary("<", step, LEAST_NORMAL), one, step))
    k.store(scale, used)
    finite = binary("<", peak, math.inf)
    kept = k.local("kept", DType.I32, Select(finite, Lit(-1, DType.I32), Lit(0, DType.I32)))
    inverse = k.local("inverse", DType.F32, binary("/", one, used)) if staged is not None else None
    with k.loops(depth) as (j,):
        steps = binary("/", x(j), used) if inverse is None else binary("*", x(j), inverse)
        whole = binary("&", Cast(binary("+", steps, ROUNDER), DType.I32, "bits"), kept)
        k.store(y(j), Cast(whole, y(j).dtype))
    with k.loops(y(Dim.of(0)).buffer.shape[-1] - depth) as (j,):
        k.store(y(depth + j), Lit(0, y(depth + j).dtype))


def _element_of(buffer: Buffer) -> Callable[[Dim], Expr]:
    return lambda j: buffer[(j,)]


def rows_in_bytes(x: Array, most: int = MOST) -> tuple[Array, Array]:
    """The bytes of rows, or integers of 16 bits, as floats, and their scales, of the type of x."""
    peak = np.abs(x).max(axis=-1, initial=0)
    step = np.asarray(peak / x.dtype.type(most))
    one = x.dtype.type(1)
    scales = np.where(step < LEAST_NORMAL, one, step)
    with np.errstate(invalid="ignore"):
        by = scales[..., None]
        whole = np.rint(x / by if most == MOST else x * (one / by))
    return np.where(np.isfinite(peak)[..., None], whole, 0.0), scales


def _rows_reference(x: Array, *, multiple: int, most: int = MOST) -> tuple[Array, Array]:
    whole, scales = rows_in_bytes(x, most)
    kind = np.int8 if most == MOST else np.int16
    padded = np.zeros((*x.shape[:-1], math.ceil(x.shape[-1] / multiple) * multiple), kind)
    padded[..., : x.shape[-1]] = whole.astype(kind)
    return padded, scales


def _rows_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(3, 20)).astype(np.float32)
    special = np.array([[1, np.nan, 2], [np.inf, 1, -1], [0, -0.0, 0], [1e-45, 0, 0]], np.float32)
    return [
        Sample((x,), {"multiple": 16}, symbolic=False), Sample((x[:, :16],), {"multiple": 1}),
        Sample((special,), {"multiple": 4}, symbolic=False),
        Sample((np.zeros((2, 0), np.float32),), {"multiple": 4}, symbolic=False),
        Sample((x,), {"multiple": 1, "most": 32767}),
        Sample((special,), {"multiple": 4, "most": 1000}, symbolic=False),
    ]  # fmt: skip


ROWS = Op(
    "quantize_rows", _rows_type, _rows_lower, _rows_reference, _rows_samples,
    traits=Trait.QUANTIZED | Trait.ROUNDS | Trait.DISCONTINUOUS,
)  # fmt: skip

OPS = (MATMUL, ROWS)
