# SPDX-License-Identifier: Apache-2.0
"""Rounding to integers without regard to NaN, where a value is bounded.

What is made of integers and known numbers is bounded. Such a value, rounded, becomes an
integer before the zero point is added, which is what a target's instructions do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Constant, Module
from relax_aot.ir.loops import Apply, Binary, Cast, Expr, Lit, Load, Unary
from relax_aot.ir.parameters import FloatParameter
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import BYTES
from relax_aot.scheduling.targets import Target

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
        why="a rounded value rounded again",
        before="""
            kernel @requantize(%x: i8[]) -> (%y: i8[]) {
              %y[] = cast((rint(rint(cast(%x[], f32, wrap))) + cast(3:i8, f32, wrap)), i8, saturate)
            }""",
        after="""
            kernel @requantize(%x: i8[]) -> (%y: i8[]) {
              %y[] = cast((cast(cast(rint(...), i32, saturate), i32, wrap) + 3:i32), ...)
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
    """Every kernel, with the greatest magnitudes in the constants that it is called with."""
    table = module.constant_table
    kernels = []
    for kernel in module.kernels:
        mine = module.kernel_calls[kernel.name]
        greatest: dict[str, float] = {}
        for position, buffer in enumerate(kernel.inputs):
            names = {call.inputs[position].name for call in mine}
            if names and names <= table.keys() and buffer.dtype is DType.F32:
                greatest[buffer.name] = max(_magnitude(table[name]) for name in names)
        kernels.append(replace(kernel, body=map_exprs(kernel.body, partial(_rounded, greatest))))
    return replace(module, kernels=tuple(kernels))


def _magnitude(constant: Constant) -> float:
    if constant.limits:
        return float(np.int32(constant.limits[0][1]).view(np.float32))
    greatest = float(np.max(np.abs(constant.data), initial=0.0))
    return greatest if math.isfinite(greatest) else math.inf


def _rounded(greatest: Mapping[str, float], expr: Expr) -> Expr:
    match expr:
        case Cast(Apply("min", (Apply("max", (x, Lit(low))), Lit(high))), to, "wrap"):
            # Clipped to what the type holds.
            if to.is_int and x.dtype is DType.I32 and (low, high) == to.limits:
                return Cast(x, to, "saturate")
        case Cast(Binary("+", Apply("rint", (x,)), Cast(Lit() as zero)), to, "saturate"):
            high = _bound(x, greatest)
            if {to, zero.dtype} <= set(BYTES) and math.isfinite(high):
                # Between these no sum with a small integer can wrap.
                middle = DType.I32 if high < 2.0**30 else DType.I16
                whole = Cast(Cast(Apply("rint", (x,)), middle, "saturate"), DType.I32)
                return Cast(Binary("+", whole, Lit(zero.value, DType.I32)), to, "saturate")
    return expr


def _bound(expr: Expr, greatest: Mapping[str, float]) -> float:
    """No value of the expression is larger in magnitude, with room for rounding; infinite where
    that is not known, where it may be no number, or where it may overflow on the way."""
    found = math.inf
    match expr:
        case Lit(FloatParameter() as value):
            return value.most
        case Lit(value):
            return abs(float(value)) if math.isfinite(value) else math.inf
        case _ if expr.dtype.is_int:  # it may wrap
            return float(max(map(abs, expr.dtype.limits)))
        case _ if expr.dtype is not DType.F32 or (isinstance(expr, Cast) and expr.mode == "bits"):
            return math.inf
        case Load():
            found = greatest.get(expr.buffer.name, math.inf)
        case Cast() | Unary("-"):
            found = _bound(expr.value, greatest)
        case Binary("/", left, Lit(by)) if by and not isinstance(by, FloatParameter):
            found = _bound(left, greatest) / abs(float(by))
        case Binary(op, left, right) if op in "+-*":
            a, b = _bound(left, greatest), _bound(right, greatest)
            found = a * b if op == "*" else a + b
        case Apply(("max" | "min" | "fma" | "rint") as function, args):
            a, *more = (_bound(arg, greatest) for arg in args)
            found = a * more[0] + more[1] if function == "fma" else max(a + 1, 0, *more)
    return found * 1.001 + 1e-30 if found < 1e37 else math.inf
