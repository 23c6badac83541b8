# SPDX-License-Identifier: Apache-2.0
"""References of other programs, and what quantization costs against the float model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper, parser

from relax_aot import driver
from relax_aot.cli.main import cli
from relax_aot.driver import Options
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.reference import ReferenceFailed
from tests.frontends.tflite_models import Maker

CLASSIFIER = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1, 6] x) => (float[1, 4] y) {
  a = MatMul(x, w)
  r = Relu(a)
  y = MatMul(r, v)
}
"""
SAMPLES = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of floats, samples, and the classes that NumPy's doubles give them."""
    folder = tmp_path_factory.mktemp("quality")
    rng = np.random.default_rng(6)
    model = parser.parse_model(CLASSIFIER)
    w, v = rng.normal(size=(6, 8)).astype(np.float32), rng.normal(size=(8, 4)).astype(np.float32)
    for name, data in (("w", w), ("v", v)):
        model.graph.initializer.append(numpy_helper.from_array(data, name))
    onnx.save(model, folder / "classifier.onnx")
    x = rng.normal(size=(SAMPLES, 1, 6)).astype(np.float32)
    np.savez(folder / "samples.npz", x=x)
    y = np.maximum(x.astype(np.float64) @ w, 0) @ v
    np.savez(folder / "expected.npz", y=y)
    labels = y.argmax(-1).reshape(-1)
    labels[:6] = (labels[:6] + 1) % 4
    np.savez(folder / "labels.npz", labels=labels)
    np.savez(folder / "few.npz", labels=labels[:3])
    np.savez(folder / "text.npz", y=np.array(["a"]))
    np.savez(folder / "less.npz", y=y[:3])
    return folder


def verified(folder: Path, *more: str) -> Any:
    arguments = ["verify", str(folder / "classifier.onnx"), "--inputs", str(folder / "samples.npz")]
    return CliRunner().invoke(cli, [*arguments, *more])


def test_a_quantized_model_is_compared_with_the_float_model(folder: Path) -> None:
    chosen = ("--quantize", "int8", "--calibrate", str(folder / "samples.npz"))
    labels = ("--labels", str(folder / "labels.npz"), "--json", str(folder / "out.json"))
    done = verified(folder, *chosen, *labels)
    assert done.exit_code == 0, done.output
    (target,) = json.loads((folder / "out.json").read_text())["targets"]
    (row,) = target["against_float"]
    y = np.load(folder / "expected.npz")["y"]
    assert row["name"] == "y" and 20 < row["snr_db"] < 60
    assert 0 < row["max_abs"] < 0.1 * np.abs(y).max()
    assert 0.8 <= row["top_class_agreement"] <= 1 and 0 <= row["call"] < SAMPLES
    found = target["accuracy"]
    assert (found["output"], found["samples"]) == ("y", SAMPLES)
    assert found["float_model"] == pytest.approx(18 / 24)
    assert found["reference"] == found["board"]
    assert "against the float model, on host" in done.output
    assert "accuracy of y on 24 samples: float 75.0 %" in done.output


@pytest.mark.slow
def test_labels_that_do_not_fit_are_one_message(folder: Path) -> None:
    done = verified(folder, "--labels", str(folder / "few.npz"))
    assert "3 labels, but 24 samples" in str(done.exception)
    done = CliRunner().invoke(
        cli, ["verify", str(folder / "classifier.onnx"), "--labels", str(folder / "labels.npz")]
    )
    assert done.exit_code == 2 and "add --inputs" in done.output
    done = verified(folder, "--labels", str(folder / "classifier.onnx"))
    assert "cannot read it as .npz" in str(done.exception)


def test_references_that_do_not_fit_the_model_are_refused(folder: Path) -> None:
    for reference, said in (
        ("litert", "runs .tflite models, not classifier.onnx"),
        ("torch", "runs programs of PyTorch"),
        ("tensorflow", "references are onnxruntime, numpy, litert, torch and FILE.npz"),
        (str(folder / "text.npz"), "'y' must be f32[1, 4]: its elements are <U1, not f32"),
        (str(folder / "less.npz"), "'y' has 3 samples, but there are 24 runs"),
    ):
        done = verified(folder, "--reference", reference)
        assert isinstance(done.exception, ReferenceFailed) and said in str(done.exception)


def test_litert_runs_each_size_of_a_tflite_model() -> None:
    maker = Maker()
    x = maker.tensor((1, 12), signature=(-1, 12))
    weights = np.random.default_rng(1).normal(size=(5, 12)).astype(np.float32)
    y, z = maker.tensor((1, 5), signature=(-1, 5)), maker.tensor((1, 5), signature=(-1, 5))
    maker.operator("FULLY_CONNECTED", [x, maker.constant(weights), -1], [y],
                   "FullyConnectedOptions", keepNumDims=True)  # fmt: skip
    maker.operator("LOGISTIC", [y], [z])
    model = maker.build([x], [z])
    project = driver.compile_model(model, "host", Options(bounds={"t0_0": (1, 7)}, name="dense"))
    result = run_job(Job(model, (project,), reference="litert"))
    assert result.ok and len(result.targets[0].runs) == 5
    assert 0 < max(d.max_abs for run in result.targets[0].runs for d in run.outputs) < 1e-6
