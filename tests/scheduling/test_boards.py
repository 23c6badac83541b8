# SPDX-License-Identifier: Apache-2.0
"""Schedules on the boards whose vectors they use: the bits of the plain loops of the same board."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.project import Project
from relax_aot.scheduling.passes import fma
from relax_aot.verify.emulate import emulate
from tests.models.onnx_text import Weights, model_of, random_weights

SIGNATURE = (
    "tiles (float[n, 20] x, float[1, 3, 9, n] image)"
    " => (float[n, 70] wide, float[n, n] square, float[1, 35, 9, n] taps,"
    " float[1, 35, 9, n] points)"
)
TEXT = """
    wide = MatMul(x, w)
    turned = Transpose <perm = [1, 0]> (x)
    square = MatMul(x, turned)
    taps = Conv <pads = [1, 1, 1, 1]> (image, filters, bias)
    points = Conv (image, colors, bias)
"""
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 23, 24, 25, 31, 32, 33)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "optimize"),
    [
        *itertools.product(
            ("mps2-an386", "mps2-an500", "mps3-an547", "aarch64-linux"), ("speed", "size")
        ),
        ("nucleo-l4r5zi", "speed"),
    ],
)
def test_schedules_keep_the_bits(
    board: str, optimize: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles with separate products have the bits of plain loops without FMA contraction; the
    product of strided columns is no tile."""
    weights = random_weights(
        np.random.default_rng(0),
        w=(20, 70),
        filters=(35, 3, 3, 3),
        colors=(35, 3, 1, 1),
        bias=(35,),
    )
    samples = [sample(n) for n in SIZES]
    fast = emulate(compiled(weights, board, optimize), samples)
    monkeypatch.setattr(
        "relax_aot.scheduling.schedule",
        lambda m, target, *_, **__: m if target.separate else fma.run(m, target),
    )
    plain = emulate(compiled(weights, board, "speed"), samples)
    for n, a, b in zip(SIZES, plain, fast, strict=True):
        assert a.status == b.status == 0
        names = set(a.outputs) - ({"square"} if board == "nucleo-l4r5zi" else set())
        assert {k: a.outputs[k].tobytes() for k in names} == {
            k: b.outputs[k].tobytes() for k in names
        }, n


def compiled(weights: Weights, board: str, optimize: str) -> Project:
    model = model_of(SIGNATURE, TEXT, weights)
    options = driver.Options(bounds={"n": (1, max(SIZES))}, optimize=optimize)
    return driver.compile_model(model, board, options)


def sample(n: int) -> Weights:
    rng = np.random.default_rng(n)
    return {
        "x": rng.normal(size=(n, 20)).astype(np.float32),
        "image": rng.normal(size=(1, 3, 9, n)).astype(np.float32),
    }
