"""Products, convolutions, pools and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relax_aot.frontends.onnx.context import Node, Unsupported
from relax_aot.ir.dims import Dim, ceildiv, dim_max, simplify
from relax_aot.ir.graph import Var

Handler = Callable[[Node], Var | tuple[Var, ...]]

LIMITS = {
    "MaxPool": "values only, row-major",
    "LSTM": "activations Sigmoid, Tanh, Relu, Softsign, HardSigmoid, Softplus",
    "GRU": "activations Sigmoid, Tanh, Relu, Softsign, HardSigmoid, Softplus",
    "RNN": "activations Sigmoid, Tanh, Relu, Softsign, HardSigmoid, Softplus",
}


def _matmul(node: Node) -> Var:
    return node.emit("matmul", *node.args())


def _gemm(node: Node) -> Var:
    return node.emit(
        "gemm",
        node.arg(0),
        node.arg(1),
        node.optional(2),
        alpha=float(node.attr("alpha", 1.0)),
        beta=float(node.attr("beta", 1.0)),
        trans_a=bool(node.attr("transA", 0)),
        trans_b=bool(node.attr("transB", 0)),
    )


def _windows(node: Node, x: Var, kernel: tuple[Dim, ...]) -> dict[str, Any]:
    """strides, pads and dilations of a sliding window, with auto_pad resolved."""
    rank = len(kernel)
    strides = tuple(int(s) for s in node.attr("strides") or [1] * rank)
    dilations = tuple(int(d) for d in node.attr("dilations") or [1] * rank)
    auto = node.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        begins, ends = [], []
        for axis in range(rank):
            size = x.type.shape[axis + 2]
            covered = (kernel[axis] - 1) * dilations[axis] + 1
            total = (ceildiv(size, strides[axis]) - 1) * strides[axis] + covered - size
            total = simplify(dim_max(total, 0), node.builder.bounds)
            small = total // 2
            lower = auto == "SAME_LOWER"
            begins.append(total - small if lower else small)
            ends.append(small if lower else total - small)
        pads: tuple[Any, ...] = (*begins, *ends)
    elif auto == "VALID":
        pads = (0,) * (2 * rank)
    else:
        pads = tuple(int(p) for p in node.attr("pads") or [0] * (2 * rank))
    return {"strides": strides, "pads": pads, "dilations": dilations}


def _conv(node: Node) -> Var:
    x, w = node.arg(0), node.arg(1)
    attrs = _windows(node, x, w.type.shape[2:])
    return node.emit("conv", x, w, node.optional(2), group=int(node.attr("group", 1)), **attrs)


def _pool(op: str) -> Handler:
    def handle(node: Node) -> Var:
        if op == "max_pool" and len([o for o in node.proto.output if o]) > 1:
            raise Unsupported("the positions of the greatest elements")
        x = node.arg(0)
        kernel = tuple(int(n) for n in node.attr("kernel_shape"))
        attrs = _windows(node, x, tuple(Dim.of(n) for n in kernel))
        if op == "average_pool":
            attrs["count_include_pad"] = bool(node.attr("count_include_pad", 0))
        return node.emit(op, x, kernel=kernel, ceil_mode=bool(node.attr("ceil_mode", 0)), **attrs)

    return handle


def _global_pool(kind: str) -> Handler:
    def handle(node: Node) -> Var:
        x = node.arg(0)
        axes = tuple(range(2, x.type.rank))
        return node.emit("reduce", x, kind=kind, axes=axes, keepdims=True)

    return handle


KNOWN = ("sigmoid", "tanh", "relu", "softsign", "hardsigmoid", "softplus")
USUAL = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}


def _recurrent(kind: str) -> Handler:
    def handle(node: Node) -> tuple[Var, ...]:
        direction = node.attr("direction", "forward")
        ways = 2 if direction == "bidirectional" else 1
        default = [name.encode() for name in USUAL[kind] * ways]
        given = [bytes(a).decode() for a in node.attr("activations", default)]
        activations = tuple(name.lower() for name in given)
        for name in activations:
            if name not in KNOWN:
                raise Unsupported(f"activation {name!r}")
        for name in ("activation_alpha", "activation_beta"):
            if node.attr(name):
                raise Unsupported(f"attribute {name}")
        if node.attr("input_forget", 0):
            raise Unsupported("attribute input_forget")
        batch_first = bool(node.attr("layout", 0))
        extra = {"lstm": 8, "gru": 6, "rnn": 6}[kind]
        args = [node.optional(i) for i in range(extra)]
        if batch_first:
            args = _to_time_first(node, args)
        attrs: dict[str, Any] = {
            "hidden": int(node.attr("hidden_size", args[2].type.shape[2].constant)),  # type: ignore[union-attr]
            "direction": direction,
            "activations": activations,
            "clip": float(node.attr("clip", 0.0)),
        }
        if kind == "gru":
            attrs["linear_before_reset"] = bool(node.attr("linear_before_reset", 0))
        y, *states = node.emit_all(kind, *args, **attrs)
        if batch_first:
            y = node.emit("transpose", y, perm=(2, 0, 1, 3))
            states = [node.emit("transpose", s, perm=(1, 0, 2)) for s in states]
        return (y, *states)

    return handle


def _to_time_first(node: Node, args: list[Var | None]) -> list[Var | None]:
    moved = list(args)
    for index in (0, 5, 6):
        value = args[index] if index < len(args) else None
        if value is not None:
            moved[index] = node.emit("transpose", value, perm=(1, 0, 2))
    return moved


HANDLERS: dict[str, Handler] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("average_pool"),
    "GlobalAveragePool": _global_pool("mean"),
    "GlobalMaxPool": _global_pool("max"),
    "LSTM": _recurrent("lstm"),
    "GRU": _recurrent("gru"),
    "RNN": _recurrent("rnn"),
}
