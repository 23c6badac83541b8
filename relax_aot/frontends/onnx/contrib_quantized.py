# SPDX-License-Identifier: Apache-2.0
"""Quantized operators of the domain com.microsoft.

Products are summed as integers. Everything else is worked out on the numbers that the quantized
values stand for, and quantized again."""

from __future__ import annotations

from collections.abc import Callable

from relax_aot.frontends.onnx import quantization
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.onnx.contrib import DOMAIN, channels_first, softmax_from
from relax_aot.frontends.onnx.convolution import average_pool, global_pool, pool, windows
from relax_aot.frontends.onnx.quantization import combined_scale, zero_point
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

LIMITS = {
    f"{DOMAIN}.QLinearConv": "no channels_last",
    f"{DOMAIN}.QGemm": "alpha 1",
}


def _numbers(node: Node, code: Var, scale: Var, zero: Var | None) -> Var:
    """What quantized values of one scale stand for."""
    return node.emit("dequantize", code, _one(node, scale), _one(node, zero), to=DType.F32)


def _codes(node: Node, x: Var, scale: Var, zero: Var | None, like: DType) -> Var:
    to = like if zero is None else zero.type.dtype
    return node.emit("quantize", x, _one(node, scale), _one(node, zero), to=to)


def _one(node: Node, value: Var | None) -> Var | None:
    if value is None:
        return None
    if value.type.elements != Dim.of(1):
        raise Refused(f"one scale and zero point are supported here, got {value.type}")
    return node.reshape(value, ())


def _unary(work: Callable[[Node, Var], Var]) -> Handler:
    """X, its scale and zero point; the scale and zero point of the result."""

    def handle(node: Node) -> Results:
        x = node.arg(0)
        y = work(node, _numbers(node, x, node.arg(1), node.optional(2)))
        return _codes(node, y, node.arg(3), node.optional(4), x.type.dtype)

    return handle


def _binary(op: str) -> Handler:
    def handle(node: Node) -> Results:
        a, b = (_numbers(node, node.arg(i), node.arg(i + 1), node.optional(i + 2)) for i in (0, 3))
        kind = node.arg(0).type.dtype
        return _codes(node, node.emit(op, a, b), node.arg(6), node.optional(7), kind)

    return handle


def _concat(node: Node) -> Results:
    parts = [
        _numbers(node, node.arg(i), node.arg(i + 1), node.arg(i + 2))
        for i in range(2, node.count, 3)
    ]
    axis = normal_axis(int(node.required("axis")), parts[0].type.rank)
    whole = node.emit("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]
    return _codes(node, whole, node.arg(0), node.arg(1), node.arg(2).type.dtype)


def _where(node: Node) -> Results:
    x, y = (_numbers(node, node.arg(i), node.arg(i + 1), node.arg(i + 2)) for i in (1, 4))
    chosen = node.emit("where", node.arg(0), x, y)
    return _codes(node, chosen, node.arg(7), node.arg(8), node.arg(1).type.dtype)


def _softmax(node: Node, x: Var) -> Var:
    axis = normal_axis(node.attr("axis", -1), x.type.rank)
    if int(node.required("opset")) >= 13:
        return node.emit("softmax", x, axis=axis)
    return softmax_from(node, x, axis)


def _leaky_relu(node: Node, x: Var) -> Var:
    return node.emit("leaky_relu", x, alpha=node.attr("alpha", 0.01))


def _pool(work: Callable[[Node, Var], Var]) -> Handler:
    """A pool whose channels may come last."""
    return _unary(
        lambda node, x: (
            channels_first(node, x, lambda y: work(node, y))
            if node.attr("channels_last", 0)
            else work(node, x)
        )
    )


def _average(node: Node, x: Var) -> Var:
    """Where padding counts, so do the taps beyond it that ceil_mode adds, in ONNX Runtime."""
    y = average_pool(node, x)
    if not (node.attr("count_include_pad", 0) and node.attr("ceil_mode", 0)):
        return y
    kernel = tuple(int(size) for size in node.required("kernel_shape"))
    attrs = windows(node, x, tuple(map(Dim.of, kernel)))
    pads, rank = attrs["pads"], len(kernel)
    ends = (pad + stride - 1 for pad, stride in zip(pads[rank:], attrs["strides"], strict=True))
    attrs["pads"] = (*pads[:rank], *ends)
    whole = node.emit(
        "average_pool", x, kernel=kernel, ceil_mode=False, count_include_pad=True, **attrs
    )
    if whole.type == y.type:
        return whole
    return node.emit(
        "slice", whole, starts=(0,) * rank, lengths=y.type.shape[2:], steps=(1,) * rank,
        axes=tuple(range(2, 2 + rank)),
    )  # fmt: skip


def _reduce_mean(node: Node, x: Var) -> Var:
    rank = x.type.rank
    axes = node.attr("axes") or range(rank)
    over = tuple(sorted({normal_axis(int(axis), rank) for axis in axes}))
    return node.emit("reduce", x, kind="mean", axes=over, keepdims=bool(node.attr("keepdims", 1)))


def _conv(node: Node) -> Results:
    if node.attr("channels_last", 0):
        raise Refused("channels_last is not supported")
    return quantization.HANDLERS["QLinearConv"](node)


def _gemm(node: Node) -> Results:
    """A @ B + C in 32 bits; f32 where no scale of the result is given."""
    if float(node.attr("alpha", 1.0)) != 1.0:
        raise Refused("an alpha other than 1 is not supported")
    a, b = node.arg(0), node.arg(3)
    if node.attr("transA", 0):
        a = node.emit("transpose", a, perm=(1, 0))
    if node.attr("transB", 0):
        b = node.emit("transpose", b, perm=(1, 0))
    zeros = zero_point(node, 2), zero_point(node, 5, weights=True)
    total = node.emit("matmul_integer", a, b, *zeros)
    bias = node.optional(6)
    if bias is not None:
        total = node.emit("add", total, bias)
    one = node.constant_scalar(1.0, DType.F32)
    step = node.optional(7)
    scale = combined_scale(node, node.arg(1), node.arg(4), one if step is None else step)
    if step is None:
        return node.emit("mul", node.cast(total, DType.F32), scale)
    zero = node.arg(8)
    axis = {"axis": 1} if scale.type.rank else {}
    return node.emit("requantize", total, scale, zero, to=zero.type.dtype, **axis)


def integer_to_float(
    node: Node, a: Var, b: Var, scales: tuple[Var, Var], zeros: tuple[Var | None, ...]
) -> Var:
    total = node.emit("matmul_integer", a, b, *zeros)
    scale = combined_scale(node, *scales, node.constant_scalar(1.0, DType.F32))
    return node.emit("mul", node.cast(total, DType.F32), scale)


def _biased(node: Node, y: Var, bias: Var | None) -> Var:
    return y if bias is None else node.emit("add", y, bias)


def _matmul_integer_to_float(node: Node) -> Results:
    if node.arg(2).type.dtype is not DType.F32:
        raise Refused(f"scales of {node.arg(2).type} are not supported; only f32")
    zeros = zero_point(node, 4), zero_point(node, 5, weights=True)
    y = integer_to_float(node, node.arg(0), node.arg(1), (node.arg(2), node.arg(3)), zeros)
    return _biased(node, y, node.optional(6))


def _dynamic_matmul(node: Node) -> Results:
    """A is quantized by its own range, as DynamicQuantizeLinear does."""
    code, scale, zero = quantization.dynamic_codes(node, node.arg(0))
    zeros = zero, zero_point(node, 3, weights=True)
    y = integer_to_float(node, code, node.arg(1), (scale, node.arg(2)), zeros)
    return _biased(node, y, node.optional(4))


def _nhwc_max_pool(node: Node) -> Results:
    return channels_first(node, node.arg(0), lambda x: pool(node, "max_pool", x))


_PLAIN: dict[str, Handler] = {
    "QLinearAdd": _binary("add"),
    "QLinearMul": _binary("mul"),
    "QLinearSigmoid": _unary(lambda node, x: node.emit("sigmoid", x)),
    "QLinearLeakyRelu": _unary(_leaky_relu),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearAveragePool": _pool(_average),
    "QLinearGlobalAveragePool": _pool(lambda node, x: global_pool(node, x, "mean")),
    "QLinearReduceMean": _unary(_reduce_mean),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QLinearConv": _conv,
    "QGemm": _gemm,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "NhwcMaxPool": _nhwc_max_pool,
    "QuantizeLinear": quantization.HANDLERS["QuantizeLinear"],
    "DequantizeLinear": quantization.HANDLERS["DequantizeLinear"],
}
HANDLERS: dict[str, Handler] = {f"{DOMAIN}.{name}": handler for name, handler in _PLAIN.items()}
