# SPDX-License-Identifier: Apache-2.0
"""Random modules with random symbolic sizes: plans hold, and the C computes what NumPy does.

The compiler's own checker looks at each plan while compiling. The C runs under ASan and UBSan
with an arena that begins as NaN; its results are compared with functions of arrays that stand
next to the generator and share nothing with the ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.inference.branches import conditional
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition, Module, Symbol
from relax_aot.ir.types import DType, TensorType
from relax_aot.planning import check
from relax_aot.project import Project
from relax_aot.project.board import load_board
from tests.planning.batch import Ran, Run, run_all
from tests.planning.random_modules import (
    Arrays,
    RandomModule,
    Sizes,
    finished,
    maker,
    padded,
    random_inputs,
    random_module,
    random_sizes,
    sliced,
)

PER_LIBRARY = 10
GATE, RAISED, LONG = 6, 3, 2000
SIZES = 4
BOARDS = ("host", "mps2-an386", "mps3-an547", "aarch64-linux")
MORE = (1, 2, 4, 9, 30)
"""What highs are raised by."""
RAISED_BY_9 = 8
"""A number of a module that is compiled for the host, with such a raise."""


def compiled(
    seed: int, made: RandomModule, board: str = "host", optimize: str = "speed"
) -> Project:
    options = Options(name=f"m{seed}", optimize=optimize)
    return driver.compile_module(made.module, load_board(board), options)


def verify(modules: Mapping[int, RandomModule]) -> None:
    """At sizes within the bounds."""
    projects = {seed: compiled(seed, made) for seed, made in modules.items()}
    runs = []
    for seed, made in modules.items():
        check.check(projects[seed].plan)
        for number, sizes in enumerate(random_sizes(made.module, Random(seed), SIZES)):
            runs.append(Run(projects[seed], sizes, random_inputs(made.module, sizes, number)))
    for run, ran in zip(runs, run_all(runs), strict=True):
        assert ran.arena_bytes <= run.project.plan.arena_bytes, (where(run), ran.arena_bytes)
        compare(run, ran, modules[number_of(run)])


def verify_raised(modules: Mapping[int, RandomModule]) -> None:
    """Bounds are raised when the C is compiled, where the header allows it; code for boards
    runs on the host, by the C that micro-kernels have in addition to their intrinsics."""
    runs = []
    for seed, made in modules.items():
        kind = driver.OPTIMIZE[seed % len(driver.OPTIMIZE)]
        project = compiled(seed, made, BOARDS[seed % len(BOARDS)], kind)
        module = raised(made.module, seed, project.plan.module.conditions)
        highs = {symbol.name: symbol.high for symbol in module.symbols}
        macros = tuple((f.macro, highs[f.symbol.name]) for f in project.interface.dims)
        for number, sizes in enumerate(random_sizes(module, Random(seed), SIZES)):
            if accepted(module, sizes):
                inputs = random_inputs(module, sizes, number)
                runs.append(Run(project, sizes, inputs, macros))
    for run, ran in zip(runs, run_all(runs), strict=True):
        compare(run, ran, modules[number_of(run)])


def raised(module: Module, seed: int, conditions: Sequence[Condition]) -> Module:
    """The module with higher bounds, as far as the conditions allow."""
    more = MORE[seed % len(MORE)]
    symbols = [
        s if s.inner else replace(s, high=min(s.high + more, made_for(conditions, s)))
        for s in module.symbols
    ]
    return replace(module, symbols=tuple(symbols))


def made_for(conditions: Sequence[Condition], symbol: Symbol) -> int:
    """The highest bound that the code says it is right for."""
    limits = [
        c.right.constant
        for c in conditions
        if c.relation == "<=" and c.left == Dim.of(symbol.name) and c.right.is_constant
    ]
    return min(limits, default=2**31 - 1)


def holds(condition: Condition, sizes: Sizes) -> bool:
    left, right = condition.left.evaluate(sizes), condition.right.evaluate(sizes)
    return left == right if condition.relation == "==" else left <= right


def accepted(module: Module, sizes: Sizes) -> bool:
    extents = [size.evaluate(sizes) for var in module.main.params for size in var.type.shape]
    return min(extents, default=0) >= 0 and all(holds(c, sizes) for c in module.conditions)


def number_of(run: Run) -> int:
    return int(run.project.name[1:])


def where(run: Run) -> str:
    return f"{run.project.name} at {dict(run.sizes)}"


def compare(run: Run, ran: Ran, made: RandomModule) -> None:
    wanted = made.meaning(dict(run.inputs), run.sizes)
    assert ran.status == 0, (where(run), ran.status)
    assert set(ran.outputs) == set(wanted), (where(run), set(ran.outputs))
    for name, array in wanted.items():
        ours = ran.outputs[name]
        assert ours.shape == array.shape, (where(run), name)
        np.testing.assert_allclose(
            ours, array, rtol=1e-4, atol=1e-4, err_msg=f"{where(run)}: {name}"
        )


def groups(start: int, count: int) -> list[range]:
    stop = start + count
    return [
        range(first, min(first + PER_LIBRARY, stop)) for first in range(start, stop, PER_LIBRARY)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", groups(0, GATE), ids=str)
def test_c_equals_numpy(seeds: range) -> None:
    verify({seed: random_module(seed) for seed in seeds})


@pytest.mark.parametrize("seeds", groups(3008, RAISED), ids=str)
@pytest.mark.long
def test_bounds_may_be_raised(seeds: range) -> None:
    verify_raised({seed: random_module(seed) for seed in seeds})


@pytest.mark.parametrize("seed", (383, 1162, 1403, 1723, 1964, 1997))
def test_sizes_are_those_of_arrays_where_bounds_are_raised(seed: int) -> None:
    """Modules whose paddings cut, or whose slices assume the bounds, once these are raised."""
    made = random_module(seed)
    module = raised(made.module, seed, made.module.conditions)
    drawn = [
        sizes for sizes in random_sizes(module, Random(seed), SIZES) if accepted(module, sizes)
    ]
    assert drawn
    for number, sizes in enumerate(drawn):  # compares the sizes of each value
        made.meaning(random_inputs(module, sizes, number), sizes)


def test_a_padding_whose_width_a_raised_bound_makes_negative_cuts() -> None:
    """`3 - n` more rows: none are added and some are cut where n is greater than 3."""
    m = maker(Symbol("n", 1, 3))
    n = Dim.of("n")
    x = m.parameter((n + 2, n))
    behind = padded(m, x, 0, (Dim.of(0), 3 - n), "constant")
    before = padded(m, x, 0, (3 - n, Dim.of(1)), "edge")
    verify_raised({RAISED_BY_9: finished(m, [behind, before])})


def test_a_slice_from_an_index_whose_sign_follows_from_a_bound_says_so() -> None:
    """`n - 4` counts from the end where n is at most 3, and from the start above."""
    m = maker(Symbol("n", 1, 3))
    n = Dim.of("n")
    part = sliced(m, m.parameter((n + 4, Dim.of(2))), 0, (n - 4, None), 1)
    made = finished(m, [part])
    assert not accepted(made.module, {"n": 4})
    verify_raised({RAISED_BY_9: made})


def test_a_branch_may_read_a_result_that_is_a_view() -> None:
    """The view of a parameter is copied into the result's buffer at the end, not before."""
    builder = FunctionBuilder()
    n = builder.symbol(Symbol("n", 1, 5))
    x = builder.param("x", TensorType(DType.F32, (n, Dim.of(2))))
    flag = builder.param("flag", TensorType(DType.BOOL, ()))
    (view,) = builder.call("reshape", x, shape=(n * 2,), name="view")
    sides = [builder.branch(side) for side in ("yes", "no")]
    (a,), (b,) = sides[0].call("neg", view, name="a"), sides[1].call("abs", view, name="b")
    (chosen,) = conditional(builder, flag, (sides[0], sides[1]), ((a,), (b,)), ["chosen"], "if")

    def meaning(inputs: Arrays, sizes: Sizes) -> Arrays:
        flat = inputs["x"].reshape(-1)
        return {"view": flat, "chosen": -flat if inputs["flag"] else np.abs(flat)}

    verify({0: RandomModule(builder.module((view, chosen)), meaning)})


def test_a_branch_may_read_a_value_that_a_pass_replaced() -> None:
    """The second reshape changes nothing and goes; the branches still name it."""
    builder = FunctionBuilder()
    n = builder.symbol(Symbol("n", 1, 5))
    x = builder.param("x", TensorType(DType.F32, (n, n)))
    flag = builder.param("flag", TensorType(DType.BOOL, ()))
    (flat,) = builder.call("reshape", x, shape=(n * n,))
    (same,) = builder.call("reshape", flat, shape=(n * n,))
    sides = [builder.branch(side) for side in ("yes", "no")]
    (a,), (b,) = sides[0].call("neg", same, name="a"), sides[1].call("abs", same, name="b")
    (chosen,) = conditional(builder, flag, (sides[0], sides[1]), ((a,), (b,)), ["chosen"], "if")

    def meaning(inputs: Arrays, sizes: Sizes) -> Arrays:
        values = inputs["x"].reshape(-1)
        return {"chosen": -values if inputs["flag"] else np.abs(values)}

    verify({0: RandomModule(builder.module((chosen,)), meaning)})


def test_a_value_without_elements_has_any_shape() -> None:
    builder = FunctionBuilder()
    n = builder.symbol(Symbol("n", 1, 5))
    x = builder.param("x", TensorType(DType.F32, (n, n)))
    (none,) = builder.call("slice", x, starts=(0,), lengths=(0,), axes=(1,), steps=(1,))
    (view,) = builder.call("reshape", none, shape=(0,))
    (wide,) = builder.call("expand", view, shape=(n, 0))
    (result,) = builder.call("reshape", wide, shape=(0,), name="result")

    def meaning(inputs: Arrays, sizes: Sizes) -> Arrays:
        return {result.name: np.zeros(0)}

    verify({0: RandomModule(builder.module(builder.own_results([result])), meaning)})


def test_a_size_that_no_byte_depends_on_is_told_all_the_same() -> None:
    """A result without elements, whose other size the condition decides."""
    builder = FunctionBuilder()
    n = builder.symbol(Symbol("n", 1, 5))
    x = builder.param("x", TensorType(DType.F32, (n, n)))
    flag = builder.param("flag", TensorType(DType.BOOL, ()))
    (none,) = builder.call("slice", x, starts=(0,), lengths=(0,), axes=(0,), steps=(1,))
    sides = [builder.branch(side) for side in ("yes", "no")]
    (a,), (b,) = sides[0].call("concat", none, none, axis=1), sides[1].call("abs", none)
    (chosen,) = conditional(builder, flag, (sides[0], sides[1]), ((a,), (b,)), ["chosen"], "if")

    def meaning(inputs: Arrays, sizes: Sizes) -> Arrays:
        return {"chosen": np.zeros((0, sizes["n"] * (2 if inputs["flag"] else 1)))}

    verify({0: RandomModule(builder.module((chosen,)), meaning)})


@pytest.mark.long
@pytest.mark.parametrize("seeds", groups(GATE, LONG), ids=str)
def test_c_equals_numpy_at_length(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAX_AOT_CACHE", str(tmp_path))
    modules = {seed: random_module(seed) for seed in seeds}
    verify(modules)
    verify_raised(modules)
