# SPDX-License-Identifier: Apache-2.0
"""Max pools of bytes on Cortex-M, against ONNX Runtime and TensorFlow Lite's reference kernels."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.verify.emulate import emulate
from tests.frontends.tflite_models import Maker, truth
from tests.models.onnx_text import model_of

BOARDS = ("mps2-an386", "mps3-an547")
POOLS = """
    same = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
    half = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x)
    wide = MaxPool <kernel_shape = [1, 7], pads = [0, 5, 0, 6]> (x)
    third = MaxPool <kernel_shape = [2, 5], strides = [1, 3], pads = [1, 2, 0, 1]> (x)
    apart = MaxPool <kernel_shape = [3, 3], dilations = [2, 1]> (x)
    ends = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)
    pairs = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
"""
NAMES = ("same", "half", "wide", "third", "apart", "ends", "pairs")


@pytest.mark.qemu
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("board", BOARDS)
def test_windows_of_rows_are_those_of_onnx_runtime(board: str, dtype: str) -> None:
    """Rows longer than a line of the micro-kernel, and shorter than a window."""
    outputs = ", ".join(f"{dtype}[2, 3, h{n}, w{n}] {name}" for n, name in enumerate(NAMES))
    model = model_of(f"pools ({dtype}[2, 3, 9, n] x) => ({outputs})", POOLS, {})
    built = driver.compile_model(model, board, driver.Options(bounds={"n": (3, 301)}))
    suffix = "s8" if dtype == "int8" else "u8"
    assert built.files[built.units[0]].decode().count(f"raot_peak_rows_{suffix}(") >= 4
    rng, session = np.random.default_rng(0), onnxruntime.InferenceSession(model.SerializeToString())
    info = np.iinfo(dtype)
    samples = [
        {"x": rng.integers(info.min, info.max + 1, (2, 3, 9, n)).astype(dtype)}
        for n in (3, 4, 17, 128, 131, 301)
    ]
    for sample, run in zip(samples, emulate(built, samples), strict=True):
        assert run.status == 0
        for name, right in zip(NAMES, session.run(list(NAMES), sample), strict=True):
            np.testing.assert_array_equal(run.outputs[name], right, name)


@pytest.mark.qemu
@pytest.mark.parametrize("channels", [4, 19])
@pytest.mark.parametrize("board", BOARDS)
def test_windows_of_channels_are_those_of_tensorflow_lite(board: str, channels: int) -> None:
    maker = Maker()
    x = maker.tensor((1, 9, 10, channels), np.int8, 0.1, 3)
    y = maker.tensor((1, 5, 5, channels), np.int8, 0.1, 3)
    maker.operator(
        "MAX_POOL_2D", [x], [y], "Pool2DOptions", version=2, padding=0, strideH=2, strideW=2,
        filterHeight=3, filterWidth=3,
    )  # fmt: skip
    model = maker.build([x], [y])
    given = np.random.default_rng(1).integers(-128, 128, (1, 9, 10, channels)).astype(np.int8)
    module = rx.load(model)
    built = rx.compile(module, board=board).built
    assert "raot_peak_channels_s8(" in built.files[built.units[0]].decode()
    (run,) = emulate(built, [{module.main.params[0].name: given}])
    (found,) = run.outputs.values()
    np.testing.assert_array_equal(found, truth(model, [[given]])[0][0])
