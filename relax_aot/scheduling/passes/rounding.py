"""Rounding to integers without a thought for NaN, where none can be.

What is made of integers and known numbers is bounded. Such a value, rounded, becomes an
integer before the zero point is added, which is what a target's instructions do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Constant, Module
from relax_aot.ir.loops import Apply, Binary, Cast, Expr, Kernel, Lit, Load, Unary
from relax_aot.ir.parameters import FloatParameter
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.targets import Target

SMALL = (DType.I8, DType.U8)
SLACK = 1.001
"""More than what rounding adds to a bound."""


EXAMPLES = (
    Example(
        why="a rounded value that fits an integer",
        before="""
            symbol n in 1..8
            kernel @requantize(%x: i8[n]) -> (%y: i8[n]) {
              for i in 0..n {
                %y[i] = cast((rint(cast(%x[i], f32, wrap)) + cast(3:i8, f32, wrap)), i8, saturate)
              }
            }""",
        after="""
            kernel @requantize(%x: i8[n]) -> (%y: i8[n]) {
              for i in 0..n {
                %y[i] = cast((cast(cast(rint(...), i32, saturate), i32, wrap) + 3:i32), ...)
              }
            }""",
        target="fpu",
    ),
    Example(
        why="a float may be NaN",
        before="""
            symbol n in 1..8
            kernel @quantize(%x: f32[n]) -> (%y: i8[n]) {
              for i in 0..n {
                %y[i] = cast((rint((%x[i] * 0.5:f32)) + cast(3:i8, f32, wrap)), i8, saturate)
              }
            }""",
        target="fpu",
    ),
)


def run(module: Module, _: Target) -> Module:
    return round_module(module)


def round_module(module: Module) -> Module:
    """Every kernel, with what is known of the constants that it is called with."""
    table = module.constant_table
    kernels = []
    for kernel in module.kernels:
        mine = module.kernel_calls[kernel.name]
        greatest: dict[str, float] = {}
        for position, buffer in enumerate(kernel.inputs):
            names = {call.inputs[position].name for call in mine}
            if names and names <= table.keys() and buffer.dtype is DType.F32:
                greatest[buffer.name] = max(_magnitude(table[name]) for name in names)
        kernels.append(round_kernel(kernel, greatest))
    return replace(module, kernels=tuple(kernels))


def round_kernel(kernel: Kernel, greatest: Mapping[str, float]) -> Kernel:
    """`greatest`: of buffers whose numbers are known, the greatest magnitude."""

    def rule(expr: Expr) -> Expr:
        match expr:
            case Cast(Apply("min", (Apply("max", (x, Lit(low))), Lit(high))), to, "wrap"):
                # Clipped to what the type holds.
                if to.is_int and x.dtype is DType.I32 and (low, high) == to.limits:
                    return Cast(x, to, "saturate")
            case Cast(Binary("+", Apply("rint", (x,)), Cast(Lit() as zero)), to, "saturate"):
                high = bound(x, greatest)
                if to not in SMALL or zero.dtype not in SMALL or math.isinf(high):
                    return expr
                # Between these no sum with a small integer can wrap.
                middle = DType.I32 if high < 2.0**30 else DType.I16
                whole = Cast(Cast(Apply("rint", (x,)), middle, "saturate"), DType.I32)
                return Cast(Binary("+", whole, Lit(zero.value, DType.I32)), to, "saturate")
        return expr

    return replace(kernel, body=map_exprs(kernel.body, rule))


def bound(expr: Expr, greatest: Mapping[str, float]) -> float:
    """No value of the expression is larger in magnitude; infinite where that is not known or
    where it may be no number."""
    match expr:
        case Lit(FloatParameter() as value):
            return value.most
        case Lit():
            return abs(float(expr.value)) if math.isfinite(expr.value) else math.inf
        case Load():
            return _of_type(expr.dtype, greatest.get(expr.buffer.name, math.inf))
        case Cast():
            inside = bound(expr.value, greatest)
            known = expr.mode != "bits" and math.isfinite(inside)
            return inside * SLACK if known and expr.dtype is DType.F32 else _of_type(expr.dtype)
        case Unary("-"):
            return _within(bound(expr.value, greatest), expr.dtype)
        case Binary("+" | "-"):
            sides = bound(expr.left, greatest) + bound(expr.right, greatest)
            return _within(sides, expr.dtype)
        case Binary("*"):
            left, right = bound(expr.left, greatest), bound(expr.right, greatest)
            known = math.isfinite(left) and math.isfinite(right)
            return _within(left * right if known else math.inf, expr.dtype)
        case Binary("/", left, Lit() as by) if by.dtype is DType.F32 and _may_divide(by):
            return _within(bound(left, greatest) / abs(float(by.value)), expr.dtype)
        case Apply("max" | "min" | "fma"):
            parts = [bound(arg, greatest) for arg in expr.args]
            if not all(map(math.isfinite, parts)):
                return _of_type(expr.dtype)
            found = parts[0] * parts[1] + parts[2] if expr.function == "fma" else max(parts)
            return _within(found, expr.dtype)
        case Apply("rint", (x,)):
            return _within(bound(x, greatest) + 1, expr.dtype)
        case _:
            return _of_type(expr.dtype)


def _may_divide(by: Lit) -> bool:
    return float(by.value) != 0 and not isinstance(by.value, FloatParameter)


def _within(found: float, dtype: DType) -> float:
    """A float's bound with room for rounding; an integer's is that of its type, as it wraps."""
    if dtype is not DType.F32:
        return _of_type(dtype)
    # Nothing that may overflow on the way counts as bounded.
    return found * SLACK + 1e-30 if found < 1e37 else math.inf


def _of_type(dtype: DType, known: float = math.inf) -> float:
    if dtype.is_int:
        low, high = dtype.limits
        return float(max(-low, high))
    return known


def _magnitude(constant: Constant) -> float:
    if constant.limits:
        return float(np.int32(constant.limits[0][1]).view(np.float32))
    data = constant.data
    if data.size == 0:
        return 0.0
    greatest = float(np.max(np.abs(data)))
    return greatest if math.isfinite(greatest) else math.inf
