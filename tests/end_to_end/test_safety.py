# SPDX-License-Identifier: Apache-2.0
"""Bad calls end with a status and touch nothing; memory is exactly what the figures say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from relax_aot.planning import check, plan
from relax_aot.verify.host import build_library
from relax_aot.verify.library import Library
from relax_aot.verify.program import to_bytes
from relax_aot.verify.samples import Case, cases_of
from tests.end_to_end.subjects import SUBJECTS, project_of

OK, ERR_ARENA, ERR_ALIGN, ERR_SIZE = 0, -2, -3, -4
SYMBOLIC = [name for name, subject in SUBJECTS.items() if subject.options.bounds]


def library_of(name: str) -> Library:
    return Library(build_library(project_of(name)))


def dims_of(name: str, case: Case) -> list[int]:
    return [case.sizes[f.symbol.name] for f in project_of(name).interface.dims]


def bytes_of(case: Case) -> list[np.ndarray]:
    return [to_bytes(array) for array in case.inputs]


def first_cases(name: str) -> list[Case]:
    return cases_of(project_of(name).interface, SUBJECTS[name].at, {})


@pytest.mark.parametrize("name", SYMBOLIC)
def test_sizes_outside_their_bounds_touch_nothing(name: str) -> None:
    library = library_of(name)
    case = first_cases(name)[0]
    good = dims_of(name, case)
    assert library.init(good) == OK
    for position, field in enumerate(project_of(name).interface.dims):
        for bad in (0, -1, field.symbol.high + 1, 2**31 - 1, -(2**31)):
            if field.symbol.low <= bad <= field.symbol.high:
                continue
            dims = list(good)
            dims[position] = bad
            result = library.run(dims, bytes_of(case), arena_bytes=library.arena_bytes)
            assert result.status == ERR_SIZE
            assert result.untouched and result.guards_ok


@pytest.mark.parametrize("name", SUBJECTS)
def test_arena_is_exact(name: str) -> None:
    """Runs with what it asks for, between guards, and is refused with one byte less."""
    library = library_of(name)
    for case in first_cases(name):
        dims = dims_of(name, case)
        need = library.arena_need(dims)
        assert need <= library.arena_bytes == project_of(name).plan.arena_bytes
        assert library.init(dims) == OK
        enough = library.run(dims, bytes_of(case), arena_bytes=need)
        assert (enough.status, enough.guards_ok) == (OK, True)
        if need:
            less = library.run(dims, bytes_of(case), arena_bytes=need - 1)
            assert less.status == ERR_ARENA
            assert less.untouched and less.guards_ok
            shifted = library.run(dims, bytes_of(case), arena_bytes=need, arena_shift=1)
            assert shifted.status == ERR_ALIGN
            assert shifted.guards_ok


@pytest.mark.parametrize("name", ["gesture", "small_encoder", "gru_tagger"])
def test_a_plan_with_a_lost_edge_is_refused(name: str) -> None:
    """The checker shares no code with the planner, and sees that slots now overlap."""
    good = project_of(name).plan
    check.check(good)
    broken = 0
    for index, slot in enumerate(good.slots):
        for lost in slot.below:
            below = tuple(u for u in slot.below if u != lost)
            slots = list(good.slots)
            slots[index] = replace(slot, below=below)
            try:
                check.check(replace(good, slots=tuple(slots)))
            except check.PlanError:
                broken += 1
    # Where another slot below is always higher, one edge alone changes no offset.
    assert broken > 0


def test_a_plan_with_too_small_an_arena_is_refused() -> None:
    good = project_of("gesture").plan
    with pytest.raises(check.PlanError):
        check.check(replace(good, arenas=(replace(good.arenas[0], bytes=good.arena_bytes - 1),)))
    assert plan(good.module).arena_bytes == good.arena_bytes
