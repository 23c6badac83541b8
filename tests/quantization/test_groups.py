# SPDX-License-Identifier: Apache-2.0
"""Products with weights in groups, with float activations and with activations that are quantized
row by row, compared with NumPy in double precision. The inner axis is no multiple of a group, and
the last panel of columns is not full. Weights of `int8w` have longer groups."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot import driver
from relax_aot.ir.loops import Micro, walk
from relax_aot.quantization import Choice, QuantizeError
from relax_aot.quantization.weight_only import KINDS as EVERY
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import host_model
from tests.models.onnx_text import model_of

KINDS = {name: kind for name, kind in EVERY.items() if not kind.form}
GROUPS = {"int8w": 128, "int4w": 32, "int8d": 32, "int4d": 32}
DEPTH, COLUMNS, MOST = 171, 61, 27
DEPTHS = (1, 31, 32, 33, 96, 127, 128, 129, 160, 257, 1000)
SHORT = 32
"""Sums of so many products at most are loops on cores without vectors."""
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


def in_groups(kind: str, weights: NDArray[np.float32]) -> Doubles:
    """Quantized values times the scales of their groups."""
    w, size, most = weights.astype(np.float64), GROUPS[kind], 127 if "8" in kind else 7
    groups = [w[k : k + size] for k in range(0, len(w), size)]
    steps = [(np.abs(group).max(axis=0) / most).astype(np.float32) for group in groups]
    return np.concatenate(
        [np.rint(g / s.astype(np.float64)) * s for g, s in zip(groups, steps, strict=True)]
    )


@cache
def decoded(kind: str) -> Doubles:
    return in_groups(kind, numbers()["w"])


def expected(
    kind: str, x: NDArray[np.float32], weights: Doubles | None = None, bias: Any = None
) -> Doubles:
    """`weights`, `bias`: others than those of the model above."""
    rows = x.astype(np.float64)
    if KINDS[kind].dynamic:
        step = (np.abs(x).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float32)
        step = np.where(step == 0, np.float32(1), step)
        rows = np.rint(x / step).astype(np.float64) * step
    weights = decoded(kind) if weights is None else weights
    y: Doubles = np.maximum(rows @ weights + (numbers()["b"] if bias is None else bias), 0)
    return y


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_half_precision(kind: str) -> None:
    """Weights and sums are rounded to half precision, by 2^-11 of them."""
    halves = {name: array.astype(np.float16) for name, array in numbers().items()}
    text = f"m (float16[n, {DEPTH}] x) => (float16[n, {COLUMNS}] y)"
    options = driver.Options(bounds={"n": (1, MOST)}, quantize=Choice(kind))
    built = driver.compile_model(model_of(text, TEXT, halves), "host", options)
    assert any(call.op == "matmul_groups" for call in built.source_module.main.body)
    x = np.random.default_rng(6).normal(size=(5, DEPTH)).astype(np.float16)
    found = host_model(built)(x=x)["y"]
    weights = halves["w"].astype(np.float32)
    wanted = expected(kind, x.astype(np.float32), in_groups(kind, weights), halves["b"])
    np.testing.assert_allclose(found, wanted, rtol=2**-10, atol=2**-8)


@pytest.mark.parametrize(("kind", "way"), [("int8w", "int8 quantizes conv"), ("int8", "to f32")])
def test_refused_convolutions_of_half_precision(kind: str, way: str) -> None:
    text = "m (float16[1, 2, 5] x) => (float16[1, 3, 5] y)"
    model = model_of(text, "y = Conv(x, w)", {"w": np.ones((3, 2, 1), np.float16)})
    given = {"x": np.ones((1, 1, 2, 5), np.float16)}
    options = driver.Options(quantize=Choice(kind), calibrate=given if kind == "int8" else {})
    with pytest.raises(QuantizeError, match=way):
        driver.compile_model(model, "host", options)


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
    x, w = sample(MOST), decoded(kind)
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
    scales = -(-DEPTH // GROUPS[kind]) * 64 * 4
    built = project(kind)
    padded = 192 if KINDS[kind].dynamic else DEPTH
    assert built.const_bytes <= padded * 64 * KINDS[kind].bits // 8 + scales + 4 * COLUMNS + 64
    assert built.arena_bytes <= (MOST * (192 + 4) + 64 if KINDS[kind].dynamic else 0)
    assert f"largest magnitude in its group of {GROUPS[kind]}" in built.quantized.errors[0]


@cache
def weights() -> dict[int, NDArray[np.float32]]:
    """For products of every depth."""
    rng = np.random.default_rng(6)
    return {k: rng.normal(size=(k, COLUMNS)).astype(np.float32) for k in DEPTHS}


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board", ["host", *(pytest.param(b, marks=pytest.mark.slow) for b in BOARDS)]
)
def test_groups_of_every_depth(board: str) -> None:
    """A single group is no plain loop, and a last group may have a single weight."""
    inputs = ", ".join(f"float[n, {k}] x{k}" for k in DEPTHS)
    outputs = ", ".join(f"float[n, {COLUMNS}] y{k}" for k in DEPTHS)
    text = "\n".join(f"y{k} = MatMul(x{k}, w{k})" for k in DEPTHS)
    named = {f"w{k}": w for k, w in weights().items()}
    options = driver.Options(bounds={"n": (1, 7)}, quantize=Choice("int8w"))
    built = driver.compile_model(
        model_of(f"m ({inputs}) => ({outputs})", text, named), board, options
    )
    rng = np.random.default_rng(7)
    feeds = {f"x{k}": rng.normal(size=(7, k)).astype(np.float32) for k in DEPTHS}
    found = host_model(built)(**feeds) if board == "host" else emulate(built, [feeds])[0].outputs
    for k, w in weights().items():
        exact = feeds[f"x{k}"].astype(np.float64) @ in_groups("int8w", w)
        np.testing.assert_allclose(found[f"y{k}"], exact, rtol=1e-5, atol=1e-5 * k**0.5)
    loops = {"mps2-an385": DEPTHS, "mps2-an386": [k for k in DEPTHS if k <= SHORT]}.get(board, [1])
    assert tiled(built) == {f"y{k}" for k in DEPTHS if k not in loops}


def tiled(built: Any) -> set[str]:
    """Results of micro-kernels."""
    module = built.plan.module
    return {
        call.outs[0].name
        for call in module.main.body
        if any(isinstance(s, Micro) for s in walk(module.kernel_table[call.ref("kernel")].body))
    }
