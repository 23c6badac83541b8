# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions as convolutions: integers with the bits of the references, floats within
the rounding of float64 results, at every size; what is left has no remainder in a loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot import fusion, lowering, planning, project, scheduling, transforms
from relax_aot.evaluation.reference import evaluate, sizes_shown
from relax_aot.externs import read_externs
from relax_aot.ir import check
from relax_aot.ir.dims import Mod
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, Micro, walk
from relax_aot.ops import deduce
from relax_aot.planning import order
from relax_aot.project.board import load_board
from relax_aot.scheduling.nest import without_lets
from relax_aot.scheduling.passes import phases
from relax_aot.scheduling.targets import all_targets
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import HostModel, host_model
from tests.frontends.tflite_models import Maker, truth

Array = NDArray[Any]
TARGETS = {target.name: target for target in all_targets() if target.strategies}
SIZES = ((1, 1, 1), (2, 6, 7), (1, 3, 4))


@dataclass(frozen=True)
class Subject:
    """Filters over one axis to three. `short`: sums are too short for micro-kernels somewhere."""

    channels: int
    filters: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    group: int = 1
    short: bool = False

    @property
    def attributes(self) -> dict[str, Any]:
        rank = len(self.kernel)
        return {
            "strides": self.strides, "pads": self.pads or (0,) * 2 * rank,
            "dilations": self.dilations or (1,) * rank,
            "output_padding": self.output_padding or (0,) * rank, "group": self.group,
        }  # fmt: skip

    def module(self, *, integer: bool) -> Module:
        """With random constants. Integers are rounded to bytes."""
        rank, attrs = len(self.kernel), self.attributes
        sizes = ("n", "m", "3")[:rank]
        results = ", ".join(
            f"({size} - 1)*{attrs['strides'][a]} + {(k - 1) * attrs['dilations'][a] + 1}"
            f" + {attrs['output_padding'][a] - attrs['pads'][a] - attrs['pads'][a + rank]}"
            for a, (size, k) in enumerate(zip(sizes, self.kernel, strict=True))
        )
        kernel, outputs = ", ".join(map(str, self.kernel)), self.filters * self.group
        kind, sums = ("i8", "i32") if integer else ("f32", "f32")
        x, y = f"b, {self.channels}, {', '.join(sizes)}", f"b, {outputs}, {results}"
        shown = ", ".join(f"{k}={list(v) if k != 'group' else v}" for k, v in attrs.items())
        if integer:
            body = f"""
              %s: i32[{y}] = conv_transpose_integer(%x, %w, %zero, _, %b) {{{shown}}}
              %y: i8[{y}] = requantize(%s, %scale, %to, %shift) {{to=i8, rounding="nearest"}}"""
        else:
            body = f"""
              %s: f32[{y}] = conv_transpose(%x, %w, %b) {{{shown}}}
              %y: f32[{y}] = relu(%s)"""
        text = f"""
            symbol b in 1..2
            symbol n in 1..6
            {"symbol m in 1..7" if rank > 1 else ""}
            const %w: {kind}[{self.channels}, {self.filters}, {kernel}] = splat 1
            const %b: {sums}[{outputs}] = splat 1
            const %zero: i8[] = [-3]
            const %to: i8[] = [5]
            const %scale: i32[{outputs}] = splat 1
            const %shift: i32[] = [40]
            func @main(%x: {kind}[{x}]) {{{body}
              return %y
            }}"""
        rng = np.random.default_rng(1)
        module, data = rx.parse(text), dict[str, Array]()
        data["w"] = rng.integers(-127, 128, (self.channels, self.filters, *self.kernel))
        data["b"] = rng.integers(-9000, 9000, outputs)
        data["scale"] = rng.integers(1 << 30, 1 << 31, outputs)
        data = data if integer else {"w": data["w"] / 100, "b": data["b"] / 9000}
        changed = (
            replace(c, data=data[c.var.name].astype(c.data.dtype)) if c.var.name in data else c
            for c in module.constants
        )
        return replace(module, constants=tuple(changed))

    def inputs(self, *, integer: bool) -> list[Array]:
        rng = np.random.default_rng(2)
        shapes = [(b, self.channels, *(n, m, 3)[: len(self.kernel)]) for b, n, m in SIZES]
        if integer:
            return [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
        return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


SUBJECTS = {
    "kernel of the stride": Subject(8, 6, (2, 2), (2, 2)),
    "overlapping": Subject(5, 4, (4, 4), (2, 2), (1, 1, 1, 1)),
    "uneven taps": Subject(8, 5, (3, 3), (2, 2), (1, 1, 1, 1), output_padding=(1, 1)),
    "uneven pads": Subject(4, 9, (5, 3), (2, 3), (2, 0, 1, 1)),
    "short kernel": Subject(7, 4, (2, 1), (3, 2), output_padding=(1, 1)),
    "stride 1": Subject(6, 4, (3, 3), (1, 1), (1, 0, 1, 2)),
    "dilated": Subject(5, 4, (3, 3), (3, 2), dilations=(2, 3)),
    "dilated by the stride": Subject(6, 4, (3, 2), (2, 4), dilations=(2, 6)),
    "groups": Subject(8, 3, (3, 4), (2, 2), (1, 1, 0, 1), group=2),
    "depthwise": Subject(6, 1, (4, 4), (2, 2), (1, 1, 1, 1), group=6, short=True),
    "line": Subject(8, 5, (8,), (4,), (2, 2)),
    "volume": Subject(4, 3, (2, 3, 2), (1, 2, 2), short=True),
}
FEW = ("uneven taps",)


def scheduled(original: Module, target: str) -> Module:
    module = fusion.fuse(lowering.lower(transforms.run(original))).module
    module = scheduling.schedule(module, TARGETS[target])
    check.check(module, deduce)
    assert remainders(module) == 0
    return module


def host(original: Module, module: Module) -> HostModel:
    plan = planning.plan(order.run(module))
    board, externs = load_board("host"), read_externs([], [])
    return host_model(project.assemble(original, plan, "m", board, externs))


def remainders(module: Module) -> int:
    """How many loops run over ends that a remainder decides."""
    bodies = (without_lets(kernel.body) for kernel in module.kernels)
    loops = [stmt for body in bodies for stmt in walk(body) if isinstance(stmt, For)]
    ends = [part for loop in loops for dim in (loop.start, loop.stop) for part in dim.parts]
    return sum(isinstance(atom, Mod) for part in ends for atom in part.atoms)


def cases() -> list[Any]:
    chosen = [("host", name) for name in FEW]
    return [
        pytest.param(name, target, marks=() if (target, name) in chosen else pytest.mark.slow)
        for name, target in product(SUBJECTS, TARGETS)
    ]


@pytest.mark.parametrize(("name", "target"), cases())
def test_integers_have_the_bits_of_the_references(name: str, target: str) -> None:
    subject = SUBJECTS[name]
    original = subject.module(integer=True)
    module = scheduled(original, target)
    tiled = any(isinstance(stmt, Micro) for k in module.kernels for stmt in walk(k.body))
    assert tiled or subject.short
    run = host(original, module)
    for x in subject.inputs(integer=True):
        expected = evaluate(original, {"x": x}, sizes_shown(original, {"x": x}))["y"]
        assert len(np.unique(expected)) > 3
        assert np.array_equal(run(x=x)["y"], expected), x.shape


@pytest.mark.parametrize(("name", "target"), cases())
def test_floats_are_close_to_sums_in_64_bits(name: str, target: str) -> None:
    subject = SUBJECTS[name]
    original = subject.module(integer=False)
    run = host(original, scheduled(original, target))
    for x in subject.inputs(integer=False):
        expected = evaluate(original, {"x": x}, sizes_shown(original, {"x": x}))["y"]
        np.testing.assert_allclose(run(x=x)["y"], expected, rtol=1e-5, atol=2e-5)


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize("integer", [True, False])
@pytest.mark.parametrize("board", ["nucleo-l4r5zi", "mps2-an386", "mps3-an547", "microbit"])
@pytest.mark.parametrize("name", ["overlapping", "uneven taps", "depthwise", "line"])
def test_boards(name: str, board: str, integer: bool) -> None:
    original = SUBJECTS[name].module(integer=integer)
    inputs = [{"x": x} for x in SUBJECTS[name].inputs(integer=integer)]
    runs = emulate(rx.compile(original, board=board).built, inputs)
    for given, run in zip(inputs, runs, strict=True):
        found = run.outputs
        expected = evaluate(original, given, sizes_shown(original, given))["y"]
        if integer:
            assert np.array_equal(found["y"], expected)
        else:
            np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=2e-5)


def test_convolutions_with_fewer_taps_use_the_scratch_of_those_with_more() -> None:
    (kernel,) = scheduled(SUBJECTS["uneven taps"].module(integer=True), "dsp").kernels
    assert sum(isinstance(stmt, For) for stmt in kernel.body) == 4
    names = [buffer.name.rstrip("_0123456789") for buffer in kernel.scratch]
    assert names
    assert len(set(names)) == len(names)


def test_many_residues_are_not_divided() -> None:
    """Code would grow with them."""
    original = Subject(4, 4, (9, 9), (8, 8)).module(integer=True)
    module = fusion.fuse(lowering.lower(transforms.run(original))).module
    assert phases.run(module, TARGETS["dsp"]) == module


@pytest.mark.qemu
def test_phases_of_one_position_are_columns_of_a_block() -> None:
    """Two images, of which a transposed convolution has one position in each phase."""
    rng, maker = np.random.default_rng(0), Maker()
    data, w = rng.integers(-128, 128, (2, 1, 1, 5)), rng.integers(-127, 128, (2, 4, 3, 5))
    x = maker.tensor(data.shape, np.int8, 0.05, 3)
    weights = maker.constant(w.astype(np.int8), [0.015, 0.012], 0)
    bias = maker.constant(np.array([800, -700], np.int32), [0.00075, 0.0006], 0)
    y = maker.tensor((2, 1, 2, 2), np.int8, 0.3, -4)
    sizes = maker.constant(np.array([2, 1, 2, 2], np.int32))
    options: dict[str, Any] = {"padding": 0, "strideH": 1, "strideW": 2}
    inputs = [sizes, weights, x, bias]
    maker.operator("TRANSPOSE_CONV", inputs, [y], "TransposeConvOptions", version=3, **options)
    model, given = maker.build([x], [y]), data.astype(np.int8)
    ((expected,),) = truth(model, [[given]])
    project = rx.compile(model, board="mps2-an386", bounds={"t0_0": (2, 2)})
    (run,) = emulate(project.built, [{"t0": given}])
    (found,) = run.outputs.values()
    np.testing.assert_array_equal(found, expected)
