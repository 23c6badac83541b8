# SPDX-License-Identifier: Apache-2.0
"""Products of quantized values whose zero point is known while the model runs: the integers of ONNX
Runtime, by the micro-kernels of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relax_aot as rx
from relax_aot import transforms
from relax_aot.ir.loops import Micro, walk
from relax_aot.verify.emulate import emulate

Array = NDArray[Any]
DEPTH, COLUMNS, HIDDEN = 20, 9, 16


def product(weights: Array, zero: Array | None) -> onnx.ModelProto:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", *(["wz"] if zero is not None else [])],
                         ["y"]),
    ]  # fmt: skip
    constants = {"w": weights} | ({} if zero is None else {"wz": zero})
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", DEPTH]),
        helper.make_tensor_value_info("y", TensorProto.INT32, ["n", COLUMNS]),
    ]
    tensors = [numpy_helper.from_array(data, name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "m", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("weights", ["signed", "unsigned", "columns"])
def test_integers_are_those_of_onnx_runtime(weights: str) -> None:
    rng = np.random.default_rng(3)
    low, dtype = (0, np.uint8) if weights == "unsigned" else (-128, np.int8)
    w = rng.integers(low, low + 256, (DEPTH, COLUMNS)).astype(dtype)
    zeros: dict[str, Array | None] = {
        "signed": None, "unsigned": np.array(131, np.uint8),
        "columns": rng.integers(-9, 9, COLUMNS).astype(np.int8),
    }  # fmt: skip
    model = product(w, zeros[weights])
    session = onnxruntime.InferenceSession(model.SerializeToString())
    host = rx.compile(model, bounds={"n": 7}).host()
    for rows, shift in ((1, 0.0), (4, 2.0), (7, -3.0), (2, None)):
        x = rng.normal(size=(rows, DEPTH)).astype(np.float32)
        x = np.zeros_like(x) if shift is None else x + np.float32(shift)
        (found,) = host({"x": x}).values()
        np.testing.assert_array_equal(found, session.run(None, {"x": x})[0])


def convolution(pads: list[int], group: int) -> onnx.ModelProto:
    w = np.random.default_rng(5).integers(-127, 128, (6, 4 // group, 3, 2)).astype(np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("ConvInteger", ["q", "w", "z"], ["y"], pads=pads, group=group,
                         strides=[2, 1]),
    ]  # fmt: skip
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, "n", 5]),
        helper.make_tensor_value_info("y", TensorProto.INT32, None),
    ]
    graph = helper.make_graph(nodes, "m", ports[:1], ports[1:], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("pads", "group"), [([0] * 4, 1), ([1, 0, 2, 1], 2)])
def test_convolutions_are_those_of_onnx_runtime(pads: list[int], group: int) -> None:
    rng, model = np.random.default_rng(5), convolution(pads, group)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    project = rx.compile(model, bounds={"n": (3, 9)})
    ops = {call.op for call in transforms.run(project.built.source_module).main.body}
    assert ("pad" in ops) == any(pads)
    host = project.host()
    for size, shift in ((3, 0.0), (6, 2.0), (9, -3.0)):
        x = rng.normal(size=(1, 4, size, 5)).astype(np.float32) + np.float32(shift)
        (found,) = host({"x": x}).values()
        np.testing.assert_array_equal(found, session.run(None, {"x": x})[0])


@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_padded_values_are_quantized_by_lines(board: str) -> None:
    plan = rx.compile(convolution([1, 0, 2, 1], 2), bounds={"n": (3, 9)}, board=board).built.plan
    calls = [s for kernel in plan.module.kernels for s in walk(kernel.body) if isinstance(s, Micro)]
    assert {"raot_quantize_lines_from_u8", "raot_fill_bytes_u8"} <= {c.kernel.name for c in calls}


@pytest.mark.parametrize("board", ["host", "mps2-an386", "mps3-an547"])
def test_scratch_has_names_of_its_own(board: str) -> None:
    """Sums of weights are a constant y.columns, as a strip of image columns would be."""
    module = rx.compile(
        convolution([0] * 4, 1), bounds={"n": (3, 9)}, board=board
    ).built.plan.module
    values = [var.name for call in module.main.body for var in call.outs]
    names = [*values, *(constant.name for constant in module.constants)]
    assert len(names) == len(set(names))


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_padded_values_on_boards(board: str) -> None:
    rng, model = np.random.default_rng(6), convolution([1, 0, 2, 1], 2)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    given = [{"x": rng.normal(size=(1, 4, n, 5)).astype(np.float32) + n} for n in (3, 6, 9)]
    runs = emulate(rx.compile(model, bounds={"n": (3, 9)}, board=board).built, given)
    for run, inputs in zip(runs, given, strict=True):
        (found,) = run.outputs.values()
        np.testing.assert_array_equal(found, session.run(None, inputs)[0])


def layer() -> onnx.ModelProto:
    rng = np.random.default_rng(4)

    def weights(rows: int) -> Array:
        return rng.integers(-127, 128, (1, rows, 4 * HIDDEN)).astype(np.int8)

    scale, zero = np.array([0.01], np.float32), np.zeros(1, np.int8)
    constants = {"w": weights(DEPTH), "r": weights(HIDDEN), "s": scale, "z": zero}
    node = helper.make_node(
        "DynamicQuantizeLSTM", ["x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"], ["y"],
        domain="com.microsoft", hidden_size=HIDDEN,
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, DEPTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(data, name) for name, data in constants.items()]
    graph = helper.make_graph([node], "m", [x], [y], tensors)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


@pytest.mark.parametrize(
    ("board", "products"),
    [("mps2-an386", ["raot_multiply_pair_row", "raot_multiply_pairs_1"]),
     ("mps3-an547", ["raot_multiply_nhwc_s8"] * 2)],
)  # fmt: skip
def test_recurrent_layers_run_on_micro_kernels_of_bytes(board: str, products: list[str]) -> None:
    """Both products: of all steps at once, and of the state in each step."""
    plan = rx.compile(layer(), bounds={"n": 7}, board=board).built.plan
    calls = [s for kernel in plan.module.kernels for s in walk(kernel.body) if isinstance(s, Micro)]
    names = [call.kernel.name for call in calls]
    assert sorted(name for name in names if name.startswith("raot_multiply_")) == products
