# SPDX-License-Identifier: Apache-2.0
"""Growing states as the frontends mark them: the length, its bounds, and its capacity."""

from __future__ import annotations

import pytest

import relax_aot as rx
from relax_aot import lowering
from relax_aot.errors import RelaxAotError
from relax_aot.ir import check
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Growth, Module
from relax_aot.ops import deduce
from tests.end_to_end.growing_models import PROGRAMS, STATE, attention

M, S = Dim.of("m"), Dim.of("s")


def length(module: Module) -> tuple[int, int, Growth | None]:
    (symbol,) = (s for s in module.symbols if s.name == "m")
    return symbol.low, symbol.high, symbol.growth


@pytest.mark.parametrize("bound", [512, (0, 512), (1, 512)])
def test_the_bound_of_a_length_is_the_capacity(bound: int | tuple[int, int]) -> None:
    module = rx.load(attention(1), bounds={"m": bound}, state=STATE)
    assert length(module) == (0, 511, Growth(M + 1, 512))
    assert {state.length: state.axis for state in module.states} == {"m": 2}
    several = rx.load(attention("s"), bounds={"m": bound, "s": (3, 9)}, state=STATE)
    assert length(several) == (0, 509, Growth(M + S, 512))
    assert [(c.left, c.right) for c in several.conditions] == [(M + S, Dim.of(512))]


def test_a_capacity_and_steps_may_become_smaller() -> None:
    module = rx.load(attention("s"), bounds={"m": 512, "s": 9}, state=STATE)
    narrow = rx.load(module, bounds={"m": 100, "s": (4, 9)})
    assert length(narrow) == (0, 96, Growth(M + S, 100))
    assert [(c.left, c.right) for c in narrow.conditions] == [(M + S, Dim.of(100))]
    one = rx.load(attention("s"), bounds={"m": 8, "s": (1, 1)}, state=STATE)
    assert length(one) == (0, 7, Growth(M + 1, 8))
    with pytest.raises(RelaxAotError, match="can only be narrowed"):
        rx.load(module, bounds={"m": 513})


def test_a_loaded_module_may_get_growing_states() -> None:
    free = rx.load(attention(1), bounds={"m": (0, 64)})
    assert length(rx.load(free, state=STATE)) == (0, 63, Growth(M + 1, 64))
    with pytest.raises(RelaxAotError, match=r"m=0\.\.64: the module was loaded for 1\.\.64"):
        rx.load(rx.load(attention(1), bounds={"m": 64}), state=STATE)


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_every_stage_is_read_back(text: str) -> None:
    module = rx.parse(text)
    assert rx.parse(str(module)) == module
    lowered = lowering.lower(module)
    check.check(lowered, deduce)
    again = rx.parse(str(lowered))
    assert str(again) == str(lowered) and again.states == lowered.states
    assert str(lowering.lower(again)) == str(lowered)
    for state in lowered.states:
        (param,) = (v for v in lowered.main.params if v.name == state.input)
        assert param.type.shape[state.axis] == lowered.lengths[state.length].capacity


def test_a_lowered_program_keeps_its_capacity() -> None:
    lowered = lowering.lower(rx.parse(PROGRAMS["rows on the first axis"]))
    with pytest.raises(RelaxAotError, match="compiled for the capacity 24"):
        rx.parse(str(lowered), bounds={"m": 12})
