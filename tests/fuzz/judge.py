# SPDX-License-Identifier: Apache-2.0
"""Compiles fuzzed graphs, runs their C under the sanitizers and compares with what is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.fusion import check as fusion_check
from relax_aot.fusion import in_place
from relax_aot.fusion.check import FusionError
from relax_aot.project import Project
from tests.fuzz.graphs import Fuzzed
from tests.planning.batch import Ran, Run, Stopped, run_all

KINDS = ("speed", "memory", "size")


@dataclass(frozen=True)
class Refusal:
    seed: int
    reason: str


def compiled(seed: int, made: Fuzzed) -> Project | Refusal:
    options = Options(
        bounds=made.bounds,
        name=f"m{seed}",
        optimize=KINDS[seed % len(KINDS)],
        check=True,
        stepwise=seed % 4 == 3,
    )
    try:
        return driver.compile_model(made.model, options=options)
    except RelaxAotError as error:
        return Refusal(seed, str(error))
    except FusionError:
        # Not proven is not wrong. Compilations of users leave such a kernel in its parts; here
        # the merged kernel itself is compared, so that a wrong merger is not hidden.
        with (
            patch.object(fusion_check, "check"),
            patch.object(in_place, "unproven_pairs", return_value=()),
        ):
            return driver.compile_model(made.model, options=options)


def judge(graphs: Mapping[int, Fuzzed], level: str = "-O0") -> tuple[list[Refusal], list[str]]:
    """(what was refused, what is wrong). `level`: how far the compiler of C optimizes."""
    projects: dict[int, Project] = {}
    refusals = []
    for seed, made in graphs.items():
        found = compiled(seed, made)
        if isinstance(found, Refusal):
            refusals.append(found)
        else:
            projects[seed] = found
    return refusals, list(_wrong(graphs, projects, level))


def _wrong(
    graphs: Mapping[int, Fuzzed], projects: Mapping[int, Project], level: str
) -> Iterable[str]:
    if not projects:
        return
    runs, places = [], []
    for seed, project in projects.items():
        for number in range(len(graphs[seed].assignments)):
            runs.append(run_of(project, graphs[seed], number))
            places.append((seed, number))
    try:
        results = run_all(runs, level)
    except Stopped as stopped:
        if len(projects) == 1:
            yield str(stopped)
        else:
            for seed, project in projects.items():
                yield from _wrong(graphs, {seed: project}, level)
        return
    for (seed, number), run, ran in zip(places, runs, results, strict=True):
        found = difference(graphs[seed], number, run.project, ran)
        if found:
            yield f"m{seed} at {graphs[seed].assignments[number]}: {found}"


def run_of(project: Project, made: Fuzzed, number: int) -> Run:
    given = {value.name: value.arrays[number] for value in made.inputs}
    inputs = {port.name: given[port.source] for port in project.interface.inputs}
    sizes = {f.symbol.name: made.assignments[number].get(f.symbol.name, f.symbol.low)
             for f in project.interface.dims}  # fmt: skip
    return Run(project, sizes, inputs)


def difference(made: Fuzzed, number: int, project: Project, ran: Ran) -> str | None:
    if ran.status:
        return f"status {ran.status}"
    sources = {port.source: port.name for port in project.interface.outputs}
    for value in made.outputs:
        ours, wanted = ran.outputs[sources[value.name]], value.arrays[number]
        if ours.shape != wanted.shape:
            return f"{value.name} has the shape {ours.shape}, not {wanted.shape}"
        if not alike(ours, wanted, value.tolerance):
            return f"{value.name}:\n{ours}\nnot\n{wanted}"
    return None


def alike(ours: NDArray[np.generic], wanted: NDArray[np.generic], tolerance: float) -> bool:
    if wanted.dtype.kind != "f":
        return bool(np.array_equal(ours.astype(wanted.dtype), wanted))
    a, b = ours.astype(np.float64), wanted.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    return bool(np.allclose(a, b, rtol=tolerance * 5, atol=tolerance * scale, equal_nan=True))
