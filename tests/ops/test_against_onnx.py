# SPDX-License-Identifier: Apache-2.0
"""Each op's reference against ONNX's own reference implementation, on the op's samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TypeProto, helper
from onnx.reference import ReferenceEvaluator

from relax_aot.ir.types import DType
from relax_aot.ops import all_ops
from relax_aot.ops._op import Array, Sample
from relax_aot.verify.compare import Tolerance, compare
from relax_aot.verify.op_cases import Case, cases_of
from tests.ops.onnx_node import Node, i64, scalar
from tests.ops.onnx_spatial import BEYOND, RUNTIME, SPATIAL

IR_VERSION = 10


def same(op_type: str) -> Callable[[Sample], Node]:
    """Arguments and attributes are the same on both sides."""

    def node(sample: Sample) -> Node:
        attrs = {
            name: int(value) if isinstance(value, bool) else value
            for name, value in sample.attrs.items()
        }
        return Node(op_type, sample.args, attrs)

    return node


def reshape(sample: Sample) -> Node:
    return Node("Reshape", (*sample.args, i64(*sample.attrs["shape"])), {"allowzero": 1})


def expand(sample: Sample) -> Node:
    return Node("Expand", (*sample.args, i64(*sample.attrs["shape"])))


def tile(sample: Sample) -> Node:
    return Node("Tile", (*sample.args, i64(*sample.attrs["repeats"])))


def slice_(sample: Sample) -> Node:
    lengths, axes = i64(*sample.attrs["lengths"]), i64(*sample.attrs["axes"])
    starts, steps = i64(*sample.attrs["starts"]), i64(*sample.attrs["steps"])
    ends = starts + lengths * steps
    # Below the first element; -1 would be the last one.
    ends[ends < 0] = np.iinfo(np.int64).min
    return Node("Slice", (*sample.args, starts, ends, axes, steps))


def pad(sample: Sample) -> Node:
    widths = i64(*sample.attrs["before"], *sample.attrs["after"])
    x, *value = sample.args
    return Node("Pad", (x, widths, *value), {"mode": sample.attrs["mode"]})


def cast(sample: Sample) -> Node:
    to = sample.attrs["to"]
    attrs: dict[str, Any] = {"to": helper.np_dtype_to_tensor_dtype(to.numpy)}
    if to.is_stored_float:
        attrs["saturate"] = int(sample.attrs.get("saturate", False))
    if to is DType.F8E8M0:
        attrs["round_mode"] = sample.attrs.get("rounding") or "up"
    return Node("Cast", sample.args, attrs)


def quantize(sample: Sample) -> Node:
    to = sample.attrs["to"]
    attrs = {"axis": sample.attrs.get("axis", 1), "block_size": sample.attrs.get("block", 0)}
    attrs["output_dtype"] = helper.np_dtype_to_tensor_dtype(to.numpy)
    attrs["saturate"] = int(sample.attrs.get("saturate", True))
    precision = sample.attrs.get("precision", DType.F32)
    attrs["precision"] = helper.np_dtype_to_tensor_dtype(precision.numpy)
    return Node("QuantizeLinear", sample.args, attrs)


def dequantize(sample: Sample) -> Node:
    to = sample.attrs.get("to", DType.F32)
    attrs = {"axis": sample.attrs.get("axis", 1), "block_size": sample.attrs.get("block", 0)}
    attrs["output_dtype"] = helper.np_dtype_to_tensor_dtype(to.numpy)
    return Node("DequantizeLinear", sample.args, attrs)


def conv_integer(sample: Sample) -> Node:
    return Node("ConvInteger", sample.args[:4], dict(sample.attrs))


def bit_cast(sample: Sample) -> Node:
    to = helper.np_dtype_to_tensor_dtype(sample.attrs["to"].numpy)
    return Node("BitCast", sample.args, {"to": to})


def fill(sample: Sample) -> Node:
    dtype = sample.attrs["dtype"].numpy
    value = helper.make_tensor(
        "value", helper.np_dtype_to_tensor_dtype(dtype), [1], [sample.attrs["value"]]
    )
    return Node("ConstantOfShape", (i64(*sample.attrs["shape"]),), {"value": value})


def range_(sample: Sample) -> Node:
    start, step, length = (sample.attrs[name] for name in ("start", "step", "length"))
    dtype = sample.attrs["dtype"].numpy
    return Node("Range", tuple(np.array(v, dtype) for v in (start, start + step * length, step)))


def one_hot(sample: Sample) -> Node:
    indices, values = sample.args
    depth = scalar(sample.attrs["depth"])
    return Node("OneHot", (indices, depth, values), {"axis": sample.attrs.get("axis", -1)})


def trilu(sample: Sample) -> Node:
    x, *offset = sample.args
    k = offset[0] if offset else scalar(sample.attrs.get("k", 0))
    return Node("Trilu", (x, k), {"upper": int(sample.attrs.get("upper", True))})


def eye(sample: Sample) -> Node:
    shape = sample.attrs["rows"], sample.attrs["columns"]
    to = helper.np_dtype_to_tensor_dtype(sample.attrs["dtype"].numpy)
    like = np.zeros(shape, np.float32)
    return Node("EyeLike", (like,), {"dtype": to, "k": sample.attrs["k"]})


def running(op_type: str) -> Callable[[Sample], Node]:
    def node(sample: Sample) -> Node:
        attrs = {name: int(sample.attrs.get(name, False)) for name in ("exclusive", "reverse")}
        x, *along = sample.args
        return Node(op_type, (x, *(along or [scalar(sample.attrs["axis"])])), attrs)

    return node


NODES: dict[str, Callable[[Sample], Node]] = {
    "abs": same("Abs"), "neg": same("Neg"), "sign": same("Sign"), "exp": same("Exp"),
    "log": same("Log"), "sqrt": same("Sqrt"), "reciprocal": same("Reciprocal"),
    "floor": same("Floor"), "ceil": same("Ceil"), "round_even": same("Round"),
    "sin": same("Sin"), "cos": same("Cos"), "tan": same("Tan"), "asin": same("Asin"),
    "acos": same("Acos"), "atan": same("Atan"), "sinh": same("Sinh"), "cosh": same("Cosh"),
    "tanh": same("Tanh"), "asinh": same("Asinh"), "acosh": same("Acosh"),
    "atanh": same("Atanh"), "erf": same("Erf"), "sigmoid": same("Sigmoid"),
    "relu": same("Relu"), "logical_not": same("Not"), "bitwise_not": same("BitwiseNot"),
    "softplus": same("Softplus"), "softsign": same("Softsign"), "mish": same("Mish"),
    "is_nan": same("IsNaN"), "is_inf": same("IsInf"), "leaky_relu": same("LeakyRelu"),
    "elu": same("Elu"), "celu": same("Celu"), "selu": same("Selu"),
    "thresholded_relu": same("ThresholdedRelu"), "hard_sigmoid": same("HardSigmoid"),
    "hard_swish": same("HardSwish"), "gelu": same("Gelu"), "shrink": same("Shrink"),
    "swish": same("Swish"),
    "add": same("Add"), "sub": same("Sub"), "mul": same("Mul"), "div": same("Div"),
    "mod": same("Mod"), "fmod": lambda s: Node("Mod", s.args, {"fmod": 1}),
    "pow": same("Pow"), "max": same("Max"), "min": same("Min"),
    "logical_and": same("And"), "logical_or": same("Or"), "logical_xor": same("Xor"),
    "bitwise_and": same("BitwiseAnd"), "bitwise_or": same("BitwiseOr"),
    "bitwise_xor": same("BitwiseXor"),
    "shift_left": lambda s: Node("BitShift", s.args, {"direction": "LEFT"}),
    "shift_right": lambda s: Node("BitShift", s.args, {"direction": "RIGHT"}),
    "equal": same("Equal"), "less": same("Less"), "less_equal": same("LessOrEqual"),
    "greater": same("Greater"), "greater_equal": same("GreaterOrEqual"),
    "prelu": same("PRelu"),
    "where": same("Where"), "clip": same("Clip"), "cast": cast, "copy": same("Identity"),
    "reshape": reshape, "transpose": same("Transpose"), "expand": expand, "tile": tile,
    "slice": slice_, "concat": same("Concat"), "pad": pad,
    "gather": same("Gather"), "gather_elements": same("GatherElements"),
    "gather_nd": same("GatherND"), "scatter_elements": same("ScatterElements"),
    "scatter_nd": same("ScatterND"), "shape_of": same("Shape"), "size_of": same("Size"),
    "fill": fill, "range": range_, "one_hot": one_hot, "trilu": trilu, "eye": eye,
    "cum_sum": running("CumSum"), "cum_prod": running("CumProd"), "bit_cast": bit_cast,
    "quantize": quantize, "dequantize": dequantize, "matmul_integer": same("MatMulInteger"),
    "conv_integer": conv_integer,
    "reverse_sequence": same("ReverseSequence"),
    **SPATIAL,
}  # fmt: skip

BEYOND_ONNX = {
    **BEYOND,
    **dict.fromkeys(("pow_4_1", "pow_5_1"), "NumPy refuses integers to negative powers"),
    **dict.fromkeys(("trilu_10_1", "trilu_11_1"), "NumPy takes no diagonal so far outside"),
    "one_hot_6_1": "the reference implementation subtracts the values, which bools cannot",
    "conv_integer_1_1": "no implementation takes a zero point per channel",
    "conv_integer_2_1": "ConvInteger has no bias",
    **dict.fromkeys([f"matmul_integer_{n}_1" for n in (0, 8, 9)], "MatMulInteger has no bias"),
    "matmul_integer_1_1": "MatMulInteger is of bytes",
    "matmul_integer_4_1": "no implementation takes a zero point per row",
}


def open_in_onnx(case: Case) -> bool:
    """Casts whose result ONNX leaves open, or tells in words that its implementation breaks:
    integers out of range (these saturate), and what is no normal number as a power of two."""
    if case.op.name == "quantize" and np.abs(case.inputs[0], dtype=float).max(initial=0) >= 2**31:
        return not case.sample.attrs["to"].is_stored_float
    if case.op.name != "cast" or case.name in BEYOND_ONNX:
        return case.name in BEYOND_ONNX
    to, (x,) = case.sample.attrs["to"], case.inputs
    if to is DType.F8E8M0:
        single = x.astype(np.float32)
        return not (np.isfinite(single) & (single >= 2.0**-126)).all()
    return case.sample.attrs.get("saturate", False) and not to.is_stored_float


RUNTIME_INSTEAD = {
    **dict.fromkeys(
        ("pad_2_1", "pad_3_1"),
        "the implementation refuses negative pads, the specification does not",
    ),
    **dict.fromkeys(
        ("gather_elements_1_1", "gather_elements_2_1"),
        "the implementation refuses indices that are shorter on other axes",
    ),
    **RUNTIME,
    "prelu_5_1": "x < 0 selects the slope; the implementation asks for x > 0",
}

CASES = {
    case.name: case
    for case in cases_of(op for name, op in all_ops().items() if name in NODES)
    if not case.symbolic
}


def model_of(node: Node) -> tuple[ModelProto, dict[str, Array]]:
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(node.inputs)]
    feeds = {n: np.asarray(a) for n, a in zip(names, node.inputs, strict=True) if a is not None}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    outputs = [helper.make_value_info(f"y{i}", TypeProto()) for i in range(node.outputs)]
    made = helper.make_node(node.op_type, names, [o.name for o in outputs], **node.attrs)
    graph = helper.make_graph([made], "one_node", inputs, outputs)
    opset = helper.make_opsetid("", node.opset)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION), feeds


def check(case: Case, theirs: Any) -> None:
    tolerance = Tolerance(case.sample.rtol, case.sample.atol)
    for mine, other in zip(case.expected, theirs, strict=True):
        difference = compare("y", mine, np.asarray(other), tolerance)
        assert difference.ok, (difference, mine, other)


BY_REFERENCE = sorted(
    name for name, case in CASES.items() if not open_in_onnx(case) and name not in RUNTIME_INSTEAD
)


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_REFERENCE)
def test_reference_agrees_with_onnx(name: str) -> None:
    case = CASES[name]
    model, feeds = model_of(NODES[case.op.name](case.sample))
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(None, feeds)
        check(case, [np.asarray(value) for value in found])


@pytest.mark.parametrize("name", RUNTIME_INSTEAD)
def test_reference_agrees_with_onnx_runtime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    case = CASES[name]
    model, feeds = model_of(NODES[case.op.name](case.sample))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    check(case, session.run(None, feeds))
