# SPDX-License-Identifier: Apache-2.0
"""Generated C builds without a warning, and computes the same, with the compilers and flags that
people have.

The whole matrix of tests/trust/build_matrix.py is long; the gate takes a sample, another one of
every kind of value. Programs run for a covering array: every pair of values of two axes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from relax_aot.ir.loops import Micro, Multiply, walk
from relax_aot.microkernels import all_micro_kernels
from relax_aot.resources import data_dir
from tests.models.every_kernel import SUBJECTS
from tests.trust import build_matrix, run_matrix
from tests.trust.build_matrix import (
    BOARDS,
    COMPILERS,
    EXTRAS,
    LEVELS,
    Cell,
    available,
    cells,
    covering,
    excluded,
    models_of,
    project,
)

RUN = covering([cell for cell in cells() if not build_matrix.runs(cell)])
SAMPLE = (
    Cell("M4", "gcc", "-O0", "frame pointer"),
    Cell("M3", "clang", "-O2", "none"),
    Cell("M4", "clang", "-O2", "none"),
    Cell("M7", "zig", "-Os", "short enums"),
    Cell("M33", "gcc", "-O1", "fixed r9"),
    Cell("M33", "clang", "-O0", "none"),
    Cell("M55", "gcc", "-O3", "frame pointer"),
    Cell("M55", "clang", "-Os", "none"),
    Cell("M0", "gcc", "-Og", "position independent"),
    Cell("host", "clang", "-O3", "undefined"),
)
SAMPLED = ("dense", "planes", "weights")
RAN = (Cell("M55", "clang", "-O2", "none"), Cell("M4", "gcc", "-O0", "fixed r9"))


def need(cell: Cell) -> None:
    missing = available(cell)
    if missing:
        pytest.skip(missing)


def check(cells_: Iterable[Cell], models: Iterable[str], folder: Path) -> None:
    """Prints how many builds there were, so that a green test says what it looked at."""
    names = tuple(models)
    built = [one for cell in cells_ for one in build_matrix.build(cell, names, folder)]
    bad = [one for one in built if one.said]
    cached = sum(one.cached for one in built)
    sys.stdout.write(f"{len(built)} builds, {len(bad)} failed or warned, {cached} known\n")
    shown = [f"{one.cell} {one.model}\n{one.command}\n{one.said[:1500]}" for one in bad[:5]]
    assert not bad, f"{len(bad)} of {len(built)}:\n" + "\n\n".join(shown)


@pytest.mark.slow
def test_a_sample_builds_without_a_warning(tmp_path: Path) -> None:
    ready = [cell for cell in SAMPLE if not available(cell)]
    if not ready:
        pytest.skip("no compiler of the sample is installed")
    check(ready, SAMPLED, tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("target", BOARDS)
def test_every_cell_builds_without_a_warning(
    target: str, compiler: str, extra: str, tmp_path: Path
) -> None:
    there = [Cell(target, compiler, level, extra) for level in LEVELS]
    there = [cell for cell in there if not excluded(cell)]
    if not there:
        pytest.skip(excluded(Cell(target, compiler, "-O2", extra)))
    need(there[0])
    check(there, models_of(target), tmp_path)


def ran(cell: Cell, models: Iterable[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    need(cell)
    return [
        line
        for model in models
        for line in run_matrix.wrong(model, run_matrix.run(cell, model, monkeypatch))
    ]


@pytest.mark.qemu
@pytest.mark.parametrize("cell", RAN, ids=str)
def test_a_sample_computes_what_the_reference_does(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran(cell, ("channel", "light"), monkeypatch) == []


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("cell", RUN, ids=str)
def test_every_pair_computes_what_the_reference_does(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran(cell, SUBJECTS, monkeypatch) == []


def test_every_pair_of_values_runs() -> None:
    """The covering array covers; what it leaves out cannot be run, for a reason that is told."""
    axes = {
        "target": BOARDS, "compiler": COMPILERS, "level": LEVELS, "extra": EXTRAS,
    }  # fmt: skip
    possible = [cell for cell in cells() if not build_matrix.runs(cell)]
    for first, second in (("target", "compiler"), ("target", "level"), ("compiler", "extra")):
        for a in axes[first]:
            for b in axes[second]:
                wanted = any((getattr(c, first), getattr(c, second)) == (a, b) for c in possible)
                found = any((getattr(c, first), getattr(c, second)) == (a, b) for c in RUN)
                assert wanted == found, (a, b)
    assert len(RUN) < len(possible) / 8
    assert {cell.extra for cell in RUN} == set(EXTRAS)


@pytest.mark.slow
@pytest.mark.long
def test_the_models_reach_every_header_and_kind_of_schedule() -> None:
    targets = ("M4", "M55", "aarch64", "host")
    projects = [project(model, target) for target in targets for model in models_of(target)]
    headers = {Path(name).name for made in projects for name in made.files if "raot/" in name}
    there = {path.name for path in (data_dir("runtime_c") / "include" / "raot").glob("*.h")}
    assert headers == there
    models = [project(model, target) for target in targets for model in SUBJECTS]
    statements = [s for p in models for k in p.plan.kernels for s in walk(k.body)]
    used = {s.kernel.header for s in statements if isinstance(s, Micro)}
    assert used == {one.header for one in all_micro_kernels().values() if not one.device}
    assert any(isinstance(s, Multiply) for s in statements)
    groups = {subject.group for subject in SUBJECTS.values()}
    assert groups >= {"float", "int8 QDQ", "TFLite", "depthwise", "recurrent", "fp16"}
