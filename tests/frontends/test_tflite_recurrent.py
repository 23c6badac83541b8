# SPDX-License-Identifier: Apache-2.0
"""Operators of TensorFlow Lite with a state, over several calls, against its own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot.evaluation.reference import evaluate, sizes_shown
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Micro, walk
from tests.frontends.tflite_models import Maker, truth

Array = NDArray[Any]


def run_all(module: Module, runs: list[Array]) -> list[Array]:
    """The first result of each run, while states go from one to the next."""
    kept = {s.input: s.output for s in module.states}
    types = {p.name: p.type for p in module.main.params}
    states = {
        name: np.zeros([n.constant for n in types[name].shape], types[name].dtype.numpy)
        for name in kept
    }
    (given,) = [p.name for p in module.main.params if p.name not in kept]
    found = []
    for x in runs:
        named = {given: x, **states}
        results = evaluate(module, named, sizes_shown(module, named))
        states = {before: results[after] for before, after in kept.items()}
        found.append(results[module.main.results[0].name])
    return found


def check_runs(model: bytes, runs: list[Array], atol: float) -> None:
    expected = [result for (result,) in truth(model, [[x] for x in runs])]
    module = rx.load(model)
    assert module.states
    for mine, theirs in zip(run_all(module, runs), expected, strict=True):
        if atol:
            np.testing.assert_allclose(mine, theirs, atol=atol)
        else:
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_svdf_of_floats(rank: int, bias: bool) -> None:
    rng, maker = np.random.default_rng(2), Maker()
    batch, inner, units, memory = 2, 6, 4, 5
    filters = units * rank
    x, y = maker.tensor((batch, inner)), maker.tensor((batch, units))
    features = maker.constant(rng.normal(size=(filters, inner)).astype(np.float32))
    time = maker.constant(rng.normal(size=(filters, memory)).astype(np.float32))
    b = maker.constant(rng.normal(size=units).astype(np.float32)) if bias else -1
    state = maker.tensor((batch, filters * memory), variable=True)
    maker.operator(
        "SVDF", [x, features, time, b, state], [y], "SVDFOptions", rank=rank,
        fusedActivationFunction=1 if bias else 0,
    )  # fmt: skip
    runs = [rng.normal(size=(batch, inner)).astype(np.float32) for _ in range(8)]
    check_runs(maker.build([x], [y]), runs, 1e-5)


@pytest.mark.parametrize("rank", [1, 2])
def test_svdf_of_codes(rank: int) -> None:
    rng, maker = np.random.default_rng(2), Maker()
    batch, inner, units, memory = 2, 16, 8, 6
    filters = units * rank
    x, y = (
        maker.tensor((batch, inner), np.int8, 0.05, 9),
        maker.tensor((batch, units), np.int8, 0.2, -4),
    )
    features = rng.integers(-127, 128, (filters, inner)).astype(np.int8)
    time = rng.integers(-3000, 3000, (filters, memory)).astype(np.int16)
    state = maker.tensor((batch, filters * memory), np.int16, 0.004, variable=True)
    bias = rng.integers(-3000, 3000, units).astype(np.int32)
    inputs = [
        x, maker.constant(features, 0.01), maker.constant(time, 0.0002),
        maker.constant(bias, 0.0002 * 0.004), state,
    ]  # fmt: skip
    maker.operator(
        "SVDF", inputs, [y], "SVDFOptions", version=3, rank=rank, fusedActivationFunction=1
    )
    runs = [rng.integers(-128, 128, (batch, inner)).astype(np.int8) for _ in range(9)]
    check_runs(maker.build([x], [y]), runs, 0.0)


@pytest.mark.parametrize("time_first", [False, True])
@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize("peepholes", [False, True])
def test_lstm_of_floats(time_first: bool, clip: float, peepholes: bool) -> None:
    rng, maker = np.random.default_rng(2), Maker()
    batch, steps, inner, hidden = 2, 5, 3, 4

    def normal(*shape: int) -> int:
        return maker.constant(rng.normal(size=shape).astype(np.float32))

    shape = (steps, batch, inner) if time_first else (batch, steps, inner)
    x, y = maker.tensor(shape), maker.tensor((*shape[:2], hidden))
    inputs = [x, *(normal(hidden, inner) for _ in range(4))]
    inputs += [normal(hidden, hidden) for _ in range(4)]
    inputs += [normal(hidden) if peepholes else -1 for _ in range(3)]
    inputs += [normal(hidden) for _ in range(4)]
    inputs += [-1, -1]
    inputs += [maker.tensor((batch, hidden), variable=True) for _ in range(2)]
    inputs += [-1] * 4
    maker.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], "UnidirectionalSequenceLSTMOptions",
        fusedActivationFunction=4, cellClip=clip, timeMajor=time_first,
    )  # fmt: skip
    runs = [rng.normal(size=shape).astype(np.float32) for _ in range(3)]
    check_runs(maker.build([x], [y]), runs, 1e-5)


def quantized_lstm(
    shape: tuple[int, int, int], hidden: int, *, time_first: bool = False, clip: float = 0.0,
    peepholes: bool = False, asymmetric: bool = False,
) -> bytes:  # fmt: skip
    rng, maker = np.random.default_rng(2), Maker()
    inner, batch = shape[2], shape[1 if time_first else 0]

    def quantized(*shape: int) -> int:
        data = rng.integers(-127, 128, shape).astype(np.int8)
        return maker.constant(data, rng.uniform(0.003, 0.01))

    x, y = maker.tensor(shape), maker.tensor((*shape[:2], hidden))
    inputs = [x, *(quantized(hidden, inner) for _ in range(4))]
    inputs += [quantized(hidden, hidden) for _ in range(4)]
    inputs += [quantized(hidden) if peepholes else -1 for _ in range(3)]
    inputs += [maker.constant(rng.normal(size=hidden).astype(np.float32)) for _ in range(4)]
    inputs += [-1, -1]
    inputs += [maker.tensor((batch, hidden), variable=True) for _ in range(2)]
    inputs += [-1] * 4
    maker.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], "UnidirectionalSequenceLSTMOptions",
        version=3, fusedActivationFunction=4, cellClip=clip, timeMajor=time_first,
        asymmetricQuantizeInputs=asymmetric,
    )  # fmt: skip
    return maker.build([x], [y])


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("special", [False, True])
def test_lstm_of_floats_with_quantized_weights(special: bool, asymmetric: bool) -> None:
    rng = np.random.default_rng(3)
    shape = (5, 2, 7) if special else (2, 5, 7)
    options: dict[str, Any] = {"time_first": True, "clip": 0.3, "peepholes": True}
    model = quantized_lstm(shape, 6, asymmetric=asymmetric, **(options if special else {}))
    runs = [rng.normal(size=shape).astype(np.float32) + np.float32(0.3) for _ in range(3)]
    runs[1][:] = 0
    check_runs(model, runs, 1e-5)


def test_quantized_weights_of_an_lstm_are_multiplied_by_micro_kernels() -> None:
    built = rx.compile(rx.load(quantized_lstm((1, 5, 8), 16)), board="mps2-an386").built
    kernels = built.plan.module.kernels
    names = {s.kernel.name for k in kernels for s in walk(k.body) if isinstance(s, Micro)}
    assert names >= {"raot_multiply_pair_row", "raot_multiply_pairs_1", "raot_quantize_by_s8"}
