# SPDX-License-Identifier: Apache-2.0
"""Cases through the compiler, the host's C compiler and the sanitizers or the emulated GPU, many
at once."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.backend.test.runner import Runner

import relax_aot as rx
from relax_aot.errors import RelaxAotError
from relax_aot.project import Project
from relax_aot.verify.cuda import DriverBuildError
from relax_aot.verify.host import (
    STATUS_NAMES,
    STRICT_FLAGS,
    HostBuildError,
)
from relax_aot.verify.sizes import ordered_inputs, sizes_of
from tests.conformance import oracle
from tests.conformance.cases import Case, fed_inputs
from tests.conformance.emulated_gpu import run_each_on_gpu
from tests.conformance.symbols import Symbolic, apart, opened, resized
from tests.planning.batch import Ran, Run, Stopped, run_each

NAMED_BOUND = re.compile(r"--bound (\w+)=")
NOT_THERE = re.compile(r"--bound (\w+): (?:the model has )?no|the bound (\w+): the model has no")
ATTEMPTS = 12
GPU = "jetson-orin-nano"
RTOL, ATOL = 1e-3, 1e-5
"""At other sizes than the case's, against an oracle of the same precision."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case: `pass`, `refused`, or a fault: `wrong`, `stopped`, `status`,
    `build`, `error`."""

    name: str
    kind: str
    detail: str = ""
    bounds: tuple[str, ...] = ()
    """Symbols whose bounds the compiler asked for."""
    silent: tuple[str, ...] = ()
    """Sizes at which no oracle has an answer, or at which our C refuses its arguments."""


@dataclass
class Trial:
    """A compiled case and what its runs have to give."""

    case: Case
    project: Project
    bounds: tuple[str, ...]
    runs: list[Run] = field(default_factory=list)
    expected: list[list[Any]] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    tolerances: list[tuple[float, float]] = field(default_factory=list)
    optional: list[bool] = field(default_factory=list)
    """Runs that may end in a status: the model need not allow these sizes."""
    others: list[int | None] = field(default_factory=list)
    """The runs of the sizes that are not the case's own."""
    second: dict[int, list[Any]] = field(default_factory=dict)
    """What another oracle expects of a run."""


def run_fixed(cases: Sequence[Case]) -> list[Outcome]:
    """Each case with the sizes that it has; axes that it leaves open are symbols."""
    outcomes, trials = [], []
    for case in cases:
        found = _compiled(case, case.model, _declared(case))
        if isinstance(found, Outcome):
            outcomes.append(found)
            continue
        _add_data(found, case)
        trials.append(found)
    return outcomes + _executed(trials)


def run_symbolic(cases: Sequence[Symbolic], board: str = "host") -> list[Outcome]:
    """Each case compiled once, at its own sizes, with each size 1, and at the bounds. Boards are
    the host and those with a GPU."""
    outcomes: list[Outcome] = []
    trials: list[Trial] = []
    at: list[dict[str, list[Any]]] = []
    requests: list[oracle.Request] = []
    for symbolic in cases:
        case = symbolic.case
        found = _compiled(case, symbolic.model, symbolic.bounds, board)
        if isinstance(found, Outcome):
            outcomes.append(found)
            continue
        _add_data(found, case)
        other = {
            "size 1": symbolic.at(lambda size: min(1, size)),
            "the bound": symbolic.at(lambda size: 2 * size),
        }
        scaled = other.items() if symbolic.scaled else ()
        arrays = {label: resized(symbolic, sizes) for label, sizes in scaled}
        names = [value.name for value in fed_inputs(symbolic.model)]
        feeds = [dict(zip(names, given, strict=False)) for given in arrays.values()]
        requests.append((symbolic.model.SerializeToString(), feeds, True))
        trials.append(found)
        at.append(arrays)
    for trial, arrays, reply in zip(trials, at, oracle.answers(requests), strict=True):
        for (label, inputs), expected in zip(arrays.items(), reply, strict=True):
            if expected is None:
                trial.silent.append(label)
                trial.others.append(None)
                continue
            before = len(trial.runs)
            _add(trial, inputs, expected, (RTOL, ATOL * _scale(expected)), optional=True)
            trial.others.append(before if len(trial.runs) > before else None)
    judged = _executed(trials)
    odd = {outcome.name for outcome in judged if outcome.kind == "wrong"}
    if not odd:
        return outcomes + judged
    # Where ONNX Runtime does not do as specified, ONNX's reference may.
    again = [trial for trial in trials if trial.case.name in odd]
    asked = [
        (*request[:2], False)
        for trial, request in zip(trials, requests, strict=True)
        if trial in again
    ]
    for trial, reply in zip(again, oracle.answers(asked), strict=True):
        for number, expected in zip(trial.others, reply, strict=True):
            if number is not None and expected is not None:
                trial.second[number] = expected
    kept = [outcome for outcome in judged if outcome.name not in odd]
    return outcomes + kept + _executed(again)


def compiled_fixed(case: Case) -> Outcome:
    """Whether a case is refused, without its C."""
    return _fate(_compiled(case, case.model, _declared(case)))


def compiled_symbolic(case: Case) -> Outcome | None:
    """The same with symbols for sizes; None where the case has no axis for one."""
    return _compiled_as(case, opened(case))


def compiled_for_gpu(case: Case) -> Outcome | None:
    """The same for a board with a GPU."""
    return _compiled_as(case, opened(case), GPU)


def compiled_apart(case: Case) -> Outcome | None:
    """The same with a symbol for each axis."""
    return _compiled_as(case, apart(case))


def _compiled_as(case: Case, symbolic: Symbolic | None, board: str = "host") -> Outcome | None:
    if symbolic is None:
        return None
    return _fate(_compiled(case, symbolic.model, symbolic.bounds, board))


def _fate(found: Trial | Outcome) -> Outcome:
    if isinstance(found, Outcome):
        return found
    return Outcome(found.case.name, "pass", bounds=found.bounds)


def _declared(case: Case) -> dict[str, tuple[int, int]]:
    bounds = {}
    for value, data in zip(fed_inputs(case.model), case.data[0][0], strict=False):
        if value.type.WhichOneof("value") == "tensor_type":
            for dim, size in zip(value.type.tensor_type.shape.dim, np.shape(data), strict=False):
                if dim.dim_param:
                    bounds[dim.dim_param] = (min(1, size), max(2 * size, 1))
    return bounds


def _compiled(
    case: Case, model: ModelProto, bounds: dict[str, tuple[int, int]], board: str = "host"
) -> Trial | Outcome:
    """Bounds that the compiler asks for by name are given: twice the case's greatest size."""
    arrays = [array for inputs, outputs in case.data for array in (*inputs, *outputs)]
    largest = max([8, *(size for array in arrays for size in np.shape(array))])
    asked: list[str] = []
    options: dict[str, Any] = {} if board == "host" else {"board": board, "emit": "cuda-source"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(ATTEMPTS):
            try:
                project = rx.compile(model, bounds=bounds, name=c_name(case.name), **options)
                return Trial(case, project.built, tuple(asked))
            except RelaxAotError as error:
                text = str(error)
                new = [name for name in NAMED_BOUND.findall(text) if name not in bounds]
                gone = [a or b for a, b in NOT_THERE.findall(text) if (a or b) in bounds]
                if not new and not gone:
                    return Outcome(case.name, "refused", text)
                asked += new
                bounds = {n: b for n, b in bounds.items() if n not in gone}
                bounds |= dict.fromkeys(new, (0, 2 * largest))
            except Exception as error:  # noqa: BLE001 - a fault of ours, told by its case
                return Outcome(case.name, "error", f"{type(error).__name__}: {error}")
    return Outcome(case.name, "error", f"asks for bounds without end: {asked}")


def _add_data(trial: Trial, case: Case) -> None:
    for inputs, expected in case.data:
        _add(trial, inputs, expected, (case.rtol, case.atol), optional=False)


def c_name(name: str) -> str:
    """C cuts long names, and what follows the cut may be all that tells two cases apart."""
    return f"{name[:32]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _add(
    trial: Trial,
    inputs: Sequence[Any],
    expected: Sequence[Any],
    tolerance: tuple[float, float],
    *,
    optional: bool,
) -> None:
    interface = trial.project.interface
    names = [value.name for value in fed_inputs(trial.case.model)]
    feed = {name: np.asarray(data) for name, data in zip(names, inputs, strict=False)}
    try:
        given = ordered_inputs(interface, feed)
        sizes = sizes_of(interface, given)
    except RelaxAotError as error:
        if not optional:
            raise
        trial.silent.append(str(error))
        return
    by_name = {port.name: data for port, data in zip(interface.inputs, given, strict=True)}
    trial.runs.append(Run(trial.project, sizes, by_name))
    trial.expected.append(list(expected))
    trial.tolerances.append(tolerance)
    trial.optional.append(optional)


def _executed(trials: Sequence[Trial]) -> list[Outcome]:
    """All in one library; where that does not build, one by one."""
    runs = [run for trial in trials for run in trial.runs]
    if not runs:
        return [_judged(trial, []) for trial in trials]
    run_them = run_each_on_gpu if runs[0].project.board.cuda else run_each
    try:
        ran = run_them(runs, STRICT_FLAGS)
    except (HostBuildError, DriverBuildError) as error:
        if len(trials) == 1:
            return [Outcome(trials[0].case.name, "build", str(error))]
        return [outcome for trial in trials for outcome in _executed([trial])]
    outcomes = []
    for trial in trials:
        outcomes.append(_judged(trial, ran[: len(trial.runs)]))
        ran = ran[len(trial.runs) :]
    return outcomes


def _judged(trial: Trial, ran: Sequence[Ran | Stopped]) -> Outcome:
    name = trial.case.name
    silent = list(trial.silent)
    for number, result in enumerate(ran):
        sizes = dict(trial.runs[number].sizes)
        if isinstance(result, Stopped):
            return Outcome(name, "stopped", str(result), trial.bounds)
        if result.status and trial.optional[number]:
            silent.append(f"{STATUS_NAMES[result.status]} at {sizes}")
            continue
        if result.status:
            return Outcome(name, "status", STATUS_NAMES[result.status], trial.bounds)
        difference = _difference(trial, number, result)
        if difference:
            return Outcome(name, "wrong", f"at {sizes}: {difference}", trial.bounds)
    return Outcome(name, "pass", "", trial.bounds, tuple(silent))


def _difference(trial: Trial, number: int, result: Ran) -> str:
    """'' where the outputs agree by the rules of the package's own runner."""
    by_source = {
        port.source: result.outputs[port.name].astype(port.type.dtype.numpy, copy=False)
        for port in trial.project.interface.outputs
    }
    actual = [by_source[value.name] for value in trial.case.model.graph.output]
    rtol, atol = trial.tolerances[number]
    found = ""
    for expected in (trial.expected[number], trial.second.get(number)):
        if expected is None:
            break
        try:
            Runner.assert_similar_outputs(expected, actual, rtol, atol)
        except (AssertionError, TypeError, ValueError) as error:
            found = found or " ".join(str(error).split())[:400] or type(error).__name__
        else:
            return ""
    return found


def _scale(arrays: Sequence[Any]) -> float:
    """Sums of great numbers are inexact by their measure."""
    found = [np.abs(a[np.isfinite(a)]).max(initial=1) for a in map(_floats, arrays)]
    return float(max(found, default=1))


def _floats(array: Any) -> Any:
    return np.asarray(array).astype(np.float64, copy=False)
