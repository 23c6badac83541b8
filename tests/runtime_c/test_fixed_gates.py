# SPDX-License-Identifier: Apache-2.0
"""Sigmoid and tanh of integers (raot/fixed_gates.h) for every argument of 16 bits: against a second
formulation of gemmlowp's functions, and the same bits in plain C, in vectors and on boards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot.ops._fixed_gates import fixed_sigmoid, fixed_tanh
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import host_model

Array = NDArray[Any]
COUNT = 1 << 14
KERNEL = """
func @main(%x: i16[16384]) {
  %s: i16[16384], %t: i16[16384], %u: i16[16384] = call_kernel(%x) {kernel=@gates}
  return %s, %t, %u
}
kernel @gates(%x: i16[16384]) -> (%s: i16[16384], %t: i16[16384], %u: i16[16384]) {
  for i in 0..16384 {
    %s[i] = cast(fixed_sigmoid((cast(%x[i], i32, wrap) << 3:i32)), i16, wrap)
    %t[i] = cast(fixed_tanh((cast(%x[i], i32, wrap) << 3:i32)), i16, wrap)
    %u[i] = cast(fixed_tanh((cast(%x[i], i32, wrap) << $bits:i32)), i16, wrap)
  }
}"""


def times(x: Array, y: Array | int) -> Array:
    """Rounded as SaturatingRoundingDoublingHighMul does: halves up, from -32768 * -32768 aside."""
    product = x.astype(np.int64) * y
    return np.asarray(
        (product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))) / (1 << 15)
    ).astype(np.int64)


def exponential(x: Array, bits: int) -> Array:
    """exp of x <= 0 with so many integer bits."""
    quarter = 1 << (13 - bits)
    rest = (x & (quarter - 1)) - quarter
    a = (rest << bits) + (1 << 12)
    square = times(a, a)
    third, fourth = times(square, a), times(square, square)
    sum_ = times(np.right_shift(fourth + 2, 2) + third, 10923) + square
    found = 28918 + times(a + np.right_shift(sum_ + 1, 1), 28918)
    quarters = rest - x
    for place, power in enumerate((25520, 19875, 12055, 4435, 600, 11, 0)):
        if bits > place - 2:
            chosen = quarters & (1 << (13 - bits + place)) != 0
            found = np.where(chosen, times(found, power), found)
    if bits > 5:
        found = np.where(x < -(32 << (15 - bits)), 0, found)
    return np.where(x == 0, 32767, found)


def quotient(e: Array) -> Array:
    half = (e + 32768) // 2
    x = 23130 + times(half, -15420)
    for _ in range(3):
        x = x + np.clip(times(x, 8192 - times(half, x)) * 4, -32768, 32767)
    return np.asarray(x)


def every_argument() -> Array:
    return np.arange(-32768, 32768)


def test_the_meaning_is_that_of_gemmlowp() -> None:
    x = every_argument()
    above = np.minimum(quotient(exponential(-np.abs(x), 3)) * 2, 32767)
    right = np.where(x == 0, 16384, np.where(x > 0, above, 32767 - above))
    np.testing.assert_array_equal(fixed_sigmoid(x << 3), right)
    for bits in range(7):
        above = np.minimum((quotient(exponential(-np.abs(x), bits + 1)) - 8192) * 4, 32767)
        np.testing.assert_array_equal(fixed_tanh(x << bits), np.sign(x) * above)


def check(board: str, bits: int) -> None:
    project = rx.compile(rx.parse(KERNEL.replace("$bits", str(bits))), board=board).built
    x = every_argument()
    parts = [part.astype(np.int16) for part in np.split(x, len(x) // COUNT)]
    if board == "host":
        host = host_model(project)
        found = [host(x=part) for part in parts]
    else:
        found = [run.outputs for run in emulate(project, [{"x": part} for part in parts])]
    right = {"s": fixed_sigmoid(x << 3), "t": fixed_tanh(x << 3), "u": fixed_tanh(x << bits)}
    for name, values in right.items():
        mine = np.concatenate([one[name] for one in found])
        np.testing.assert_array_equal(mine, values, err_msg=f"{name} {bits}")


@pytest.mark.parametrize("bits", range(7))
def test_on_the_host(bits: int) -> None:
    check("host", bits)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "bits"),
    [
        ("mps2-an386", 4),
        *(
            pytest.param(board, bits, marks=pytest.mark.slow)
            for board, bits in (("mps2-an386", 0), ("mps2-an385", 5))
        ),
        ("mps3-an547", 4),
        *(pytest.param("mps3-an547", bits, marks=pytest.mark.slow) for bits in (0, 2, 5, 6)),
    ],
)
def test_on_boards(board: str, bits: int) -> None:
    check(board, bits)
