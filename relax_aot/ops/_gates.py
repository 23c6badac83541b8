# SPDX-License-Identifier: Apache-2.0
"""Sigmoid and tanh by a table: the meaning of the gates of quantized recurrent layers.

The sigmoid is linear between multiples of 1/8, from -16 to 16, where its values are less by
h^2 / 16 times the second derivative, with h = 1/8: that halves the greatest error. tanh(x) is
2 sigmoid(2 x) - 1. An argument is cut off after 18 bits of fraction (tanh: 19), and NaN counts
as 0. Errors are below 1.3e-4 and 2.5e-4; sigmoid(0) is above 1/2 by 2^-20, and tanh(0) is 0.

Every target computes the same: integers up to one conversion to f32 (raot/gates.h). So layers of
integers behind a recurrent one get the same numbers everywhere.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from relax_aot.ops._op import Array

STEP = 1 / 8
INTERVALS = 256
PART = 15
"""Bits of an argument that number the steps in an interval."""


@cache
def words() -> Array:
    """A word for each interval from -16 on. Its upper half is the sigmoid, in 15 bits of fraction,
    where two intervals meet, its lower half the slope, in 31 bits of fraction for a step."""
    ends = np.arange(-INTERVALS // 2, INTERVALS // 2 + 1) * STEP
    value = 1 / (1 + np.exp(-ends))
    bend = value * (1 - value) * (1 - 2 * value)
    knots = (value - bend * STEP**2 / 16) * 2.0**31
    slopes = np.rint(np.diff(knots) / 2**PART)
    nearer = np.where(np.arange(INTERVALS) % 2 == 0, knots[:-1], knots[1:])
    high = np.rint((nearer + slopes[INTERVALS // 2] - slopes) / 2**16).clip(1, 2**15 - 1)
    return np.asarray(high * 2**16 + slopes).astype(np.int64)


def _fixed(x: Array, bits: int) -> Array:
    """The sigmoid in 31 bits of fraction, of an argument in 2^bits steps."""
    known = np.nan_to_num(np.asarray(x, np.float64), nan=0.0).clip(-16, 16)
    inside = np.trunc(known * 2.0**bits).clip(-(2.0**22), 2.0**22 - 1).astype(np.int64)
    word = words()[(inside >> PART) + INTERVALS // 2]
    slope, part = (low.astype(np.int16).astype(np.int64) for low in (word, inside))
    return np.asarray(word + slope * part)


def gate_sigmoid(x: Array) -> Array:
    return np.asarray(_fixed(x, 18).astype(np.float32) / np.float32(2**31)).astype(np.float64)


def gate_tanh(x: Array) -> Array:
    middle = words()[INTERVALS // 2]
    return np.asarray((_fixed(x, 19) - middle).astype(np.float32) / np.float32(2**30)).astype(
        np.float64
    )
