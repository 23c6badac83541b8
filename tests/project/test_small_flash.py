# SPDX-License-Identifier: Apache-2.0
"""Weights that fit a board only in their small form are kept so."""

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
def test_weights_are_bytes_where_only_that_fits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, board = dense(), board_of("100K", tmp_path)
    options: Any = {"quantize": "int8", "calibrate": SAMPLES}
    wide = rx.compile(model, board="mps2-an386", **options).built
    assert wide.const_bytes > 100 * 1024 and not caplog.records
    project = rx.compile(model, board=board, **options)
    assert project.built.const_bytes < 100 * 1024
    (said,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "--optimize size" in said
    case = cases_of(project.built.interface, (), {})[0]
    (y,) = project.emulate({"x": case.inputs[0]}).outputs.values()
    (expected,) = rx.compile(model, **options).host()({"x": case.inputs[0]}).values()
    np.testing.assert_array_equal(y, expected)


def test_what_does_not_fit_at_all_says_what_may_help(tmp_path: Path) -> None:
    board = board_of("50K", tmp_path)
    for optimize in ("speed", "size"):
        with pytest.raises(DoesNotFit, match="--optimize size, which stores 8-bit weights"):
            rx.compile(dense(), board=board, quantize="int8", calibrate=SAMPLES, optimize=optimize)
