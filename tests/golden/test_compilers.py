# SPDX-License-Identifier: Apache-2.0
"""Clang needs at most a quarter more instructions than GCC for integer models, with board flags.

A change of the C can cost nothing with one compiler and much with another: only constants that a
compiler sees at a call make its kernels short.
"""

from __future__ import annotations

from functools import partial

import pytest

from relax_aot.project import Project
from relax_aot.project.board import Board
from relax_aot.toolchain import build
from relax_aot.toolchain.compilers import CrossCompiler
from relax_aot.verify.emulate import emulate_cases
from relax_aot.verify.samples import cases_of
from tests.golden.subjects import project_of
from tests.golden.test_golden import highest
from tests.trust.build_matrix import Cell, available
from tests.trust.run_matrix import tools

MOST = 1.25
SUBJECTS = {"int8_m4": "M4", "int8_m55": "M55"}


def _given(compiler: CrossCompiler, _: Board) -> CrossCompiler:
    return compiler


def instructions(name: str, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> int:
    project = project_of(name)
    assert isinstance(project, Project)
    cases = cases_of(project.interface, [highest(project.interface)], {})
    monkeypatch.setattr(build, "cross_compiler", partial(_given, tools(cell)))
    (result,) = emulate_cases(project, cases)
    assert result.status == 0 and result.instructions is not None
    return result.instructions


@pytest.mark.qemu
@pytest.mark.parametrize("name", SUBJECTS)
def test_clang_is_near_gcc(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {one: Cell(SUBJECTS[name], one, "-O2", "none") for one in ("gcc", "clang")}
    absent = [reason for cell in cells.values() if (reason := available(cell))]
    if absent:
        pytest.skip(absent[0])
    counts = {one: instructions(name, cell, monkeypatch) for one, cell in cells.items()}
    assert counts["clang"] <= MOST * counts["gcc"], counts
