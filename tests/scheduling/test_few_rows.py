# SPDX-License-Identifier: Apache-2.0
"""Queries that share cached keys and values, and steps of a recurrent layer, in one call of a
micro-kernel for each product, for every number of keys or steps."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import relax_aot as rx
from tests.models.onnx_text import model_of

TEXT = """
symbol n in 0..70
func @main(%q: f32[2, ROWS, 20], %k: f32[2, 20, n], %v: f32[2, n, 24]) {
  %scores: f32[2, ROWS, n] = matmul(%q, %k)
  %y: f32[2, ROWS, 24] = matmul(%scores, %v)
  return %y
}"""


@pytest.mark.qemu
@pytest.mark.parametrize(("rows", "numerics"), [(2, "ordered"), (3, "blocked")])
def test_a_few_rows_on_a_cortex_m7(rows: int, numerics: str) -> None:
    module = rx.parse(TEXT.replace("ROWS", str(rows)))
    project = rx.compile(module, name="m", board="mps2-an500", numerics=numerics)
    assert project.files["m.c"].count(b"raot_multiply_rows_f32(") == 2
    rng = np.random.default_rng(rows)
    for n in (0, 1, 17, 70):
        q, k, v = (
            rng.normal(size=shape).astype(np.float32)
            for shape in ((2, rows, 20), (2, 20, n), (2, n, 24))
        )
        run = project.emulate(q=q, k=k, v=v)
        exact = (q.astype(np.float64) @ k) @ v
        np.testing.assert_allclose(run.outputs["y"], exact, rtol=0, atol=1e-4)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "hidden", "kernel"),
    [
        ("mps2-an386", 24, b"raot_multiply_panels_f32("),
        ("nucleo-l4r5zi", 25, b"raot_multiply_rounded_panels_f32("),
    ],
)
def test_steps_of_a_recurrent_layer(board: str, hidden: int, kernel: bytes) -> None:
    """Weights in panels, whose last one may have columns that are not used."""
    weights, model = _layer(hidden)
    rng = np.random.default_rng(hidden)
    project = rx.compile(model, name="m", board=board, bounds={"t": (1, 9)})
    assert project.files["m.c"].count(kernel) == (1 if board.startswith("nucleo") else 2)
    for t in (1, 3, 9):
        x = rng.normal(size=(t, 1, 7)).astype(np.float32)
        run = project.emulate(x=x)
        exact = _lstm(x[:, 0], hidden, weights)
        np.testing.assert_allclose(run.outputs["y"][:, 0, 0], exact, rtol=0, atol=2e-6)


def test_steps_of_a_recurrent_layer_on_this_machine() -> None:
    """The inputs of 24 steps are one product, and 64 gates of a step are a tile."""
    weights, model = _layer(62)
    project = rx.compile(model, name="m", board="host", bounds={"t": (1, 60)})
    code = project.files["m.c"]
    assert b"raot_min_i32(248 - i2_panel * 64, 64)" in code
    assert b"f32[min(24, t), 1, 248]" in code
    small = rx.compile(model, name="m", board="host", bounds={"t": (1, 60)}, optimize="memory")
    assert b"f32[min(4, t), 1, 248]" in small.files["m.c"]
    run = project.host()
    for t in (1, 24, 59):
        x = np.random.default_rng(t).normal(size=(t, 1, 7)).astype(np.float32)
        exact = _lstm(x[:, 0], 62, weights)
        np.testing.assert_allclose(run(x=x)["y"][:, 0, 0], exact, rtol=0, atol=2e-6)


def test_steps_of_a_batch_on_this_machine() -> None:
    """Sums of three sequences begin with rows of the inputs' product."""
    weights, model = _layer(32, batch=3)
    project = rx.compile(model, name="m", board="host", bounds={"t": (1, 60)})
    code = project.files["m.c"]
    assert b".rows = 3,\n" in code and b".columns = 64,\n" in code
    assert b".start_row = 128,\n" in code and b"f32[min(8, t), 3, 128]" in code
    run = project.host()
    for t in (1, 8, 20):
        x = np.random.default_rng(t).normal(size=(t, 3, 7)).astype(np.float32)
        y = run(x=x)["y"][:, 0]
        for n in range(3):
            np.testing.assert_allclose(y[:, n], _lstm(x[:, n], 32, weights), rtol=0, atol=2e-6)


def test_steps_of_sequences_with_lengths() -> None:
    """Inputs of a block of steps are one product for each sequence, in both directions."""
    rng, hidden = np.random.default_rng(0), 8
    shapes = {"w": (2, 32, 7), "r": (2, 32, hidden), "b": (2, 64)}
    weights = {k: (rng.normal(size=s) / 3).astype(np.float32) for k, s in shapes.items()}
    model = model_of(
        f"m (float[t, 3, 7] x, int32[3] n) => (float[t, 2, 3, {hidden}] y)",
        f'y = LSTM <hidden_size = {hidden}, direction = "bidirectional"> (x, w, r, b, n)', weights,
    )  # fmt: skip
    project = rx.compile(model, name="m", board="host", bounds={"t": (1, 60)})
    code = project.files["m.c"]
    assert b"f32[min(24, t), 1, 32]" in code
    assert code.count(b"raot_multiply_f32(") == code.count(b"raot_multiply_store_f32(") == 2
    run = project.host()
    for t in (1, 24, 60):
        x, lengths = rng.normal(size=(t, 3, 7)).astype(np.float32), [t, t // 2, 0]
        y = run(x=x, n=np.array(lengths, np.int32))["y"]
        for n, length in enumerate(lengths):
            assert not y[length:, :, n].any()
            for way, order in enumerate((slice(None), slice(None, None, -1))):
                own = {name: one[way] for name, one in weights.items()}
                exact = _lstm(x[:length, n][order], hidden, own)[order]
                found = y[:length, way, n].reshape(exact.shape)
                np.testing.assert_allclose(found, exact, rtol=0, atol=2e-6)


def test_helium_has_tiles_for_few_rows() -> None:
    """Its vectors take four products at once."""
    project = rx.compile(_layer(24)[1], name="m", board="mps3-an547", bounds={"t": (1, 9)})
    assert b"raot_multiply_f32(" in project.files["m.c"]
    assert b"panels_f32(" not in project.files["m.c"]


def _layer(hidden: int, batch: int = 1) -> tuple[dict[str, np.ndarray], onnx.ModelProto]:
    rng = np.random.default_rng(hidden)
    shapes = {"w": (4 * hidden, 7), "r": (4 * hidden, hidden), "b": (8 * hidden,)}
    weights = {
        name: (rng.normal(size=shape) / 3).astype(np.float32) for name, shape in shapes.items()
    }
    signature = f"m (float[t, {batch}, 7] x) => (float[t, 1, {batch}, {hidden}] y)"
    layer = f"y = LSTM <hidden_size = {hidden}> (x, w, r, b)"
    model = model_of(signature, layer, {name: one[None] for name, one in weights.items()})
    return weights, model


def _lstm(x: np.ndarray, hidden: int, weights: dict[str, np.ndarray]) -> np.ndarray:
    """ONNX's order of gates: input, output, forget, cell."""
    w, r, b = (weights[name].astype(np.float64) for name in "wrb")
    h = c = np.zeros(hidden)
    rows = []
    for row in x.astype(np.float64):
        gates = w @ row + r @ h + b.reshape(2, -1).sum(0)
        enter, leave, keep = 1 / (1 + np.exp(-gates[: 3 * hidden].reshape(3, -1)))
        c = keep * c + enter * np.tanh(gates[3 * hidden :])
        h = leave * np.tanh(c)
        rows.append(h)
    return np.array(rows)
