# SPDX-License-Identifier: Apache-2.0
"""Whole TensorFlow Lite models against what its own reference kernels gave for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relax_aot as rx

FLOATS = ("kws_fp32", "resnet8_fp32")


def compiled(path: Path, bounds: dict[str, int]) -> tuple[rx.Project, str, str]:
    """The project, and the names of its one input and one output."""
    module = rx.load(path, bounds=bounds)
    (given,), (made,) = module.main.params, module.main.results
    return rx.compile(module), module.source_name(given.name), module.source_name(made.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_those_of_the_reference_kernels(name: str, shared_models: Path) -> None:
    vectors = np.load(shared_models / f"{name.split('_')[0]}_vectors.npz")
    # Only the converter of resnet8 left the batch open; that of kws is opened by its bound.
    axis = "x_0" if name == "kws_fp32" else "input_1_0"
    project, given, made = compiled(shared_models / f"{name}.tflite", {axis: 3})
    model = project.host()
    shape = vectors["x_fp32_nhwc"].shape[1:]
    for first, last in ((0, 1), (1, 3), (3, 6)):
        x = vectors["x_fp32_nhwc"][first:last].reshape(last - first, *shape)
        y = model({given: x})[made]
        np.testing.assert_allclose(y, vectors["y_fp32"][first:last], atol=1e-5)


CODES = {"kws_int8": "input_1_0", "resnet8_int8": "input_1_int8_0"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CODES)
def test_codes_are_exactly_those_of_the_reference_kernels(name: str, shared_models: Path) -> None:
    vectors = np.load(shared_models / f"{name.split('_')[0]}_vectors.npz")
    x, expected = vectors["x_int8_nhwc"], vectors["y_int8_tflite_ref"]
    path = shared_models / f"{name}.tflite"
    most = {"kws_int8": 17_024, "resnet8_int8": 50_176}[name]
    assert compiled(path, {CODES[name]: 1})[0].memory.arena_bytes <= most
    project, given, made = compiled(path, {CODES[name]: 5})
    model = project.host()
    for first, last in ((0, 1), (1, 6), (6, 8), (8, 12), (12, 16)):
        y = model({given: x[first:last]})[made]
        np.testing.assert_array_equal(y, expected[first:last])
