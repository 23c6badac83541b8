# SPDX-License-Identifier: Apache-2.0
"""Constants of half precision that products convert as they read them: which ones stay so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.graph import Module, Var
from relax_aot.ir.types import DType, TensorType, shape_of
from relax_aot.transforms import drop_dead, fold_constants

HALF, BRAIN = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


def weights(kind: np.dtype = HALF) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(64, 48)).astype(kind)


def wide(builder: FunctionBuilder, data: np.ndarray, to: DType = DType.F32) -> Var:
    return builder.call("cast", builder.constant("w", data), to=to, saturate=False)[0]


def moved(builder: FunctionBuilder) -> Var:
    """Two slices in another order, as an importer changes the order of gates."""
    first = wide(builder, weights())
    parts = [
        builder.call("slice", first, starts=(at,), lengths=(32,), axes=(0,), steps=(1,))[0]
        for at in (32, 0)
    ]
    return builder.call("concat", *parts, axis=0)[0]


def scaled(builder: FunctionBuilder) -> Var:
    factor = builder.constant("k", np.array(0.3, np.float32))
    return builder.call("mul", wide(builder, weights()), factor)[0]


def rounded(builder: FunctionBuilder) -> Var:
    """65504 becomes 65536, which half precision has not."""
    data = weights().T.copy()
    data[0, 0] = 65504
    (brain,) = builder.call("cast", wide(builder, data), to=DType.BF16, saturate=False)
    (back,) = builder.call("cast", brain, to=DType.F32, saturate=False)
    return builder.call("transpose", back, perm=(1, 0))[0]


CASES: dict[str, tuple[Callable[[FunctionBuilder], Var], np.dtype[Any]]] = {
    "cast": (lambda builder: wide(builder, weights()), HALF),
    "cast from bfloat16": (lambda builder: wide(builder, weights(BRAIN)), BRAIN),
    "moved": (moved, HALF),
    "few": (lambda builder: wide(builder, weights()[:, :4]), np.dtype(np.float32)),
    "scaled": (scaled, np.dtype(np.float32)),
    "rounded": (rounded, np.dtype(np.float32)),
}


def product(name: str) -> tuple[Module, Var]:
    builder = FunctionBuilder("main")
    right = CASES[name][0](builder)
    x = builder.param("x", TensorType(DType.F32, shape_of(3, 64)))
    y = builder.call("matmul", x, right)[0]
    return builder.module([y]), y


@pytest.mark.parametrize("name", CASES)
def test_products_keep_what_is_widened_and_moved(name: str) -> None:
    module, _ = product(name)
    kept = drop_dead.run(fold_constants.run(replace(module, keeps_half=True)))
    (constant,) = kept.constants
    assert constant.data.dtype == CASES[name][1]
    assert fold_constants.run(kept) == kept
    (floats,) = drop_dead.run(fold_constants.run(module)).constants
    assert floats.data.dtype == np.float32
    np.testing.assert_array_equal(np.asarray(constant.data).astype(np.float32), floats.data)


def test_other_readers_take_floats() -> None:
    builder = FunctionBuilder("main")
    right = wide(builder, weights())
    x = builder.param("x", TensorType(DType.F32, shape_of(3, 64)))
    results = [builder.call("matmul", x, right)[0], builder.call("exp", right)[0]]
    module = replace(builder.module(results), keeps_half=True)
    kinds = {c.data.dtype for c in drop_dead.run(fold_constants.run(module)).constants}
    assert kinds == {np.dtype(np.float32)}
