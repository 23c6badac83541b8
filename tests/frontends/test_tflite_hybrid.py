# SPDX-License-Identifier: Apache-2.0
"""Floats with quantized weights (dynamic range): layers and networks against the reference kernels,
and the micro-kernels that compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.verify.emulate import calls_of, emulate, emulate_cases
from relax_aot.verify.program import program_of
from tests.frontends.tflite_models import Maker, check_model, truth

SAME, VALID, RELU, NONE = 0, 1, 1, 0


def weights(
    maker: Maker, rng: Any, shape: tuple[int, ...], axis: int, *, single: bool, floats: bool = False
) -> int:
    """Random weights of 8 bits, with one scale or one for each place of an axis; or their values
    as floats."""
    data = rng.integers(-127, 128, shape).astype(np.int8)
    scales = rng.uniform(0.002, 0.02, 1 if single else shape[axis])
    if floats:
        along = [-1 if n == axis and not single else 1 for n in range(len(shape))]
        return maker.constant((data * scales.reshape(along)).astype(np.float32))
    return maker.constant(data, scales, axis=axis)


def bias(maker: Maker, rng: Any, count: int) -> int:
    return maker.constant(rng.normal(size=count).astype(np.float32))


def conv(
    maker: Maker, rng: Any, x: int, shapes: tuple[tuple[int, ...], ...], *, depthwise: bool = False,
    strides: tuple[int, int] = (1, 1), padding: int = SAME, single: bool = False, fused: int = RELU,
    floats: bool = False,
) -> int:  # fmt: skip
    """`shapes`: of the filter and of the result."""
    filter_, result = shapes
    w = weights(maker, rng, filter_, 3 if depthwise else 0, single=single, floats=floats)
    y = maker.tensor(result)
    name = "DepthwiseConv2D" if depthwise else "Conv2D"
    options: dict[str, Any] = {"depthMultiplier": 1} if depthwise else {}
    maker.operator(
        "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", [x, w, bias(maker, rng, result[-1])], [y],
        f"{name}Options", version=6 if depthwise else 5, padding=padding, strideH=strides[0],
        strideW=strides[1], fusedActivationFunction=fused, **options,
    )  # fmt: skip
    return y


def network(rng: Any, width: int, *, asymmetric: bool) -> bytes:
    """A keyword network: a convolution, a depthwise separable block, a mean and a dense layer."""
    maker = Maker()
    x = maker.tensor((1, 13, 10, 1))
    h = conv(maker, rng, x, ((width, 5, 4, 1), (1, 7, 5, width)), strides=(2, 2))
    h = conv(maker, rng, h, ((1, 3, 3, width), (1, 7, 5, width)), depthwise=True)
    h = conv(maker, rng, h, ((width, 1, 1, width), (1, 7, 5, width)), fused=NONE)
    h = conv(maker, rng, h, ((1, 3, 3, width), (1, 4, 3, width)), depthwise=True, strides=(2, 2))
    rows = maker.tensor((1, width))
    axes = maker.constant(np.array([1, 2], np.int32))
    maker.operator("MEAN", [h, axes], [rows], "ReducerOptions", keepDims=False)
    w = weights(maker, rng, (7, width), 0, single=True)
    y = maker.tensor((1, 7))
    maker.operator(
        "FULLY_CONNECTED", [rows, w, bias(maker, rng, 7)], [y], "FullyConnectedOptions", version=9,
        asymmetricQuantizeInputs=asymmetric,
    )  # fmt: skip
    return maker.build([x], [y])


def ds_cnn(rng: Any, *, floats: bool) -> bytes:
    """The DS-CNN of MLPerf Tiny: 49 x 10 features, 64 channels, four blocks, 12 words."""
    maker, channels = Maker(), 64
    x = maker.tensor((1, 49, 10, 1))
    shape = (1, 25, 5, channels)
    h = conv(maker, rng, x, ((channels, 10, 4, 1), shape), strides=(2, 2), floats=floats)
    for _ in range(4):
        h = conv(maker, rng, h, ((1, 3, 3, channels), shape), depthwise=True, floats=floats)
        h = conv(maker, rng, h, ((channels, 1, 1, channels), shape), floats=floats)
    rows = maker.tensor((1, channels))
    axes = maker.constant(np.array([1, 2], np.int32))
    maker.operator("MEAN", [h, axes], [rows], "ReducerOptions", keepDims=False)
    w = weights(maker, rng, (12, channels), 0, single=True, floats=floats)
    y = maker.tensor((1, 12))
    maker.operator(
        "FULLY_CONNECTED", [rows, w, bias(maker, rng, 12)], [y], "FullyConnectedOptions",
        version=1 if floats else 9,
    )  # fmt: skip
    return maker.build([x], [y])


@pytest.mark.parametrize(("count", "asymmetric"), [(1, False), (4, True)])
def test_networks_of_any_batch_as_c(count: int, asymmetric: bool) -> None:
    rng = np.random.default_rng(count)
    model = network(rng, 12, asymmetric=asymmetric)
    module = rx.load(model, bounds={"t0_0": 5})
    given = rng.normal(size=(count, 13, 10, 1)).astype(np.float32)
    (expected,) = truth(model, [[given]])[0]
    (found,) = rx.compile(module).host()({module.main.params[0].name: given}).values()
    # A value at the middle of two integers may be rounded to the other one.
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("values", ["positive", "signed", "negative", "zeros"])
@pytest.mark.parametrize(
    ("kernel", "strides", "padding"),
    [
        ((3, 3), (1, 1), SAME),
        ((4, 3), (2, 2), SAME),
        ((1, 1), (2, 3), SAME),
        ((3, 2), (2, 1), VALID),
    ],
)
@pytest.mark.parametrize("depthwise", [False, True])
def test_zero_points_of_padded_windows(
    depthwise: bool, kernel: tuple[int, int], strides: tuple[int, int], padding: int, values: str
) -> None:
    rng, maker, channels = np.random.default_rng(3), Maker(), 6
    x = maker.tensor((2, 9, 8, channels))
    h = x
    if values == "positive":  # which the compiler knows
        h = maker.tensor((2, 9, 8, channels))
        maker.operator("RELU", [x], [h])
    extents = [
        -(-n // s) if padding == SAME else (n - k) // s + 1
        for n, k, s in zip((9, 8), kernel, strides, strict=True)
    ]
    filter_ = (1, *kernel, channels) if depthwise else (channels, *kernel, channels)
    y = conv(maker, rng, h, (filter_, (2, *extents, channels)), depthwise=depthwise,
             strides=strides, padding=padding, fused=NONE)  # fmt: skip
    given = rng.normal(size=(2, 9, 8, channels)).astype(np.float32)
    given = {"zeros": 0 * given, "negative": -np.abs(given)}.get(values, given)
    check_model(maker.build([x], [y]), [given], atol=2e-5)


def generated(model: bytes, board: str) -> str:
    project = rx.compile(rx.load(model), board=board).built
    return project.files[project.units[0]].decode()


@pytest.mark.parametrize(
    ("board", "names"),
    [("mps2-an386", ("raot_multiply_pairs", "raot_depthwise_pairs", "raot_multiply_pair_row")),
     ("mps3-an547", ("raot_multiply_", "raot_depthwise_interleaved4_s8", "raot_scale_nhwc_f32("))],
)  # fmt: skip
def test_layers_run_on_micro_kernels_of_bytes(board: str, names: tuple[str, ...]) -> None:
    text = generated(network(np.random.default_rng(3), 16, asymmetric=False), board)
    ranges = ("raot_peak_f32(", "raot_greatest_f32(", "raot_range_f32(")
    for name in (*names, "raot_quantize_by_s8(", *ranges):
        assert name in text
    if board == "mps2-an386":  # sums start less a zero point times sums of weights
        assert "starts[i2] = raot_sub_i32(" in text
    form = "_from" if board == "mps3-an547" else ""
    for name in (f"raot_scale_lines{form}_f32(", "raot_fill_bytes_s8("):
        assert name in text
    assert "(float)raot_sub_i32(" not in text  # which are loops over all results
    assert "_s16(" not in text


@pytest.mark.parametrize("filters", [1, 4])
def test_few_filters_as_c(filters: int) -> None:
    rng, maker = np.random.default_rng(3), Maker()
    x = maker.tensor((1, 8, 9, 4))
    y = conv(maker, rng, x, ((filters, 3, 3, 4), (1, 8, 9, filters)), fused=NONE)
    model = maker.build([x], [y])
    module = rx.load(model)
    given = rng.normal(size=(1, 8, 9, 4)).astype(np.float32)
    (found,) = rx.compile(module).host()({module.main.params[0].name: given}).values()
    np.testing.assert_allclose(found, truth(model, [[given]])[0][0], atol=2e-5)


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_networks_on_boards(board: str) -> None:
    rng = np.random.default_rng(7)
    model = network(rng, 10, asymmetric=False)
    given = rng.normal(size=(1, 13, 10, 1)).astype(np.float32)
    given[0, 3, 4] = -60
    (expected,) = truth(model, [[given]])[0]
    module = rx.load(model)
    (run,) = emulate(rx.compile(module, board=board).built, [{module.main.params[0].name: given}])
    (found,) = run.outputs.values()
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["nucleo-l4r5zi", "mps2-an386", "mps3-an547"])
@pytest.mark.long
def test_a_keyword_network_is_no_slower_than_its_float_form(board: str) -> None:
    """By instructions and by estimated cycles."""
    given = np.random.default_rng(1).normal(size=(1, 49, 10, 1)).astype(np.float32)
    runs = []
    for floats in (True, False):
        model = ds_cnn(np.random.default_rng(0), floats=floats)
        module = rx.load(model)
        project = rx.compile(module, board=board).built
        cases = calls_of(program_of(project), [{module.main.params[0].name: given}], {})
        runs += emulate_cases(project, cases, cycles=True)
        (expected,) = truth(model, [[given]])[0]
        (found,) = runs[-1].outputs.values()
        np.testing.assert_allclose(found, expected, atol=5e-3 * np.abs(expected).max())
    floats_run, bytes_run = runs
    for part in ("instructions", "cycles_estimated"):
        assert getattr(bytes_run, part) <= getattr(floats_run, part), part
