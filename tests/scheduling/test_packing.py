# SPDX-License-Identifier: Apache-2.0
"""Constants rearranged for tiles: whole models keep the bits of the plain loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import relax_aot as rx
from relax_aot import driver
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer, For
from relax_aot.ir.types import DType, shape_of
from relax_aot.scheduling.packing import panels_of
from relax_aot.scheduling.passes import fma
from tests.models.onnx_text import model_of, random_weights

MODELS: dict[str, tuple[str, str, dict[str, tuple[int, ...]], str]] = {
    "panels": ("n, 20", "n, 70", {"w": (20, 70)}, "y = MatMul(x, w)"),
    "turned": ("n, 9", "n, 33", {"w": (33, 9)}, "y = Gemm <transB = 1> (x, w)"),
    "batched": ("3, n, 5", "3, n, 40", {"w": (3, 5, 40)}, "y = MatMul(x, w)"),
    "shared": (
        "n, 40",
        "n, 40",
        {"w": (40, 40)},
        "a = MatMul(x, w)\n b = Relu(a)\n y = MatMul(b, w)",
    ),
    "both sides": (
        "40, n",
        "n, 40",
        {"w": (40, 40)},
        "a = MatMul(w, x)\n b = Transpose <perm = [1, 0]> (a)\n y = MatMul(b, w)",
    ),
    "image": (
        "1, 3, 5, n",
        "1, 20, 5, n",
        {"w": (20, 3, 3, 3), "b": (20,)},
        "y = Conv <pads = [1, 1, 1, 1]> (x, w, b)",
    ),
    "strided image": (
        "2, 3, n, 9",
        "2, 35, h, 5",
        {"w": (35, 3, 3, 3)},
        "y = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)",
    ),
    "wide windows": (
        "1, 2, n",
        "1, 9, h",
        {"w": (9, 2, 5)},
        "y = Conv <pads = [4, 2], dilations = [2], strides = [3]> (x, w)",
    ),
    "pointwise": (
        "1, 8, n, 5",
        "1, 40, n, 5",
        {"w": (40, 8, 1, 1), "b": (40,)},
        "y = Conv (x, w, b)",
    ),
}
"""Shape of x, shape of y, weights, nodes."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_keep_their_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, shapes, text = MODELS[name]
    signature = f"packed (float[{before}] x) => (float[{after}] y)"
    model = model_of(signature, text, random_weights(np.random.default_rng(0), **shapes))
    fast = rx.compile(model, bounds={"n": 20}).host()
    monkeypatch.setattr(
        "relax_aot.scheduling.schedule", lambda m, target, *_, **__: fma.run(m, target)
    )
    plain = rx.compile(model, bounds={"n": 20}).host()
    for n in (1, 5, 6, 7, 13, 20):
        shape = [n if size.strip() == "n" else int(size) for size in before.split(",")]
        x = np.random.default_rng(n).normal(size=shape).astype(np.float32)
        assert fast(x=x)["y"].tobytes() == plain(x=x)["y"].tobytes(), n


def test_packed_data_are_what_the_load_reads() -> None:
    """Against the definition, element by element."""
    constant = np.arange(2 * 7 * 5).reshape(2, 7, 5).astype(np.float32)
    buffer = Buffer("w", DType.F32, shape_of(2, 7, 5))
    outer, columns, level = (
        For(name, Dim.of(0), Dim.of(size), ()) for name, size in (("o", 2), ("c", 7), ("k", 5))
    )
    load = buffer[Dim.of("o"), Dim.of("c"), Dim.of("k")]
    found = panels_of(load, [outer, columns], columns, [level], 4)
    assert found is not None
    data = found.packed.data({"w": constant})
    assert data.shape == (2, 7 * 5)
    for o, c, k in np.ndindex(2, 7, 5):
        wide = 4 if c < 4 else 3
        assert data[o, c // 4 * 4 * 5 + k * wide + c % 4] == constant[o, c, k]


@pytest.mark.parametrize(("columns", "fits"), [(1 << 22, True), (1 << 26, False)])
def test_tables_of_language_models_become_panels(columns: int, fits: bool) -> None:
    """Of 2**27 elements, but not of more than positions of 32 bits."""
    buffer = Buffer("w", DType.F32, shape_of(columns, 32))
    column, level = (For(n, Dim.of(0), dim, ()) for n, dim in zip("ck", buffer.shape, strict=True))
    load = buffer[Dim.of("c"), Dim.of("k")]
    assert (panels_of(load, [column], column, [level], 32) is not None) == fits


@pytest.mark.slow
@pytest.mark.parametrize(("name", "with_biases", "most"), [("resnet8", 0, 1.05), ("kws", 1, 1.13)])
def test_constants_take_little_more_flash_than_weights(
    name: str, with_biases: int, most: float, shared_models: Path
) -> None:
    """Of networks of bytes on a Cortex-M4. The keyword network has many channels of few weights."""
    path = shared_models / f"{name}_int8_qdq.onnx"
    tensors = onnx.load(path).graph.initializer
    arrays = [numpy_helper.to_array(tensor) for tensor in tensors]
    weights = sum(a.nbytes for a in arrays if a.dtype == np.int8 and a.ndim > 1)
    biases = sum(a.nbytes for a in arrays if a.dtype == np.int32 and a.ndim == 1 and a.any())
    project = driver.compile_model(str(path), "nucleo-l4r5zi", driver.Options())
    assert project.const_bytes <= most * (weights + with_biases * biases)
