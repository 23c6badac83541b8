# SPDX-License-Identifier: Apache-2.0
"""Weights apart from the code: init checks them and copies them to the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from tests.cuda.emulated import Emulated
from tests.cuda.test_host import OK, STATE, parsed
from tests.end_to_end.test_entries import BOUNDS, CALLS, MODELS, Sessions, rows
from tests.end_to_end.test_entries import STATE as HELD

pytestmark = pytest.mark.slow
BOARD = "jetson-orin-nano"
NULL, ALIGN, WEIGHTS = -1, -3, -8
MODEL = """
agraph (float[n, 8] x) => (float[n, 8] y)
<float[8, 8] w = {%s}, float[8] b = {%s}>
{
    p = MatMul (x, w)
    y = Add (p, b)
}
"""


def model_with(seed: int) -> tuple[onnx.ModelProto, Any, Any]:
    rng = np.random.default_rng(seed)
    w, b = rng.integers(-9, 9, (8, 8)), rng.integers(-9, 9, 8)
    text = MODEL % tuple(", ".join(f"{v}.0" for v in one.reshape(-1)) for one in (w, b))
    return parsed(text), w.astype(np.float32), b.astype(np.float32)


def compiled(model: onnx.ModelProto, weights: str = "blob") -> Project:
    options = Options(bounds={"n": (1, 40)}, weights=weights, emit="cuda-source", name="apart")
    return driver.compile_model(model, BOARD, options)


def block_of(project: Project) -> Any:
    """The file at an aligned address."""
    data = np.frombuffer(project.files["apart_weights.bin"], np.uint8)
    room = np.zeros(data.size + 64, np.uint8)
    start = -room.ctypes.data % 64
    room[start : start + data.size] = data
    return room[start : start + data.size]


def test_weights_are_copied_by_init_and_not_read_again() -> None:
    made, w, b = model_with(0)
    project = compiled(made)
    model, block = Emulated(project), block_of(project)
    x, y = np.arange(24, dtype=np.float32).reshape(3, 8), np.zeros((3, 8), np.float32)
    assert model.init(n=3) == NULL
    assert model.bind(block) == OK
    block[-1] ^= 1
    assert model.init(n=3) == WEIGHTS and model.live == 0
    assert model.bind(block) == WEIGHTS
    assert model.run([x], [y], n=3) == STATE
    block[-1] ^= 1
    model.memory.weights += 1
    assert model.init(n=3) == ALIGN
    model.memory.weights -= 1
    assert model.init(n=3) == OK, model.message
    block[:] = 0
    for n in (1, 3):
        assert model.run([x], [y], n=n) == OK
        np.testing.assert_array_equal(y[:n], (x @ w + b)[:n])
    model.close()
    assert model.live == 0


def test_new_weights_work_with_the_same_code() -> None:
    (first, w, b), (second, w2, b2) = model_with(1), model_with(2)
    project, other = compiled(first), compiled(second)
    same = {name for name in project.files if not name.endswith(".bin")}
    assert all(project.files[name] == other.files[name] for name in same)
    model, block, later = Emulated(project), block_of(project), block_of(other)
    x, y = np.ones((2, 8), np.float32), np.zeros((2, 8), np.float32)
    for bound, truth in ((block, x @ w + b), (later, x @ w2 + b2), (block, x @ w + b)):
        assert model.bind(bound) == OK and model.init(n=2) == OK
        assert model.run([x], [y], n=2) == OK
        np.testing.assert_array_equal(y, truth)
    model.close()
    assert model.live == 0


def test_a_model_without_weights_has_no_block() -> None:
    made = parsed("agraph (float[n] x) => (float[n] y) { y = Relu (x) }")
    assert not any(name.endswith(".bin") for name in compiled(made).files)


def test_entries_share_the_block() -> None:
    project = rx.compile(
        MODELS, bounds=BOUNDS, state=HELD, name="llm", board=BOARD, emit="cuda-source",
        weights="blob",
    )  # fmt: skip
    host, wanted = project.host(), Sessions(7)
    host.reset(m=7)
    for number, name in enumerate(CALLS):
        x = rows(number, 5 if name == "prefill" else 1)
        np.testing.assert_allclose(host[name](x=x)["y"], wanted(name, x), rtol=1e-4, atol=1e-5)
