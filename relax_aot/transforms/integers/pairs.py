# SPDX-License-Identifier: Apache-2.0
"""Sums, differences and products of two quantized values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array, Call
from relax_aot.ir.types import DType
from relax_aot.ops.fixed_arithmetic import OPS as FIXED
from relax_aot.ops.qarithmetic import KINDS, LIFT, combined, product_of
from relax_aot.transforms.integers.elementwise import Target, all_bytes, limited, limits_of
from relax_aot.transforms.integers.work import EIGHT, Work

LONGEST = 62
"""A shift of `qadd` is less."""
NEAR = sorted(product(range(-4, 5), repeat=2), key=lambda pair: sum(map(abs, pair)))
SHIFT = 22
"""Of a product at most, so that the offset is below 2^30."""
ROOM = 2.0**-26
"""The least distance of a sum to the end of its range, so that rounding its parts is harmless."""


EXAMPLES = (
    Example(
        why="a sum in integers, equal for all pairs of bytes",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            const %u: f32[] = [0.75]
            func @main(%x: i8[n], %z: i8[n]) {
              %a: f32[n] = dequantize(%x, %s) {to=f32}
              %b: f32[n] = dequantize(%z, %u) {to=f32}
              %c: f32[n] = add(%a, %b)
              %y: i8[n] = quantize(%c, %u) {to=i8}
              return %y
            }""",
        after="""
            ...
              %y: i8[n] = qadd(%x, %z) {left=2796203, limits=[-128, 127], ...}
              return %y
            }""",
    ),
    Example(
        why="a product in integers, equal for all pairs of bytes",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.04]
            const %u: f32[] = [0.00313]
            func @main(%x: i8[n, 4], %z: i8[n, 1]) {
              %a: f32[n, 4] = dequantize(%x, %s) {to=f32}
              %b: f32[n, 1] = dequantize(%z, %u) {to=f32}
              %c: f32[n, 4] = mul(%a, %b)
              %y: i8[n, 4] = quantize(%c, %s) {to=i8}
              return %y
            }""",
        after="""
            ...
              %y: i8[n, 4] = qmul(%x, %z) {factor=1720735744, limits=[-128, ...}
              return %y
            }""",
    ),
    Example(
        why="halves are rounded to even, so a product is computed with the float formula",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            const %u: f32[] = [0.25]
            func @main(%x: i8[n], %z: i8[n]) {
              %a: f32[n] = dequantize(%x, %s) {to=f32}
              %b: f32[n] = dequantize(%z, %u) {to=f32}
              %c: f32[n] = mul(%a, %b)
              %y: i8[n] = quantize(%c, %s) {to=i8}
              return %y
            }""",
        after="""
            ...
              %y: i8[n] = qbinary(%x, %z) {kind="mul", limits=[-128, ...}
              return %y
            }""",
    ),
)


def pair(work: Work, target: Target) -> bool:
    """quantize(limits(a + b)): integers where equal for all pairs, else the same floats."""
    value, low, high = limited(work, target.call.inputs[0])
    call = work.maker(value)
    if call is None or call.op not in KINDS or target.to not in EIGHT:
        return False
    a, b = (work.dequantized(arg) for arg in call.inputs)
    constants = [work.numeric(arg) for arg in call.inputs]
    if a is None or b is None or not (a.plain and b.plain) or any(c is not None for c in constants):
        return False
    scales = (a.one_scale, b.one_scale, float(target.scale))
    zeros = (a.one_zero, b.one_zero, target.zero)
    if not all(s > 0 for s in scales):
        return False
    limits = limits_of(target, low, high)
    attrs: dict[str, Any] = {"to": target.to, "limits": limits}
    if call.op != "mul":
        values = [all_bytes(v.type.dtype) for v in (a.var, b.var)]
        left, right = np.meshgrid(*values, indexing="ij")
        wanted = combined(left, right, call.op, scales, zeros, target.to)
        sign = 1 if call.op == "add" else -1
        ratios = (scales[0] / scales[2], scales[1] / scales[2] * sign)
        weights = _Search(values, wanted, ratios, zeros, limits).weights(work.replaceable)
        if weights is not None:
            given = weights | attrs
            work.emit("qadd", a.var, b.var, like=target.call, out=target.out, **given)
            return True
    elif not work.replaceable:
        numbers = _multiplied(
            (a.var.type.dtype, b.var.type.dtype), scales, zeros, target.to, limits
        )
        if numbers is not None:
            given = numbers | attrs
            work.emit("qmul", a.var, b.var, like=target.call, out=target.out, **given)
            return True
    work.emit(
        "qbinary", a.var, b.var, like=target.call, out=target.out,
        kind=call.op, scales=scales, zeros=zeros, **attrs,
    )  # fmt: skip
    return True


def _multiplied(
    dtypes: tuple[DType, DType], scales: Sequence[float], zeros: Sequence[int], to: DType,
    limits: tuple[int, int],
) -> dict[str, Any] | None:  # fmt: skip
    """Numbers of `qmul` that reproduce the formula for each of the 65536 pairs."""
    left, right = np.meshgrid(*map(all_bytes, dtypes), indexing="ij")
    wanted = combined(left, right, "mul", scales, zeros, to).astype(np.int64)
    ratio = scales[0] * scales[1] / scales[2]
    shift = min(SHIFT, int(np.floor(np.log2(2.0**31 / ratio))) - (32 - LIFT))
    factor = round(ratio * 2.0 ** (shift + 32 - LIFT))
    if not 0 < factor < 2**31 or shift < 1:
        return None
    base = product_of(left, right, zeros, factor)
    offset = _between(base, np.clip(wanted, *limits), limits, shift)
    if offset is None or abs(offset) >= 2**30:
        return None
    return {"zeros": tuple(zeros[:2]), "factor": factor, "offset": offset, "shift": shift}


def _between(base: Array, wanted: Array, limits: tuple[int, int], shift: int) -> int | None:
    """The offset that brings every sum into the range of its result, or beyond a limit."""
    lack = np.left_shift(wanted, shift) - base
    above, below = wanted > np.int64(limits[0]), wanted < np.int64(limits[1])
    least = int(lack[above].max(initial=-(2**60)))
    most = int(lack[below].min(initial=2**60)) + (1 << shift) - 1
    return (least + most) // 2 if least <= most else None


def fixed_pair(work: Work, call: Call) -> bool:
    """fixed_add of bytes -> qadd, where the results are equal for all pairs."""
    if call.op != "fixed_add" or call.out.type.dtype not in EIGHT:
        return False
    dtype = call.out.type.dtype
    attrs: dict[str, Any] = dict(call.attrs)
    values = [all_bytes(v.type.dtype) for v in call.inputs]
    left, right = np.meshgrid(*values, indexing="ij")
    (op,) = (op for op in FIXED if op.name == "fixed_add")
    wanted = np.asarray(op.reference(left, right, **attrs))
    a, b, out = (
        f * 2.0 ** (s - 31) for f, s in zip(attrs["factors"], attrs["shifts"], strict=True)
    )
    scale = out * 2.0 ** attrs["left"]
    limits = (int(attrs["limits"][0]), int(attrs["limits"][1]))
    ratios = (a * scale, b * scale * attrs.get("sign", 1))
    weights = _Search(values, wanted, ratios, attrs["zeros"], limits).weights(work.replaceable)
    if weights is None:
        return False
    work.emit("qadd", *call.inputs, like=call, out=call.out, **weights, to=dtype, limits=limits)
    return True


class _Search:
    """Search for integer weights that reproduce a formula for each of the 65536 pairs."""

    def __init__(
        self,
        values: Sequence[Array],
        wanted: Array,
        ratios: tuple[float, float],
        zeros: Sequence[int],
        limits: tuple[int, int],
    ) -> None:
        self.limits = limits
        self.wanted = np.clip(wanted.astype(np.int64), *limits)
        self.values = [c.astype(np.int64) for c in values]
        self.zeros = zeros
        self.ratios = ratios
        self.real = self._real()

    def weights(self, narrow: bool = False) -> dict[str, Any] | None:
        """A factor for each operand, an offset and a shift; 32-bit sums are preferred.
        `narrow` tries harder that they can."""
        if self.real is None:
            return None
        largest = max(abs(r) for r in self.real[:2])
        most = sum(abs(r) * 255 for r in self.real[:2]) + abs(self.real[2]) + 1
        if not 2.0**-LONGEST < largest <= most < np.inf:
            return None
        shifts = [int(np.floor(np.log2(2.0**31 / size))) for size in (most, largest)]
        for shift in (one for one in shifts if 0 < one < LONGEST):
            near = NEAR if narrow and shift < 32 else NEAR[:1]
            for left, right in near:
                factors = [round(self.real[0] * 2.0**shift) + left,
                           round(self.real[1] * 2.0**shift) + right]  # fmt: skip
                offset = self._offset(factors, shift)
                if offset is not None and all(abs(f) < 2**31 for f in factors):
                    left, right = factors
                    return {"left": left, "right": right, "offset": offset, "shift": shift}
        return None

    def _real(self) -> tuple[float, float, float] | None:
        """Numbers u, v, w such that floor(u * x + v * y + w) is the result of every pair. They
        start as the ratios of the scales; the pair furthest from its result corrects them
        (projections on the half-spaces that the pairs allow)."""
        x, y = (c.astype(np.float64) for c in self.values)
        least, most = self.wanted.astype(np.float64), self.wanted + 1.0
        least[self.wanted <= self.limits[0]] = -np.inf
        most[self.wanted >= self.limits[1]] = np.inf
        u, v = self.ratios
        w = self.zeros[2] + 0.5 - u * self.zeros[0] - v * self.zeros[1]
        for _ in range(400):
            sums = (u * x)[:, None] + (v * y)[None, :] + w
            lack, excess = least + ROOM - sums, sums - (most - ROOM)
            gaps = np.maximum(lack, excess)
            i, j = np.unravel_index(int(gaps.argmax()), gaps.shape)
            if gaps[i, j] <= 0:
                return u, v, w
            step = 1.2 * gaps[i, j] * (1 if lack[i, j] > 0 else -1) / (x[i] ** 2 + y[j] ** 2 + 1)
            u, v, w = u + step * x[i], v + step * y[j], w + step
        return u, v, w

    def _offset(self, factors: list[int], shift: int) -> int | None:
        base = (self.values[0] * factors[0])[:, None] + (self.values[1] * factors[1])[None, :]
        return _between(base, self.wanted, self.limits, shift)


RULES = (pair,)
