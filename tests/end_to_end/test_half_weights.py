# SPDX-License-Identifier: Apache-2.0
"""Weights of half precision behind a cast to floats, or of a layer of half precision: two bytes
each where constants lie in flash, and the results of ONNX Runtime."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest

from relax_aot import driver
from relax_aot.project import Project
from relax_aot.verify.emulate import emulate
from tests.frontends.tflite_models import Maker, truth
from tests.models.half_weights import filters, half_weights
from tests.models.onnx_text import Array, model_of

WIDTH, UNITS, MOST = 37, 44, 9
BOARDS = ("2-an385", "2-an500", "3-an547")


@cache
def weights() -> dict[str, Array]:
    rng, rows = np.random.default_rng(3), 3 * UNITS
    shapes = {
        "first": (WIDTH, WIDTH), "w": (1, rows, WIDTH), "r": (1, rows, UNITS), "b": (1, 2 * rows),
        "last": (UNITS, 18),
    }  # fmt: skip
    normal = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return {name: (a / np.sqrt(a.shape[-1])).astype(np.float16) for name, a in normal.items()}


@cache
def network(kind: str) -> Any:
    """A product, a GRU, and a product; `kind` is that of the values between them."""
    wide = kind == "float"
    casts = [f"f_{name} = Cast <to = 1> ({name})" for name in weights() if wide]
    first, w, r, b, last = (f"f_{name}" if wide else name for name in weights())
    body = f"""
        h = MatMul(x, {first})
        states = GRU <hidden_size = {UNITS}, linear_before_reset = 1> (h, {w}, {r}, {b})
        axis = Constant <value = int64[1] {{1}}> ()
        rows = Squeeze(states, axis)
        y = MatMul(rows, {last})"""
    signature = f"net ({kind}[t, 1, {WIDTH}] x) => ({kind}[t, 1, 18] y)"
    return model_of(signature, "\n".join([*casts, body]), weights())


def project(kind: str, board: str) -> Project:
    return driver.compile_model(network(kind), board, driver.Options(bounds={"t": (1, MOST)}))


def expected(kind: str, x: Array) -> Array:
    return by_onnxruntime(network(kind), x)


def by_onnxruntime(model: Any, x: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.qemu
@pytest.mark.parametrize("kind", ["float", pytest.param("float16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "board",
    ["mps3-an547", *(pytest.param(f"mps2-an38{n}", marks=pytest.mark.slow) for n in (5, 6))],
)
def test_weights_take_two_bytes(board: str, kind: str) -> None:
    made = project(kind, board)
    # Biases are added, not multiplied: they are floats if the model casts them.
    assert made.const_bytes <= 2 * sum(a.size for a in weights().values()) + 2 * weights()["b"].size
    dtype, near = (np.float16, 4e-3) if kind == "float16" else (np.float32, 1e-5)
    rng = np.random.default_rng(5)
    calls = [rng.normal(size=(steps, 1, WIDTH)).astype(dtype) for steps in (1, 4, MOST)]
    for x, run in zip(calls, emulate(made, [{"x": x} for x in calls]), strict=True):
        np.testing.assert_allclose(run.outputs["y"], expected(kind, x), rtol=near, atol=near)


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board",
    ["mps2-an386", *(pytest.param(f"mps{n}", marks=pytest.mark.slow) for n in BOARDS)],
)
@pytest.mark.long
def test_filters_take_two_bytes(board: str) -> None:
    bounds = {"n": (1, 14)}
    made = driver.compile_model(half_weights(), board, driver.Options(bounds=bounds))
    assert made.const_bytes <= 2 * sum(a.size for a in filters().values()) + 16
    rng = np.random.default_rng(5)
    calls = [rng.normal(size=(1, 3, t, 9)).astype(np.float32) for t in (1, 6, 13, 14)]
    for x, run in zip(calls, emulate(made, [{"x": x} for x in calls]), strict=True):
        wanted = by_onnxruntime(half_weights(), x)
        np.testing.assert_allclose(run.outputs["y"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
@pytest.mark.long
def test_values_of_half_precision_take_about_as_long_as_floats(board: str) -> None:
    counts: dict[str, int] = {}
    for kind, dtype, near in (("float", np.float32, 1e-5), ("float16", np.float16, 2e-2)):
        model = half_weights(kind)
        made = driver.compile_model(model, board, driver.Options(bounds={"n": (1, 14)}))
        rng = np.random.default_rng(6)
        calls = [rng.normal(size=(1, 3, n, 9)).astype(dtype) for n in (1, 6, 13, 14)]
        for x, run in zip(calls, emulate(made, [{"x": x} for x in calls]), strict=True):
            wanted = by_onnxruntime(model, x)
            np.testing.assert_allclose(run.outputs["y"], wanted, rtol=near, atol=near)
            assert run.instructions is not None
            counts[kind] = run.instructions
    assert counts["float16"] < 2 * counts["float"]


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_filters_of_tflite_take_two_bytes(board: str) -> None:
    rng, made = np.random.default_rng(9), Maker()
    x = made.tensor((1, 7, 6, 10))
    stored, y = 0, x
    for kind, shape, channels in (
        ("CONV_2D", (20, 3, 3, 10), 20), ("DEPTHWISE_CONV_2D", (1, 5, 5, 20), 20),
        ("CONV_2D", (36, 1, 1, 20), 36),
    ):  # fmt: skip
        data = (rng.normal(size=shape) / 9).astype(np.float16)
        stored += data.size
        w, b = made.tensor(shape), made.constant(rng.normal(size=channels).astype(np.float32))
        made.operator("DEQUANTIZE", [made.constant(data)], [w], version=3)
        before, y = y, made.tensor((1, 7, 6, channels))
        more: dict[str, Any] = {"dilationWFactor": 1, "dilationHFactor": 1}
        more |= {"depthMultiplier": 1} if kind[0] == "D" else {}
        table = "Conv2DOptions" if kind[0] == "C" else "DepthwiseConv2DOptions"
        made.operator(kind, [before, w, b], [y], table, padding=0, strideW=1, strideH=1, **more)
    model = made.build([x], [y])
    project = driver.compile_model(model, board, driver.Options())
    assert project.const_bytes <= 2 * stored + 4 * 76 + 16
    text = project.files[project.units[0]].decode()
    assert text.count("raot_widen_f16(") == 2  # once for all pixels
    value = rng.normal(size=(1, 7, 6, 10)).astype(np.float32)
    (run,) = emulate(project, [{project.interface.inputs[0].name: value}])
    (actual,), ((wanted,),) = run.outputs.values(), truth(model, [[value]])
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_hosts_read_floats() -> None:
    stored = sum(array.size for array in weights().values())
    assert project("float", "host").const_bytes >= 4 * stored
