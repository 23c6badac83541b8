# SPDX-License-Identifier: Apache-2.0
"""Integer contractions by micro-kernels: the bits of ONNX Runtime at every size, from the
portable form of the micro-kernels, whatever the target that they are scheduled for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from relax_aot import driver, fusion, lowering, planning, project, scheduling, transforms
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.externs import read_externs
from relax_aot.ir import check
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Micro, walk
from relax_aot.ir.parse import parse
from relax_aot.ir.text import to_text
from relax_aot.microkernels import all_micro_kernels
from relax_aot.ops import deduce
from relax_aot.planning import order
from relax_aot.project.board import load_board
from relax_aot.resources import data_dir
from relax_aot.scheduling.targets import all_targets
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import host_model
from tests.models.onnx_text import Array, model_of

TARGETS = {target.name: target for target in all_targets() if target.strategies}
SIZES = (1, 2, 3, 6, 9)


@dataclass(frozen=True)
class Subject:
    """A QLinearConv: shapes of x (n is symbolic) and of the weights, and its attributes; the
    result dequantized if that is asked for. `plain`: targets on which loops compute it; `least`:
    of the weights; `rare`: few weights are far from zero."""

    x: tuple[int | str, ...]
    w: tuple[int, ...]
    attributes: str = ""
    dtype: type = np.int8
    zeros: tuple[int, int, int] = (-3, 0, 7)
    dequantized: bool = False
    plain: tuple[str, ...] = ()
    least: int = -128
    rare: bool = False

    @property
    def is_depthwise(self) -> bool:
        return self.w[1] == 1 and "group" in self.attributes

    @property
    def weights(self) -> Array:
        # ONNX Runtime adds two products of unsigned bytes in 16 bits on some machines.
        far = 64 if self.dtype is np.uint8 else 128
        rng = np.random.default_rng(1)
        if not self.rare:
            return rng.integers(max(-far, self.least), far, self.w).astype(np.int8)
        found = rng.integers(-far // 2, far // 2, self.w).astype(np.int8)
        places = rng.choice(found.size, 5, replace=False)
        found.reshape(-1)[places] = -far if self.zeros[1] >= 0 else far - 1
        return found

    def model(self) -> onnx.ModelProto:
        rng = np.random.default_rng(0)
        kind = "uint8" if self.dtype is np.uint8 else "int8"
        x_zero, w_zero, y_zero = self.zeros
        single, byte = np.float32, self.dtype
        scales = () if w_zero else (self.w[0],)
        data: dict[str, Array] = {
            "xs": np.array(0.05, single),
            "xz": np.array(x_zero, byte),
            "w": self.weights,
            "ws": rng.uniform(0.001, 0.02, scales).astype(single),
            "wz": np.full(scales, w_zero, np.int8),
            "ys": np.array(0.3, single),
            "yz": np.array(y_zero, byte),
            "b": rng.integers(-9000, 9000, self.w[0]).astype(np.int32),
        }
        shape = ", ".join(map(str, self.x))
        out = ", ".join([str(self.x[0]), str(self.w[0]), *"hv"[: len(self.x) - 2]])
        result, last = (f"float[{out}]", "q") if self.dequantized else (f"{kind}[{out}]", "y")
        text = f"{last} = QLinearConv {self.attributes} (x, xs, xz, w, ws, wz, ys, yz, b)"
        if self.dequantized:
            text += "\n y = DequantizeLinear (q, ys, yz)"
        return model_of(f"m ({kind}[{shape}] x) => ({result} y)", text, data)

    def inputs(self) -> list[Array]:
        found: list[Array] = []
        for n in SIZES:
            shape = [n if size == "n" else int(size) for size in self.x]
            info = np.iinfo(self.dtype)
            rng = np.random.default_rng(n)
            found.append(rng.integers(info.min, info.max + 1, shape).astype(self.dtype))
        return found


ONES = "<pads = [1, 1, 1, 1]>"
FILTERED = {
    "filtered": Subject((1, 16, "n", 9), (18, 16, 3, 3), ONES),
    "filtered uneven": Subject((1, 12, "n", 8), (16, 12, 3, 3), "<pads = [1, 0, 2, 3]>"),
    "filtered unsigned": Subject(
        ("n", 16, 9, 10), (31, 16, 3, 3), "<pads = [2, 2, 1, 2]>", np.uint8, (131, 0, 120)
    ),
    "filtered wide": Subject((1, 32, 7, "n"), (24, 16, 3, 3), "<pads = [1, 9, 1, 9], group = 2>"),
    "filtered floats": Subject((1, 16, 6, "n"), (16, 16, 3, 3), ONES, dequantized=True),
}
"""Convolutions by F(2 x 2, 3 x 3) on cores with the DSP extension."""
SUBJECTS = FILTERED | {
    "pointwise": Subject((1, 8, "n", 5), (6, 8, 1, 1)),
    "odd pointwise": Subject((1, 7, "n", 3), (5, 7, 1, 1)),
    "several tiles": Subject((1, 4, "n", 17), (4, 4, 1, 1)),
    "wide pointwise": Subject((1, 9, 2, "n"), (140, 9, 1, 1)),
    "padded": Subject((1, 4, "n", 6), (4, 4, 3, 3), ONES),
    "several panels": Subject((1, 5, "n", 17), (18, 5, 3, 3), ONES),
    "three channels": Subject((1, 3, "n", "n"), (7, 3, 3, 3), ONES),
    "lines of one channel": Subject(("n", 1, 37), (6, 1, 9), "<strides = [4]>"),
    "one channel": Subject((1, 1, "n", 10), (8, 1, 10, 4), "<pads = [4, 1, 5, 1], strides=[2, 2]>"),
    "strided": Subject((1, 4, 9, "n"), (6, 4, 3, 3), "<pads = [1, 1, 1, 1], strides = [2, 2]>"),
    "dilated": Subject((1, 2, "n"), (4, 2, 3), "<pads = [4, 2], dilations = [3]>"),
    "strided dilated": Subject(
        (1, 3, "n", 9), (5, 3, 3, 3), "<pads = [2, 2, 2, 2], dilations = [2, 2], strides = [2, 2]>"
    ),
    "far padded": Subject(
        (1, 4, "n", 6), (4, 4, 2, 2), "<pads = [8, 8, 8, 8], dilations = [2, 2]>"
    ),
    "taps outside": Subject(
        (1, 1, 6, "n"),
        (4, 1, 7, 5),
        "<pads = [6, 4, 1, 4], dilations = [2, 2], strides = [2, 2]>",
    ),
    "grouped": Subject((1, 6, "n"), (8, 3, 4), "<pads = [2, 1], group = 2>"),
    "single filter": Subject((1, 7, "n", 6), (1, 7, 3, 3), ONES, plain=("dsp",)),
    "single unsigned filter": Subject(
        ("n", 21, 5), (1, 21, 1), "<strides = [2]>", np.uint8, (131, 0, 120), plain=("dsp",)
    ),
    "unsigned": Subject((1, 5, "n", 4), (6, 5, 3, 3), ONES, np.uint8, (131, 0, 120)),
    "dequantized": Subject((1, 8, "n", 5), (6, 8, 1, 1), dequantized=True),
    "depthwise": Subject((1, 4, "n", 7), (4, 1, 3, 3), "<pads = [1, 1, 1, 1], group = 4>"),
    "wide depthwise": Subject((1, 2, 5, "n"), (2, 1, 3, 3), "<group = 2, pads = [0, 2, 2, 1]>"),
    "strided depthwise": Subject(
        (1, 3, "n", 8),
        (3, 1, 3, 3),
        "<pads = [1, 0, 1, 1], group = 3, strides = [2, 2]>",
        np.uint8,
        (120, 0, 130),
    ),
    "tall depthwise": Subject((2, 2, 70, "n"), (2, 1, 3, 3), "<pads = [1, 1, 1, 1], group = 2>"),
    "depthwise line": Subject((2, 5, "n"), (5, 1, 5), "<pads = [2, 2], group = 5>"),
    "depthwise batch": Subject(("n", 3, 150), (3, 1, 4), "<pads = [3, 0], group = 3>"),
    "large depthwise": Subject((1, 3, 9, "n"), (3, 1, 7, 7), "<pads = [3, 3, 3, 3], group = 3>"),
    "dilated depthwise": Subject(
        (1, 2, 7, "n"),
        (2, 1, 3, 4),
        "<pads = [2, 3, 2, 3], dilations = [2, 2], group = 2>",
        np.uint8,
        (131, 0, 120),
    ),
    "flat depthwise": Subject(
        (1, 2, "n", 23), (2, 1, 1, 5), "<pads = [0, 2, 0, 2], strides = [1, 3], group = 2>"
    ),
    "upright depthwise": Subject(
        (1, 2, "n", 6), (2, 1, 5, 1), "<pads = [2, 0, 2, 0], strides = [2, 1], group = 2>"
    ),
    "far depthwise": Subject(
        (1, 2, "n"),
        (2, 1, 3),
        "<pads = [6, 6], dilations = [6], strides = [4], group = 2>",
        plain=("asimd", "host"),
    ),
    "two filters": Subject(
        (1, 3, 5, "n"), (6, 1, 3, 3), "<pads = [1, 1, 1, 1], strides = [2, 2], group = 3>"
    ),
    "three filters": Subject((1, 2, "n"), (6, 1, 4), "<pads = [1, 2], group = 2>"),
    "dequantized depthwise": Subject(
        (1, 2, "n", 6),
        (2, 1, 5, 5),
        "<pads = [2, 2, 2, 2], strides = [2, 2], group = 2>",
        dequantized=True,
        plain=("mve",),
    ),
}


def subject_of(name: str, target: str) -> Subject:
    """Cores with integer registers alone have loops for depthwise windows, for single filters, and
    where many weights are -128."""
    subject = SUBJECTS[name]
    if target != "scalar":
        return subject
    plain = (target,) if subject.is_depthwise or subject.w[0] == 1 else ()
    return replace(subject, plain=plain, least=-127)


def scheduled(model: onnx.ModelProto, target: str, optimize: str) -> Module:
    options = driver.Options(bounds={"n": (1, max(SIZES))})
    module = lowering.lower(transforms.run(driver.load(model, options)))
    return scheduling.schedule(fusion.fuse(module).module, TARGETS[target], optimize)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_bits_at_every_size(name: str, target: str) -> None:
    subject = subject_of(name, target)
    model = subject.model()
    module = scheduled(model, target, "speed")
    micro = any(isinstance(stmt, Micro) for k in module.kernels for stmt in walk(k.body))
    assert micro or target in subject.plain, name
    check.check(module, deduce)
    again = parse(to_text(module), {}, all_micro_kernels())
    assert to_text(again) == to_text(module)
    original = driver.load(model, driver.Options(bounds={"n": (1, max(SIZES))}))
    plan = planning.plan(order.run(module))
    built = project.assemble(original, plan, "m", load_board("host"), read_externs([], []))
    run = host_model(built)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for x in subject.inputs():
        (expected,) = session.run(None, {"x": x})
        assert np.array_equal(run(x=x)["y"], expected), x.shape


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "optimize"),
    [
        ("mps2-an386", "speed"),
        pytest.param("mps2-an386", "size", marks=pytest.mark.long),
        ("mps3-an547", "speed"),
    ],
)
@pytest.mark.parametrize("name", SUBJECTS)
def test_bits_on_the_core_itself(name: str, board: str, optimize: str) -> None:
    """The assembly and the intrinsics of the micro-kernels, every size in one program."""
    subject = SUBJECTS[name]
    model = subject.model()
    options = driver.Options(bounds={"n": (1, max(SIZES))}, optimize=optimize)
    samples = [{"x": x} for x in subject.inputs()]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    built = driver.compile_model(model, board, options)
    for sample, run in zip(samples, emulate(built, samples), strict=True):
        (expected,) = session.run(None, sample)
        assert run.status == 0
        assert np.array_equal(run.outputs["y"], expected), sample["x"].shape


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an385", "raspberry-pi-pico"])
@pytest.mark.parametrize("name", ["filtered unsigned", "several panels", "strided", "grouped"])
def test_bits_on_cores_without_smlad(name: str, board: str) -> None:
    subject = subject_of(name, "scalar")
    model = subject.model()
    samples = [{"x": x} for x in subject.inputs()]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    built = driver.compile_model(model, board, driver.Options(bounds={"n": (1, max(SIZES))}))
    assert b"raot_multiply_pairs_" in built.files[built.units[0]]
    for sample, run in zip(samples, emulate(built, samples), strict=True):
        (expected,) = session.run(None, sample)
        assert run.status == 0
        assert np.array_equal(run.outputs["y"], expected), sample["x"].shape


BEYOND = {
    "windows of three": Subject((1, 8, "n", 6), (6, 8, 3, 3), ONES, zeros=(-3, 3, 7)),
    "strided": Subject(
        (1, 10, 5, "n"), (5, 10, 3, 3), "<pads = [1, 1, 1, 1], strides = [2, 2]>", zeros=(5, -4, 0)
    ),
    "grouped": Subject((2, 48, "n"), (8, 24, 1), "<group = 2>", zeros=(0, -2, -3)),
    "unsigned": Subject(
        (1, 20, "n", 3), (5, 20, 2, 2), "<pads = [1, 0, 0, 1]>", np.uint8, (131, 66, 120)
    ),
    "of -128": Subject((1, 16, "n", 5), (12, 16, 1, 1)),
}
"""Some of their weights, less the zero point, are no signed bytes, or are -128."""


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an385", "raspberry-pi-pico"])
@pytest.mark.parametrize("name", BEYOND)
def test_weights_of_which_some_are_no_signed_bytes_stay_bytes(name: str, board: str) -> None:
    """Less their zero point."""
    subject = replace(BEYOND[name], rare=True)
    model = subject.model()
    weights = subject.weights.astype(np.int64) - subject.zeros[1]
    assert weights.min() <= -128 or weights.max() > 127
    built = driver.compile_model(model, board, driver.Options(bounds={"n": (1, max(SIZES))}))
    assert b"raot_multiply_pairs_" in built.files[built.units[0]]
    samples = [{"x": x} for x in subject.inputs()]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for sample, run in zip(samples, emulate(built, samples), strict=True):
        (expected,) = session.run(None, sample)
        assert run.status == 0
        assert np.array_equal(run.outputs["y"], expected), sample["x"].shape


BEYOND_ON_HELIUM = {
    "strided": BEYOND["strided"],
    "grouped": BEYOND["grouped"],
    "unsigned": BEYOND["unsigned"],
    "several panels": Subject((1, 7, "n", 17), (22, 7, 3, 3), ONES, zeros=(-3, 30, 7)),
    "pointwise": Subject((1, 21, "n", 5), (6, 21, 1, 1), zeros=(9, -77, 0), dequantized=True),
    "depthwise": Subject(
        (1, 4, "n", 7), (4, 1, 3, 3), "<pads = [1, 1, 1, 1], group = 4>", zeros=(-3, -20, 7)
    ),
    "strided depthwise": Subject(
        (1, 3, "n", 8), (3, 1, 3, 3), "<pads = [1, 0, 1, 1], group = 3, strides = [2, 2]>",
        np.uint8, (120, 99, 130),
    ),
    "depthwise that fits": Subject(
        (1, 6, 9, "n"), (6, 1, 7, 7), "<pads = [3, 3, 3, 3], group = 6>", least=-127,
        zeros=(-3, 1, 7),
    ),
}  # fmt: skip
"""Their windows are multiplied a second time, but for the last ones."""


@pytest.mark.qemu
@pytest.mark.parametrize("name", BEYOND_ON_HELIUM)
def test_weights_beyond_signed_bytes_stay_bytes_on_helium(name: str) -> None:
    subject = BEYOND_ON_HELIUM[name]
    fits = subject.zeros[1] == 1
    weights = subject.weights.astype(np.int64) - subject.zeros[1]
    assert fits == (weights.min() >= -128 and weights.max() <= 127)
    model = subject.model()
    built = driver.compile_model(model, "mps3-an547", driver.Options(bounds={"n": (1, max(SIZES))}))
    text = built.files[built.units[0]]
    second = b"raot_add_sums(" if subject.is_depthwise else b"raot_add_windows_nhwc_s8("
    first = b"raot_depthwise_" if subject.is_depthwise else b"raot_multiply_nhwc_s8("
    assert first in text
    assert (second in text) != fits
    samples = [{"x": x} for x in subject.inputs()]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for sample, run in zip(samples, emulate(built, samples), strict=True):
        (expected,) = session.run(None, sample)
        assert run.status == 0
        assert np.array_equal(run.outputs["y"], expected), sample["x"].shape


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an385", "raspberry-pi-pico"])
def test_one_row_by_weights_of_which_some_are_no_signed_bytes(board: str) -> None:
    rng = np.random.default_rng(0)
    w = rng.integers(0, 256, (61, 10)).astype(np.uint8)
    data = {"w": w, "wz": np.array(125, np.uint8), "xz": np.array(3, np.uint8)}
    text = "y = MatMulInteger (x, w, xz, wz)"
    model = model_of("m (uint8[1, 61] x) => (int32[1, 10] y)", text, data)
    built = driver.compile_model(model, board, driver.Options())
    assert b"raot_multiply_pair_row" in built.files[built.units[0]]
    x = rng.integers(0, 256, (1, 61)).astype(np.uint8)
    (run,) = emulate(built, [{"x": x}])
    assert run.status == 0
    wanted = (x.astype(np.int64) - 3) @ (w.astype(np.int64) - 125)
    assert np.array_equal(run.outputs["y"], wanted)


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "most"), [("mps2-an385", 3.3), ("raspberry-pi-pico", 7.2)])
def test_products_take_few_instructions_without_smlad(board: str, most: float) -> None:
    """For each multiply-add, with what surrounds them."""
    subject = Subject((1, 32, "n", 9), (32, 32, 3, 3), ONES, least=-127)
    options = driver.Options(bounds={"n": (1, max(SIZES))})
    built = driver.compile_model(subject.model(), board, options)
    (run,) = emulate(built, [{"x": subject.inputs()[-1]}])
    assert run.instructions is not None
    assert run.instructions < most * 32 * 32 * 9 * 9 * 9


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("weights", "attributes", "most"),
    [
        ((8, 1, 7, 7), "<pads = [3, 3, 3, 3], group = 8>", 2.2),
        ((8, 1, 5, 5), "<pads = [4, 4, 4, 4], dilations = [2, 2], group = 8>", 3.2),
        ((16, 1, 3, 3), "<pads = [1, 1, 1, 1], group = 8>", 5.5),
    ],
)
def test_windows_of_a_channel_take_few_instructions_on_cortex_m4(
    weights: tuple[int, ...], attributes: str, most: float
) -> None:
    """For each multiply-add, with what surrounds them."""
    subject = Subject((1, 8, 22, "n"), weights, attributes)
    options = driver.Options(bounds={"n": (1, max(SIZES))})
    built = driver.compile_model(subject.model(), "mps2-an386", options)
    x = subject.inputs()[-1]
    (run,) = emulate(built, [{"x": x}])
    results = weights[0] * x.shape[2] * x.shape[3]
    assert run.instructions is not None
    assert run.instructions < most * results * weights[2] * weights[3]


@pytest.mark.qemu
def test_a_single_filter_takes_few_instructions_on_helium() -> None:
    subject = Subject((1, 16, "n", 9), (1, 16, 3, 3), ONES)
    options = driver.Options(bounds={"n": (1, max(SIZES))})
    built = driver.compile_model(subject.model(), "mps3-an547", options)
    (run,) = emulate(built, [{"x": subject.inputs()[-1]}])
    assert run.instructions is not None
    assert run.instructions < 1.6 * 16 * 9 * 9 * 9


@pytest.mark.qemu
def test_two_filters_of_a_channel_take_few_instructions_on_helium() -> None:
    subject = Subject((1, 8, 9, "n"), (16, 1, 3, 3), "<pads = [1, 1, 1, 1], group = 8>")
    options = driver.Options(bounds={"n": (1, max(SIZES))})
    built = driver.compile_model(subject.model(), "mps3-an547", options)
    (run,) = emulate(built, [{"x": subject.inputs()[-1]}])
    assert run.instructions is not None
    assert run.instructions < 1.6 * 16 * 9 * 9 * 9


@pytest.mark.parametrize("name", FILTERED)
def test_windows_of_many_channels_have_few_products(name: str) -> None:
    module = scheduled(FILTERED[name].model(), "dsp", "speed")
    found = {s.name for k in module.kernels for s in walk(k.body) if isinstance(s, Micro)}
    assert "raot_winograd_multiply" in found


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_outside_is_touched(name: str, target: str) -> None:
    """The interpreter stops at each access outside a buffer, and at results left unwritten."""
    subject = subject_of(name, target)
    model = subject.model()
    module = scheduled(model, target, "speed")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (call,) = (c for c in module.main.body if c.op == "call_kernel")
    kernel = next(k for k in module.kernels if k.name == call.ref("kernel"))
    table = module.constant_table
    for n, x in zip(SIZES, subject.inputs(), strict=True):
        data = [x if v.name == "x" else table[v.name].data for v in call.inputs]
        (found,) = run_kernel(kernel, data, {"n": n})
        (expected,) = session.run(None, {"x": x})
        assert np.array_equal(found, expected)


def test_kernels_keep_little_scratch_where_the_board_has_no_room(tmp_path: Path) -> None:
    model = Subject((1, 16, "n", 9), (16, 16, 3, 3), ONES, least=-127).model()
    text = (data_dir("boards") / "nucleo-g071rb.toml").read_text(encoding="utf-8")
    ports = 2 * 16 * 9 * 9

    def arena_with(room: int) -> int:
        made = tmp_path / "made.toml"
        made.write_text(text.replace('"36K"', str(2048 + ports + room)), encoding="utf-8")
        options = driver.Options(bounds={"n": (1, 9)})
        return driver.compile_model(model, str(made), options).arena_bytes

    fast = arena_with(32768)
    assert arena_with(-(-fast // 32) * 32) == fast
    assert arena_with((fast - 1) // 32 * 32) < fast


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board", ["mps2-an386", pytest.param("mps3-an547", marks=pytest.mark.slow)]
)
def test_memory_takes_the_smallest_arena(board: str) -> None:
    subject = Subject((1, 16, "n", 9), (16, 16, 3, 3), ONES, np.uint8, (131, 0, 120))
    model = subject.model()
    projects = {
        optimize: driver.compile_model(
            model, board, driver.Options(bounds={"n": (1, 9)}, optimize=optimize)
        )
        for optimize in driver.OPTIMIZE
    }
    arenas = {name: project.arena_bytes for name, project in projects.items()}
    assert arenas["memory"] < arenas["speed"] and arenas["memory"] <= arenas["size"]
    (x,) = subject.inputs()[-1:]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (run,) = emulate(projects["memory"], [{"x": x}])
    assert np.array_equal(run.outputs["y"], session.run(None, {"x": x})[0])
