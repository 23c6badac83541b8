# SPDX-License-Identifier: Apache-2.0
"""Models of NNSmith with open sizes: the C agrees wherever two oracles agree.

The oracles are ONNX Runtime without its optimizations and the reference evaluator of ONNX. An
element that moves far when the inputs move by a millionth is not compared: there, any
rounding decides.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, printer
from onnx.reference import ReferenceEvaluator

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.project import Project
from tests.fuzz.nnsmith_models import Unwritten, Writer, nnsmith_model
from tests.fuzz.values import Rejected, run_model
from tests.planning.batch import Ran, Run, Stopped, run_all

Array = NDArray[Any]
Arrays = dict[str, Array]

PER_LIBRARY = 20
MISMATCH, NEVER = -5, "does not hold for any allowed size"
GATE, LONG = 20, 600
"""Of these, well over 500 are valid for both oracles."""
RELATIVE, ABSOLUTE = 2e-3, 1e-4
UNABLE = (ValueError, TypeError, IndexError, RuntimeError, AttributeError, OverflowError,
          ArithmeticError, NotImplementedError, KeyError, AssertionError)  # fmt: skip
"""How the reference evaluator fails at what it cannot do."""


@dataclass
class Report:
    models: int = 0
    compared: int = 0
    """Runs at one assignment of sizes where both oracles agree."""
    refused: list[str] = field(default_factory=list)
    unmet: int = 0
    """Runs that ended with the status of a relation between sizes, such as an equality: sizes that
    depend on the same symbol do not broadcast."""
    stopped: list[str] = field(default_factory=list)
    """Ended with a status where the oracles give values."""
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    seed: int
    sizes: dict[str, int]
    inputs: Arrays
    known: Arrays
    unstable: Arrays
    """Elements that are not compared, by output."""
    model: ModelProto

    @property
    def title(self) -> str:
        """NNSmith does not draw the same model twice, so it stands here in full."""
        return f"m{self.seed} at {self.sizes}:\n{printer.to_text(self.model)}"


def trials(seed: int, model: ModelProto, writer: Writer) -> Iterator[Trial]:
    """The sizes that NNSmith chose, then others that the oracles accept."""
    for number in range(4):
        sizes = dict(writer.symbols)
        if number:
            rng = np.random.default_rng(seed * 7 + number)
            sizes = {name: 1 if number == 1 else int(rng.integers(1, 2 * size + 1))
                     for name, size in sizes.items()}  # fmt: skip
        rng = np.random.default_rng(seed + number)
        inputs: Arrays = {}
        for name, (dtype, _) in writer.inputs.items():
            shape = [sizes[d] if isinstance(d, str) else d for d in writer.dims[name]]
            inputs[name] = Writer(writer.ir, seed + number, apart=False).numbers(shape, dtype)
        found = agreed(model, inputs, rng)
        if found is not None:
            yield Trial(seed, sizes, inputs, *found, model)


def agreed(
    model: ModelProto, inputs: Arrays, rng: np.random.Generator
) -> tuple[Arrays, Arrays] | None:
    """What both oracles say, and where they differ or it hangs on the last digits; None where
    nothing is left."""
    names = [output.name for output in model.graph.output]
    moved = {
        name: array * array.dtype.type(1 + 1e-6 * rng.choice((-1, 1)))
        if array.dtype.kind == "f" else array
        for name, array in inputs.items()
    }  # fmt: skip
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            theirs = dict(zip(names, run_model(model, inputs), strict=True))
            nearby = dict(zip(names, run_model(model, moved), strict=True))
            said: Any = ReferenceEvaluator(model).run(names, inputs)
        except (Rejected, *UNABLE):
            return None
    seconds = dict(zip(names, map(np.asarray, said), strict=True))
    open_ = {}
    for name in names:
        if seconds[name].shape != theirs[name].shape:
            return None
        apart = differs(seconds[name], theirs[name])
        open_[name] = apart | differs(nearby[name], theirs[name], 0.1)
    return None if all(mask.all() for mask in open_.values()) else (theirs, open_)


def differs(ours: Array, theirs: Array, share: float = 1.0) -> Array:
    """Per element; everything where the shapes differ."""
    if ours.shape != theirs.shape:
        return np.ones(theirs.shape or (1,), np.bool_)
    if theirs.dtype.kind != "f":
        return np.asarray(ours.astype(theirs.dtype) != theirs)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(all="ignore"):
        close = np.isclose(a, b, RELATIVE * share, ABSOLUTE * share, equal_nan=True)
    return np.asarray(~close)


def hunt(seeds: Iterable[int]) -> Report:
    report = Report()
    projects: dict[int, Project] = {}
    found: list[Trial] = []
    for seed in seeds:
        try:
            model, writer = nnsmith_model(seed, 5 + seed % 8)
        except Unwritten as error:
            raise AssertionError(f"NNSmith has an operator {error}") from error
        ours = list(trials(seed, model, writer))
        if not ours:
            continue
        report.models += 1
        bounds = {name: (1, 2 * size) for name, size in writer.symbols.items()}
        try:
            projects[seed] = driver.compile_model(
                model, options=Options(bounds=bounds, name=f"m{seed}", check=True)
            )
        except RelaxAotError as error:
            if NEVER in str(error):
                report.unmet += 1
                continue
            report.refused.append(f"m{seed}: {error}\n{printer.to_text(model)}")
            continue
        found += ours
    _judge(projects, found, report)
    return report


def _judge(projects: Mapping[int, Project], found: list[Trial], report: Report) -> None:
    runs = [run_of(projects[trial.seed], trial) for trial in found]
    if not runs:
        return
    try:
        results = run_all(runs)
    except Stopped as stopped:
        if len({trial.seed for trial in found}) == 1:
            report.wrong.append(str(stopped))
            return
        for seed in dict.fromkeys(trial.seed for trial in found):
            _judge({seed: projects[seed]}, [t for t in found if t.seed == seed], report)
        return
    for trial, ran in zip(found, results, strict=True):
        report.compared += 1
        _compare(projects[trial.seed], trial, ran, report)


def run_of(project: Project, trial: Trial) -> Run:
    inputs = {port.name: trial.inputs[port.source] for port in project.interface.inputs}
    sizes = {f.symbol.name: trial.sizes.get(f.symbol.name, f.symbol.low)
             for f in project.interface.dims}  # fmt: skip
    return Run(project, sizes, inputs)


def _compare(project: Project, trial: Trial, ran: Ran, report: Report) -> None:
    if ran.status == MISMATCH and not met(project, trial.sizes):
        report.unmet += 1
        return
    if ran.status:
        report.stopped.append(f"status {ran.status}: {trial.title}")
        return
    for port in project.interface.outputs:
        theirs, ours = trial.known[port.source], ran.outputs[port.name]
        bad = differs(ours, theirs)
        if ours.shape == theirs.shape:
            bad &= ~trial.unstable[port.source]
        if bad.any():
            report.wrong.append(f"{port.source}\n{ours}\nnot\n{theirs}\n{trial.title}")


def met(project: Project, sizes: Mapping[str, int]) -> bool:
    """Whether the relations hold that the generated header states."""
    for condition in project.plan.module.conditions:
        if condition.left.symbols | condition.right.symbols <= sizes.keys():
            left, right = condition.left.evaluate(sizes), condition.right.evaluate(sizes)
            if left > right or (condition.relation == "==" and left != right):
                return False
    return True


def check(report: Report) -> None:
    assert not report.wrong, "\n".join(report.wrong)
    assert not report.refused, "\n".join(report.refused)
    assert not report.stopped, "\n".join(report.stopped)


def need_nnsmith() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("nnsmith.graph_gen", reason="NNSmith is not installed")


def test_models_of_nnsmith_compute_what_two_oracles_agree_on() -> None:
    need_nnsmith()
    report = hunt(range(GATE))
    check(report)
    assert report.models > GATE // 2


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("start", range(GATE, LONG, PER_LIBRARY))
def test_models_of_nnsmith_at_length(
    start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_nnsmith()
    monkeypatch.setenv("RELAX_AOT_CACHE", str(tmp_path))
    check(hunt(range(start, min(start + PER_LIBRARY, LONG))))
