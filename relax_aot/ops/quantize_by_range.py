# SPDX-License-Identifier: Apache-2.0
"""quantize_by_range: images or rows of floats as bytes, each by the range of its own values.

    symmetric    the scale is the largest magnitude divided by 127
    asymmetric   -128..127; the range includes 0, and the zero point is a third result
    positive     the same with the zero point -128: values below 0 count as 0

Results are bytes, and for each image a scale, as the kernels of TensorFlow Lite compute them
(SymmetricQuantizeFloats and AsymmetricQuantizeFloats): values are multiplied by the reciprocal of
the scale, a finite number, and halves are rounded away from 0. Images of zeros have the scale 1.
Bytes may have a border of the zero point: `before` and `after` are its sizes, one for each axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Lit, Local, Select, apply, as_expr, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_not_exceed, require

FORMS = ("symmetric", "asymmetric", "positive")
LOW, HIGH, STEPS = -128, 127, 255
SIGN, MAGNITUDE = 0x80000000, 0x7FFFFFFF
GREATEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class Quantization:
    form: str
    before: tuple[int | Dim, ...] = ()
    after: tuple[int | Dim, ...] = ()

    def border(self, rank: int) -> list[tuple[Dim, Dim]]:
        none = (0,) * rank
        sizes = zip(self.before or none, self.after or none, strict=True)
        return [(Dim.of(low), Dim.of(high)) for low, high in sizes]


def deduce(attrs: Quantization, x: TensorType) -> tuple[TensorType, ...]:
    require(x.rank >= 1 and x.dtype is DType.F32, f"quantize_by_range of {x}")
    sizes = {0, x.rank}
    fits = {len(attrs.before), len(attrs.after)} <= sizes
    require(fits, f"quantize_by_range: a border of {len(attrs.before)} axes around {x}")
    border = attrs.border(x.rank)
    require(border[0] == (Dim.of(0),) * 2, "quantize_by_range: a border between images")
    shape = tuple(low + n + high for n, (low, high) in zip(x.shape, border, strict=True))
    images = x.shape[:1]
    made = (TensorType(DType.I8, shape), TensorType(DType.F32, images))
    return (*made, TensorType(DType.I32, images)) if attrs.form == "asymmetric" else made


def conditions(attrs: Quantization, x: TensorType) -> list[Condition]:
    return [
        must_not_exceed(0, size, "the border of quantized images")
        for pair in attrs.border(x.rank)
        for size in pair
    ]


# Loops


def lower(attrs: Quantization, k: KernelBuilder, x: Buffer, *results: Buffer) -> None:
    """Ranges are compared as the bits of floats."""
    y, scales, *zeros = results
    with k.loops(x.shape[0]) as image:
        if zeros:
            inverse, zero = _asymmetric(k, x, image, scales, zeros[0])
        else:
            inverse, zero = _by_peak(attrs, k, x, image, scales)
        border = attrs.border(x.rank)
        if any(size != 0 for pair in border for size in pair):
            fill = Cast(zero, DType.I8) if zero is not None else Lit(0, DType.I8)
            with k.loops(*y.shape[1:]) as place:
                k.store(y[(*image, *place)], fill)
        with k.loops(*x.shape[1:]) as place:
            steps: Expr = binary("*", x[(*image, *place)], inverse)
            if zero is not None:
                steps = steps + zero
            limited = apply("min", apply("max", apply("round", steps), float(LOW)), float(HIGH))
            moved = (at + low for at, (low, _) in zip(place, border[1:], strict=True))
            k.store(y[(*image, *moved)], Cast(limited, DType.I8))


def _by_peak(
    attrs: Quantization, k: KernelBuilder, x: Buffer, image: At, scales: Buffer
) -> tuple[Local, Expr | None]:
    bits = k.local("bits", DType.I32, Lit(0, DType.I32))
    symmetric = attrs.form == "symmetric"
    with k.loops(*x.shape[1:]) as place:
        value: Expr = Cast(x[(*image, *place)], DType.I32, "bits")
        k.assign(bits, apply("max", bits, binary("&", value, MAGNITUDE) if symmetric else value))
    peak = k.local("peak", DType.F32, Cast(bits, DType.F32, "bits"))
    most, one = float(HIGH if symmetric else STEPS), Lit(1.0, DType.F32)
    empty = binary("==", peak, 0.0)
    scale = k.local("scale", DType.F32, Select(empty, one, binary("/", peak, most)))
    k.store(scales[image], scale)
    if not symmetric:
        return _inverse(k, binary("/", one, scale)), Lit(float(LOW), DType.F32)
    top = as_expr(most, DType.F32)
    return _inverse(k, binary("/", top, Select(empty, top, peak))), None


def _inverse(k: KernelBuilder, value: Expr) -> Local:
    return k.local("inverse", DType.F32, apply("min", value, GREATEST))


def _asymmetric(
    k: KernelBuilder, x: Buffer, image: At, scales: Buffer, zeros: Buffer
) -> tuple[Local, Expr | None]:
    """The zero point is derived from the end of the range that is closer to 0."""
    wide = DType.F64
    greatest = k.local("greatest", DType.I32, Lit(0, DType.I32))
    lowest = k.local("lowest", DType.U32, Lit(0, DType.U32))
    with k.loops(*x.shape[1:]) as place:
        value = x[(*image, *place)]
        k.assign(greatest, apply("max", greatest, Cast(value, DType.I32, "bits")))
        k.assign(lowest, apply("max", lowest, Cast(value, DType.U32, "bits")))
    high = k.local("high", wide, Cast(Cast(greatest, DType.F32, "bits"), wide))
    negative = binary("<=", Lit(SIGN, DType.U32), lowest)
    least = Select(negative, Cast(lowest, DType.F32, "bits"), Lit(0.0, DType.F32))
    low = k.local("low", wide, Cast(least, wide))
    empty = binary("==", low, high)
    width = binary("/", binary("-", high, low), float(STEPS))
    step = k.local("step", wide, Select(empty, Lit(1.0, wide), width))
    below = k.local("below", wide, binary("/", low, step))
    above = k.local("above", wide, binary("/", high, step))
    near = binary("<", apply("abs", below) - float(LOW), apply("abs", above) + float(HIGH))
    exact = Select(near, as_expr(float(LOW), wide) - below, as_expr(float(HIGH), wide) - above)
    place_ = apply("min", apply("max", apply("round", exact), float(LOW)), float(HIGH))
    whole = Select(empty, Lit(0, DType.I32), Cast(place_, DType.I32))
    zero = k.local("zero", DType.I32, whole)
    scale = k.local("scale", DType.F32, Cast(step, DType.F32))
    k.store(scales[image], scale)
    k.store(zeros[image], zero)
    inverse = _inverse(k, binary("/", Lit(1.0, DType.F32), scale))
    return inverse, k.local("offset", DType.F32, Cast(zero, DType.F32))


# Reference


def _round_away(x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.asarray(np.copysign(np.floor(np.abs(wide) + 0.5), wide))


def reference(attrs: Quantization, x: Array) -> tuple[Array, ...]:
    one = np.float32(1)
    axes, shape = tuple(range(1, x.ndim)), (-1, *(1,) * (x.ndim - 1))
    zero = np.zeros(len(x), np.int32)
    with np.errstate(all="ignore"):
        if attrs.form == "asymmetric":
            low = np.minimum(x.min(axis=axes, initial=0), 0).astype(np.float64)
            high = np.maximum(x.max(axis=axes, initial=0), 0).astype(np.float64)
            empty = low == high
            step = np.where(empty, 1.0, (high - low) / STEPS)
            below, above = low / step, high / step
            near = np.abs(below) - LOW < np.abs(above) + HIGH
            place = _round_away(np.where(near, LOW - below, HIGH - above)).clip(LOW, HIGH)
            zero = np.where(empty, 0, np.nan_to_num(place, nan=0.0)).astype(np.int32)
            scale = step.astype(np.float32)
            inverse = one / scale
        else:
            magnitude = np.where(np.signbit(x), 0, x) if attrs.form == "positive" else np.abs(x)
            peak = magnitude.max(axis=axes, initial=np.float32(0))
            most = np.float32(HIGH if attrs.form == "symmetric" else STEPS)
            scale = np.where(peak == 0, one, peak / most).astype(np.float32)
            inverse = most / np.where(peak == 0, most, peak)
            if attrs.form == "positive":
                inverse, zero = one / scale, np.full(len(x), LOW, np.int32)
        inverse = np.minimum(inverse.astype(np.float32), np.float32(GREATEST))
        steps = x * inverse.reshape(shape)
        steps = (steps + zero.astype(np.float32).reshape(shape)).astype(np.float32)
        whole = np.nan_to_num(_round_away(steps).clip(LOW, HIGH), nan=0.0).astype(np.int8)
    sizes = [(low.constant, high.constant) for low, high in attrs.border(x.ndim)]
    made = [
        np.pad(image, sizes[1:], constant_values=fill)
        for image, fill in zip(whole, zero, strict=True)
    ]
    padded = tuple(n + low + high for n, (low, high) in zip(x.shape, sizes, strict=True))
    quantized = np.array(made, np.int8).reshape(padded)
    return (quantized, scale, zero) if attrs.form == "asymmetric" else (quantized, scale)


def samples(rng: np.random.Generator) -> list[Sample]:
    def image(*shape: int) -> Array:
        return (rng.normal(size=shape) + 0.3).astype(np.float32)

    rows = image(4, 21)
    rows[1] = 0
    rows[2] *= 1e-3
    halves = np.array([[-127, -0.5, 0.5, 1.5, -2.5, 126.5], [0, 127.5, 0.5, 255, 1.5, 2.5]])
    special = np.array([[1, np.nan, -2], [-np.inf, 1, -1], [0, -0.0, 0], [1e-45, 0, 0]], np.float32)
    border = {"before": (0, 1, 0, 0), "after": (0, 0, 2, 0)}
    found = []
    for form in FORMS:
        attrs = {"form": form}
        found += [Sample((x.astype(np.float32),), attrs) for x in (rows, halves, -halves, special)]
        found += [Sample((image(2, 5, 3, 4),), attrs | border, symbolic=False)]
        found += [Sample((np.zeros((2, 0), np.float32),), attrs, symbolic=False)]
    return found


OP = Op(
    "quantize_by_range", deduce, lower, reference, samples, conditions=conditions,
    record=Quantization, values={"form": FORMS},
    traits=Trait.QUANTIZED | Trait.ROUNDS | Trait.DISCONTINUOUS,
)  # fmt: skip
