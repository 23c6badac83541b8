# SPDX-License-Identifier: Apache-2.0
"""The integer LSTM of TensorFlow Lite: i8 against its own kernels, i16 against records of those for
microcontrollers, and the C on boards."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot.binaries.elf import Program
from relax_aot.frontends import UnsupportedError
from relax_aot.ir.loops import Micro, walk
from relax_aot.verify.emulate import build_image, emulate
from relax_aot.verify.host import StatusError, host_model
from tests.frontends.test_tflite_recurrent import check_runs, run_all
from tests.frontends.tflite_models import Maker

Array = NDArray[Any]
I8, I16 = np.int8, np.int16
INPUTS_OF_GATE = (1, 5, 9, 12)


def layer(
    kind: Any, seed: int, *, batch: int = 2, steps: int = 5, inner: int = 7, cells: int = 6,
    units: int = 0, coupled: bool = False, peepholes: bool = False, places: int = 11,
    clip: float = 0.0, projection_clip: float = 0.0, bias: bool = True, time_first: bool = False,
    weights: tuple[float, float] = (0.002, 0.02), scale: float = 0.0, zero: int | None = None,
    missing: Sequence[int] = (), signature: tuple[int, ...] | None = None, **more: Any,
) -> bytes:  # fmt: skip
    """A layer whose weights, biases, scales and zero points are random numbers."""
    rng, maker, wide = np.random.default_rng(seed), Maker(), kind is I16
    units = units or cells
    zeros = [0, 0] if wide else rng.integers(-128, 128, 2).tolist()
    zeros[1] = zeros[1] if zero is None else zero
    x_scale, scale = (3e-4, scale or 2.0**-15) if wide else (0.04, scale or 0.0085)
    shape = (steps, batch, inner) if time_first else (batch, steps, inner)

    def matrix(*sizes: int) -> int:
        values = rng.integers(-127, 128, sizes).astype(np.int8)
        return maker.constant(values, rng.uniform(*weights))

    def row(size: int) -> int:
        values = rng.integers(-9000, 9000, size)
        return maker.constant(values.astype(np.int64 if wide else np.int32), 1e-4)

    def peephole() -> int:
        values = rng.integers(-32767, 32768, cells).astype(np.int16)
        return maker.constant(values, rng.uniform(1e-5, 1e-4))

    x = maker.tensor(shape, kind, x_scale, zeros[0], signature=signature)
    y = maker.tensor((*shape[:2], units), kind, scale, zeros[1])
    inputs = [x, *(matrix(cells, inner) for _ in range(4))]
    inputs += [matrix(cells, units) for _ in range(4)]
    inputs += [peephole() if peepholes else -1 for _ in range(3)]
    inputs += [row(cells) for _ in range(4)]
    inputs += [matrix(units, cells), row(units) if bias else -1] if units != cells else [-1, -1]
    inputs.append(maker.tensor((batch, units), kind, scale, zeros[1], variable=True))
    inputs.append(maker.tensor((batch, cells), np.int16, 2.0**-places, variable=True))
    inputs += [-1] * 4
    for index in (*missing, *(INPUTS_OF_GATE if coupled else ())):
        inputs[index] = -1
    gates = [maker.tensor((0,), np.int16, 2.0**-12) for _ in range(4)]
    projected = (0.0078, int(rng.integers(-20, 20)))
    hidden = projected if units != cells else (scale, zeros[1])
    maker.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], "UnidirectionalSequenceLSTMOptions",
        version=4 if wide else 1, cellClip=clip, projClip=projection_clip, timeMajor=time_first,
        **{"fusedActivationFunction": 4, **more},
        intermediates=[*gates, maker.tensor((0,), np.int8, *hidden)],
    )  # fmt: skip
    return maker.build([x], [y])


def runs_of(kind: Any, shape: tuple[int, ...], seed: int = 9, count: int = 3) -> list[Array]:
    rng, ends = np.random.default_rng(seed), np.iinfo(kind)
    runs = [rng.integers(ends.min, ends.max + 1, shape).astype(kind) for _ in range(count)]
    if count > 1:
        runs[1][..., ::2] = ends.min
    return runs


FORMS: dict[str, dict[str, Any]] = {
    "usual": {},
    "many steps": {"batch": 1, "steps": 200, "inner": 12, "cells": 16},
    "time first": {"batch": 4, "steps": 9, "time_first": True},
    "coupled gates": {"coupled": True},
    "peepholes": {"peepholes": True, "batch": 3},
    "peepholes of coupled gates": {"peepholes": True, "coupled": True, "missing": (9,)},
    "projection": {"units": 4},
    "projection without a bias": {"units": 9, "bias": False, "projection_clip": 0.5},
    "limits of cells": {"places": 9, "clip": 3.0},
    "cells below 1": {"places": 15, "weights": (0.01, 0.2)},
    "cells below 2": {"places": 14},
    "sums beyond 16 bits": {"weights": (0.01, 0.2), "steps": 40},
    "larger sums": {"weights": (0.2, 0.9), "places": 10},
    "states of a fine scale": {"scale": 1e-4, "places": 13},
    "states without a zero point": {"zero": 0},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(4))
def test_bytes(form: str, seed: int) -> None:
    options = {"batch": 1 + seed, "steps": 5, "inner": 7, **FORMS[form]}
    shape = [options["batch"], options["steps"], options["inner"]]
    if options.get("time_first"):
        shape[:2] = shape[1::-1]
    model = layer(I8, seed, **options)
    check_runs(model, runs_of(I8, tuple(shape), seed), 0.0)


RECORDS = {
    9: [
        [0, -14165, -12529, 15138, 10, 11, 22495, -24948],
        [24972, 0, 0, 0, 0, -6922, 0, 11],
        [-43, 90, -24948, -4074, 0, -13881, 4, 0],
    ],
    11: [
        [-16, 24146, 1286, 23, -16, 12673, 1487, 22],
        [-1403, 32284, -12, 192, -56, 28436, 0, 10422],
        [245, 32047, -13, 320, -1, -3064, 0, 176],
    ],
    12: [
        [-8, 14587, 65, -4688, 7, -6532, 9796, 332],
        [2, -240, -512, -18006, -2, -247, -944, 1869],
        [4128, 0, -2792, -3, -4105, -10377, -31719, -4606],
    ],
    15: [
        [11352, 1, 24233, 3298, -11556, -23456, 4207, 11752],
        [3190, -23960, 19890, 0, -1351, -23926, 5047, 5],
        [337, 11969, 7807, -7, -20541, 1, 0, -685],
    ],
}
"""The last step of three runs, as the kernels of tflite-micro compute it."""


def wide_layer(places: int, **options: Any) -> bytes:
    return layer(I16, places, batch=2, steps=6, inner=5, cells=4, places=places, **options)


@pytest.mark.parametrize("places", [9, 11, 12, 15])
def test_halfwords(places: int) -> None:
    """As in the records, and as in tflite-micro where it is installed."""
    weights, clip = ((0.05, 0.5), 3.0) if places == 9 else ((0.002, 0.02), 0.0)
    model = wide_layer(places, weights=weights, clip=clip)
    runs = runs_of(I16, (2, 6, 5), places)
    found = run_all(rx.load(model), runs)
    assert [array[:, -1].ravel().tolist() for array in found] == RECORDS[places]
    try:
        module = "tflite_micro.python.tflite_micro.runtime"
        interpreter = importlib.import_module(module).Interpreter.from_bytes(model)
    except ImportError:
        return
    for x, mine in zip(runs, found, strict=True):
        interpreter.set_input(x, 0)
        interpreter.invoke()
        np.testing.assert_array_equal(mine, interpreter.get_output(0))


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        (I8, {"places": 8}, "must be a power of 2"),
        (I8, {"missing": (1, 5, 12), "peepholes": True, "units": 4}, "cells and 4 units"),
        (I8, {"fusedActivationFunction": 1}, "without tanh"),
        (I16, {"coupled": True}, "coupled gates, peepholes or projection"),
        (I16, {"zero": 3}, "zero points"),
    ],
)
def test_other_forms_are_refused(kind: Any, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        rx.load(layer(kind, 1, **options))


def test_a_dynamic_batch_is_that_of_the_states() -> None:
    model = layer(I8, 1, batch=2, signature=(-1, 5, 7))
    with pytest.raises(rx.RelaxAotError, match="a batch as large as that of its states"):
        rx.load(model)  # 1, which no bound changes
    host = host_model(rx.compile(rx.load(model, bounds={"t0_0": (1, 4)}), board="host").built)
    (run,) = runs_of(I8, (2, 5, 7), count=1)
    right = run_all(rx.load(layer(I8, 1, batch=2)), [run])[0]
    np.testing.assert_array_equal(host(t0=run)["t1"], right)
    with pytest.raises(StatusError):
        host(t0=run[:1])


@pytest.mark.parametrize("kind", [I8, I16])
def test_a_dynamic_number_of_steps(kind: Any) -> None:
    """Also none, after which the state is what it was."""
    model = layer(kind, 3, batch=1, signature=(1, -1, 7))
    module = rx.load(model, bounds={"t0_1": (0, 9)})
    whole = runs_of(kind, (1, 9, 7), count=1)[0]
    parts = [whole[:, :4], whole[:, 4:4], whole[:, 4:5], whole[:, 5:]]
    (expected,) = run_all(module, [whole])
    np.testing.assert_array_equal(np.concatenate(run_all(module, parts), axis=1), expected)


def dynamic(kind: Any, board: str) -> tuple[Any, list[Array], list[Array]]:
    """A project for any number of steps, the inputs of some calls, and their results."""
    model = layer(kind, 3, batch=1, inner=18, cells=20, signature=(1, -1, 18))
    module = rx.load(model, bounds={"t0_1": (0, 9)})
    runs = [x[:, :count] for x, count in zip(runs_of(kind, (1, 9, 18)), (9, 1, 4), strict=True)]
    return rx.compile(module, board=board).built, runs, run_all(module, runs)


@pytest.mark.parametrize("kind", [I8, I16])
def test_the_c_keeps_states_from_call_to_call(kind: Any) -> None:
    project, runs, right = dynamic(kind, "host")
    host = host_model(project)
    for x, expected in zip(runs, right, strict=True):
        np.testing.assert_array_equal(host(t0=x)["t1"], expected)
    with pytest.raises(StatusError, match="RAOT_ERR_SIZE"):
        host(t0=np.zeros((1, 10, 18), kind))


@pytest.mark.qemu
@pytest.mark.parametrize("kind", [I8, I16])
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_boards_compute_the_same_bits(kind: Any, board: str) -> None:
    project, runs, right = dynamic(kind, board)
    found = emulate(project, [{"t0": x} for x in runs])
    for run, expected in zip(found, right, strict=True):
        np.testing.assert_array_equal(run.outputs["t1"], expected)


@pytest.mark.parametrize("board", ["nucleo-f072rb", "mps2-an385"])
def test_no_floats_are_computed(board: str, tmp_path: Path) -> None:
    """Cores without an FPU call no function of its library for floats."""
    project = rx.compile(rx.load(layer(I8, 3, batch=1)), board=board).built
    names = {function.name for function in Program(build_image(project, tmp_path).elf).functions}
    assert any("fixed_rescale" in name for name in names)
    assert not {name for name in names if name.startswith(("__aeabi_f", "__aeabi_d", "__aeabi_i2"))}


def test_products_and_gates_are_those_of_micro_kernels() -> None:
    model = layer(I8, 3, batch=1, inner=16, cells=16)
    built = rx.compile(rx.load(model), board="mps2-an386").built
    kernels = built.plan.module.kernels
    names = {s.kernel.name for k in kernels for s in walk(k.body) if isinstance(s, Micro)}
    gates = {"raot_fixed_sigmoid_s16", "raot_fixed_tanh_s16"}
    assert names >= {"raot_multiply_pair_row", "raot_multiply_pairs_1", *gates}
