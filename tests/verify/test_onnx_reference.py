# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime as the reference, where it stops the process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.compare import compare_bounded
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.onnx_reference import OnnxReference
from relax_aot.verify.reference import ReferenceFailed

OVERLAP = """
<ir_version: 9, opset_import: ["": 17]>
g (float[n, 4] x) => (float[4, 4] y)
<int64[1] first = {2}, int64[1] last = {99}, int64[1] axis = {0}>
{
  rows = Slice(x, first, last, axis)
  columns = Transpose <perm = [1, 0]> (rows)
  y = MatMul(columns, rows)
}
"""
"""At n = 2, the product has no steps; no input and no output is empty."""


def test_a_reference_that_stops_the_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of ONNX Runtime differ in the operators that do so."""
    ran = onnxruntime.InferenceSession.run

    def run(self: Any, names: Any, feed: Any) -> Any:
        if feed["x"].shape[0] == 2:
            os.kill(os.getpid(), signal.SIGFPE)
        return ran(self, names, feed)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", run)
    model = parser.parse_model(OVERLAP)
    project = driver.compile_model(model, "host", Options(bounds={"n": (2, 5)}, name="overlap"))
    assert run_job(Job(model, (project,), at=({"n": 3},))).ok
    with pytest.raises(ReferenceFailed, match="SIGFPE at a size of 0: use --reference numpy"):
        run_job(Job(model, (project,)))
    assert run_job(Job(model, (project,), reference="numpy")).ok


@pytest.mark.parametrize("as_file", [False, True])
def test_products_with_quantized_weights_keep_float_activations(
    as_file: bool, tmp_path: Path
) -> None:
    """Also where the weights are in a file of their own."""
    model = parser.parse_model("""
<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
g (float[n, 32] x) => (float[n, 8] y)
{ y = com.microsoft.MatMulNBits<K=32, N=8, bits=4, block_size=32, accuracy_level=4>(x, b, s) }
""")
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (8, 1, 16)).astype(np.uint8)
    model.graph.initializer.append(numpy_helper.from_array(packed, "b"))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(8, np.float32), "s"))
    source: Any = model
    if as_file:
        source = tmp_path / "m.onnx"
        onnx.save(model, source, save_as_external_data=True, size_threshold=0)
    x = rng.normal(size=(3, 32)).astype(np.float32)
    weights = np.stack([packed & 15, packed >> 4], axis=-1).reshape(8, 32) - 8.0
    found = OnnxReference(source, {}, {})({"x": x}, {})["y"]
    np.testing.assert_allclose(found, x.astype(np.float64) @ weights.T, rtol=1e-5, atol=1e-4)


def test_a_model_that_the_reference_refuses_has_another_one() -> None:
    """ONNX Runtime has no Unique of int32."""
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]>'
        "g (int32[n] x) => (int32[m] y) { y, f, i, c = Unique(x) }"
    )
    with pytest.raises(ReferenceFailed, match=r"refuses the model.*\n.*--reference numpy"):
        OnnxReference(model, {}, {})


@pytest.mark.parametrize(
    ("found", "wanted", "ok"),
    [
        ((0, 3), (0, 0), True),
        ((0, 3), (0, 4), False),
        ((0, 3), (0,), False),
        ((2, 3), (0, 0), False),
    ],
)
def test_sizes_of_rows_of_no_iteration_may_be_zeros(
    found: tuple[int, ...], wanted: tuple[int, ...], ok: bool
) -> None:
    """ONNX Runtime does not know the dynamic ones."""
    ours, theirs = (np.zeros(shape, np.float32) for shape in (found, wanted))
    assert compare_bounded("rows", ours, theirs).ok is ok


SPLAT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[b, n] x, float[b, l] mask, float[1, k] one) => (float[b, m] y)
{
  both = Concat <axis = 1> (x, mask)
  y = Add(both, one)
}
"""


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3)])
def test_a_number_fills_an_input_of_dynamic_sizes(sizes: tuple[int, int]) -> None:
    """Also where they are expressions, and where bounds leave one size only."""
    model, (batch, length) = parser.parse_model(SPLAT), sizes
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "2*n + 1"
    bounds = {"b": (batch, batch), "n": (1, 5), "k": (1, 1)}
    fix = {"mask": "0.5", "one": "[[2]]"}
    module = driver.load(model, Options(bounds=bounds, fix=fix))
    reference = OnnxReference(model, fix, {}).with_module(module)
    x = np.ones((batch, length), np.float32)
    found = reference({"x": x}, {}, {"n": length})["y"]
    wanted = np.full((batch, 3 * length + 1), 2.5, np.float32)
    wanted[:, :length] = 3
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("opset", [17, 20])
def test_fourier_transforms_of_any_length_are_exact(opset: int, inside: bool) -> None:
    """ONNX Runtime's own floats are off by 1e-4 at 65 samples; also those in the body of an If."""
    axis = "" if opset == 20 else "axis = 1, "
    places = ", , axis" if opset == 20 else ""
    body = f"y = DFT <{axis}onesided = 1> (x{places})"
    if inside:
        one = f"g () => (float[1, f, 2] z) {{ z = DFT <{axis}onesided = 1> (x{places}) }}"
        body = f"y = If (yes) <then_branch = {one}, else_branch = {one.replace(' z', ' w')}>"
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": {opset}]> g (float[1, 65, 1] x, bool yes)'
        f" => (float[1, 33, 2] y) <int64 axis = {{1}}> {{ {body} }}"
    )
    x = np.random.default_rng(0).normal(size=(1, 65, 1)).astype(np.float32)
    found = OnnxReference(model, {}, {})({"x": x, "yes": np.array(True)}, {})["y"]
    exact = np.fft.rfft(x[0, :, 0].astype(np.float64))
    assert np.abs(found[0, :, 0] + 1j * found[0, :, 1] - exact).max() < 3e-6
