# SPDX-License-Identifier: Apache-2.0
"""States are updated where they lie where nothing reads the old value or fails afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.ir.graph import Module, State
from relax_aot.planning import Plan, check
from relax_aot.project.board import load_board
from tests.planning.random_modules import random_module

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """`step` gives the results of one call and the states after it."""

    text: str
    step: Callable[[Arrays], tuple[Arrays, Arrays]]
    staged: int
    """States that the plan copies at the end."""


def _sum(x: Arrays) -> tuple[Arrays, Arrays]:
    new = x["h"] + x["x"]
    return {"y": new * new}, {"h": new}


def _read_afterwards(x: Arrays) -> tuple[Arrays, Arrays]:
    new = x["x"][::-1].copy()
    return {"y": np.outer(new, x["h"])}, {"h": new}


def _exchanged(x: Arrays) -> tuple[Arrays, Arrays]:
    return {"y": x["x"]}, {"h": x["k"] + x["x"], "k": x["h"] * x["x"]}


def _twice(x: Arrays) -> tuple[Arrays, Arrays]:
    new = x["h"] + x["x"]
    return {"y": new[::-1]}, {"h": new, "k": x["k"] + x["x"][::-1]}


def _together(x: Arrays) -> tuple[Arrays, Arrays]:
    a, b = x["h"] + x["x"], x["k"] * x["x"]
    return {"y": x["x"]}, {"h": a + b, "k": a - b}


def _shifted(x: Arrays) -> tuple[Arrays, Arrays]:
    new = np.concatenate([x["h"][1:], x["x"][:1]])
    return {"y": new * np.float32(2)}, {"h": new}


HEAD = "symbol n in 1..9\nstate %h = %g\n"
CASES = {
    "sum": Case(
        HEAD + """func @main(%x: f32[n], %h: f32[n]) {
  %g: f32[n] = add(%h, %x)
  %y: f32[n] = mul(%g, %g)
  return %y, %g
}""",
        _sum, 0,
    ),
    "read afterwards": Case(
        HEAD + """func @main(%x: f32[n], %h: f32[n]) {
  %g: f32[n] = slice(%x) {starts=[n - 1], lengths=[n], axes=[0], steps=[-1]}
  %a: f32[n, 1] = reshape(%g) {shape=[n, 1]}
  %y: f32[n, n] = mul(%a, %h)
  return %y, %g
}""",
        _read_afterwards, 1,
    ),
    "exchanged": Case(
        HEAD + """state %k = %l
func @main(%x: f32[n], %h: f32[n], %k: f32[n]) {
  %g: f32[n] = add(%k, %x)
  %l: f32[n] = mul(%h, %x)
  %y: f32[n] = relu(%x)
  return %y, %g, %l
}""",
        _exchanged, 1,
    ),
    "twice": Case(
        HEAD + """state %k = %l
func @main(%x: f32[n], %h: f32[n], %k: f32[n]) {
  %g: f32[n] = add(%h, %x)
  %r: f32[n] = slice(%x) {starts=[n - 1], lengths=[n], axes=[0], steps=[-1]}
  %l: f32[n] = add(%k, %r)
  %y: f32[n] = slice(%g) {starts=[n - 1], lengths=[n], axes=[0], steps=[-1]}
  return %y, %g, %l
}""",
        _twice, 0,
    ),
    "two by one kernel": Case(
        HEAD + """state %k = %l
kernel @both(%x: f32[n], %h: f32[n], %k: f32[n]) -> (%g: f32[n], %l: f32[n]) {
  for i in 0..n {
    local a: f32 = (%h[i] + %x[i])
    local b: f32 = (%k[i] * %x[i])
    %g[i] = (a + b)
    %l[i] = (a - b)
  }
}
func @main(%x: f32[n], %h: f32[n], %k: f32[n]) {
  %g: f32[n], %l: f32[n] = call_kernel(%x, %h, %k) {kernel=@both}
  %y: f32[n] = relu(%x)
  return %y, %g, %l
}""",
        _together, 0,
    ),
    "shifted": Case(
        HEAD + """func @main(%x: f32[n], %h: f32[n]) {
  %a: f32[n - 1] = slice(%h) {starts=[1], lengths=[n - 1], axes=[0], steps=[1]}
  %b: f32[1] = slice(%x) {starts=[0], lengths=[1], axes=[0], steps=[1]}
  %g: f32[n] = concat(%a, %b) {axis=0}
  %y: f32[n] = add(%g, %g)
  return %y, %g
}""",
        _shifted, 0,
    ),
}  # fmt: skip


def compiled(text: str, *, stepwise: bool = False) -> rx.Project:
    return rx.compile(rx.parse(text), name="cell", stepwise=stepwise)


def plan_of(project: rx.Project) -> Plan:
    assert isinstance(project.plan, Plan)
    return project.plan


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stepwise", [False, True])
def test_calls_in_a_row_compute_what_numpy_does(name: str, stepwise: bool) -> None:
    case = CASES[name]
    project = compiled(case.text, stepwise=stepwise)
    host = project.host()
    rng = np.random.default_rng(1)
    for n in (1, 2, 5, 9):
        host.reset()
        states = {state.input: np.zeros(n, np.float32) for state in plan_of(project).module.states}
        for _ in range(4):
            x = {"x": np.abs(rng.normal(size=n)).astype(np.float32)}
            wanted, states = case.step({**x, **states})
            found = host(**x)
            np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_copies_are_those_that_are_needed(name: str) -> None:
    states = {state.output for state in plan_of(compiled(CASES[name].text)).module.states}
    staged = [c for c in plan_of(compiled(CASES[name].text)).commits if c.source in states]
    assert len(staged) == CASES[name].staged
    kept = plan_of(compiled(CASES[name].text, stepwise=True)).commits
    assert {commit.source for commit in kept} >= states


def test_a_failure_leaves_every_state_as_it_was() -> None:
    """The index is read after the sum in the text."""
    text = (
        HEAD
        + """func @main(%x: f32[n], %at: i32[1], %h: f32[n]) {
  %g: f32[n] = add(%h, %x)
  %y: f32[1] = gather(%g, %at) {axis=0}
  return %y, %g
}"""
    )
    project = compiled(text)
    host = project.host()
    ones = np.ones(4, np.float32)
    at = np.array([2], np.int32)
    assert host(x=ones, at=at)["y"] == [1]
    with pytest.raises(rx.RelaxAotError, match="INDEX"):
        host(x=ones, at=np.array([4], np.int32))
    assert host(x=ones, at=at)["y"] == [2]


def test_the_checker_finds_a_state_that_is_written_too_early() -> None:
    plan = plan_of(compiled(CASES["read afterwards"].text))
    assert plan.commits
    program = replace(plan.program, roots={**plan.program.roots, "g": "h"})
    with pytest.raises(check.PlanError):
        check.check(replace(plan, program=program, commits=()))


def with_states(module: Module) -> Module:
    """Each parameter that has the type of a result is the state that the result becomes."""
    results, states = list(module.main.results), []
    for parameter in module.main.params:
        fitting = (r for r in results if r.type == parameter.type and r.name != parameter.name)
        if (result := next(fitting, None)) is not None:
            results.remove(result)
            states.append(State(parameter.name, result.name))
    return replace(module, states=tuple(states))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(54, 66), pytest.param(range(600), marks=pytest.mark.long)])
def test_random_modules_with_states_have_plans_that_hold(seeds: range) -> None:
    """The checker looks at each plan while compiling; some state is updated in place."""
    kept = copied = 0
    for seed in seeds:
        module = with_states(random_module(seed).module)
        if module.states:
            plan = driver.compile_module(module, load_board("host"), driver.Options(name="m")).plan
            staged = {commit.source for commit in plan.commits}
            copied += sum(state.output in staged for state in module.states)
            kept += sum(state.output not in staged for state in module.states)
    assert kept and copied
