# SPDX-License-Identifier: Apache-2.0
"""Whole tables of quantized operators against the reference kernels, for many scales.

One model has an operator, with inputs and a result of its own, for each choice of scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot.frontends import ModelError
from tests.frontends.tflite_models import Maker, check_model, ours

Quantization = tuple[float, int]
MANY = 60


def every(dtype: Any) -> NDArray[Any]:
    """Each byte once; of i16 both ends, the middle, and others."""
    info = np.iinfo(dtype)
    if info.bits == 8:
        return np.arange(info.min, info.max + 1).astype(dtype)
    edges = np.concatenate([np.arange(k, k + 128) for k in (info.min, -64, info.max - 127)])
    return np.concatenate(
        [edges, np.random.default_rng(1).integers(info.min, info.max, 1664)]
    ).astype(dtype)


def zero_of(rng: np.random.Generator, dtype: Any) -> int:
    info = np.iinfo(dtype)
    return 0 if info.bits == 16 else int(rng.integers(info.min, info.max + 1))


def check_tables(
    name: str,
    dtype: Any,
    choices: Sequence[tuple[Quantization, ...]],
    table: str = "",
    to: Any = None,
    options: Sequence[dict[str, Any]] = ({},),
    version: int = 2,
) -> None:
    """The last of each choice is of the result. A second input meets the first in another order."""
    maker, inputs, results, arrays = Maker(), [], [], []
    for index, choice in enumerate(choices):
        numbers = []
        for place, (scale, zero) in enumerate(choice[:-1]):
            array = every(dtype)
            if place:
                array = np.random.default_rng(index).permutation(array)
            numbers.append(maker.tensor(array.shape, dtype, scale, zero))
            arrays.append(array)
        inputs += numbers
        results.append(maker.tensor(every(dtype).shape, to or dtype, *choice[-1]))
        maker.operator(
            name, numbers, results[-1:], table, version=version, **options[index % len(options)]
        )
    check_model(maker.build(inputs, results), arrays)


def near(rng: np.random.Generator, dtype: Any, low: float, high: float) -> Sequence[Any]:
    """A result's scale is that of the input times 2^low to 2^high."""
    scales = 2.0 ** rng.uniform(-9, -3, MANY)
    ratios = 2.0 ** rng.uniform(low, high, MANY)
    return [
        ((scale, zero_of(rng, dtype)), (scale * ratio, zero_of(rng, dtype)))
        for scale, ratio in zip(scales, ratios, strict=True)
    ]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_leaky_relu_negates_what_it_rounded(dtype: Any) -> None:
    """Of a negative alpha: halves are rounded before its sign is applied."""
    rng = np.random.default_rng(5)
    choices = [
        ((scale, zero_of(rng, dtype)), (scale * 2.0 ** rng.integers(-1, 3), zero_of(rng, dtype)))
        for scale in rng.uniform(0.002, 0.1, MANY)
    ]
    options = [{"alpha": alpha} for alpha in (-0.5, -0.25, -1.5, -0.3, 0.5, -1.0, 0.3)]
    check_tables("LEAKY_RELU", dtype, choices, "LeakyReluOptions", options=options)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("ratio", [(-0.5, 4.0), (7.0, 20.0)])
def test_hard_swish(dtype: Any, ratio: tuple[float, float]) -> None:
    """Into coarse scales, the kernel drops more bits than its mask has."""
    rng = np.random.default_rng(6)
    check_tables("HARD_SWISH", dtype, near(rng, dtype, *ratio), "HardSwishOptions", version=1)


def pairs(rng: np.random.Generator, dtype: Any, low: float, high: float) -> Sequence[Any]:
    """Two inputs; the result's scale is that of their product times 2^low to 2^high. For every
    other one that is a whole power, so that middles between results occur."""
    found = []
    for index, exponent in enumerate(rng.uniform(low, high, MANY)):
        a, b = 2.0 ** rng.uniform(-9, -1, 2)
        scales = (a, b, a * b * 2.0 ** (round(exponent) if index % 2 else exponent))
        found.append(tuple((scale, zero_of(rng, dtype)) for scale in scales))
    return found


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_mul_rounds_its_scale_to_f32(dtype: Any) -> None:
    rng = np.random.default_rng(7)
    bits = np.iinfo(dtype).bits
    check_tables("MUL", dtype, pairs(rng, dtype, bits - 6, bits + 2), "MulOptions")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_prelu_rounds_its_scales_to_f32(dtype: Any) -> None:
    rng = np.random.default_rng(9)
    check_tables("PRELU", dtype, pairs(rng, dtype, 1, 9), version=1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_gelu_by_tanh(dtype: Any) -> None:
    """Results next to a middle between two quantized values are rounded step by step."""
    rng = np.random.default_rng(10)
    choices = [
        ((2.0**scale, zero_of(rng, dtype)), (2.0 ** (scale + finer), zero_of(rng, dtype)))
        for scale, finer in zip(rng.integers(-6, 1, MANY), rng.integers(-1, 3, MANY), strict=True)
    ]
    check_tables("GELU", dtype, choices, "GeluOptions", options=[{"approximate": True}], version=1)


@pytest.mark.parametrize("fine", [26, 40])
def test_differences_saturate_in_a_fine_scale(fine: int) -> None:
    """LiteRT shifts by a negative number there, which C++ does not define."""
    x, y = every(np.int8), np.roll(every(np.int8), 3)
    maker = Maker()
    inputs = [maker.tensor(x.shape, np.int8, 1.0, zero) for zero in (3, 3)]
    result = maker.tensor(x.shape, np.int8, 2.0**-fine, 5)
    maker.operator("SUB", inputs, [result], "SubOptions", version=2)
    (found,) = ours(rx.load(maker.build(inputs, [result])), [x, x])
    np.testing.assert_array_equal(found, np.full_like(x, 5))
    (found,) = ours(rx.load(maker.build(inputs, [result])), [x, y])
    exact = (x.astype(float) - y) * 2.0**fine + 5
    np.testing.assert_array_equal(found, np.clip(exact, -128, 127).astype(np.int8))


def test_a_ratio_of_scales_that_no_shift_expresses_is_an_error() -> None:
    maker = Maker()
    inputs = [maker.tensor((4,), np.int8, 1000.0) for _ in range(2)]
    result = maker.tensor((4,), np.int8, 1e-30)
    maker.operator("MUL", inputs, [result], "MulOptions", version=2)
    with pytest.raises(ModelError, match="a scale is too fine"):
        rx.load(maker.build(inputs, [result]))
