# SPDX-License-Identifier: Apache-2.0
"""Contractions of dequantized values become integer contractions with 32-bit sums."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from relax_aot.ir.dims import Dim, interval
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Var
from relax_aot.ir.types import DType
from relax_aot.ops import conv_transpose
from relax_aot.transforms.integers.work import EIGHT, MOST, Array, Quantized, Work, attributes

EXAMPLES = (
    Example(
        why="the bias takes the zero point",
        before="""
            symbol n in 1..8
            const %w: i8[3, 2] = [1, -2, 3, 4, -5, 6]
            const %s: f32[] = [0.5]
            const %z: i8[] = [3]
            const %u: f32[] = [0.25]
            func @main(%x: i8[n, 3]) {
              %a: f32[n, 3] = dequantize(%x, %s, %z) {to=f32}
              %b: f32[3, 2] = dequantize(%w, %u) {to=f32}
              %y: f32[n, 2] = matmul(%a, %b)
              return %y
            }""",
        after="""
            ...
            const %y.bias: i32[2] = [3, -24]
            const %y.sums.scale: f32[] = [0.125]
            ...
              %y.sums: i32[n, 2] = matmul_integer(%x, %w, _, _, %y.bias)
              %y: f32[n, 2] = dequantize(%y.sums, %y.sums.scale, _) {to=f32}
              return %y
            }""",
    ),
    Example(
        why="scales along the reduction axis",
        before="""
            symbol n in 1..8
            const %w: i8[3, 2] = [1, -2, 3, 4, -5, 6]
            const %s: f32[] = [0.5]
            const %u: f32[3] = [0.25, 0.5, 1.0]
            func @main(%x: i8[n, 3]) {
              %a: f32[n, 3] = dequantize(%x, %s) {to=f32}
              %b: f32[3, 2] = dequantize(%w, %u) {axis=0, to=f32}
              %y: f32[n, 2] = matmul(%a, %b)
              return %y
            }""",
    ),
    Example(
        why="a zero point that is known while the model runs",
        before="""
            symbol n in 1..8
            const %w: i8[3, 2] = [1, -2, 3, 4, -5, 6]
            func @main(%x: u8[n, 3], %z: u8[]) {
              %y: i32[n, 2] = matmul_integer(%x, %w, %z)
              return %y
            }""",
        after="""
            ...
            const %y.columns: i32[2] = [-1, 8]
            ...
              %y.whole: i32[n, 2] = matmul_integer(%x, %w, _, _, _)
              %y.zero: i32[] = cast(%z) {saturate=false, to=i32}
              %y.one: i32[1] = reshape(%y.zero) {shape=[1]}
              %y.shift: i32[2] = mul(%y.one, %y.columns)
              %y: i32[n, 2] = sub(%y.whole, %y.shift)
              return %y
            }""",
    ),
)


def convolution(work: Work, call: Call) -> bool:
    x, w = work.dequantized(call.args[0]), work.dequantized(call.args[1])
    if x is None or w is None or not _operands(x, w, axis=0):
        return False
    bias = (*call.args, None)[2]
    depth = prod(w.var.type.shape[1:], start=Dim.of(1))
    scale = _product(x, w)
    whole = _whole_bias(work, bias, scale, w.var.type.shape[0])
    padded = any(Dim.of(pad) != Dim.of(0) for pad in _sizes(call, "pads"))
    sums = _Sums(work, call, x, w, depth, whole)
    axes = tuple(range(1, w.var.type.rank))
    return sums.replace_call("conv_integer", axes, scale, bias, folds=not padded, channel=1)


def transposed_convolution(work: Work, call: Call) -> bool:
    """Not all taps reach a result, so the zero point of x stays an operand."""
    x, w = work.dequantized(call.args[0]), work.dequantized(call.args[1])
    group = attributes(call)["group"]
    if x is None or w is None or not w.var.type.shape[0].is_constant:
        return False
    inputs, filters, *kernel = w.var.type.shape
    axis = conv_transpose.scale_axis(inputs.constant, group)
    if not _operands(x, w, axis=1 if w.axis == 1 else axis) or not filters.is_constant:
        return False
    if np.any(w.zero != w.one_zero):
        return False
    scale = _product(x, w)
    if scale.ndim:
        scale = conv_transpose.by_channel(scale, w.axis or 0, group, filters.constant)
    bias = (*call.args, None)[2]
    depth = prod(kernel, start=Dim.of(inputs.constant // group))
    whole = _whole_bias(work, bias, scale, filters * group)
    one = Quantized(w.var, w.scale, np.asarray(w.one_zero), w.axis)
    sums = _Sums(work, call, x, one, depth, whole)
    axes = tuple(range(1, w.var.type.rank))
    return sums.replace_call(f"{call.op}_integer", axes, scale, bias, folds=False, channel=1)


def product(work: Work, call: Call) -> bool:
    """matmul and gemm."""
    attrs = attributes(call)
    a, b = work.dequantized(call.args[0]), work.dequantized(call.args[1])
    gemm = call.op == "gemm"
    alpha, beta = float(attrs.get("alpha", 1.0)), float(attrs.get("beta", 1.0))
    if a is None or b is None or a.var.type.rank < 2 or b.var.type.rank < 2 or not alpha > 0:
        return False
    transposed = bool(attrs.get("trans_b", False))
    if not _operands(a, b, axis=0 if transposed else b.var.type.rank - 1):
        return False
    if attrs.get("trans_a", False):
        a = Quantized(work.emit("transpose", a.var, like=call, perm=(1, 0)), a.scale, a.zero)
    if transposed:
        name = f"{b.var.name}.transposed"
        b = Quantized(
            work.emit("transpose", b.var, like=call, name=name, perm=(1, 0)), b.scale, b.zero
        )
    bias = (*call.args, None)[2] if gemm and beta != 0.0 else None
    scale = _product(a, b) * alpha
    columns = b.var.type.shape[-1]
    whole = _whole_bias(work, bias, scale, columns, beta)
    if bias is not None and whole is None and beta != 1.0:
        return False
    sums = _Sums(work, call, a, b, a.var.type.shape[-1], whole)
    rank, channel = b.var.type.rank, call.out.type.rank - 1
    return sums.replace_call(
        "matmul_integer", (rank - 2,), scale, bias, folds=rank == 2, channel=channel
    )


def later_zero_point(work: Work, call: Call) -> bool:
    """conv_integer and matmul_integer with a zero point of the input that is known while the model
    runs, as models with dynamic quantization have it: sum((x - z) * w) = sum(x * w) - z * sum(w).
    Padding becomes a border of the zero point."""
    if call.op not in ("conv_integer", "matmul_integer"):
        return False
    x, w, zero, w_zero, bias = (*call.args, None, None, None)[:5]
    assert x is not None and w is not None
    conv, weights, point = call.op == "conv_integer", work.numeric(w), work.numeric(w_zero)
    if weights is None or x.type.rank < 2 or (not conv and weights.ndim != 2):
        return False
    if zero is None or zero.type.elements != Dim.of(1) or work.numeric(zero) is not None:
        return False
    if w_zero is not None and (point is None or point.ndim > 1):
        return False
    less = np.zeros((), np.int64) if point is None else point.astype(np.int64)
    if conv:
        less = less.reshape(-1, *[1] * (weights.ndim - 1))
    axes = tuple(range(1, weights.ndim)) if conv else (0,)
    sums = (weights.astype(np.int64) - less).sum(axis=axes)
    if call.out.type.dtype is not DType.I32 or np.abs(sums).max(initial=0) > MOST:
        return False
    name, attrs = call.out.name, attributes(call)
    if conv and any(Dim.of(pad) != Dim.of(0) for pad in attrs["pads"]):
        x = _with_border(work, call, x, zero)
        attrs["pads"] = (0,) * len(attrs["pads"])
    total = work.emit(call.op, x, w, None, w_zero, bias, like=call, name=f"{name}.whole", **attrs)
    wide = work.emit("cast", zero, like=call, name=f"{name}.zero", to=DType.I32, saturate=False)
    one = work.emit("reshape", wide, like=call, name=f"{name}.one", shape=(Dim.of(1),))
    rows = sums.astype(np.int32).reshape(-1, *[1] * (weights.ndim - 2)) if conv else sums
    columns = work.constant(f"{name}.columns", rows.astype(np.int32))
    shift = work.emit("mul", one, columns, like=call, name=f"{name}.shift")
    work.emit("sub", total, shift, like=call, out=call.out)
    return True


def _with_border(work: Work, call: Call, x: Var, zero: Var) -> Var:
    pads = _sizes(call, "pads")
    space = len(pads) // 2
    value = work.emit("reshape", zero, like=call, name=f"{call.out.name}.fill", shape=())
    return work.emit(
        "pad", x, value, like=call, name=f"{call.out.name}.padded", mode="constant",
        before=(0, 0, *pads[:space]), after=(0, 0, *pads[space:]),
    )  # fmt: skip


def zero_point(work: Work, call: Call) -> Call:
    """conv_integer and matmul_integer of the source model: fold the zero point of the input into
    the bias, where no tap is in the padding."""
    x, w, zero, w_zero, bias = (*call.args, None, None, None)[:5]
    assert x is not None and w is not None
    weights, point = work.numeric(w), work.numeric(zero)
    given = work.numeric(bias)
    conv = call.op == "conv_integer"
    if conv and any(Dim.of(pad) != Dim.of(0) for pad in _sizes(call, "pads")):
        return call
    plain = conv or w.type.rank == 2
    if not plain or weights is None or point is None or point.size > 1 or w_zero is not None:
        return call
    if bias is not None and given is None:
        return call
    axes = tuple(range(1, w.type.rank)) if conv else (0,)
    whole = _shifted(weights.astype(np.int64), int(point.reshape(-1)[0]), axes, given)
    if (np.abs(whole) + _reach(weights.astype(np.int64), axes, x)).max(initial=0) > MOST:
        return call
    folded = work.constant(f"{call.out.name}.bias", whole.astype(np.int32))
    args = (x, w, None, None, folded)
    return Call(call.outs, call.op, args, call.attrs, call.origin)


def _sizes(call: Call, name: str) -> tuple[int | Dim, ...]:
    value = call.attr(name)
    assert isinstance(value, tuple)
    return tuple(v for v in value if isinstance(v, int | Dim))


def _operands(x: Quantized, w: Quantized, axis: int) -> bool:
    bytes_ = x.plain and w.var.type.dtype in EIGHT
    return bytes_ and w.axis in (None, axis) and bool((x.scale > 0).all() and (w.scale > 0).all())


def _product(x: Quantized, w: Quantized) -> Array:
    """The scale of the sums."""
    product = np.asarray(x.scale.reshape(()) * w.scale.reshape(-1))
    return product.reshape(()) if w.axis is None and product.size == 1 else product


def _whole_bias(
    work: Work, bias: Var | None, scale: Array, channels: Dim, beta: float = 1.0
) -> Array | None:
    """A constant bias in steps of the sums, where it is a whole number of steps."""
    given = work.numeric(bias)
    if given is None:
        quantized = work.dequantized(bias)
        given = None if quantized is None else _numbers(work, quantized)
    if given is None or not channels.is_constant:
        return None
    row = given.astype(np.float64)
    if row.size != 1 and row.shape[-1:] != (channels.constant,):
        return None
    if row.size not in (1, channels.constant):
        return None
    exact = np.broadcast_to(row.reshape(-1) * beta, (channels.constant,)) / scale
    whole = np.rint(exact)
    close = np.abs(exact - whole) <= np.abs(whole) * 2.0**-21  # as exact as float32 has it
    return whole.astype(np.int64) if close.all() and np.abs(whole).max(initial=0) <= MOST else None


def _numbers(work: Work, quantized: Quantized) -> Array | None:
    """The real values of a quantized constant."""
    data = work.numeric(quantized.var)
    if data is None:
        return None
    if quantized.axis is None:
        return np.asarray((data.astype(np.float64) - quantized.one_zero) * quantized.one_scale)
    shape = [-1 if axis == quantized.axis else 1 for axis in range(data.ndim)]
    parts = (np.broadcast_to(p.reshape(-1), (data.shape[quantized.axis],)).reshape(shape)
             for p in (quantized.zero, quantized.scale))  # fmt: skip
    zero, scale = parts
    return np.asarray((data.astype(np.float64) - zero) * scale)


def _shifted(weights: Array, zero: int, axes: tuple[int, ...], bias: Array | None) -> Array:
    """The bias that corrects for a zero point that is not subtracted at each tap."""
    return np.asarray((0 if bias is None else bias) - zero * weights.sum(axis=axes))


def _reach(weights: Array, axes: tuple[int, ...], x: Var) -> Array:
    """The greatest sum of the stored values in each channel."""
    most = max(abs(end) for end in x.type.dtype.limits)
    return np.asarray(np.abs(weights).sum(axis=axes) * most)


class _Sums:
    """The sums of one contraction: whether they fit 32 bits, and where the zero points go."""

    def __init__(
        self, work: Work, call: Call, x: Quantized, w: Quantized, depth: Dim, bias: Array | None
    ) -> None:
        self.work, self.call, self.x, self.w = work, call, x, w
        self.depth, self.given = depth, bias
        self.most: int | Array = MOST
        data = work.numeric(w.var)
        self.weights: Array | None = None
        if data is not None:
            if call.op == "conv_transpose":
                data = conv_transpose.by_output(data, attributes(call)["group"])
            ones = [1] * (data.ndim - 1)
            shape = [*ones, -1] if call.op in ("matmul", "gemm") else [-1, *ones]
            zero = w.zero.reshape(shape)
            self.weights = data.astype(np.int64) - zero

    def fit(self, axes: tuple[int, ...]) -> bool:
        """Whether every sum fits 32 bits."""
        low, high = self.x.var.type.dtype.limits
        most = max(high - self.x.one_zero, self.x.one_zero - low)
        bias = 0 if self.given is None else int(np.abs(self.given).max(initial=0))
        if self.weights is not None:
            # A channel with a small scale has a large bias: it counts for itself alone.
            reach = np.abs(self.weights).sum(axis=axes) * most
            self.most = reach + (0 if self.given is None else np.abs(self.given))
            return bool(np.max(self.most, initial=0) <= MOST)
        low, high = self.w.var.type.dtype.limits
        ends = [abs(end - int(z)) for end in (low, high) for z in self.w.zero.reshape(-1)]
        self.most = max(ends) * interval(self.depth, self.work.bounds)[1] * most + bias
        if self.most > MOST:
            return False
        if not self.depth.is_constant:
            # Sums may grow with the depth once bounds are raised, up to what they hold.
            deepest = Dim.of((MOST - bias) // max(max(ends) * most, 1))
            self.work.assumptions.append(("<=", self.depth, deepest))
            self.most = MOST
        return True

    def replace_call(
        self,
        op: str,
        axes: tuple[int, ...],
        scale: Array,
        bias: Var | None,
        *,
        folds: bool,
        channel: int,
    ) -> bool:
        """The integer contraction, its sums dequantized under the name of the call's result, and a
        bias that is not a whole number of steps added; False where the sums may leave 32 bits.
        `folds`: the zero point of x may become a part of the bias."""
        work, call = self.work, self.call
        if not self.fit(axes):
            return False
        zero, whole = self.without_zero(axes) if folds else (self.zero_of_x(), self.given)
        total = work.emit(
            op, self.x.var, self.w.var, zero, self.zero_of(self.w), self.bias(whole),
            like=call, name=f"{call.out.name}.sums",
            **({} if op == "matmul_integer" else attributes(call)),
        )  # fmt: skip
        work.reach[total.name] = self.most
        axis, none = channel if scale.ndim else None, np.zeros((), np.int64)
        if self.given is not None or bias is None:
            work.dequantize(call, call.out, total, scale, none, axis)
            return True
        numbers = work.dequantize(call, None, total, scale, none, axis)
        if channel == 1 and total.type.rank > 2:
            sizes: tuple[Any, ...] = (bias.type.shape[0], *[1] * (total.type.rank - 2))
            bias = work.emit("reshape", bias, like=call, name=f"{bias.name}.column", shape=sizes)
        work.emit("add", numbers, bias, like=call, out=call.out)
        return True

    def without_zero(self, axes: tuple[int, ...]) -> tuple[Var | None, Array | None]:
        """The zero point of x and the bias. Known weights fold the zero point into the bias."""
        zero = self.x.one_zero
        known = zero == 0 and not self.work.replaceable
        if known or self.weights is None or self.w.zero.any():
            return self.zero_of_x(), self.given
        whole = _shifted(self.weights, zero, axes, self.given)
        reach = _reach(self.weights, axes, self.x.var)
        if (np.abs(whole) + reach).max(initial=0) > MOST:
            return self.zero_of_x(), self.given
        return None, whole

    def zero_of_x(self) -> Var | None:
        return self._zero(self.x) if self.work.replaceable else self.zero_of(self.x)

    def zero_of(self, quantized: Quantized) -> Var | None:
        return self._zero(quantized) if quantized.zero.any() else None

    def _zero(self, quantized: Quantized) -> Var:
        kind = quantized.var.type.dtype.numpy
        zero = (
            quantized.zero.reshape(()) if quantized.zero.size == 1 else quantized.zero.reshape(-1)
        )
        return self.work.constant(f"{quantized.var.name}.zero", zero.astype(kind))

    def bias(self, whole: Array | None) -> Var | None:
        if whole is None:
            return None
        return self.work.constant(f"{self.call.out.name}.bias", whole.astype(np.int32))


def biased(work: Work, call: Call) -> bool:
    """sums + a constant for each column, in whole steps of the sums -> sums with that bias."""
    for value, other in (call.inputs, call.inputs[::-1]):
        quantized = work.dequantized(value)
        summed = None if quantized is None else work.maker(quantized.var)
        if quantized is None or summed is None or summed.op != "matmul_integer":
            continue
        channels = quantized.var.type.shape[-1]
        if call.out.type != value.type or other.type.shape != (channels,):
            continue
        whole = _whole_bias(work, other, quantized.scale, channels)
        given = work.numeric((*summed.args, *[None] * 5)[4])
        most = work.reach.get(quantized.var.name)
        if whole is None or most is None or summed.args[1] is None or summed.args[1].type.rank < 2:
            continue
        most = most + np.abs(whole)
        total = whole if given is None else whole + given.astype(np.int64)
        if np.max(most) > MOST or np.abs(total).max(initial=0) > MOST:
            continue
        args = (*summed.args, *[None] * 5)[:4]
        bias = work.constant(f"{call.out.name}.bias", total.astype(np.int32))
        made = work.emit("matmul_integer", *args, bias, like=call, name=f"{call.out.name}.sums")
        work.reach[made.name] = most
        work.dequantize(call, call.out, made, quantized.scale, quantized.zero, quantized.axis)
        return True
    return False


RULES = {
    "conv": convolution, "conv_transpose": transposed_convolution, "matmul": product,
    "gemm": product, "add": biased,
}  # fmt: skip
