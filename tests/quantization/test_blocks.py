# SPDX-License-Identifier: Apache-2.0
"""The block forms of GGUF: weights with the bits of ggml, and products with the meaning of the
quantized weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.inference.folding import ENCODED_BYTES
from relax_aot.quantization.blocks import FORMS
from tests.frontends.llm.checkpoints import Array, Llama
from tests.models.onnx_text import model_of

BITS = {"q8_0": 8, "q4_0": 4}
SIZES = {"q8_0": 8.5, "q4_0": 4.5, "q4_k": 5.0}
"""Bits of a weight."""
BLOCK = 32
TABLE = "model.embed_tokens.weight"


def rows() -> Array:
    """With a block of zeros, subnormal scales, and a largest magnitude that is there twice."""
    rng = np.random.default_rng(0)
    made = rng.normal(size=(64, 160)).astype(np.float32) * np.float32(0.1)
    made[0, :32] = 0
    made[1, :32] *= np.float32(1e-6)
    made[2, 3], made[2, 5] = 0.9, -0.9
    return made


def decoded(kind: str, values: Array) -> Array:
    made = FORMS[kind](values)
    found = made.codes.astype(np.float32) * np.repeat(made.scales.astype(np.float32), BLOCK, axis=1)
    if made.offsets is not None:
        found += np.repeat(made.offsets.astype(np.float32), BLOCK, axis=1)
    return np.asarray(found)


@pytest.mark.parametrize("kind", BITS)
def test_the_bits_are_those_of_ggml(kind: str) -> None:
    quants = pytest.importorskip("gguf.quants")
    type_ = quants.GGMLQuantizationType[kind.upper()]
    stored = quants.quantize(rows(), type_)
    np.testing.assert_array_equal(decoded(kind, rows()), quants.dequantize(stored, type_))


@pytest.mark.parametrize("kind", BITS)
def test_weights_in_blocks_keep_their_bits(kind: str) -> None:
    once = decoded(kind, rows())
    np.testing.assert_array_equal(decoded(kind, once), once)


def error(kind: str, values: Array) -> float:
    return float(np.sqrt(((decoded(kind, values) - values) ** 2).mean()))


@pytest.mark.parametrize(("positive", "most"), [(False, 0.86), (True, 0.55)])
def test_offsets_bring_weights_nearer(positive: bool, most: float) -> None:
    values = np.abs(rows()) if positive else rows()
    assert error("q4_k", values) < most * error("q4_0", values)


def test_blocks_of_one_number_are_exact_but_for_the_rounding_of_halves() -> None:
    for number in (0.0, 0.5, -0.25):
        values = np.full((2, 288), number, np.float32)
        assert np.abs(decoded("q4_k", values) - number).max() <= abs(number) * 2**-10


def test_scales_and_offsets_are_multiples_of_numbers_that_256_weights_share() -> None:
    made = FORMS["q4_k"](rows()[:, :160])
    assert made.offsets is not None
    for one in (made.scales, made.offsets - 8 * made.scales.astype(np.float32)):
        wide = np.abs(one.astype(np.float64))
        steps = wide / (wide.max(axis=1, keepdims=True) / 63)
        assert np.abs(steps - np.rint(steps)).max() < 0.2


@pytest.mark.parametrize("kind", FORMS)
def test_products_and_rows_are_those_of_the_weights(kind: str) -> None:
    """A gathered table, and a product whose activations lose one part in 254."""
    table = rows()[:40, :64]
    net = model_of(
        "net (int32[n] i, float[n, 64] x) => (float[n, 40] y, float[n, 64] r)",
        "y = MatMul (x, w) r = Gather (t, i)",
        {"t": table, "w": table.T.copy()},
    )
    host = rx.compile(net, bounds={"n": 5}, quantize=kind).host()
    rng, stored = np.random.default_rng(1), decoded(kind, table)
    for n in (1, 4, 5):
        index = rng.integers(0, 40, n).astype(np.int32)
        x = rng.normal(size=(n, 64)).astype(np.float32)
        found = host(i=index, x=x)
        np.testing.assert_allclose(found["r"], stored[index], rtol=1e-6, atol=1e-8)
        wanted = x.astype(np.float64) @ stored.T
        most = np.abs(x).max() / 254 * np.abs(stored).sum(axis=1)
        assert (np.abs(found["y"] - wanted) <= most + 1e-5).all()


@cache
def model(kind: str) -> Llama:
    return Llama(kind=kind, width=64, hidden=96, size=16, words=320, layers=1)


@pytest.mark.parametrize(
    "kind", ["q4_0", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("q8_0", "q4_k"))]
)
def test_a_tied_table_is_stored_once(kind: str) -> None:
    with TemporaryDirectory() as folder:
        path = model("F16").write(Path(folder) / "tiny")
        entries = rx.load_llm(path, context=32, chunk=16)
    project = rx.compile(entries, name="tiny", quantize=kind)
    sizes = {n: sum(a.size for a in model("F16").tensors.values() if a.ndim == n) for n in (1, 2)}
    least = sizes[2] * (SIZES[kind]) / 8 + 4 * sizes[1]
    more = 64 if kind != "q4_k" else ENCODED_BYTES  # small offsets are f32
    assert least <= project.memory.const_bytes <= least + more * len(model("F16").tensors)
    assert more * len(model("F16").tensors) < model("F16").tensors[TABLE].size * SIZES[kind] / 8


def test_inner_axes_without_blocks_are_told() -> None:
    model = model_of(
        "g (float[n, 24] x) => (float[n, 8] y)", "y = MatMul (x, w)",
        {"w": np.ones((24, 8), np.float32)},
    )  # fmt: skip
    with pytest.raises(rx.RelaxAotError, match="inner axis is a multiple of 32, and q8_0"):
        rx.compile(model, bounds={"n": 4}, quantize="q8_0")
