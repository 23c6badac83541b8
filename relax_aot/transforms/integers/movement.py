# SPDX-License-Identifier: Apache-2.0
"""Ops that move or select elements work on quantized values."""

from __future__ import annotations

import numpy as np

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call
from relax_aot.ops import has
from relax_aot.ops._op import Trait
from relax_aot.transforms.integers.elementwise import Target
from relax_aot.transforms.integers.work import Quantized, Work, attributes

EXAMPLES = (
    Example(
        why="a transpose moves bytes before they are dequantized",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            func @main(%x: i8[n, 4]) {
              %a: f32[n, 4] = dequantize(%x, %s) {to=f32}
              %y: f32[4, n] = transpose(%a) {perm=[1, 0]}
              return %y
            }""",
        after="""
            ...
            const %y.quantized.scale: f32[] = [0.5]
            ...
              %y.quantized: i8[4, n] = transpose(%x) {perm=[1, 0]}
              %y: f32[4, n] = dequantize(%y.quantized, %y.quantized.scale, _) {to=f32}
              return %y
            }""",
    ),
    Example(
        why="a transpose moves bytes after they are quantized",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            func @main(%x: f32[n, 4]) {
              %a: f32[4, n] = transpose(%x) {perm=[1, 0]}
              %y: i8[4, n] = quantize(%a, %s) {to=i8}
              return %y
            }""",
        after="""
            ...
              %y.quantized: i8[n, 4] = quantize(%x, %s) {to=i8}
              %y: i8[4, n] = transpose(%y.quantized) {perm=[1, 0]}
              return %y
            }""",
    ),
)


def moves(call: Call) -> bool:
    if call.op == "reduce":
        return call.attr("kind") in ("max", "min")
    if call.op == "pad":
        return len(call.inputs) == 1 or call.attr("mode") != "constant"
    return has(call.op, Trait.MOVES)


def dequantize_later(work: Work, call: Call) -> bool:
    """move(dequantize(x)) -> dequantize(move(x))."""
    if len(call.outs) != 1:
        return False
    if call.op in ("concat", "where"):
        return _joined_later(work, call)
    padding = _padding(work, call)
    if not moves(call) and padding is None:
        return False
    x = work.dequantized(call.args[0])
    if x is None or not x.plain:
        return _transposed_weights(work, call, x)
    rest = list(call.args[1:])
    if padding is not None:
        stored = round(padding / x.one_scale) + x.one_zero
        low, high = x.var.type.dtype.limits
        value = np.float32(stored - x.one_zero) * np.float32(x.one_scale)
        if not low <= stored <= high or value != np.float32(padding):
            return False
        kind = x.var.type.dtype.numpy
        rest = [work.constant(f"{call.out.name}.value", np.array(stored, kind))]
    moved = work.emit(call.op, x.var, *rest, like=call, **attributes(call))
    work.dequantize(call, call.out, moved, x.scale, x.zero, None, x.source)
    return True


def _padding(work: Work, call: Call) -> float | None:
    """The padding value; 0 unless given."""
    if call.op != "pad" or call.attr("mode") != "constant":
        return None
    if len(call.inputs) == 1:
        return 0.0
    value = work.numeric(call.inputs[1])
    return None if value is None or value.size != 1 else float(value.reshape(-1)[0])


def _transposed_weights(work: Work, call: Call, x: Quantized | None) -> bool:
    """Transpose quantized weights; the axis of the scales moves with them."""
    if x is None or x.axis is None or call.op != "transpose":
        return False
    perm = call.attr("perm")
    assert isinstance(perm, tuple)
    moved = work.emit("transpose", x.var, like=call, perm=perm)
    work.dequantize(call, call.out, moved, x.scale, x.zero, perm.index(x.axis))
    return True


def _joined_later(work: Work, call: Call) -> bool:
    """The same where all operands have one scale and zero point."""
    first = 1 if call.op == "where" else 0
    parts = [work.dequantized(arg) for arg in call.args[first:]]
    known = [p for p in parts if p is not None and p.plain]
    if len(known) != len(parts) or not known:
        return False
    one = known[0]
    kinds = {(p.one_scale, p.one_zero, p.var.type.dtype) for p in known}
    sources = {p.source for p in known} if work.replaceable else kinds
    if len(kinds) != 1 or len(sources) != 1:
        return False
    args = (*call.args[:first], *(p.var for p in known))
    joined = work.emit(call.op, *args, like=call, **attributes(call))
    work.dequantize(call, call.out, joined, one.scale, one.zero, None, one.source)
    return True


def quantize_earlier(work: Work, target: Target) -> Call | None:
    """quantize(move(x)) -> move(quantize(x)), as the call that moves; the calls that quantize
    precede it."""
    call = work.maker(target.call.inputs[0])
    if call is None or len(call.outs) != 1:
        return None
    joins, first = call.op in ("concat", "where"), int(call.op == "where")
    if not joins and (call.op == "pad" or not moves(call)):
        return None
    moved = call.args[first:] if joins else call.args[:1]
    if any(arg is None or work.numeric(arg) is not None for arg in moved):
        return None
    asked = target.call  # the caller rewrites quantizes like this one
    quantized = [
        work.emit("quantize", arg, *asked.args[1:], like=asked, **attributes(asked))
        for arg in moved
        if arg is not None
    ]
    args = (*call.args[:first], *quantized, *call.args[first + len(quantized) :])
    return Call((target.out,), call.op, args, call.attrs, call.origin)
