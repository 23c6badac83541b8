# SPDX-License-Identifier: Apache-2.0
"""Softmax by a table of fewer steps than bytes have: its last entry is that of all further ones."""

from __future__ import annotations

import numpy as np
import pytest

import relax_aot as rx

TEXT = {
    "fixed_softmax": """
        const %t: i32[3] = [2147483647, 1500000000, 1000000000]
        func @main(%x: i8[1, 4]) {
          %y: i8[1, 4] = fixed_softmax(%x, %t) {to=i8}
          return %y
        }""",
    "qsoftmax": """
        const %t: f32[3] = [1.0, 0.7, 0.5]
        func @main(%x: i8[1, 4]) {
          %y: i8[1, 4] = qsoftmax(%x, %t) {axis=-1, scale=0.00390625, to=i8, zero=-128}
          return %y
        }""",
}


@pytest.mark.parametrize("op", TEXT)
def test_no_entry_behind_the_table_is_read(op: str) -> None:
    model = rx.compile(rx.parse(TEXT[op]), board="host", name="short").host()
    powers = np.array([1500000000, 2147483647, 1000000000, 1000000000]) / 2**31
    if op == "qsoftmax":
        powers = np.array([0.7, 1, 0.5, 0.5])
    near = model(x=np.array([[99, 100, -128, 50]], np.int8))["y"]
    assert np.abs(near.astype(float) + 128 - powers / powers.sum() * 256).max() <= 1
