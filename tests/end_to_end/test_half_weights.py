# SPDX-License-Identifier: Apache-2.0
"""Weights of half precision behind a cast to floats, or of a layer of half precision: two bytes
each where constants lie in flash, and the results of ONNX Runtime."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.verify.emulate import emulate
from tests.models.onnx_text import Array, model_of

WIDTH, UNITS, MOST = 37, 44, 9


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


def project(kind: str, board: str) -> rx.Project:
    return driver.compile_model(network(kind), board, driver.Options(bounds={"t": (1, MOST)}))


def expected(kind: str, x: Array) -> Array:
    session = onnxruntime.InferenceSession(network(kind).SerializeToString())
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


def test_hosts_read_floats() -> None:
    stored = sum(array.size for array in weights().values())
    assert project("float", "host").const_bytes >= 4 * stored
