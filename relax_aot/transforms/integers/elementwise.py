# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators on quantized values: lookup tables, requantization and clamping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Var
from relax_aot.ir.types import DType
from relax_aot.ops import all_ops, elementwise_binary, elementwise_unary
from relax_aot.ops._rescale import exact_rescale
from relax_aot.ops.quantize import code_of
from relax_aot.transforms.integers.work import (
    EIGHT,
    MOST,
    Array,
    Quantized,
    Work,
    attributes,
    names_of,
)

FORMULAS = frozenset(
    op.name for op in (*elementwise_unary.OPS, *elementwise_binary.OPS)
) | {"clip", "where"}  # fmt: skip
BYTEWISE = frozenset({"lookup", "clip"})
"""Ops that make one 8-bit value of another, with constants."""


EXAMPLES = (
    Example(
        why="quantized sums are requantized, and relu becomes a limit",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            const %u: f32[] = [2.0]
            func @main(%x: i32[n, 2]) {
              %a: f32[n, 2] = dequantize(%x, %s) {to=f32}
              %b: f32[n, 2] = relu(%a)
              %y: i8[n, 2] = quantize(%b, %u) {to=i8}
              return %y
            }""",
        after="""
            ...
            const %y.scale: f32[] = [0.25]
            ...
              %y: i8[n, 2] = requantize(%x, %y.scale, _, _) {limits=[0, 127], to=i8}
              return %y
            }""",
    ),
    Example(
        why="relu with equal scales is a clip",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            const %z: i8[] = [3]
            func @main(%x: i8[n]) {
              %a: f32[n] = dequantize(%x, %s, %z) {to=f32}
              %b: f32[n] = relu(%a)
              %y: i8[n] = quantize(%b, %s, %z) {to=i8}
              return %y
            }""",
        after="""
            ...
            const %y.limit: i8[] = [3]
            ...
              %y: i8[n] = clip(%x, %y.limit, _)
              return %y
            }""",
    ),
    Example(
        why="a function of one byte is a table",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            const %u: f32[] = [0.0078125]
            func @main(%x: i8[n]) {
              %a: f32[n] = dequantize(%x, %s) {to=f32}
              %b: f32[n] = tanh(%a)
              %y: i8[n] = quantize(%b, %u) {to=i8}
              return %y
            }""",
        after="""
            ...
              %y: i8[n] = lookup(%x, %y.table)
              return %y
            }""",
    ),
    Example(
        why="a product of a byte with a function of it is a table, too",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            const %u: f32[] = [0.0078125]
            func @main(%x: i8[n]) {
              %a: f32[n] = dequantize(%x, %s) {to=f32}
              %b: f32[n] = sigmoid(%a)
              %c: i8[n] = quantize(%b, %u) {to=i8}
              %d: f32[n] = dequantize(%c, %u) {to=f32}
              %e: f32[n] = mul(%a, %d)
              %y: i8[n] = quantize(%e, %s) {to=i8}
              return %y
            }""",
        after="""
            ...
              %y: i8[n] = lookup(%x, %y.table)
              return %y
            }""",
    ),
)


@dataclass(frozen=True, slots=True)
class Target:
    """The result of a quantize."""

    call: Call
    scale: np.float32
    zero: int
    to: DType

    @property
    def out(self) -> Var:
        return self.call.out

    def quantized(self, numbers: Array) -> Array:
        """Quantize as the op does."""
        quotient = np.asarray(numbers, np.float32) / self.scale
        return code_of(np.asarray(quotient), np.asarray(self.zero), self.to, saturate=True)


def target_of(work: Work, call: Call) -> Target | None:
    """A quantize with one scale and zero point that are known."""
    args = (*call.args, None)
    scale, zero = work.numeric(args[1]), work.numeric(args[2])
    attrs = attributes(call)
    if scale is None or scale.size != 1 or scale.dtype != np.float32:
        return None
    if args[2] is not None and (zero is None or zero.size != 1):
        return None
    if attrs.get("precision", DType.F32) is not DType.F32:
        return None
    to = call.out.type.dtype
    step = np.float32(scale.reshape(-1)[0])
    if not to.is_int or to.is_stored_int or not (np.isfinite(step) and step > 0):
        return None
    return Target(call, step, 0 if zero is None else int(zero.reshape(-1)[0]), to)


# Limits


def limited(work: Work, value: Var) -> tuple[Var, float, float]:
    """The input of a chain of relu and clip, and the limits of the chain."""
    low, high = -np.inf, np.inf
    while (call := work.maker(value)) is not None:
        ends = _ends(work, call)
        if ends is None:
            break
        low, high = min(max(ends[0], low), high), min(max(ends[1], low), high)
        value = call.inputs[0]
    return value, low, high


def scaled(work: Work, value: Var) -> tuple[Var, float, float, float]:
    """The input of a chain that also multiplies by constants, the product of the factors, and the
    limits of the result."""
    factor, low, high = 1.0, -np.inf, np.inf
    while True:
        value, inner_low, inner_high = limited(work, value)
        low = min(max(inner_low * factor, low), high)
        high = max(min(inner_high * factor, high), low)
        found = _factor(work, value)
        if found is None:
            return value, factor, low, high
        value, factor = found[0], factor * found[1]


def _factor(work: Work, value: Var) -> tuple[Var, float] | None:
    """A value and the positive constant that it is multiplied by."""
    call = work.maker(value)
    if call is None or call.op not in ("mul", "div"):
        return None
    left, right = call.inputs
    if call.op == "mul" and work.numeric(left) is not None:
        left, right = right, left
    number = work.numeric(right)
    if number is None or number.size != 1 or left.type != call.out.type:
        return None
    by = float(number.reshape(-1)[0])
    if not (np.isfinite(by) and 2.0**-40 < by < 2.0**40):
        return None
    return left, by if call.op == "mul" else 1.0 / by


def _ends(work: Work, call: Call) -> tuple[float, float] | None:
    if call.op == "relu":
        return 0.0, np.inf
    if call.op == "clip":
        limits = (*call.args, None, None)[1:3]
        given = [work.numeric(limit) for limit in limits]
        if any(g is None and limit is not None for g, limit in zip(given, limits, strict=True)):
            return None
        low, high = (
            end if g is None else float(g.reshape(-1)[0])
            for g, end in zip(given, (-np.inf, np.inf), strict=True)
        )
        return (low, high) if low <= high else None
    return None


def limits_of(target: Target, low: float, high: float) -> tuple[int, int]:
    """These limits, quantized: quantization is monotone, so clamping may follow it."""
    with np.errstate(over="ignore"):
        ends = target.quantized(np.array([low, high], np.float32))
    return int(ends[0]), int(ends[1])


# Sums of products


def requantized(work: Work, target: Target) -> bool:
    """quantize(limits(sums * scale)) -> requantize."""
    value, factor, low, high = scaled(work, target.call.inputs[0])
    sums = work.dequantized(value)
    if sums is None or sums.var.type.dtype is not DType.I32 or sums.zero.any():
        return False
    if target.to not in (DType.I8, DType.U8, DType.I16, DType.U16) or not (sums.scale > 0).all():
        return False
    ratio = sums.scale * factor / float(target.scale)
    if not (np.isfinite(ratio).all() and (ratio < 2.0**20).all()):
        return False
    # Below this, every sum of 32 bits is rounded to 0, as in channels that training has left.
    ratio = np.maximum(ratio, 2.0**-33)
    ends = limits_of(target, low, high)
    most = np.maximum(work.reach.get(sums.var.name, MOST), 1)
    rescale = exact_rescale(
        ratio, ends[0] - target.zero, ends[1] - target.zero, most, each=work.replaceable
    )
    attrs: dict[str, Any] = {"to": target.to}
    if sums.axis is not None:
        attrs["axis"] = sums.axis
    if rescale.rounding != "onnx":
        attrs["rounding"] = rescale.rounding
    if ends != target.to.limits:
        attrs["limits"] = ends
    scale = work.constant(f"{target.out.name}.scale", rescale.scale)
    shift = None
    if rescale.shift is not None:
        shift = work.constant(f"{target.out.name}.shift", rescale.shift)
    work.emit(
        "requantize", sums.var, scale, zero_of(work, target), shift,
        like=target.call, out=target.out, **attrs,
    )  # fmt: skip
    return True


def zero_of(work: Work, target: Target) -> Var | None:
    if target.zero == 0 and not work.replaceable:
        return None
    return work.constant(f"{target.out.name}.zero", np.array(target.zero, target.to.numpy))


# Functions of one 8-bit value


def table(work: Work, target: Target) -> Var | bool:
    """quantize(formula(x)) -> lookup of x in a table of 256 entries, or x itself."""
    value = target.call.inputs[0]
    found = _formula(work, value) or _formula(work, value, through_tables=True)
    if found is None or target.to not in EIGHT:
        return False
    byte, numbers = found
    quantized = target.quantized(numbers)
    if target.to is byte.var.type.dtype:
        limits = (
            _tied_limits(work, target, byte) if work.replaceable else _limits(quantized, target.to)
        )
        if limits == (None, None):
            return byte.var
        if limits is not None:
            return _clip(work, target, byte.var, limits)
    stored = work.constant(f"{target.out.name}.table", quantized)
    work.emit("lookup", byte.var, stored, like=target.call, out=target.out)
    return True


Ends = tuple[int | None, int | None]


def _limits(quantized: Array, to: DType) -> Ends | None:
    """A table that is a clip, as its limits: those of the type are none."""
    ends = int(quantized.min()), int(quantized.max())
    clipped = np.clip(all_bytes(to), *ends)
    return _ends_of(ends, to) if (quantized == clipped).all() else None


def _tied_limits(work: Work, target: Target, byte: Quantized) -> Ends | None:
    """The same where the graph tells it: one scale and zero point, and nothing but limits."""
    value, low, high = limited(work, target.call.inputs[0])
    if work.dequantized(value) is None or byte.source != names_of(target.call):
        return None
    return _ends_of(limits_of(target, low, high), target.to)


def _ends_of(limits: tuple[int, int], to: DType) -> Ends:
    low, high = to.limits
    return (None if limits[0] == low else limits[0]), (None if limits[1] == high else limits[1])


def _clip(work: Work, target: Target, byte: Var, limits: Ends) -> bool:
    kind = target.to.numpy
    ends = [
        None if end is None else work.constant(f"{target.out.name}.limit", np.array(end, kind))
        for end in limits
    ]
    work.emit("clip", byte, *ends, like=target.call, out=target.out)
    return True


def all_bytes(dtype: DType) -> Array:
    """All values of an 8-bit type, in the order of their bits."""
    return np.arange(256, dtype=np.uint8).view(dtype.numpy)


def _first(work: Work, byte: Quantized) -> tuple[Quantized, Array]:
    """The 8-bit value that a chain of tables and limits begins with, and what is stored at the end
    of the chain for each of its values."""
    chain: list[tuple[Call, list[Array | None]]] = []
    var = byte.var
    while (call := work.maker(var)) is not None and call.op in BYTEWISE:
        others = [None if arg is None else work.numeric(arg) for arg in call.args[1:]]
        known = all(a is not None or b is None for a, b in zip(others, call.args[1:], strict=True))
        if not known or call.inputs[0].type.dtype not in EIGHT or work.replaceable:
            break
        chain.append((call, others))
        var = call.inputs[0]
    values = all_bytes(var.type.dtype)
    for call, others in reversed(chain):
        values = np.asarray(all_ops()[call.op].reference(values, *others, **attributes(call)))
    return replace(byte, var=var), values


def _formula(
    work: Work, value: Var, *, through_tables: bool = False
) -> tuple[Quantized, Array] | None:
    """The real value for each of the 256 inputs, if it depends on one 8-bit value, element
    by element. `through_tables`: what 8-bit values were looked up from counts as the input."""
    memo: dict[str, Array] = {}
    leaves: dict[str, Quantized] = {}

    def worth(part: Var) -> Array | None:
        if part.name in memo:
            return memo[part.name]
        constant = work.numeric(part)
        if constant is not None:
            return constant.reshape(()) if constant.size == 1 else None
        byte, call = work.dequantized(part), work.maker(part)
        if byte is not None:
            if not byte.plain or part.type.shape != value.type.shape:
                return None
            stored = all_bytes(byte.var.type.dtype)
            if through_tables:
                byte, stored = _first(work, byte)
            leaves[byte.var.name] = byte
            whole = stored.astype(np.int32) - np.int32(byte.one_zero)
            found = whole.astype(np.float32) * np.float32(byte.one_scale)
        else:
            if call is None or call.op not in FORMULAS or len(memo) > 32:
                return None
            args = [None if arg is None else worth(arg) for arg in call.args]
            if any(a is None and b is not None for a, b in zip(args, call.args, strict=True)):
                return None
            with np.errstate(all="ignore"):
                found = np.asarray(all_ops()[call.op].reference(*args, **attributes(call)))
        memo[part.name] = found
        return found

    numbers = worth(value)
    if numbers is None or len(leaves) != 1 or numbers.shape != (256,):
        return None
    if numbers.dtype != np.float32 or not np.isfinite(numbers).all():
        return None
    return next(iter(leaves.values())), numbers


RULES = (requantized, table)
