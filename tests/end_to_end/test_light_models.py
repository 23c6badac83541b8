# SPDX-License-Identifier: Apache-2.0
"""ONNX's own light models (weights of one number each) give the results that ONNX ships.

Their weights are megabytes to hundreds of megabytes; in C they are a number each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import relax_aot as rx

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = sorted(path.stem for path in FOLDER.glob("light_*.onnx"))
MOST_BYTES = 1 << 20
QUICK = ("light_squeezenet",)


@pytest.mark.parametrize(
    "name",
    [pytest.param(m, marks=pytest.mark.slow if m in QUICK else pytest.mark.long) for m in MODELS],
)
def test_a_light_model_computes_what_onnx_says(name: str) -> None:
    path = FOLDER / f"{name}.onnx"
    model = onnx.load(path)
    project = rx.compile(path, name="light")
    weights = [len(data) for file, data in project.files.items() if "weights" in file]
    assert sum(weights) < MOST_BYTES
    initial = {tensor.name for tensor in model.graph.initializer}
    arrays = {
        port.name: counting([dim.dim_value for dim in port.type.tensor_type.shape.dim])
        for port in model.graph.input
        if port.name not in initial
    }
    (found,) = project.host()(arrays).values()
    wanted = numpy_helper.to_array(onnx.load_tensor(FOLDER / f"{name}_output_0.pb"))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-7)


def counting(shape: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The input from which ONNX made the results."""
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)
