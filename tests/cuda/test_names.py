# SPDX-License-Identifier: Apache-2.0
"""Sizes and values of a model that are called as the code of a GPU calls its own."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from tests.cuda.emulated import Emulated
from tests.end_to_end.test_windows import window_of

pytestmark = pytest.mark.slow
SIZES = {"step": 3, "bytes": 5, "started": 4}


def test_sizes_and_values_may_have_any_name() -> None:
    """A loop makes copies, an index of data makes a run fallible; `step` is a size and a value."""
    info, node, kind = helper.make_tensor_value_info, helper.make_node, TensorProto.FLOAT
    carried = ["step", "bytes"]
    body = helper.make_graph(
        [node("Add", ["sum", "sum"], ["sum_out"]), node("Identity", ["go"], ["go_out"])],
        "body",
        [info("turn", TensorProto.INT64, []), info("go", TensorProto.BOOL, []),
         info("sum", kind, carried)],
        [info("go_out", TensorProto.BOOL, []), info("sum_out", kind, carried)],
    )  # fmt: skip
    graph = helper.make_graph(
        [
            node("Neg", ["frame"], ["step"]),
            node("Gather", ["step", "rows"], ["y"]),
            node("Loop", ["functions", "", "step"], ["z"], body=body),
            node("Add", ["s", "u"], ["t"]),
            node("Identity", ["t"], ["condition"]),
        ],
        "names",
        [info("frame", kind, carried), info("rows", TensorProto.INT64, [2]),
         info("u", kind, ["started"]), info("s", kind, ["started"])],
        [info("y", kind, [2, "bytes"]), info("z", kind, carried),
         info("condition", kind, ["started"]), info("t", kind, ["started"])],
        [helper.make_tensor("functions", TensorProto.INT64, [], [2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = Options(
        bounds=dict.fromkeys(SIZES, (1, 6)),
        state={"s": "t"},
        emit="cuda-source",
        name="names",
    )
    opened = Emulated(driver.compile_model(model, "jetson-orin-nano", options))
    assert opened.init(**SIZES) == 0, opened.message
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 5)).astype(np.float32)
    rows, u = np.array([2, -3]), np.arange(4, dtype=np.float32)
    y, z, total = np.empty((2, 5), np.float32), np.empty_like(x), np.empty_like(u)
    for run in (1, 2):
        assert opened.run([x, rows, u], [y, z, total], None, "", **SIZES) == 0, opened.message
        np.testing.assert_array_equal(y, -x[rows])
        np.testing.assert_array_equal(z, -4 * x)
        np.testing.assert_array_equal(total, run * u)
    opened.close()


def test_sizes_of_the_rows_of_a_window_may_have_any_name() -> None:
    text = """symbol m in 0..24
symbol rows in 1..8
symbol count in 1..8
state %past = %present
func @main(%past: f32[m, count], %x: f32[rows, count]) {
  %present: f32[m + rows, count] = concat(%past, %x) {axis=0}
  %y: f32[m + rows, count] = mul(%present, %present)
  return %y, %present
}
"""
    module = rx.parse(text, window=window_of(rx.parse(text)))
    host = rx.compile(module, name="win", board="jetson-orin-nano", emit="cuda-source").host()
    kept = np.zeros((0, 3), np.float32)
    for call in range(5):
        x = np.full((4, 3), call + 1, np.float32)
        kept = np.concatenate([kept, x])
        np.testing.assert_array_equal(host(x=x)["y"], kept * kept)
        kept = kept[-host.length("m") :]
