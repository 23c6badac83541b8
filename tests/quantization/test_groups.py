# SPDX-License-Identifier: Apache-2.0
"""Products with weights in groups, with float activations and with activations that are quantized
row by row, compared with NumPy in double precision. The inner axis is no multiple of a group, and
the last panel of columns is not full."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot import driver
from relax_aot.ir.loops import Micro, walk
from relax_aot.quantization import Choice
from relax_aot.quantization.weight_only import GROUP
from relax_aot.quantization.weight_only import KINDS as EVERY
from relax_aot.verify.emulate import emulate
from tests.models.onnx_text import model_of

KINDS = {name: kind for name, kind in EVERY.items() if not kind.form}
DEPTH, COLUMNS, MOST = 75, 61, 27
SIZES = (1, 2, 5, 23, 24, 25, MOST)
BOARDS = {
    "mps2-an385": "int4w", "mps2-an386": "int4d", "mps3-an547": "int8w", "aarch64-linux": "int8d",
}  # fmt: skip
"""With the kind that always runs there; others take long. The first one has no tiles."""
ON_BOARDS = [
    pytest.param(kind, board, marks=() if kind == short else pytest.mark.long)
    for board, short in BOARDS.items()
    for kind in KINDS
]
Doubles = NDArray[np.float64]
TEXT = """
    product = MatMul(x, w)
    biased = Add(product, b)
    y = Relu(biased)
"""


@cache
def numbers() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(5)
    return {
        "w": rng.normal(size=(DEPTH, COLUMNS)).astype(np.float32),
        "b": rng.normal(size=COLUMNS).astype(np.float32),
    }


@cache
def model() -> Any:
    return model_of(f"m (float[n, {DEPTH}] x) => (float[n, {COLUMNS}] y)", TEXT, numbers())


@cache
def project(kind: str, board: str = "host") -> Any:
    options = driver.Options(bounds={"n": (1, MOST)}, quantize=Choice(kind))
    return driver.compile_model(model(), board, options)


@cache
def decoded(most: int) -> Doubles:
    """The weights as quantized values times the scales of their groups."""
    w = numbers()["w"].astype(np.float64)
    groups = [w[k : k + GROUP] for k in range(0, DEPTH, GROUP)]
    steps = [(np.abs(group).max(axis=0) / most).astype(np.float32) for group in groups]
    return np.concatenate(
        [np.rint(g / s.astype(np.float64)) * s for g, s in zip(groups, steps, strict=True)]
    )


def expected(kind: str, x: NDArray[np.float32]) -> Doubles:
    rows = x.astype(np.float64)
    if KINDS[kind].dynamic:
        step = (np.abs(x).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float32)
        step = np.where(step == 0, np.float32(1), step)
        rows = np.rint(x / step).astype(np.float64) * step
    y: Doubles = np.maximum(rows @ decoded(KINDS[kind].most) + numbers()["b"], 0)
    return y


def sample(n: int) -> NDArray[np.float32]:
    x = np.random.default_rng(n).normal(size=(n, DEPTH)).astype(np.float32)
    x[n // 2] *= 0 if n == 2 else 1000
    return x


@pytest.mark.parametrize("kind", KINDS)
def test_on_this_machine(kind: str) -> None:
    host = rx.compile(model(), bounds={"n": MOST}, quantize=kind).host()
    for n in SIZES:
        x = sample(n)
        allowed = 1e-5 * (1 + np.abs(x).max(axis=1, keepdims=True)) * np.ones(COLUMNS)
        assert (np.abs(host(x=x)["y"] - expected(kind, x)) <= allowed).all(), n


@pytest.mark.qemu
@pytest.mark.parametrize(("kind", "board"), ON_BOARDS)
def test_on_boards(kind: str, board: str) -> None:
    """By micro-kernels, and with the same bits for each row, however many rows there are."""
    (kernel, *_) = reversed(project(kind, board).plan.module.kernels)
    tiled = any(isinstance(stmt, Micro) for stmt in walk(kernel.body))
    assert tiled == (board != "mps2-an385")
    rows = sample(MOST)
    runs = emulate(project(kind, board), [{"x": rows}, {"x": rows[:1]}, {"x": rows[3:10]}])
    every, first, some = (run.outputs["y"] for run in runs)
    allowed = 1e-5 * (1 + np.abs(rows).max(axis=1, keepdims=True)) * np.ones(COLUMNS)
    assert (np.abs(every - expected(kind, rows)) <= allowed).all()
    assert first.tobytes() == every[:1].tobytes() and some.tobytes() == every[3:10].tobytes()


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.dynamic])
def test_the_stated_error_of_quantized_activations_holds(kind: str) -> None:
    host = rx.compile(model(), bounds={"n": MOST}, quantize=kind).host()
    x, w = sample(MOST), decoded(KINDS[kind].most)
    exact = np.maximum(x.astype(np.float64) @ w + numbers()["b"], 0)
    stated = np.abs(x).max(axis=1, keepdims=True) / 254 * np.abs(w).sum(axis=0)
    assert (np.abs(host(x=x)["y"] - exact) <= 1.001 * stated + 1e-5).all()


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.dynamic])
def test_a_row_that_is_not_finite_gives_no_number(kind: str) -> None:
    host = rx.compile(model(), bounds={"n": MOST}, quantize=kind).host()
    x = sample(4)
    clean = host(x=x)["y"]
    x[1, 3], x[2, 5] = np.nan, np.inf
    y = host(x=x)["y"]
    assert np.isnan(y[1:3]).all() and y[[0, 3]].tobytes() == clean[[0, 3]].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_take_the_flash_of_their_bits(kind: str) -> None:
    """Weights in a full panel, and a scale for each group; nothing decoded in the arena."""
    weights, scales = DEPTH * 64, 3 * 64 * 4
    built = project(kind)
    padded = 96 * 64 if KINDS[kind].dynamic else weights
    assert built.const_bytes <= padded * KINDS[kind].bits // 8 + scales + 4 * COLUMNS + 64
    assert built.arena_bytes <= (MOST * (96 + 4) + 64 if KINDS[kind].dynamic else 0)
