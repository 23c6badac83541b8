# SPDX-License-Identifier: Apache-2.0
"""Defects put in on purpose: each is seen by a check, a status or a sanitizer.

Where a mutation changes nothing (an edge that another implies), it does not count; of those
that do change something, none may pass unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from relax_aot import driver, planning
from relax_aot.driver import Options
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Module, Symbol
from relax_aot.ir.types import DType, TensorType
from relax_aot.planning import Plan, Slot
from relax_aot.planning.check import PlanError, check
from relax_aot.planning.lifetimes import Lifetime, lifetimes
from relax_aot.project import Project
from relax_aot.project.board import load_board
from tests.planning.batch import Run, Stopped, run_all
from tests.planning.random_modules import random_inputs, random_module

ERR_SIZE, ERR_MISMATCH = -4, -5
SEEDS = range(6)


def compiled(module: Module, name: str) -> Project:
    return driver.compile_module(module, load_board("host"), Options(name=name))


def ladder() -> Module:
    """Matrices of unlike shapes that live across each other, so that slots stand in stacks."""
    b = FunctionBuilder()
    n, m = b.symbol(Symbol("n", 1, 9)), b.symbol(Symbol("m", 1, 7))
    given = b.param("x", TensorType(DType.F32, (n, m)))
    (x,) = b.call("softmax", given, axis=0, name="run")
    (turned,) = b.call("transpose", x, perm=(1, 0), name="turned")
    (square,) = b.call("matmul", x, turned, name="square")
    (small,) = b.call("matmul", turned, x, name="small")
    (chances,) = b.call("softmax", square, axis=-1, name="chances")
    (mixed,) = b.call("matmul", chances, x, name="mixed")
    (narrow,) = b.call("softmax", small, axis=-1, name="narrow")
    (both,) = b.call("matmul", mixed, narrow, name="both")
    (sum_,) = b.call("reduce", square, kind="sum", axes=(1,), keepdims=True, name="row")
    (result,) = b.call("matmul", sum_, b.constant("c", np.ones((1, 3), np.float32)), name="thin")
    return b.module((both, result))


def overlapping(plan: Plan, sizes: dict[str, int], steps: int = 1) -> bool:
    """Said once more, without the checker: two slots that live together for so many steps
    share a byte."""
    ends: dict[str, tuple[int, int]] = {}
    for slot in plan.slots:
        start = max((ends[name][1] for name in slot.below), default=0)
        ends[slot.var.name] = (start, start + slot.bytes.evaluate(sizes))

    def together(one: Slot, other: Slot) -> bool:
        a, b = one.lifetime, other.lifetime
        (low, top), (bottom, high) = ends[one.var.name], ends[other.var.name]
        in_time = min(a.stop, b.stop) - max(a.start, b.start) >= steps
        return in_time and max(low, bottom) < min(top, high)

    return any(together(a, b) for a, b in combinations(plan.slots, 2))


def highest(plan: Plan) -> dict[str, int]:
    return {s.name: s.high for s in plan.module.symbols}


def lost_edges(plan: Plan) -> Iterator[Plan]:
    """The plan without one slot in the `below` of another: one `max` has lost a part."""
    for index, slot in enumerate(plan.slots):
        for lost in slot.below:
            slots = list(plan.slots)
            slots[index] = replace(slot, below=tuple(u for u in slot.below if u != lost))
            yield replace(plan, slots=tuple(slots))


@pytest.mark.slow
@pytest.mark.parametrize("module", [ladder(), *(random_module(s).module for s in SEEDS)])
def test_a_plan_that_lost_a_max_is_refused(module: Module) -> None:
    plan = compiled(module, "m").plan
    check(plan)
    for broken in lost_edges(plan):
        if overlapping(broken, highest(plan)):
            with pytest.raises(PlanError, match="overlap"):
                check(broken)


def test_a_lifetime_that_ends_too_early_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker works out lifetimes itself, and compares with what the planner believed."""
    project = compiled(ladder(), "m")
    module = project.plan.module
    refused = []
    for slot in project.plan.slots:
        name = slot.var.name

        def shorter(*args: Any, name: str = name) -> dict[str, Lifetime]:
            lives = dict(lifetimes(*args))
            lives[name] = Lifetime(lives[name].start, lives[name].start + 1)
            return lives

        monkeypatch.setattr(planning, "lifetimes", shorter)
        try:
            planning.plan(module)
        except PlanError:
            refused.append(name)
    assert len(refused) >= 2, refused


def test_a_size_that_is_not_rounded_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = compiled(ladder(), "m").plan.module

    def unrounded(type_: TensorType, inner: dict[str, Dim], _bounds: Bounds, _to: int) -> Dim:
        return type_.bytes.substitute(inner)

    monkeypatch.setattr(planning, "slot_bytes", unrounded)
    with pytest.raises(PlanError, match="misaligned"):
        planning.plan(module)


def test_too_small_an_arena_is_refused() -> None:
    plan = compiled(ladder(), "m").plan
    with pytest.raises(PlanError, match="bytes are needed"):
        check(replace(plan, arenas=(replace(plan.arenas[0], bytes=plan.arena_bytes - 1),)))


# In the C


def changed(project: Project, path: str, text: str) -> Project:
    """The project with one file replaced."""
    assert text != project.files[path].decode()
    return replace(project, files=project.files | {path: text.encode()})


def ladder_expected(x: Any) -> dict[str, Any]:
    def softmax(a: Any, axis: int = -1) -> Any:
        powers = np.exp(a - a.max(axis, keepdims=True))
        return powers / powers.sum(axis, keepdims=True)

    x = softmax(x.astype(np.float64), axis=0)
    both = softmax(x @ x.T) @ x @ softmax(x.T @ x)
    return {"both": both, "thin": (x @ x.T).sum(1, keepdims=True) * np.ones((1, 3))}


def right(project: Project, sizes: dict[str, int]) -> bool:
    """The C computes what NumPy does, and no sanitizer says otherwise."""
    inputs = random_inputs(project.source_module, sizes, 3)
    try:
        (ran,) = run_all([Run(project, sizes, inputs)])
    except Stopped:
        return False
    wanted = ladder_expected(inputs["x"])
    return ran.status == 0 and all(
        np.allclose(ran.outputs[name], array, rtol=1e-4, atol=1e-4)
        for name, array in wanted.items()
    )


@pytest.mark.long
def test_c_without_one_max_of_an_offset_is_wrong() -> None:
    """Each `RAOT_MAX` between ends of slots, reduced to its lesser argument."""
    project = compiled(ladder(), "ladder")
    sizes = {"n": 9, "m": 7}
    assert right(project, sizes)
    header = project.files["ladder_layout.h"].decode()
    offsets = {s.var.name.upper(): s.offset + s.greatest_bytes for s in project.plan.slots}
    seen = 0
    for found in re.finditer(r"RAOT_MAX\(LADDER_END_(\w+),\s+LADDER_END_(\w+)\)", header):
        ends = {name: offsets[name] for name in found.groups()}
        if len(set(ends.values())) == 1 or "ARENA_BYTES" in header[: found.start()][-60:]:
            continue
        least = min(ends, key=lambda name: ends[name])
        text = header[: found.start()] + f"LADDER_END_{least}" + header[found.end() :]
        assert not right(changed(project, "ladder_layout.h", text), sizes), found[0]
        seen += 1
    assert seen >= 1


@pytest.mark.slow
def test_c_with_an_offset_of_zero_is_wrong() -> None:
    """Each slot put at the bottom, where another lives at the same time."""
    project = compiled(ladder(), "ladder")
    header, plan = project.files["ladder_layout.h"].decode(), project.plan
    seen = 0
    for index, slot in enumerate(plan.slots):
        slots = list(plan.slots)
        slots[index] = replace(slot, below=())
        if not overlapping(replace(plan, slots=tuple(slots)), highest(plan), steps=2):
            continue  # one step that reads the one and writes the other may do so in place
        macro = f"LADDER_OFFSET_{slot.var.name.upper()}"
        text = re.sub(rf"{macro} =[^;]*?,\n( +LADDER_END)", rf"{macro} = 0,\n\1", header)
        assert not right(changed(project, "ladder_layout.h", text), {"n": 9, "m": 7}), macro
        seen += 1
    assert seen >= 2


@pytest.mark.long
def test_c_without_the_check_of_a_bound_is_seen() -> None:
    """A size above its bound is refused; without the check it is not."""
    project = compiled(ladder(), "ladder")
    inputs = random_inputs(project.source_module, {"n": 10, "m": 7}, 0)
    run = Run(project, {"n": 10, "m": 7}, inputs)
    (ran,) = run_all([run])
    assert ran.status == ERR_SIZE
    source = project.files["ladder.c"].decode()
    check_ = "dims->n < 1 || dims->n > LADDER_N_MAX"
    assert check_ in source
    broken = changed(project, "ladder.c", source.replace(check_, "dims->n < 1"))
    (ran,) = run_all([replace(run, project=broken)])
    assert ran.status != ERR_SIZE


@pytest.mark.slow
def test_c_without_the_check_of_a_shape_is_seen() -> None:
    """Sizes that must agree are compared on entry; without that, the C reads too far."""
    b = FunctionBuilder()
    n, m = b.symbol(Symbol("n", 1, 40)), b.symbol(Symbol("m", 1, 40))
    x = b.param("x", TensorType(DType.F32, (Dim.of(1), n)))
    y = b.param("y", TensorType(DType.F32, (m, Dim.of(1))))
    (sum_,) = b.call("matmul", x, y, name="sum")
    project = compiled(b.module((sum_,)), "adder")
    sizes = {"n": 40, "m": 3}
    run = Run(project, sizes, random_inputs(project.source_module, sizes, 0))
    (ran,) = run_all([run])
    assert ran.status == ERR_MISMATCH
    source = project.files["adder.c"].decode()
    (check_,) = re.findall(r"if \((?:m != n|n != m)\)", source)
    broken = changed(project, "adder.c", source.replace(check_, "if (0)"))
    with pytest.raises(Stopped, match="heap-buffer-overflow"):
        run_all([replace(run, project=broken)])
