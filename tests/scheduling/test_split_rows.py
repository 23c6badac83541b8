# SPDX-License-Identifier: Apache-2.0
"""Rows that are split into integers for products with weights in groups: as exact as another order
of the sum, whatever the rows hold, and the C on a core has the bits of its meaning."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relax_aot import driver
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.fusion import fuse
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Micro, walk
from relax_aot.ir.parse import parse
from relax_aot.ir.types import DType
from relax_aot.lowering import lower
from relax_aot.scheduling import schedule
from relax_aot.scheduling.passes import fma
from relax_aot.scheduling.targets import all_targets
from relax_aot.verify.emulate import emulate

Floats = NDArray[np.float32]
DEPTH, COLUMNS = 150, 61
UNIT = 2.0**-24
TARGETS = {target.name: target for target in all_targets()}
KINDS = [(8, 32), (4, 32), (8, 128), (4, 96)]
"""Bits of the weights and steps of a group."""
BOARDS = {"mve": "mps3-an547", "dsp": "mps2-an386"}
"""Targets that split rows."""
CASES = [(*kind, "mve") for kind in KINDS] + [(8, 128, "dsp"), (4, 32, "dsp")]
each_target = pytest.mark.parametrize("target", BOARDS)


@cache
def constants(bits: int, group: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(bits + group)
    low = -(2 ** (bits - 1))
    w = rng.integers(low, -low, (DEPTH, COLUMNS)).astype(np.int8)
    w[7] = 0  # where some rows have their largest element
    scales = rng.uniform(0.01, 1, (-(-DEPTH // group), COLUMNS)).astype(np.float32)
    return {"w": w if bits == 8 else w.astype(DType.I4.numpy), "s": scales}


@cache
def module(bits: int, group: int) -> Module:
    groups = -(-DEPTH // group)
    text = f"""
    symbol n in 1..40
    const %w: i{bits}[{DEPTH}, {COLUMNS}] = splat 1
    const %s: f32[{groups}, {COLUMNS}] = splat 1.0
    func @main(%x: f32[n, {DEPTH}]) {{
      %y: f32[n, {COLUMNS}] = matmul_groups(%x, %w, %s) {{group={group}}}
      return %y
    }}"""
    made, data = parse(text), constants(bits, group)
    known = tuple(replace(one, data=data[one.name]) for one in made.constants)
    return replace(made, constants=known)


def interpreted(made: Module, x: Floats) -> Floats:
    (kernel,) = made.kernels
    (call,) = (call for call in made.main.body if call.op == "call_kernel")
    table = made.constant_table
    arrays = [table[v.name].data if v.name in table else x for v in call.inputs]
    with np.errstate(all="ignore"):
        found: Floats = run_kernel(kernel, arrays, {"n": len(x)})[0]
    return found


@cache
def plain(bits: int, group: int, target: str) -> Module:
    return fma.run(fuse(lower(module(bits, group))).module, TARGETS[target])


@cache
def split(
    bits: int, group: int, target: str, optimize: str = "speed", numerics: str = "blocked"
) -> Module:
    lowered = fuse(lower(module(bits, group))).module
    return schedule(lowered, TARGETS[target], optimize, numerics)


def splits(made: Module) -> bool:
    statements = (stmt for kernel in made.kernels for stmt in walk(kernel.body))
    return any(isinstance(s, Micro) and s.name.startswith("raot_split") for s in statements)


def finite_rows() -> Floats:
    """Rows of one size, and of many sizes next to each other."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(14, DEPTH))
    x[1, 7] = 1e9  # meets weights of 0
    x[2] *= 2.0 ** rng.integers(-40, 40, DEPTH)
    x[3] = np.abs(x[3]) * 1e-42  # subnormal
    x[4] *= 1e36
    x[5] = 0
    x[5, 40:] = -0.0
    x[6] = 2.0 - 2.0**-23  # rounds to 2 where there is no room for it
    x[7] = -2.0 + 2.0**-16
    x[8, 1:] *= 2.0**-10
    x[9, 1:] *= 2.0**-11.5
    x[10] = 2.0 ** rng.integers(-126, -90, DEPTH)
    x[11] = np.where(rng.random(DEPTH) < 0.5, x[11], 0)
    x[12] = np.exp(10 * x[12])
    x[13] = rng.integers(-9, 9, DEPTH)
    return x.astype(np.float32)


@pytest.mark.parametrize(("bits", "group", "target"), CASES)
def test_errors_are_those_of_another_order(bits: int, group: int, target: str) -> None:
    """Within what 32 roundings of a sum and one for each group may be, element by element."""
    x = finite_rows()
    data = constants(bits, group)
    scales = np.repeat(data["s"].astype(np.float64), group, axis=0)[:DEPTH]
    weights = data["w"].astype(np.float64) * scales
    wide = x.astype(np.float64)
    roundings = 32 + len(data["s"]) + 2
    allowed = roundings * UNIT * (np.abs(wide) @ np.abs(weights)) + DEPTH * 2.0**-149
    made = split(bits, group, target)
    assert splits(made)
    found = interpreted(made, x)
    fits = np.abs(wide) @ np.abs(weights) < 2.0**127
    assert fits.mean() > 0.9
    assert (np.abs(found - wide @ weights) <= allowed)[fits].all()


def test_usual_errors_are_smaller_than_those_of_the_loops() -> None:
    x = np.random.default_rng(0).normal(size=(9, DEPTH)).astype(np.float32)
    data = constants(8, 32)
    scales = np.repeat(data["s"].astype(np.float64), 32, axis=0)[:DEPTH]
    exact = x.astype(np.float64) @ (data["w"] * scales)
    ours, theirs = (np.abs(interpreted(made(8, 32, "mve"), x) - exact) for made in (split, plain))
    assert np.median(ours) < np.median(theirs)


@pytest.mark.parametrize(("bits", "group", "target"), CASES)
def test_rows_that_are_not_finite(bits: int, group: int, target: str) -> None:
    x = finite_rows()
    x[0, 3], x[1, 70], x[2, 5], x[3, 7] = np.nan, np.inf, -np.inf, np.inf  # w[7] is 0
    x[4] = x[13]  # sums of the largest numbers overflow in one order and not in another
    x[4, 33:35] = np.inf, -np.inf
    found, wanted = (interpreted(made(bits, group, target), x) for made in (split, plain))
    assert (np.isnan(found) == np.isnan(wanted)).all()
    assert (np.isinf(found) == np.isinf(wanted)).all()
    assert (found[np.isinf(wanted)] == wanted[np.isinf(wanted)]).all()


@each_target
def test_heads_are_columns(target: str) -> None:
    """Wherever their results go, with any number of rows and with one."""
    rng = np.random.default_rng(0)
    data: dict[str, NDArray[Any]] = {
        "w": rng.integers(-127, 128, (64, 60)).astype(np.int8),
        "s": rng.uniform(0.1, 1, (2, 60)).astype(np.float32),
    }
    x = rng.normal(size=(7, 64)).astype(np.float32)
    every, one = (
        interpreted(heads(size, data, target), rows) for size, rows in (("n", x), ("1", x[3:4]))
    )
    assert every[:, 3:4].tobytes() == one.tobytes()


def heads(size: str, data: dict[str, NDArray[Any]], target: str) -> Module:
    made = parse(f"""
    symbol n in 1..9
    const %w: i8[64, 60] = splat 1
    const %s: f32[2, 60] = splat 1.0
    func @main(%x: f32[{size}, 64]) {{
      %p: f32[{size}, 60] = matmul_groups(%x, %w, %s) {{group=32}}
      %r: f32[{size}, 12, 5] = reshape(%p) {{shape=[{size}, 12, 5]}}
      %y: f32[12, {size}, 5] = transpose(%r) {{perm=[1, 0, 2]}}
      return %y
    }}""")
    known = tuple(replace(constant, data=data[constant.name]) for constant in made.constants)
    scheduled = schedule(fuse(lower(replace(made, constants=known))).module, TARGETS[target])
    assert splits(scheduled)
    return scheduled


@each_target
def test_a_row_alone_has_the_same_bits(target: str) -> None:
    """Of a model for one row, which has no loop of rows."""
    x = finite_rows()
    made = module(8, 32)
    text = str(made).replace("symbol n in 1..40", "").replace("f32[n, ", "f32[1, ")
    alone = parse(text, constants=constants(8, 32))
    fixed = schedule(fuse(lower(alone)).module, TARGETS[target])
    assert splits(fixed)
    every = interpreted(split(8, 32, target), x)
    assert interpreted(fixed, x[2:3]).tobytes() == every[2:3].tobytes()


@pytest.mark.parametrize(
    ("optimize", "numerics"), [("size", "blocked"), ("memory", "blocked"), ("speed", "ordered")]
)
def test_other_options_keep_the_order_of_the_loops(optimize: str, numerics: str) -> None:
    made, x = split(8, 32, "mve", optimize, numerics), finite_rows()
    assert not splits(made)
    assert interpreted(made, x).tobytes() == interpreted(plain(8, 32, "mve"), x).tobytes()


SHORT = ((8, 32, "mve"), (4, 96, "mve"), (4, 96, "dsp"))
ON_BOARD = [
    pytest.param(*kind, target, marks=() if (*kind, target) in SHORT else pytest.mark.long)
    for kind in KINDS
    for target in BOARDS
]


@pytest.mark.qemu
@pytest.mark.parametrize(("bits", "group", "target"), ON_BOARD)
def test_c_has_the_bits_of_its_meaning(bits: int, group: int, target: str) -> None:
    """However many rows there are, with elements of every size."""
    options = driver.Options(name="m")
    project = driver.compile_model(module(bits, group), BOARDS[target], options)
    made = project.plan.module
    assert splits(made)
    x = finite_rows()
    if target == "mve":
        x = np.delete(x, 3, axis=0)  # vectors take subnormal numbers for 0
    x[0, 3], x[1, 70] = np.nan, np.inf
    wanted = interpreted(made, x)
    samples = [{"x": x}, {"x": x[1:2]}, {"x": x[9:12]}]
    for rows, run in zip((x, x[1:2], x[9:12]), emulate(project, samples), strict=True):
        assert run.status == 0
        expected = wanted if len(rows) == len(x) else interpreted(made, rows)
        assert np.array_equal(run.outputs["y"], expected, equal_nan=True)
    assert np.array_equal(interpreted(made, x[9:12]), wanted[9:12])
