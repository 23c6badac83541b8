# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime computes what the NumPy form of each small model says, at all kinds of sizes."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from onnxruntime import InferenceSession

from tests.models.catalog import CATALOGUE, expected_of, sizes_to_try


@pytest.mark.parametrize("name", CATALOGUE)
def test_onnx_runtime_agrees_with_numpy(name: str) -> None:
    entry = CATALOGUE[name]
    model = entry.make()
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(crc32(name.encode()))
    for sizes in sizes_to_try(entry, rng, 12):
        inputs = entry.inputs(rng, sizes)
        outputs = dict(
            zip((o.name for o in model.graph.output), session.run(None, inputs), strict=True)
        )
        expected = expected_of(entry, model, inputs)
        assert outputs.keys() == expected.keys()
        for output, value in expected.items():
            np.testing.assert_allclose(
                outputs[output], value, rtol=1e-4, atol=1e-5, err_msg=f"{output} at {sizes}"
            )


@pytest.mark.parametrize("name", CATALOGUE)
def test_bounds_name_the_symbols_of_the_inputs(name: str) -> None:
    entry = CATALOGUE[name]
    model = entry.make()
    dims = [d for i in model.graph.input for d in i.type.tensor_type.shape.dim]
    assert {d.dim_param for d in dims if d.dim_param} == set(entry.bounds)
    low, high = sizes_to_try(entry, np.random.default_rng(0), 0)
    shapes = (
        entry.inputs(np.random.default_rng(0), low),
        entry.inputs(np.random.default_rng(0), high),
    )
    assert [i.name for i in model.graph.input] == [*shapes[0]]
    assert any(shapes[0][i].shape != shapes[1][i].shape for i in shapes[0])


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    make = CATALOGUE[name].make
    assert make().SerializeToString() == make().SerializeToString()
