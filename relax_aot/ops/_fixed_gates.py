# SPDX-License-Identifier: Apache-2.0
"""Sigmoid and tanh of integers: the gates of TensorFlow Lite's integer LSTM.

`fixed_sigmoid` and `fixed_tanh` take arguments in steps of 2^-15 and give results in steps of
2^-15. They are gemmlowp's `logistic` and `tanh` of 16-bit numbers, whose arguments may have up to
7 integer bits: with n of them, an argument is shifted by n, after which the steps are the same for
all n. Products are those of 16 bits, rounded to nearest, halves up. Every target computes the same
bits (raot/fixed_gates.h).

Source: fixedpoint/fixedpoint.h of gemmlowp.
"""

from __future__ import annotations

import numpy as np

from relax_aot.ops._op import Array

ONE = (1 << 15) - 1
EIGHTH = 1 << 12
THIRD, EXP_MIDDLE = 10923, 28918
"""1/3 and exp(-1/8) in steps of 2^-15."""
POWERS = (25520, 19875, 12055, 4435, 600, 11)
"""exp(-2^k) for k = -2..3, in steps of 2^-15; that of 16 is 0."""
QUARTER_BITS = 13
LARGEST = 16 << 15
"""From here on, the exponential is 0."""
START, SLOPE = 23130, -15420
"""48/17 and -32/17 in steps of 2^-13: the line that begins Newton's method."""
QUOTIENT_ONE = 1 << 13


def _times(x: Array, y: Array | int) -> Array:
    return np.asarray(np.right_shift(x * y + (1 << 14), 15))


def _exponential(x: Array) -> Array:
    """exp(-x) of x > 0: a polynomial for the last quarter of x, then a factor for each bit."""
    before = x - 1
    a = EIGHTH - 1 - (before & ((1 << QUARTER_BITS) - 1))
    square = _times(a, a)
    fourth = (_times(square, square) + 2) >> 2
    terms = (_times(fourth + _times(square, a), THIRD) + square + 1) >> 1
    found = EXP_MIDDLE + _times(a + terms, EXP_MIDDLE)
    for place, power in enumerate(POWERS):
        chosen = before & (1 << (QUARTER_BITS + place)) != 0
        found = np.where(chosen, _times(found, power), found)
    return np.where(before >= LARGEST, 0, found)


def _quotient(e: Array) -> Array:
    """2 / (1 + e) in steps of 2^-13, by three steps of Newton's method."""
    half = (e + (1 << 15)) >> 1
    x = START + _times(half, SLOPE)
    for _ in range(3):
        x = x + (_times(x, QUOTIENT_ONE - _times(half, x)) << 2)
    return np.asarray(x)


def fixed_sigmoid(x: Array) -> Array:
    magnitude = np.maximum(np.abs(np.asarray(x, np.int64)), 1)
    found = np.minimum(_quotient(_exponential(magnitude)) << 1, ONE)
    return np.where(x == 0, 1 << 14, np.where(x > 0, found, ONE - found))


def fixed_tanh(x: Array) -> Array:
    magnitude = np.maximum(np.abs(np.asarray(x, np.int64)), 1)
    found = np.minimum((_quotient(_exponential(2 * magnitude)) - QUOTIENT_ONE) << 2, ONE)
    return np.where(x == 0, 0, np.where(x > 0, found, -found))


STEPS = 24
"""Intervals of the table below in an argument of 1."""


def sigmoid_words() -> Array:
    """The sigmoid from 0 on in steps of 2^-16, above its values by half of the greatest error of a
    line between two of them. The last one ends the table."""
    x = np.arange(256) / STEPS
    value = 1 / (1 + np.exp(-x))
    bend = value * (1 - value) * (2 * value - 1)
    words = np.floor(65536 * (value + bend / (16 * STEPS**2)) + 0.5)
    words[-1] = 65535
    return np.asarray(words.astype(np.uint16))
