# SPDX-License-Identifier: Apache-2.0
"""A model's file is read without its large weights: with the same result as the whole file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relax_aot.errors import RelaxAotError
from relax_aot.frontends import ImportOptions, load
from relax_aot.frontends.onnx import model_file

KIND = TensorProto.FLOAT


@pytest.fixture(autouse=True)
def every_weight_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "LARGE_BYTES", 16)


def model() -> onnx.ModelProto:
    """Weights of several types, also as numbers in the message and of four bits."""
    f16 = np.arange(8, dtype=np.float16).reshape(2, 4)
    four = helper.make_tensor("four", TensorProto.INT4, [2, 4], bytes(range(4)), raw=True)
    numbers = helper.make_tensor("numbers", KIND, [2, 4], [0.5] * 8)
    brain = helper.make_tensor("brain", TensorProto.BFLOAT16, [2, 4], bytes(range(16)), raw=True)
    true = np.array([[True, False] * 10] * 2)
    weights = {
        "half": f16, "long": f16.astype(np.int64), "true": true, "scale": np.float32(0.25),
        "f32": f16.astype(np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Cast", ["half"], ["a"], to=KIND),
        helper.make_node("Cast", ["long"], ["b"], to=KIND),
        helper.make_node("Cast", ["brain"], ["c"], to=KIND),
        helper.make_node("DequantizeLinear", ["four", "scale"], ["d"]),
        helper.make_node("Sum", ["x", "f32", "numbers", "a", "b", "c", "d"], ["y"]),
        helper.make_node("Not", ["true"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "weights",
        [helper.make_tensor_value_info("x", KIND, [2, 4])],
        [
            helper.make_tensor_value_info("y", KIND, [2, 4]),
            helper.make_tensor_value_info("z", TensorProto.BOOL, [2, 20]),
        ],
        [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
        + [four, numbers, brain],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def loaded(source: Path | bytes) -> object:
    """The module, which is equal where the bytes of its constants are; or what is wrong with it."""
    try:
        module = load(source, ImportOptions())
    except RelaxAotError as error:
        return str(error).replace("weights.onnx", "the model")
    return module.functions, module.constants


def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.onnx"
    onnx.save(model(), path)
    found = model_file.without_weights(path)
    assert found is not None
    outside = [t.name for t in found.graph.initializer if t.external_data]
    assert outside == ["half", "long", "true", "f32", "four", "brain"]
    assert loaded(path) == loaded(path.read_bytes())


def test_a_hard_link_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "weights.onnx"
    onnx.save(model(), tmp_path / "other.onnx")
    os.link(tmp_path / "other.onnx", path)
    assert model_file.without_weights(path) is None
    assert loaded(path) == loaded(path.read_bytes())


def test_damage_is_that_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.onnx"
    whole = model().SerializeToString()
    random.seed(1)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(random.randint(0, 2)):
            data[random.randrange(len(data))] = random.choice((0, 1, 127, 128, 255))
        data = data[: random.choice((len(data), random.randrange(len(data))))]
        path.write_bytes(data)
        assert loaded(path) == loaded(bytes(data))
