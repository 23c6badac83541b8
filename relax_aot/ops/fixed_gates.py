# SPDX-License-Identifier: Apache-2.0
"""Parts of TensorFlow Lite's integer LSTM.

    fixed_gate     sigmoid or tanh of i16 with `bits` integer bits, as i16 in steps of 2^-15
                   (`_fixed_gates.py`)
    table_gate     the same by a table of the sigmoid, a line between two of its words; an argument
                   is x * factor / 2^shift in steps of 2^-9 / 24 (tanh: 2^-8 / 48)
    fixed_divide   i32 / 2^places to nearest, halves away from 0

Source: tensorflow/lite/kernels/lstm_eval.cc, and the reference kernels of logistic and tanh of 16
bits, which are those of TensorFlow Lite for Microcontrollers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.loops import Buffer, Cast, Expr, Lit, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._fixed import divided, np_divided, shifted
from relax_aot.ops._fixed_gates import fixed_sigmoid, fixed_tanh, sigmoid_words
from relax_aot.ops._op import Array, Op, Sample, require
from relax_aot.ops._samples import integers

I16, U16, I32, I64 = DType.I16, DType.U16, DType.I32, DType.I64
FUNCTIONS = ("sigmoid", "tanh")
MOST_BITS = 6
WORDS = 256


# fixed_gate


@dataclass(frozen=True, kw_only=True)
class Gate:
    function: str
    bits: int = 3


def _gate_type(attrs: Gate, x: TensorType) -> TensorType:
    require(x.dtype is I16, f"fixed_gate of {x}")
    require(0 <= attrs.bits <= MOST_BITS, f"fixed_gate with {attrs.bits} integer bits")
    return x


def _gate_lower(attrs: Gate, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    with k.loops(*y.shape) as at:
        value = apply(f"fixed_{attrs.function}", shifted(Cast(x[at], I32), attrs.bits))
        k.store(y[at], Cast(value, I16))


def _gate_reference(attrs: Gate, x: Array) -> Array:
    function = {"sigmoid": fixed_sigmoid, "tanh": fixed_tanh}[attrs.function]
    return function(x.astype(np.int64) << attrs.bits).astype(np.int16)


def _every_kind(rng: np.random.Generator) -> Array:
    """Numbers of 16 bits near 0, far from it, and at the ends."""
    near, far = rng.integers(-600, 600, 60), rng.integers(-32768, 32768, 66)
    return np.concatenate([near, far, [0, 1, -1, 32767, -32767, -32768]]).astype(np.int16)


def _gate_samples(rng: np.random.Generator) -> list[Sample]:
    x = _every_kind(rng)
    return [
        Sample((x,), {"function": "sigmoid"}),
        Sample((x.reshape(12, 11),), {"function": "tanh"}),
        *(Sample((x,), {"function": "tanh", "bits": bits}) for bits in (0, 2, 6)),
        Sample((x,), {"function": "sigmoid", "bits": 5}),
    ]


# table_gate


@dataclass(frozen=True, kw_only=True)
class TableGate:
    function: str
    factor: int
    shift: int = 0


def _table_type(attrs: TableGate, x: TensorType, table: TensorType) -> TensorType:
    require(x.dtype is I16 and table.dtype is U16, f"table_gate of {x} by {table}")
    require(table.rank == 1, f"table_gate with a table {table}")
    require(0 < attrs.factor < 1 << 15, f"table_gate with the factor {attrs.factor}")
    require(0 <= attrs.shift < 31, f"table_gate with the shift {attrs.shift}")
    return x


def _table_lower(attrs: TableGate, k: KernelBuilder, x: Buffer, table: Buffer, y: Buffer) -> None:
    sigmoid = attrs.function == "sigmoid"
    bits, sign = (9, 10) if sigmoid else (8, 8)
    most = (0x7FFF << 10) if sigmoid else (0xFFFF << 8)
    with k.loops(*y.shape) as at:
        product = binary("*", Cast(x[at], I32), Lit(attrs.factor, I32))
        half = Lit((1 << attrs.shift) >> 1, I32)
        moved = binary(">>", product + half, Lit(attrs.shift, I32)) if attrs.shift else product
        given = k.local("argument", I32, moved)
        magnitude = k.local("magnitude", I32, apply("abs", given))
        number = k.local("interval", I32, binary(">>", magnitude, Lit(bits, I32)))
        inside = apply("min", number, Lit(WORDS - 2, I32))
        place = k.placed("place", Cast(inside, I64), 0, WORDS - 2)
        low, high = (Cast(table[(place + one,)], I32) for one in (0, 1))
        rest = binary("&", magnitude, Lit((1 << bits) - 1, I32))
        line = shifted(low, bits) + binary("*", rest, high - low)
        far: Expr = Lit(WORDS - 2, I32) < number
        value = k.local("value", I32, Select(far, Lit(most, I32), line))
        negative = given < Lit(0, I32)
        if sigmoid:
            other = Lit((1 << 25) - 1 + (1 << 9), I32) - value
            total = Select(negative, other, value + Lit(1 << 9, I32))
        else:
            centred = k.local("centred", I32, value - Lit(1 << 23, I32))
            half_step = Lit(1 << 7, I32)
            other = half_step - Lit(1, I32) - centred
            total = Select(negative, other, centred + half_step)
        k.store(y[at], Cast(binary(">>", total, Lit(sign, I32)), I16))


def _table_reference(attrs: TableGate, x: Array, table: Array) -> Array:
    words = table.astype(np.int64)
    half = (1 << attrs.shift) >> 1
    given = (x.astype(np.int64) * attrs.factor + half) >> attrs.shift
    magnitude = np.abs(given)
    bits = 9 if attrs.function == "sigmoid" else 8
    number = magnitude >> bits
    place = np.minimum(number, WORDS - 2)
    rest = magnitude & ((1 << bits) - 1)
    line = (words[place] << bits) + rest * (words[place + 1] - words[place])
    if attrs.function == "sigmoid":
        value = np.where(number > WORDS - 2, 0x7FFF << 10, line)
        total = np.where(given < 0, (1 << 25) - value + (1 << 9) - 1, value + (1 << 9))
        return np.asarray((total >> 10).astype(np.int16))
    value = np.where(number > WORDS - 2, 0xFFFF << 8, line) - (1 << 23)
    total = np.where(given < 0, (1 << 7) - 1 - value, value + (1 << 7))
    return np.asarray((total >> 8).astype(np.int16))


def _table_samples(rng: np.random.Generator) -> list[Sample]:
    x, words = _every_kind(rng), sigmoid_words()
    return [
        Sample((x, words), {"function": "sigmoid", "factor": 3}, fixed=(WORDS,)),
        Sample((x, words), {"function": "tanh", "factor": 3}, fixed=(WORDS,)),
        Sample((x, words), {"function": "tanh", "factor": 6}, fixed=(WORDS,)),
        Sample((x, words), {"function": "tanh", "factor": 3, "shift": 3}, fixed=(WORDS,)),
    ]


# fixed_divide


@dataclass(frozen=True, kw_only=True)
class Division:
    places: int


def _divide_type(attrs: Division, x: TensorType) -> TensorType:
    require(x.dtype is I32, f"fixed_divide of {x}")
    require(0 <= attrs.places < 31, f"fixed_divide by 2^{attrs.places}")
    return x


def _divide_lower(attrs: Division, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], divided(k, x[at], attrs.places))


def _divide_reference(attrs: Division, x: Array) -> Array:
    return np_divided(x.astype(np.int64), attrs.places).astype(np.int32)


def _divide_samples(rng: np.random.Generator) -> list[Sample]:
    x = integers(rng)(np.int32, 3, 40)
    halves = (np.arange(-20, 20) << 14).astype(np.int32)
    return [
        Sample((x >> 1,), {"places": 20}),
        Sample((halves,), {"places": 15}),
        Sample((halves,), {"places": 0}),
    ]


OPS = (
    Op(
        "fixed_gate", _gate_type, _gate_lower, _gate_reference, _gate_samples, record=Gate,
        values={"function": FUNCTIONS},
    ),
    Op(
        "table_gate", _table_type, _table_lower, _table_reference, _table_samples,
        record=TableGate, values={"function": FUNCTIONS},
    ),
    Op(
        "fixed_divide", _divide_type, _divide_lower, _divide_reference, _divide_samples,
        record=Division,
    ),
)  # fmt: skip
