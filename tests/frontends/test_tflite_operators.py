# SPDX-License-Identifier: Apache-2.0
"""Every operator of TensorFlow Lite that is read, against its own reference kernels.

Floats may differ in the last places; quantized values, integers and booleans must be equal.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relax_aot.frontends.tflite.table import handlers
from tests.frontends.tflite_models import Maker, check_model

Array = NDArray[Any]
F32, I8, U8, I16, I32, I64, BOOL = (
    np.float32, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_,
)  # fmt: skip


@dataclass(frozen=True)
class T:
    """A tensor: an input, a result, or with `data` a constant."""

    shape: tuple[int, ...]
    dtype: Any = np.float32
    scale: float | None = None
    zero: int = 0
    data: Any = None
    low: float = -3.0
    high: float = 3.0


def constant(data: Any, dtype: Any = np.int32, scale: float | None = None, zero: int = 0) -> T:
    array = np.asarray(data, dtype)
    return T(array.shape, dtype, scale, zero, array)


@dataclass(frozen=True)
class Case:
    operator: str
    inputs: Sequence[T | None]
    results: Sequence[T]
    table: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    atol: float = 2e-6
    version: int = 1

    @property
    def name(self) -> str:
        kinds = "_".join(np.dtype(t.dtype).name for t in self.inputs if t is not None)
        values = "_".join(f"{k}{v}" for k, v in self.options.items())
        return f"{self.operator}-{kinds}-{values}"


def given(t: T, rng: np.random.Generator) -> Array:
    if np.dtype(t.dtype).kind == "f":
        return rng.uniform(t.low, t.high, t.shape).astype(t.dtype)
    if np.dtype(t.dtype).kind == "b":
        return rng.integers(0, 2, t.shape).astype(t.dtype)
    if t.scale is None:
        return rng.integers(int(t.low), int(t.high) + 1, t.shape).astype(t.dtype)
    info = np.iinfo(t.dtype)
    return rng.integers(info.min, info.max + 1, t.shape).astype(t.dtype)


def check_case(case: Case) -> None:
    maker, rng = Maker(), np.random.default_rng(zlib.crc32(case.name.encode()))
    inputs, numbers, arrays = [], [], []
    for t in case.inputs:
        if t is None:
            numbers.append(-1)
            continue
        number = maker.tensor(t.shape, t.dtype, t.scale, t.zero, data=t.data)
        numbers.append(number)
        if t.data is None:
            inputs.append(number)
            arrays.append(given(t, rng))
    results = [maker.tensor(t.shape, t.dtype, t.scale, t.zero) for t in case.results]
    maker.operator(
        case.operator, numbers, results, case.table, version=case.version, **case.options
    )
    exact = all(np.dtype(t.dtype).kind != "f" for t in case.results)
    check_model(maker.build(inputs, results), arrays, atol=0.0 if exact else case.atol)


S = (2, 3, 5)
Q = {I8: (0.05, 7), U8: (0.05, 100), I16: (0.001, 0)}


def q(dtype: Any, shape: tuple[int, ...] = S, scale: float = 0.0, zero: int | None = None) -> T:
    usual = Q[dtype]
    return T(shape, dtype, scale or usual[0], usual[1] if zero is None else zero)


WIDE = (4, 64)

UNARY = [
    Case(name, [T(S, low=low)], [T(S)], atol=atol)
    for name, low, atol in (
        ("ABS", -3, 0), ("CEIL", -3, 0), ("COS", -3, 1e-6), ("ELU", -3, 1e-6), ("EXP", -3, 1e-5),
        ("FLOOR", -3, 0), ("HARD_SWISH", -5, 1e-6), ("LOG", 0.01, 1e-6), ("LOGISTIC", -5, 1e-6),
        ("LOG_SOFTMAX", -5, 1e-5), ("NEG", -3, 0), ("RELU", -3, 0), ("RELU6", -9, 0),
        ("RELU_0_TO_1", -2, 0), ("RELU_N1_TO_1", -2, 0), ("ROUND", -3, 0), ("RSQRT", 0.1, 1e-5),
        ("SIN", -3, 1e-6), ("SQRT", 0.1, 1e-6), ("SQUARE", -3, 1e-6), ("TANH", -3, 1e-6),
    )
]  # fmt: skip
TABLES = [
    Case(name, [q(dtype, (16, 16))], [q(dtype, (16, 16), scale, zero)], table, options)
    for name, scale, zero, dtypes, table, options in (
        ("LOGISTIC", 1 / 256, -128, (I8,), "", {}),
        ("LOGISTIC", 1 / 256, 0, (U8,), "", {}),
        ("TANH", 1 / 128, 0, (I8,), "", {}),
        ("TANH", 1 / 128, 128, (U8,), "", {}),
        ("ELU", 0.04, -90, (I8,), "", {}),
        ("EXP", 0.7, -128, (I8,), "", {}),
        ("LOG", 0.02, 10, (I8,), "", {}),
        ("HARD_SWISH", 0.04, -90, (I8,), "", {}),
        ("HARD_SWISH", 0.03, 20, (U8,), "", {}),
        ("GELU", 0.04, -90, (I8,), "GeluOptions", {"approximate": False}),
        ("GELU", 0.04, -90, (I8,), "GeluOptions", {"approximate": True}),
        ("LEAKY_RELU", 0.06, -20, (I8,), "LeakyReluOptions", {"alpha": 0.3}),
        ("LEAKY_RELU", 0.06, 30, (U8,), "LeakyReluOptions", {"alpha": 0.1}),
        ("LEAKY_RELU", 0.002, 0, (I16,), "LeakyReluOptions", {"alpha": 0.1}),
        ("RELU", 0.031, -128, (I8,), "", {}),
        ("RELU6", 0.031, -128, (I8,), "", {}),
        ("RELU_N1_TO_1", 0.01, 3, (I8,), "", {}),
        ("RELU", 0.05, 100, (U8,), "", {}),
        ("RELU", 0.0023, 0, (I16,), "", {}),
        ("ABS", 0.05, -128, (I8,), "", {}),
        ("ABS", 0.03, -128, (I8,), "", {}),
        ("ABS", 0.0017, 0, (I16,), "", {}),
        ("SOFTMAX", 1 / 256, -128, (I8,), "SoftmaxOptions", {"beta": 1.0}),
        ("SOFTMAX", 1 / 256, 0, (U8,), "SoftmaxOptions", {"beta": 0.7}),
    )
    for dtype in dtypes
]  # fmt: skip
GELU = [
    Case("GELU", [T(S)], [T(S)], "GeluOptions", {"approximate": near}) for near in (False, True)
]
OTHERS = [
    Case("SOFTMAX", [T(S)], [T(S)], "SoftmaxOptions", {"beta": 0.5}),
    Case("SOFTMAX", [q(I8)], [T(S, I16, 1 / 32768, -32768)], "SoftmaxOptions", {"beta": 1.0}),
    Case("LEAKY_RELU", [T(S)], [T(S)], "LeakyReluOptions", {"alpha": 0.2}),
    Case("ABS", [T(S, I32, low=-9, high=9)], [T(S, I32)]),
    Case("QUANTIZE", [T(WIDE, low=-9, high=9)], [q(I8, WIDE)]),
    Case("QUANTIZE", [T(WIDE, low=-9, high=9)], [q(U8, WIDE)]),
    Case("QUANTIZE", [T(WIDE, low=-9, high=9)], [q(I16, WIDE)]),
    Case("QUANTIZE", [q(I8, WIDE)], [q(I8, WIDE, 0.083, -4)]),
    Case("QUANTIZE", [q(I8, WIDE)], [q(U8, WIDE, 0.031, 140)]),
    Case("QUANTIZE", [q(U8, WIDE)], [q(I8, WIDE, 0.05, -28)]),
    Case("QUANTIZE", [q(I16, WIDE)], [q(I8, WIDE, 0.3, 3)]),
    Case("QUANTIZE", [q(I8, WIDE)], [q(I16, WIDE)]),
    Case("QUANTIZE", [q(I16, WIDE)], [q(I16, WIDE, 0.0031)]),
    Case("DEQUANTIZE", [q(I8)], [T(S)], atol=0),
    Case("DEQUANTIZE", [q(U8)], [T(S)], atol=0),
    Case("DEQUANTIZE", [q(I16)], [T(S)], atol=0),
    Case("CAST", [T(S, low=-9, high=9)], [T(S, I32)], "CastOptions"),
    Case("CAST", [T(S, I32, low=-9, high=9)], [T(S)], "CastOptions"),
    Case("CAST", [T(S, BOOL)], [T(S)], "CastOptions"),
    Case("LOGICAL_NOT", [T(S, BOOL)], [T(S, BOOL)]),
    Case("SIGN", [T(S)], [T(S)]),
]
PAIRS = [
    Case(name, [T(S), T(S[-1:], low=low)], [T(S)], table, options)
    for name, low, table, options in (
        *(("ADD", -3, "AddOptions", {"fusedActivationFunction": act}) for act in (0, 1, 2, 3)),
        ("SUB", -3, "SubOptions", {}),
        ("MUL", -3, "MulOptions", {"fusedActivationFunction": 1}),
        ("DIV", 0.5, "DivOptions", {}),
        ("MAXIMUM", -3, "", {}),
        ("MINIMUM", -3, "", {}),
        ("SQUARED_DIFFERENCE", -3, "", {}),
        ("FLOOR_DIV", 0.5, "", {}),
        ("FLOOR_MOD", -3, "", {}),
        ("PRELU", -3, "", {}),
    )
]
REST = [
    Case("ADD_N", [T(S), T(S), T(S)], [T(S)], "AddNOptions"),
    Case("BITWISE_XOR", [T(S, I32, low=-99, high=99)] * 2, [T(S, I32)], "BitwiseXorOptions"),
    Case("RIGHT_SHIFT", [T(S, I32, low=-99, high=99), T(S, I32, low=0, high=5)], [T(S, I32)],
         "RightShiftOptions"),
]  # fmt: skip
POWERS = [Case("POW", [T(S, low=0.1), T(S)], [T(S)], "PowOptions", atol=1e-4)]
WHOLE = [
    Case(name, [T(S, dtype, low=-9, high=9), T(S, dtype, low=low, high=9)], [T(S, dtype)], table)
    for name, low, table in (
        ("ADD", -9, "AddOptions"), ("SUB", -9, "SubOptions"), ("MUL", -9, "MulOptions"),
        ("MAXIMUM", -9, ""), ("MINIMUM", -9, ""), ("FLOOR_DIV", 1, ""), ("FLOOR_MOD", 1, ""),
    )
    for dtype in (I32,)
]  # fmt: skip
CODED = [
    Case(name, [q(dtype, (3, 200)), q(dtype, other, a)], [q(dtype, (3, 200), b)], table, options)
    for name, table in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions"))
    for dtype, a, b in ((I8, 0.031, 0.08), (U8, 0.017, 0.11), (I16, 0.0007, 0.0019))
    for other, options in (
        ((3, 200), {"fusedActivationFunction": 0}),
        ((200,), {"fusedActivationFunction": 1}),
        ((1, 1), {"fusedActivationFunction": 3}),
    )
    if not (name == "SUB" and dtype is I16 and options["fusedActivationFunction"])
]
CODED += [
    Case("MAXIMUM", [q(I8), q(I8)], [q(I8)]),
    Case("MINIMUM", [q(U8), q(U8)], [q(U8)]),
    Case("SQUARED_DIFFERENCE", [q(I8, (3, 200)), q(I8, (3, 200), 0.03)], [q(I8, (3, 200), 0.4)]),
    Case("PRELU", [q(I8, (3, 60)), q(I8, (60,), 0.01)], [q(I8, (3, 60), 0.06)]),
    Case("PRELU", [q(U8, (3, 60)), q(U8, (60,), 0.01)], [q(U8, (3, 60), 0.06)]),
]
COMPARED = [
    Case(name, [a, b], [T(a.shape, BOOL)])
    for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    for a, b in (
        (T(S), T(S)),
        (T(S, I32, low=-2, high=2), T(S, I32, low=-2, high=2)),
        (q(I8, (3, 200)), q(I8, (3, 200), 0.031, -4)),
        (q(U8, (3, 200)), q(U8, (3, 200))),
    )
]
CHOSEN = [
    Case("LOGICAL_AND", [T(S, BOOL), T(S, BOOL)], [T(S, BOOL)]),
    Case("LOGICAL_OR", [T(S, BOOL), T(S, BOOL)], [T(S, BOOL)]),
    Case("SELECT", [T(S, BOOL), T(S), T(S)], [T(S)]),
    Case("SELECT", [T((2,), BOOL), T(S), T(S)], [T(S)]),
    Case("SELECT_V2", [T((2, 3, 1), BOOL), T(S), T((5,))], [T(S)]),
    Case("SELECT_V2", [T(S, BOOL), q(I8), q(I8)], [q(I8)]),
]
ALL = [
    *UNARY, *TABLES, *GELU, *OTHERS, *PAIRS, *POWERS, *WHOLE, *CODED, *COMPARED, *CHOSEN, *REST,
]  # fmt: skip


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_an_operator_equals_the_reference_kernel(case: Case) -> None:
    check_case(case)


def test_every_operator_that_is_read_is_tested() -> None:
    """Each name stands in a test of this folder, as an operator."""
    folder = Path(__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("test_tflite_*.py"))
    assert [name for name in handlers() if f'"{name}"' not in text] == []


@pytest.mark.parametrize(
    ("name", "scale", "zero", "options"),
    [
        ("LOGISTIC", 2.0**-7, -128, {}),
        ("LOGISTIC", 2.0**-12, -128, {}),
        ("GELU", 0.125, 0, {"approximate": False}),
        ("GELU", 0.03125, -128, {"approximate": False}),
    ],
)
def test_midpoints_between_quantized_values_are_rounded_as_floats(
    name: str, scale: float, zero: int, options: dict[str, Any]
) -> None:
    """For every byte. Steps of the formula in f32 tell on which side of a midpoint it lies."""
    x = np.arange(-128, 128).astype(np.int8).reshape(16, 16)
    maker = Maker()
    given = maker.tensor(x.shape, np.int8, scale, zero)
    to = (1 / 256, -128) if name == "LOGISTIC" else (0.25, 20)
    result = maker.tensor(x.shape, np.int8, *to)
    table = "GeluOptions" if options else ""
    maker.operator(name, [given], [result], table, version=2, **options)
    check_model(maker.build([given], [result]), [x])
