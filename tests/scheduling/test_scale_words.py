# SPDX-License-Identifier: Apache-2.0
"""Multipliers and shifts of channels in one word, and what the constants of an int8 net take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer, For, Lit, Load, binary
from relax_aot.ir.types import DType, shape_of
from relax_aot.scheduling.epilogue import Requantization, words_of
from tests.models.onnx_text import Array, model_of

CHANNELS = 5
CHANNEL = For("c", Dim.of(0), Dim.of(CHANNELS), ())
SCALE, SHIFT = (Load(Buffer(n, DType.I32, shape_of(CHANNELS)), (Dim.of("c"),)) for n in "sd")
MULTIPLIERS = st.lists(st.integers(1, 2**31 - 1), min_size=CHANNELS, max_size=CHANNELS)
DOWNS = st.lists(st.integers(0, 6), min_size=CHANNELS, max_size=CHANNELS)


def table(form: str, scales: list[int], downs: list[int]) -> Array | None:
    one = Requantization(form, SCALE, binary("-", SHIFT, Lit(33, DType.I32)))
    data = {"s": np.array(scales, np.int32), "d": np.array(downs, np.int32) + 33}
    return words_of(one, (CHANNEL,), data)


@given(MULTIPLIERS, DOWNS, st.integers(-(2**31), 2**31 - 1))
def test_words_round_as_multipliers_and_shifts_do(
    scales: list[int], downs: list[int], total: int
) -> None:
    words = table("nearest", scales, downs)
    doubled = [31 - scale.bit_length() for scale in scales]
    shifts = [down + more for down, more in zip(downs, doubled, strict=True)]
    assert (words is not None) == (max(shifts) - min(shifts) < 4 and max(shifts) < 30)
    if words is None:
        return
    base, *rest = (int(word) for word in words)
    for scale, down, word in zip(scales, downs, rest, strict=True):
        multiplier, shift = (word & (1 << 30) - 1) + (1 << 30), base - (word >> 30 & 3)
        expected = ((total * scale >> 32 + down) + 1) >> 1
        assert ((total * multiplier >> 32 + -1 - shift) + 1) >> 1 == expected


@pytest.mark.parametrize(
    ("form", "scales", "downs"),
    [
        ("twice", [1 << 30] * 4 + [(1 << 30) - 1], [3] * 5),
        ("above", [1 << 30] * 5, [3, 3, 3, 3, 7]),
        ("nearest", [1 << 30] * 4 + [0], [3] * 5),
    ],
    ids=["rounded twice", "far shifts", "a multiplier of 0"],
)
def test_what_no_word_holds_keeps_two_tables(
    form: str, scales: list[int], downs: list[int]
) -> None:
    assert table(form, scales, downs) is None


def test_constants_are_weights_and_two_words_for_each_channel() -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (6, 64, 3, 3)).astype(np.int8)
    # Scales for which floats are not exact.
    data: dict[str, Array] = {
        "s": np.array(0.05, np.float32), "z": np.array(-3, np.int8), "w": weights,
        "ws": rng.uniform(0.0002, 0.0004, 6).astype(np.float32), "wz": np.zeros(6, np.int8),
        "b": rng.integers(-9000, 9000, 6).astype(np.int32), "bz": np.zeros(6, np.int32),
    }  # fmt: skip
    data["bs"] = (data["ws"] * np.float32(0.05)).astype(np.float32)
    text = """
      f = DequantizeLinear (x, s, z)
      wf = DequantizeLinear <axis = 0> (w, ws, wz)
      bf = DequantizeLinear <axis = 0> (b, bs, bz)
      c = Conv (f, wf, bf)
      y = QuantizeLinear (c, s, z)"""
    model = model_of("m (int8[1, 64, 7, 7] x) => (int8[1, 6, 5, 5] y)", text, data)
    project = driver.compile_model(model, "mps2-an386", Options(name="m"))
    assert sum(c.data.nbytes for c in project.plan.module.constants) == weights.nbytes + 8 * 6 + 4
