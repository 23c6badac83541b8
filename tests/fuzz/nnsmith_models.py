# SPDX-License-Identifier: Apache-2.0
"""Models of NNSmith (github.com/ise-uiuc/nnsmith) as ONNX, their input sizes open again.

NNSmith draws graphs whose shapes a solver made valid; its own way to ONNX leads through
PyTorch, so its operators are written as nodes here. What NNSmith made a number where it could
follow from an input (the target of a reshape, of an expansion) is said relative to that input.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

from tests.fuzz.values import model_of, value_info

Array = NDArray[Any]

MOST_ELEMENTS = 2048
DTYPES = ("f32", "i32", "i64", "bool")
"""ONNX Runtime has few operators for others; every fifth model has `f64` as well."""
PLAIN = {
    "ReLU": "Relu", "LeakyReLU": "LeakyRelu", "Sigmoid": "Sigmoid", "Sin": "Sin", "Cos": "Cos",
    "Asin": "Asin", "Acos": "Acos", "Tan": "Tan", "Atan": "Atan", "Abs": "Abs", "Ceil": "Ceil",
    "Floor": "Floor", "Round": "Round", "Sqrt": "Sqrt", "Neg": "Neg", "GELU": "Gelu", "Add": "Add",
    "Sub": "Sub", "Mul": "Mul", "Max": "Max", "Min": "Min", "Equal": "Equal", "Less": "Less",
    "Greater": "Greater", "And": "And", "Or": "Or", "Xor": "Xor", "Pow": "Pow", "Where": "Where",
    "MatMul": "MatMul",
}  # fmt: skip
INTERPOLATIONS: dict[str, dict[str, Any]] = {
    "NearestInterp": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
                      "nearest_mode": "floor"},
    "LinearInterp": {"mode": "linear"},
    "BilinearInterp": {"mode": "linear"},
    "TrilinearInterp": {"mode": "linear"},
    "BicubicInterp": {"mode": "cubic", "cubic_coeff_a": -0.75},
}  # fmt: skip
PADS = {"ConstPad": "constant", "ReplicatePad": "edge", "ReflectPad": "reflect"}


class Unwritten(Exception):
    """An operator of NNSmith that is not translated."""


class Writer:
    def __init__(self, ir: Any, seed: int, *, apart: bool) -> None:
        self.ir = ir
        self.apart = apart
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        self.symbols: dict[str, int] = {}
        self.dims: dict[str, list[str | int]] = {}

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def node(self, kind: str, inputs: list[str], out: str = "", **attributes: Any) -> str:
        out = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def shape(self, name: str) -> list[int]:
        return [int(size) for size in self.ir.vars[name].shape]

    def dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(str(self.ir.vars[name].dtype))

    def weights(self, *shape: int) -> str:
        return self.constant(self.rng.uniform(-0.5, 0.5, shape).astype(np.float32))

    def numbers(self, shape: list[int], dtype: np.dtype[Any]) -> Array:
        if dtype.kind == "f":
            return self.rng.uniform(0.5, 2, shape).astype(dtype)
        return self.rng.integers(0, 2 if dtype.kind == "b" else 4, shape).astype(dtype)

    def open(self, name: str) -> None:
        """An input; its sizes above 1 are symbols, equal ones the same or each its own."""
        shape = self.shape(name)
        dims: list[str | int] = []
        for axis, size in enumerate(shape):
            symbol = f"{name}_{axis}" if self.apart else f"s{size}"
            if size > 1:
                self.symbols[symbol] = size
            dims.append(symbol if size > 1 else size)
        self.inputs[name] = (self.dtype(name), tuple(shape))
        self.dims[name] = dims

    def write(self) -> None:
        for inst in self.ir.insts:
            op, args = inst.iexpr.op, list(inst.iexpr.args)
            kind, out = type(op).__name__, inst.retval(0)
            if kind == "Input":
                self.open(out)
            elif kind == "Constant":
                self.constants[out] = self.numbers(self.shape(out), self.dtype(out))
            elif kind in PLAIN:
                self.node(PLAIN[kind], args, out)
            else:
                self.other(kind, op, args, out)

    def other(self, kind: str, op: Any, args: list[str], out: str) -> None:
        for prefix, row in ROWS.items():
            if kind.startswith(prefix):
                row(self, op, args, out)
                return
        raise Unwritten(kind)


def divided(w: Writer, _op: Any, args: list[str], out: str) -> None:
    """Integers are never divided by zero: that stops the process of ONNX Runtime."""
    a, b = args
    if w.dtype(a).kind != "f":
        zero, one = (w.constant(np.array(n, w.dtype(b))) for n in (0, 1))
        b = w.node("Where", [w.node("Equal", [b, zero]), one, b])
    w.node("Div", [a, b], out)


def clipped(w: Writer, _op: Any, args: list[str], out: str) -> None:
    dtype = w.dtype(args[0])
    limit = 1.5 if dtype.kind == "f" else 1
    low, high = (w.constant(np.array(n).astype(dtype)) for n in (-limit, limit))
    w.node("Clip", [args[0], low, high], out)


def logarithm(w: Writer, _op: Any, args: list[str], out: str) -> None:
    two = w.constant(np.array(np.log(2), w.dtype(args[0])))
    w.node("Div", [w.node("Log", args), two], out)


def sliced(w: Writer, op: Any, args: list[str], out: str) -> None:
    region, axis = op.extra_attrs["region"], op.extra_attrs["axis"]
    size, start, end = w.shape(args[0])[axis], int(op.start), int(op.end)
    if region in ("left", "mid"):
        start -= size
    if region == "left" and end < size:
        end -= size
    end = min(end, 2**31)
    w.node("Slice", [args[0], w.ints(start), w.ints(end), w.ints(axis), w.ints(int(op.step))], out)


def padded(w: Writer, op: Any, args: list[str], out: str) -> None:
    rank, flat = len(w.shape(args[0])), [int(n) for n in op.padding_list]
    before, after = [0] * rank, [0] * rank
    for back in range(len(flat) // 2):
        before[rank - 1 - back], after[rank - 1 - back] = flat[2 * back], flat[2 * back + 1]
    inputs = [args[0], w.ints(*before, *after)]
    mode = PADS[type(op).__name__]
    if mode == "constant":
        inputs.append(w.constant(np.array(0.5, w.dtype(args[0]))))
    w.node("Pad", inputs, out, mode=mode)


def expanded(w: Writer, _op: Any, args: list[str], out: str) -> None:
    """Axes that stay as they are expand to 1."""
    ours, theirs = w.shape(args[0]), w.shape(out)
    kept = [1] * (len(theirs) - len(ours)) + ours
    whole = [1 if a == b and i >= len(theirs) - len(ours) else b
             for i, (a, b) in enumerate(zip(kept, theirs, strict=True))]  # fmt: skip
    w.node("Expand", [args[0], w.ints(*whole)], out)


def normalized(w: Writer, op: Any, args: list[str], out: str) -> None:
    count = int(op.nfeat)
    parts = [w.weights(count) for _ in range(3)]
    parts.append(w.constant(w.rng.uniform(0.5, 1.5, count).astype(np.float32)))
    w.node("BatchNormalization", [args[0], *parts], out)


def convolved(w: Writer, op: Any, args: list[str], out: str) -> None:
    flat = hasattr(op, "kernel_size")
    kernel = [int(op.kernel_size)] if flat else [int(op.kernel_h_size), int(op.kernel_w_size)]
    dilation = [int(op.dilation)] if flat else [int(op.dilation_h), int(op.dilation_w)]
    rank, made = len(kernel), int(op.out_channels)
    w.node("Conv", [args[0], w.weights(made, int(op.in_channels), *kernel), w.weights(made)], out,
           kernel_shape=kernel, strides=[int(op.stride)] * rank, pads=[int(op.padding)] * 2 * rank,
           dilations=dilation)  # fmt: skip


def pooled(w: Writer, op: Any, args: list[str], out: str) -> None:
    most = type(op).__name__.startswith("Max")
    w.node("MaxPool" if most else "AveragePool", args, out,
           kernel_shape=[int(op.kernel_h_size), int(op.kernel_w_size)],
           strides=[int(op.stride)] * 2, pads=[int(op.padding)] * 4,
           **({} if most else {"count_include_pad": 1}))  # fmt: skip


def reshaped(w: Writer, op: Any, args: list[str], out: str) -> None:
    """Leading sizes that stay are 0, and the last other one follows from the rest."""
    ours, target = w.shape(args[0]), [int(n) for n in op.target_shape]
    kept = 0
    while kept < min(len(ours), len(target)) and ours[kept] == target[kept]:
        target[kept] = 0
        kept += 1
    if kept < len(target):
        target[-1] = -1
    w.node("Reshape", [args[0], w.ints(*target)], out)


def transposed(w: Writer, op: Any, args: list[str], out: str) -> None:
    order = list(range(len(w.shape(args[0]))))
    one, other = op.extra_attrs["dim0"], op.extra_attrs["dim1"]
    order[one], order[other] = order[other], order[one]
    w.node("Transpose", args, out, perm=order)


def resized(w: Writer, op: Any, args: list[str], out: str) -> None:
    sizes = [int(n) for n in op.size]
    axes = list(range(2, 2 + len(sizes)))
    given: dict[str, Any] = dict(INTERPOLATIONS[type(op).__name__])
    given.setdefault("coordinate_transformation_mode", "half_pixel")
    w.node("Resize", [args[0], "", "", w.ints(*sizes)], out, axes=axes, **given)


def reduced(w: Writer, op: Any, args: list[str], out: str) -> None:
    kind, axis = type(op).__name__, op.extra_attrs["reduce_dim"]
    if kind.startswith("Arg"):
        source = args[0] if axis is not None else w.node("Reshape", [args[0], w.ints(-1)])
        w.node(kind, [source], out, axis=axis or 0, keepdims=0)
        return
    inputs = [args[0]] if axis is None else [args[0], w.ints(axis)]
    if kind == "Squeeze":
        ones = [a for a, size in enumerate(w.shape(args[0])) if size == 1]
        w.node(kind, [args[0], w.ints(*ones)] if axis is None else inputs, out)
        return
    w.node(kind, inputs, out, keepdims=0)


def triangle(w: Writer, op: Any, args: list[str], out: str) -> None:
    diagonal = w.constant(np.array(int(op.diagonal), np.int64))
    w.node("Trilu", [args[0], diagonal], out, upper=int(type(op).__name__ == "Triu"))


def concatenated(w: Writer, op: Any, args: list[str], out: str) -> None:
    w.node("Concat", args, out, axis=op.extra_attrs["axis"])


def cast(w: Writer, _op: Any, args: list[str], out: str) -> None:
    """ONNX does not say what NaN or a number out of range is as an integer."""
    dtype = w.dtype(args[0])
    if dtype.kind == "f" and w.dtype(out).kind == "i":
        zero, low, high = (w.constant(np.array(n, dtype)) for n in (0, -1000, 1000))
        known = w.node("Where", [w.node("IsNaN", args), zero, args[0]])
        args = [w.node("Clip", [known, low, high])]
    w.node("Cast", args, out, to=helper.np_dtype_to_tensor_dtype(w.dtype(out)))


def soft(w: Writer, op: Any, args: list[str], out: str) -> None:
    w.node("Softmax", args, out, axis=int(op.dim))


def leaky(w: Writer, _op: Any, args: list[str], out: str) -> None:
    w.node("PRelu", [args[0], w.constant(np.array([0.25], w.dtype(args[0])))], out)


Row = Callable[[Writer, Any, list[str], str], None]

TABLE: dict[str, Row] = {
    "Div": divided, "Clip": clipped, "Log2": logarithm, "Slice": sliced, "ConstPad": padded,
    "ReplicatePad": padded, "ReflectPad": padded, "Expand": expanded, "BatchNorm2d": normalized,
    "Conv1d": convolved, "NCHWConv2d": convolved, "MaxPool2d": pooled, "AvgPool2d": pooled,
    "Reshape": reshaped, "Transpose": transposed, "Squeeze": reduced, "Reduce": reduced,
    "Arg": reduced, "Tri": triangle, "Concat": concatenated, "Cast": cast, "Softmax": soft,
    "PReLU": leaky, **dict.fromkeys(INTERPOLATIONS, resized),
}  # fmt: skip
# `Tri` would match what interpolates in three dimensions.
ROWS = {name: TABLE[name] for name in sorted(TABLE, key=len, reverse=True)}


def nnsmith_model(seed: int, nodes: int) -> tuple[ModelProto, Writer]:
    """One model. Equal sizes share a symbol, except in every fourth model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operators: Any = import_module("nnsmith.abstract.op")
        generation: Any = import_module("nnsmith.graph_gen")
    generator = generation.model_gen(
        opset=operators.FULL_OPERATOR_SETS["core"],
        method="symbolic-cinit",
        max_nodes=nodes,
        seed=seed,
        max_elem_per_tensor=MOST_ELEMENTS,
        timeout_ms=20_000,
        dtype_choices=DTYPES if seed % 5 else (*DTYPES, "f64"),
    )
    ir = generator.make_concrete()
    writer = Writer(ir, seed, apart=seed % 4 == 3)
    writer.write()
    leaves = [name for inst in ir.insts for name in inst.leaf_var()]
    made = {name for node in writer.nodes for name in node.output}
    outputs = [name for name in leaves if name in made]
    graph = helper.make_graph(
        writer.nodes,
        "nnsmith",
        [value_info(n, dtype, writer.dims[n]) for n, (dtype, _) in writer.inputs.items()],
        [value_info(n, writer.dtype(n), [None] * len(writer.shape(n))) for n in outputs],
        [numpy_helper.from_array(array, name) for name, array in writer.constants.items()],
    )
    return model_of(graph), writer
