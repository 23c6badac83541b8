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
from relax_aot.quantization.blocks import FORMS
from tests.frontends.llm.checkpoints import Array, Llama

BITS = {"q8_0": 8, "q4_0": 4}
BLOCK = 32


def rows() -> Array:
    """With a block of zeros, subnormal scales, and a largest magnitude that is there twice."""
    rng = np.random.default_rng(0)
    made = rng.normal(size=(64, 160)).astype(np.float32) * np.float32(0.1)
    made[0, :32] = 0
    made[1, :32] *= np.float32(1e-6)
    made[2, 3], made[2, 5] = 0.9, -0.9
    return made


def decoded(kind: str, values: Array) -> Array:
    scales, codes = FORMS[BITS[kind]](values)
    return codes.astype(np.float32) * np.repeat(scales.astype(np.float32), BLOCK, axis=1)


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


@cache
def model(kind: str) -> Llama:
    return Llama(kind=kind, width=64, hidden=96, size=16, words=320, layers=1)


@pytest.mark.parametrize("kind", ["q4_0", pytest.param("q8_0", marks=pytest.mark.long)])
def test_a_tied_table_is_stored_once(kind: str) -> None:
    with TemporaryDirectory() as folder:
        path = model("F16").write(Path(folder) / "tiny")
        entries = rx.load_llm(path, context=32, chunk=16)
    project = rx.compile(entries, name="tiny", quantize=kind)
    sizes = {n: sum(a.size for a in model("F16").tensors.values() if a.ndim == n) for n in (1, 2)}
    least = sizes[2] * (BITS[kind] + 16 / BLOCK) / 8 + 4 * sizes[1]
    assert least <= project.memory.const_bytes <= least + 64 * len(model("F16").tensors)
