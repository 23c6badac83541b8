# SPDX-License-Identifier: Apache-2.0
"""Constants of quantized models, on boards with little flash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import relax_aot as rx
from relax_aot.project.fit import DoesNotFit
from relax_aot.verify.samples import cases_of
from tests.conftest import ROOT

RNG = np.random.default_rng(0)
SAMPLES = {"x": RNG.normal(size=(8, 1, 256)).astype(np.float32)}


def dense() -> onnx.ModelProto:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]>'
        "g (float[1,256] x) => (float[1,256] y) { h = MatMul(x, w) y = Relu(h) }"
    )
    weights = RNG.normal(size=(256, 256)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def board_of(flash: str, folder: Path) -> str:
    text = (ROOT / "boards" / "mps2-an386.toml").read_text()
    text = text.replace('size = "4M"\nkind = "flash"', f'size = "{flash}"\nkind = "flash"')
    text = text.replace("preloaded = true\n", "")
    path = folder / "small.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.qemu
def test_weights_of_eight_bits_are_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, board = dense(), board_of("100K", tmp_path)
    options: Any = {"quantize": "int8", "calibrate": SAMPLES}
    project = rx.compile(model, board=board, **options)
    assert project.built.const_bytes < 1.05 * (256 * 256 + 2 * 4 * 256) and not caplog.records
    case = cases_of(project.built.interface, (), {})[0]
    (y,) = project.emulate({"x": case.inputs[0]}).outputs.values()
    (expected,) = rx.compile(model, **options).host()({"x": case.inputs[0]}).values()
    np.testing.assert_array_equal(y, expected)


def test_what_does_not_fit_at_all_says_what_may_help(tmp_path: Path) -> None:
    board = board_of("50K", tmp_path)
    for optimize in ("speed", "size"):
        with pytest.raises(DoesNotFit, match="quantize a float model"):
            rx.compile(dense(), board=board, quantize="int8", calibrate=SAMPLES, optimize=optimize)
