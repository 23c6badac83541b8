# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of matrices of TensorFlow Lite, against its own reference kernels.

Sums near the midpoint between two quantized values distinguish rounding modes; every
case therefore runs with its sums on such places too, which biases put there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.frontends.tflite_models import Maker, check_model

Array = NDArray[Any]
SAME, VALID = 0, 1


@dataclass(frozen=True)
class Conv:
    dtype: Any
    channels: int
    filters: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    padding: int = SAME
    activation: int = 0
    depthwise: bool = False
    group: int = 1
    per_channel: bool = True


def codes(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Array:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def zero_point(rng: np.random.Generator, dtype: Any) -> int:
    info = np.iinfo(dtype)
    return 0 if dtype is np.int16 else int(rng.integers(info.min, info.max + 1))


def convolve(case: Conv, rng: np.random.Generator) -> None:
    maker, floats = Maker(), case.dtype is np.float32
    x_shape = (2, 9, 8, case.channels)
    kernel = case.kernel
    w_shape = (
        (1, *kernel, case.filters)
        if case.depthwise
        else (case.filters, *kernel, case.channels // case.group)
    )
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, case.dilations, strict=True)]
    space = [
        -(-n // s) if case.padding == SAME else (n - r) // s + 1
        for n, s, r in zip((9, 8), case.strides, reach, strict=True)
    ]
    y_shape = (2, *space, case.filters)
    if floats:
        x = maker.tensor(x_shape)
        w = maker.constant(rng.normal(size=w_shape).astype(np.float32))
        b = maker.constant(rng.normal(size=case.filters).astype(np.float32))
        y = maker.tensor(y_shape)
        given = rng.normal(size=x_shape).astype(np.float32)
    else:
        per = case.per_channel and case.dtype is not np.uint8
        x_scale = rng.uniform(0.002, 0.05) / (64 if case.dtype is np.int16 else 1)
        w_scale = rng.uniform(0.002, 0.05, case.filters if per else 1)
        taps = int(np.prod(kernel)) * (1 if case.depthwise else case.channels // case.group)
        y_scale = float(x_scale * w_scale.mean() * np.sqrt(taps) * 50)
        x_zero, y_zero = zero_point(rng, case.dtype), zero_point(rng, case.dtype)
        w_type = np.uint8 if case.dtype is np.uint8 else np.int8
        w_zero = 113 if case.dtype is np.uint8 else 0
        axis = 3 if case.depthwise else 0
        bias = rng.integers(-20000, 20000, case.filters)
        bias = bias.astype(np.int64 if case.dtype is np.int16 else np.int32)
        x = maker.tensor(x_shape, case.dtype, x_scale, x_zero)
        w = maker.constant(codes(rng, w_type, w_shape), w_scale, w_zero, axis=axis)
        b = maker.constant(bias, x_scale * w_scale, 0)
        y = maker.tensor(y_shape, case.dtype, y_scale, y_zero)
        given = codes(rng, case.dtype, x_shape)
    options: dict[str, Any] = {
        "padding": case.padding, "strideH": case.strides[0], "strideW": case.strides[1],
        "dilationHFactor": case.dilations[0], "dilationWFactor": case.dilations[1],
        "fusedActivationFunction": case.activation,
    }  # fmt: skip
    if case.depthwise:
        options["depthMultiplier"] = case.filters // case.channels
        maker.operator(
            "DEPTHWISE_CONV_2D", [x, w, b], [y], "DepthwiseConv2DOptions", version=3, **options
        )
    else:
        maker.operator("CONV_2D", [x, w, b], [y], "Conv2DOptions", version=3, **options)
    check_model(maker.build([x], [y]), [given], atol=1e-4 if floats else 0.0)


TYPES = (np.float32, np.int8, np.uint8, np.int16)
CONVOLUTIONS = [
    case
    for dtype in TYPES
    for case in (
        Conv(dtype, 3, 5),
        Conv(dtype, 4, 6, strides=(2, 2), activation=1),
        Conv(dtype, 2, 4, kernel=(2, 3), dilations=(2, 2), padding=VALID),
        Conv(dtype, 8, 3, kernel=(1, 1), activation=3),
        Conv(dtype, 3, 3, depthwise=True, activation=1),
        Conv(dtype, 2, 6, kernel=(2, 3), strides=(2, 2), padding=VALID, depthwise=True),
        Conv(dtype, 2, 4, dilations=(2, 2), depthwise=True),
        Conv(dtype, 3, 5, per_channel=False),
    )
    if not (dtype is np.int16 and not case.per_channel)
]
GROUPED = [Conv(np.float32, 6, 4, group=2), Conv(np.int8, 6, 4, group=2)]


@pytest.mark.parametrize("case", [*CONVOLUTIONS, *GROUPED], ids=str)
def test_convolutions(case: Conv) -> None:
    convolve(case, np.random.default_rng(7))


@pytest.mark.parametrize("activation", [0, 1, 3])
@pytest.mark.parametrize(
    ("dtype", "per_row"),
    [(dtype, per_row) for dtype in TYPES for per_row in (False, True)
     if not (per_row and dtype is np.uint8)],
)  # fmt: skip
def test_fully_connected(dtype: Any, per_row: bool, activation: int) -> None:
    rng, maker = np.random.default_rng(3), Maker()
    rows, inner, columns = 5, 27, 40
    if dtype is np.float32:
        x = maker.tensor((rows, inner))
        w = maker.constant(rng.normal(size=(columns, inner)).astype(np.float32))
        b = maker.constant(rng.normal(size=columns).astype(np.float32))
        y = maker.tensor((rows, columns))
        given = rng.normal(size=(rows, inner)).astype(np.float32)
    else:
        x_scale = 0.013 / (64 if dtype is np.int16 else 1)
        w_scale = rng.uniform(0.002, 0.05, columns if per_row else 1)
        w_type, w_zero = (np.uint8, 101) if dtype is np.uint8 else (np.int8, 0)
        bias = rng.integers(-20000, 20000, columns)
        x = maker.tensor((rows, inner), dtype, x_scale, zero_point(rng, dtype))
        w = maker.constant(codes(rng, w_type, (columns, inner)), w_scale, w_zero)
        bias = bias.astype(np.int64 if dtype is np.int16 else np.int32)
        b = maker.constant(bias, x_scale * w_scale, 0)
        y_scale = float(x_scale * w_scale.mean() * 300)
        y = maker.tensor((rows, columns), dtype, y_scale, zero_point(rng, dtype))
        given = codes(rng, dtype, (rows, inner))
    maker.operator(
        "FULLY_CONNECTED", [x, w, b], [y], "FullyConnectedOptions", version=4,
        fusedActivationFunction=activation,
    )  # fmt: skip
    floats = dtype is np.float32
    check_model(maker.build([x], [y]), [given], atol=1e-4 if floats else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["conv", "depthwise", "rows"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_sums_are_rounded_as_the_kernel_does(dtype: Any, kind: str) -> None:
    """The input and the weights are 0, so that thousands of biases are the sums."""
    rng, count = np.random.default_rng(11), 4000
    for _ in range(3):
        maker = Maker()
        fine = 256 if dtype is np.int16 else 1
        x_scale, w_scale = rng.uniform(0.01, 0.1) / fine, float(rng.uniform(0.01, 0.1))
        y_scale, zero = float(rng.uniform(0.1, 0.5)) / fine, 128 if dtype is np.uint8 else 0
        w_type = np.uint8 if dtype is np.uint8 else np.int8
        per = kind != "rows" and dtype is not np.uint8
        scales = np.full(count if per else 1, w_scale)
        bias = rng.integers(-(2**15), 2**15, count)
        bias = bias.astype(np.int64 if dtype is np.int16 else np.int32)
        b = maker.constant(bias, x_scale * scales, 0)
        if kind == "rows":
            x, y_shape = maker.tensor((1, 1), dtype, x_scale), [1, count]
            w = maker.constant(np.zeros((count, 1), w_type), scales)
        else:
            x, y_shape = maker.tensor((1, 1, 1, 1), dtype, x_scale), [1, 1, 1, count]
            shape, axis = ((1, 1, 1, count), 3) if kind == "depthwise" else ((count, 1, 1, 1), 0)
            w = maker.constant(np.zeros(shape, w_type), scales, axis=axis)
        result = maker.tensor(tuple(y_shape), dtype, y_scale, zero)
        name, table = {
            "conv": ("CONV_2D", "Conv2DOptions"),
            "depthwise": ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"),
            "rows": ("FULLY_CONNECTED", "FullyConnectedOptions"),
        }[kind]
        options: dict[str, Any] = {} if kind == "rows" else {"strideH": 1, "strideW": 1}
        options |= {"depthMultiplier": count} if kind == "depthwise" else {}
        maker.operator(name, [x, w, b], [result], table, version=3, **options)
        check_model(maker.build([x], [result]), [np.zeros([1] * len(y_shape), dtype)])


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("padding", "strides", "sizes"),
    [(SAME, (2, 2), (10, 8)), (VALID, (2, 3), (11, 14)), (SAME, (1, 1), (5, 4))],
)
@pytest.mark.parametrize("dtype", TYPES)
def test_transpose_conv(
    dtype: Any, padding: int, strides: tuple[int, int], sizes: tuple[int, int], with_bias: bool
) -> None:
    rng, maker = np.random.default_rng(3), Maker()
    x_shape, w_shape, y_shape = (2, 5, 4, 3), (6, 3, 5, 3), (2, *sizes, 6)
    wanted = maker.constant(np.array(y_shape, np.int32))
    if dtype is np.float32:
        x, y = maker.tensor(x_shape), maker.tensor(y_shape)
        w = maker.constant(rng.normal(size=w_shape).astype(np.float32))
        b = maker.constant(rng.normal(size=6).astype(np.float32))
        given = rng.normal(size=x_shape).astype(np.float32)
    else:
        x_scale = 0.013 / (64 if dtype is np.int16 else 1)
        w_scale = rng.uniform(0.002, 0.05, 1 if dtype is np.uint8 else 6)
        w_type, w_zero = (np.uint8, 101) if dtype is np.uint8 else (np.int8, 0)
        bias = rng.integers(-20000, 20000, 6)
        bias = bias.astype(np.int64 if dtype is np.int16 else np.int32)
        x = maker.tensor(x_shape, dtype, x_scale, zero_point(rng, dtype))
        w = maker.constant(codes(rng, w_type, w_shape), w_scale, w_zero)
        b = maker.constant(bias, x_scale * w_scale, 0)
        y_scale = float(x_scale * w_scale.mean() * 300)
        y = maker.tensor(y_shape, dtype, y_scale, zero_point(rng, dtype))
        given = codes(rng, dtype, x_shape)
    maker.operator(
        "TRANSPOSE_CONV", [wanted, w, x, *([b] if with_bias else [])], [y],
        "TransposeConvOptions", version=3, padding=padding, strideH=strides[0],
        strideW=strides[1],
    )  # fmt: skip
    check_model(maker.build([x], [y]), [given], atol=1e-4 if dtype is np.float32 else 0.0)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_batch_matmul(dtype: Any, turned: tuple[bool, bool]) -> None:
    rng, maker = np.random.default_rng(3), Maker()
    a_shape = (2, 7, 5) if turned[0] else (2, 5, 7)
    b_shape = (2, 9, 7) if turned[1] else (2, 7, 9)
    if dtype is np.float32:
        a, b, y = maker.tensor(a_shape), maker.tensor(b_shape), maker.tensor((2, 5, 9))
        given = [rng.normal(size=s).astype(np.float32) for s in (a_shape, b_shape)]
    else:
        a, b = maker.tensor(a_shape, dtype, 0.02, 11), maker.tensor(b_shape, dtype, 0.03, -7)
        y = maker.tensor((2, 5, 9), dtype, 0.11, 4)
        given = [codes(rng, dtype, s) for s in (a_shape, b_shape)]
    maker.operator(
        "BATCH_MATMUL", [a, b], [y], "BatchMatMulOptions", version=2, adjX=turned[0],
        adjY=turned[1],
    )  # fmt: skip
    check_model(maker.build([a, b], [y]), given, atol=1e-4 if dtype is np.float32 else 0.0)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("kind", "per_channel", "asymmetric"),
    [("conv", True, False), ("conv", False, False), ("depthwise", True, False),
     ("rows", False, False), ("rows", False, True), ("rows", True, False), ("rows", True, True)],
)  # fmt: skip
def test_floats_with_quantized_weights(
    kind: str, per_channel: bool, asymmetric: bool, zeros: bool
) -> None:
    rng, maker, filters = np.random.default_rng(3), Maker(), 8
    x_shape = (3, 7, 6, 4) if kind != "rows" else (3, 24)
    w_shape = {"conv": (filters, 3, 3, 4), "depthwise": (1, 3, 3, filters), "rows": (filters, 24)}
    axis = 3 if kind == "depthwise" else 0
    scales = rng.uniform(0.002, 0.05, filters if per_channel else 1)
    x = maker.tensor(x_shape)
    w = maker.constant(codes(rng, np.int8, w_shape[kind]), scales, axis=axis)
    b = maker.constant(rng.normal(size=filters).astype(np.float32))
    options: dict[str, Any] = {"fusedActivationFunction": 1}
    if kind == "rows":
        name, table, y_shape = "FULLY_CONNECTED", "FullyConnectedOptions", [3, filters]
        options["asymmetricQuantizeInputs"] = asymmetric
    else:
        conv = kind == "conv"
        name, table = (
            ("CONV_2D", "Conv2DOptions")
            if conv
            else ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions")
        )
        y_shape = [3, 7, 6, filters]
        options |= {"padding": SAME, "strideH": 1, "strideW": 1}
        options |= {} if conv else {"depthMultiplier": filters // 4}
    y = maker.tensor(tuple(y_shape))
    version = 12 if kind == "rows" and per_channel else 9 if kind == "rows" else 5
    maker.operator(name, [x, w, b], [y], table, version=version, **options)
    given = (rng.normal(size=x_shape) + 0.4).astype(np.float32)
    if zeros:
        given[1] = 0
    check_model(maker.build([x], [y]), [given], atol=2e-5)
