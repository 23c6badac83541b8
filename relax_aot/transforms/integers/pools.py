# SPDX-License-Identifier: Apache-2.0
"""Means and softmax of quantized values."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from relax_aot.ir.dims import Dim, interval
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Var
from relax_aot.transforms.integers.elementwise import Target, limited, requantized
from relax_aot.transforms.integers.work import EIGHT, Quantized, Work, attributes

EXAMPLES = (
    Example(
        why="a mean over the last axis",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            func @main(%x: i8[n, 4]) {
              %a: f32[n, 4] = dequantize(%x, %s) {to=f32}
              %b: f32[n] = reduce(%a) {axes=[1], keepdims=false, kind="mean"}
              %y: i8[n] = quantize(%b, %s) {to=i8}
              return %y
            }""",
        after="""
            ...
              %b.quantized: i8[n, 4] = reshape(%x) {shape=[n, 4]}
              %y: i8[n] = qmean(%b.quantized) {order="exact", scales=[0.5, ...}
              return %y
            }""",
    ),
    Example(
        why="an average of as many elements everywhere is a convolution by ones",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            const %z: i8[] = [3]
            func @main(%x: i8[n, 2, 5]) {
              %a: f32[n, 2, 5] = dequantize(%x, %s, %z) {to=f32}
              %b: f32[n, 2, 3] = average_pool(%a) {ceil_mode=false, count_include_pad=true,
                dilations=[1], kernel=[3], pads=[1, 1], strides=[2]}
              %y: i8[n, 2, 3] = quantize(%b, %s, %z) {to=i8}
              return %y
            }""",
        after="""
            ...
              %b.sums: i32[n, 2, 3] = conv_integer(%x, %b.ones, %b.zero, _, _) {dilations=[1], ...}
              ...
              %y: i8[n, 2, 3] = requantize(%b.sums, %y.scale, %b.zero, _) {to=i8}
              return %y
            }""",
    ),
    Example(
        why="softmax with a table of exponentials",
        before="""
            symbol n in 1..8
            const %s: f32[] = [0.5]
            const %u: f32[] = [0.00390625]
            const %z: i8[] = [-128]
            func @main(%x: i8[n, 4]) {
              %a: f32[n, 4] = dequantize(%x, %s) {to=f32}
              %b: f32[n, 4] = softmax(%a)
              %y: i8[n, 4] = quantize(%b, %u, %z) {to=i8}
              return %y
            }""",
        after="""
            ...
              %y: i8[n, 4] = qsoftmax(%x, %y.exp_table) {axis=-1, scale=0.00390625, ...}
              return %y
            }""",
    ),
)


MOST_ONES = 25
"""Elements of a window at most that are summed by a convolution: its weights take a byte for each,
and sums of more elements are long enough by themselves."""


def mean(work: Work, target: Target) -> bool:
    value, low, high = limited(work, target.call.inputs[0])
    call = work.maker(value)
    x = None if call is None or not call.inputs else work.dequantized(call.inputs[0])
    if call is None or x is None or not x.plain or target.to not in EIGHT:
        return False
    if np.isfinite([low, high]).any():
        return False
    if call.op == "average_pool":
        return _pool(work, target, call, x)
    if call.op == "reduce" and call.attr("kind") == "mean":
        return _reduced(work, target, call, x)
    return False


def _common(target: Target, x: Quantized) -> dict[str, Any]:
    return {
        "scales": (x.one_scale, float(target.scale)),
        "zeros": (x.one_zero, target.zero),
        "to": target.to,
    }


def _pool(work: Work, target: Target, call: Call, x: Quantized) -> bool:
    attrs = attributes(call)
    kernel, strides = attrs["kernel"], attrs["strides"]
    sizes = x.var.type.shape[2:]
    padded = any(Dim.of(pad) != Dim.of(0) for pad in attrs["pads"])
    whole = tuple(map(Dim.of, kernel)) == sizes and not padded
    if whole and all(s == 1 for s in strides):
        return _means(work, target, call, x, keep=2)
    count = int(np.prod(kernel))
    if count * 255 >= 2**24:
        return False
    steady = not attrs["ceil_mode"] and (attrs["count_include_pad"] or not padded)
    counts = (count,) if steady else range(1, count + 1)
    if not work.replaceable and all(_no_middle(x, target, n) for n in counts):
        if steady and _summed(work, target, call, x, padded):
            return True
        order = "exact"
    else:
        # ONNX Runtime processes several windows of a row together for strides 1 and 2.
        order = "columns" if len(kernel) == 2 and strides[-1] <= 2 else "rows"
    work.emit(
        "qaverage_pool", x.var, like=target.call, out=target.out,
        order=order, **_checked(work, order), **attrs, **_common(target, x),
    )  # fmt: skip
    return True


def _checked(work: Work, order: str) -> dict[str, Any]:
    """Where floats are computed by calls, few of them are."""
    return {"checked": True} if work.calls_floats and order != "exact" else {}


def _summed(work: Work, target: Target, call: Call, x: Quantized, padded: bool) -> bool:
    """A pool that divides by one number, as a convolution of each channel by ones."""
    attrs, channels, step = attributes(call), x.var.type.shape[1], float(target.scale)
    count = int(np.prod(attrs["kernel"]))
    scale = np.asarray(x.one_scale / count)
    if not channels.is_constant or x.var.type.dtype not in EIGHT or not 0 < scale / step < 2.0**20:
        return False
    if count > MOST_ONES:
        return False
    shape = (channels.constant, 1, *map(int, attrs["kernel"]))
    ones = work.constant(f"{call.out.name}.ones", np.ones(shape, np.int8))
    zero = bias = None
    if x.one_zero and padded:
        kind = x.var.type.dtype.numpy
        zero = work.constant(f"{call.out.name}.zero", np.array(x.one_zero, kind))
    elif x.one_zero:
        less = np.full(channels.constant, -x.one_zero * count, np.int32)
        bias = work.constant(f"{call.out.name}.bias", less)
    given = {name: attrs[name] for name in ("strides", "pads", "dilations")}
    total = work.emit(
        "conv_integer", x.var, ones, zero, None, bias, like=call, name=f"{call.out.name}.sums",
        group=channels.constant, **given,
    )  # fmt: skip
    work.reach[total.name] = count * max(abs(e - x.one_zero) for e in x.var.type.dtype.limits)
    number = work.dequantize(call, None, total, scale, np.zeros((), np.int64), None)
    quantize = replace(target.call, args=(number, *target.call.args[1:]))
    return requantized(work, replace(target, call=quantize))


def _reduced(work: Work, target: Target, call: Call, x: Quantized) -> bool:
    rank = x.var.type.rank
    attr = call.attr("axes")
    assert isinstance(attr, tuple)
    axes = sorted(int(a) % rank for a in attr if isinstance(a, int)) or list(range(rank))
    kept = [axis for axis in range(rank) if axis not in axes]
    if len(axes) < len(attr):
        return False
    if kept != list(range(len(kept))):
        transposed = work.emit("transpose", x.var, like=call, perm=(*kept, *axes))
        x = Quantized(transposed, x.scale, x.zero)
    return _means(work, target, call, x, keep=len(kept))


def _means(work: Work, target: Target, call: Call, x: Quantized, keep: int) -> bool:
    """Emit the means over the last axes."""
    shape = x.var.type.shape
    count = prod(shape[keep:], start=Dim.of(1))
    most = interval(count, work.bounds)[1]
    if most * 255 >= 2**31:
        return False
    if not count.is_constant:
        work.assumptions.append(("<=", count, Dim.of((2**31 - 1) // 255)))
    known = count.is_constant and not work.replaceable
    sure = known and _no_middle(x, target, count.constant)
    spatial = len(shape) == 4 and keep == 2
    order = "exact" if sure or not spatial else "lanes"
    flat = work.emit("reshape", x.var, like=call, shape=(*shape[:keep], count))
    common = _common(target, x) | _checked(work, order)
    if target.out.type.shape == shape[:keep]:
        work.emit("qmean", flat, like=target.call, out=target.out, order=order, **common)
        return True
    made = work.emit("qmean", flat, like=target.call, order=order, **common)
    work.emit("reshape", made, like=target.call, out=target.out, shape=target.out.type.shape)
    return True


def _no_middle(x: Quantized, target: Target, count: int) -> bool:
    """Whether no mean is so close to the middle between two results that float rounding could
    decide: then every order of summation gives the same result."""
    low, high = (end - x.one_zero for end in x.var.type.dtype.limits)
    if count * 256 > 1 << 22:  # sums are looked at one by one
        return False
    sums = np.arange(count * low, count * high + 1, dtype=np.float64)
    steps = sums * (x.one_scale / float(target.scale) / count)
    apart = np.abs(steps - np.floor(steps) - 0.5)
    greatest = max(abs(low), abs(high)) * x.one_scale / float(target.scale)
    # 2.0**-24 is half a unit in the last place of f32, of 1.
    return bool((apart > (count + 8) * 2.0**-24 * greatest).all())


def softmax(work: Work, target: Target) -> bool:
    call = work.maker(target.call.inputs[0])
    if call is None or call.op != "softmax" or attributes(call).get("masked"):
        return False
    x = work.dequantized(call.inputs[0])
    if x is None or not x.plain or target.to not in EIGHT:
        return False
    powers = np.exp(-x.one_scale * np.arange(256)).astype(np.float32)
    least = min(NEGLIGIBLE, NEGLIGIBLE * 2**20 * float(target.scale))
    if not work.replaceable:
        powers = powers[: np.count_nonzero(powers >= least) + 1]
    table: Var = work.constant(f"{target.out.name}.exp_table", powers)
    axis = attributes(call).get("axis", -1)
    work.emit(
        "qsoftmax", x.var, table, like=target.call, out=target.out,
        axis=axis, scale=float(target.scale), zero=target.zero, to=target.to,
    )  # fmt: skip
    return True


NEGLIGIBLE = 2.0**-32
"""An exponential that changes no sum of floats from 1 on; 2^-12 of a step of the result is none
either."""

RULES = (mean, softmax)
