# SPDX-License-Identifier: Apache-2.0
"""Reductions of columns in lanes: the bits of the loops before, and the results of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot.scheduling.passes import column_lanes
from tests.models.onnx_text import model_of

Array = NDArray[Any]
MOST = 133
WIDTHS = (1, 2, 16, 17, 20, 31, 32, 33, 64, 65, 100, 132, MOST)
SAME = "float[2, 3, 6, w]"
OPERATORS = {
    "peaks": ("y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)", SAME),
    "long_peaks": ("y = MaxPool <kernel_shape = [2, 13], pads = [0, 6, 1, 6]> (x)", SAME),
    "dilated_peaks": (
        "y = MaxPool <kernel_shape = [3, 3], dilations = [2, 2], pads = [2, 2, 2, 2]> (x)", SAME,
    ),
    "means": ("y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)", SAME),
    "padded_means": (
        "y = AveragePool <kernel_shape = [3, 5], pads = [1, 2, 1, 2], count_include_pad = 1> (x)",
        SAME,
    ),
    "sums": ("y = ReduceSum <keepdims = 0> (x, axes)", "float[2, 6, w]"),
    "largest": ("y = ReduceMax <axes = [1], keepdims = 0> (x)", "float[2, 6, w]"),
    "powers": ("y = Softmax <axis = 1> (x)", SAME),
    "logarithms": ("a = Relu (x)\n y = LogSoftmax <axis = 2> (a)", SAME),
}  # fmt: skip
FUNCTIONS = ("powers", "logarithms")
"""Vectors compute their elementary functions."""


def model(name: str, width: str = "w") -> onnx.ModelProto:
    body, result = OPERATORS[name]
    weights = {"axes": np.array([1], np.int64)} if "axes)" in body else {}
    text = f"{name} (float[2, 3, 6, w] x) => ({result} y)"
    return model_of(text.replace("w]", f"{width}]"), body, weights)


def image(width: int) -> Array:
    return np.random.default_rng(width).normal(size=(2, 3, 6, width)).astype(np.float32)


def with_nan(x: Array) -> Array:
    """Of which runtimes make different maxima."""
    x = x.copy()
    x[0, 1, 2, x.shape[3] // 2], x[1, 0, 3, 0], x[1, 2, 5, -1] = np.nan, np.inf, -np.inf
    return x


def in_lanes(project: Any) -> bool:
    return any("_lanes" in line for line in project.files["m.c"].decode().splitlines())


@pytest.mark.parametrize("name", OPERATORS)
def test_columns_keep_their_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the lowest, the highest and other widths."""
    made = model(name)
    fast = rx.compile(made, bounds={"w": MOST}, name="m")
    session = onnxruntime.InferenceSession(made.SerializeToString())
    with monkeypatch.context() as patch:
        patch.setattr(column_lanes, "run", lambda module, _: module)
        plain = rx.compile(made, bounds={"w": MOST}, name="m")
    assert in_lanes(fast) and not in_lanes(plain)
    one, other = fast.host(), plain.host()
    for width in WIDTHS:
        x = image(width)
        found = one(x=x)["y"]
        for array in () if name in FUNCTIONS else (x, with_nan(x)):
            assert one(x=array)["y"].tobytes() == other(x=array)["y"].tobytes(), width
        np.testing.assert_allclose(found, session.run(None, {"x": x})[0], 1e-5, 1e-6)
    with pytest.raises(rx.StatusError, match="RAOT_ERR_SIZE"):
        one(x=image(MOST + 1))


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", OPERATORS)
def test_fixed_widths(name: str, width: int) -> None:
    made = model(name, str(width))
    session = onnxruntime.InferenceSession(made.SerializeToString())
    x = image(width)
    found = rx.compile(made, name="m").host()(x=x)["y"]
    np.testing.assert_allclose(found, session.run(None, {"x": x})[0], 1e-5, 1e-6)
