# SPDX-License-Identifier: Apache-2.0
"""One verification: run a model, or sequences of calls of entries that share a state, on the host
and on boards, and compare with a reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.interface import Interface
from relax_aot.emulation.cycles import can_estimate
from relax_aot.emulation.serial_line import BAUD, on_port
from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.reference import KernelResults
from relax_aot.frontends.arrays import read_npz
from relax_aot.ir.graph import Module
from relax_aot.ir.types import array_of
from relax_aot.progress import finished, step
from relax_aot.project import Project
from relax_aot.verify.against_float import (
    Accuracy,
    FloatRow,
    accuracy,
    float_rows,
    rows_json,
)
from relax_aot.verify.compare import Difference, Tolerance
from relax_aot.verify.emulate import emulate_cases, run_cases
from relax_aot.verify.error_model import ErrorModel, ModelCall
from relax_aot.verify.figures import Memory, memory_of
from relax_aot.verify.host import HostModel, StatusError, entries_host, host_model, run_case
from relax_aot.verify.index_draws import drawn_inside
from relax_aot.verify.judge import Judge
from relax_aot.verify.litert_reference import LitertReference
from relax_aot.verify.onnx_reference import OnnxReference
from relax_aot.verify.program import (
    Built,
    Program,
    has_partial_sums,
    has_vector_functions,
    parts_of,
    program_of,
    rounds_factors,
    rounds_weights,
)
from relax_aot.verify.reference import NumpyReference, Reference, ReferenceFailed
from relax_aot.verify.samples import Case, by_sample, cases_of
from relax_aot.verify.sequences import entry_sequences, sequences_of, states_of
from relax_aot.verify.torch_reference import TorchReference

Array = NDArray[Any]


@dataclass(frozen=True)
class Job:
    """A model already compiled for each board, and how to judge it."""

    source: Any
    """Of several entries: their sources by name, as far as they are known."""
    projects: tuple[Built, ...]
    fix: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    at: tuple[Mapping[str, int], ...] = ()
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """By name, or by `entry.name` where entries differ."""
    reference: str | None = None
    """None: that of `default_reference`."""
    tolerance: Tolerance | None = None
    """None: the error model."""
    sanitize: bool = False
    port: str | None = None
    """A serial port: boards are then what is at its other end, not emulated."""
    baud: int = BAUD
    float_module: Module | None = None
    """What a quantized model was made from; a second table compares with it."""
    labels: Array | None = None
    """The right class of each sample of `inputs`."""
    cycles: bool = False
    """Estimate cycles on boards whose core has instruction times."""


@dataclass(frozen=True)
class Run:
    """One call on one target."""

    dims: dict[str, int]
    status: int
    instructions: int | None
    seconds: float
    outputs: tuple[Difference, ...]
    entry: str = ""
    """Which of several was called."""
    states: tuple[Difference, ...] = ()
    """What the state holds after the call, by the names of the outputs that it keeps."""
    cycles_estimated: int | None = None

    @property
    def compared(self) -> tuple[Difference, ...]:
        return self.outputs + self.states

    @property
    def ok(self) -> bool:
        return self.status == 0 and all(d.ok for d in self.compared)


@dataclass(frozen=True)
class Target:
    board: str
    memory: Memory
    runs: tuple[Run, ...]
    against_float: tuple[FloatRow, ...] = ()
    accuracy: Accuracy | None = None
    numerics: str = "blocked"
    emulated: bool = False
    """A GPU was emulated on the CPU."""

    @property
    def ok(self) -> bool:
        return bool(self.runs) and all(run.ok for run in self.runs)


@dataclass(frozen=True)
class Result:
    model: str
    targets: tuple[Target, ...]

    @property
    def ok(self) -> bool:
        return bool(self.targets) and all(target.ok for target in self.targets)

    def as_json(self) -> dict[str, Any]:
        """The schema of `verify --json`."""
        return {
            "model": self.model,
            "ok": self.ok,
            "targets": [
                {
                    "board": target.board,
                    "numerics": target.numerics,
                    "ok": target.ok,
                    **({"emulated": True} if target.emulated else {}),
                    "memory": target.memory.as_json(),
                    "runs": [_run_json(run) for run in target.runs],
                    **_quality_json(target),
                }
                for target in self.targets
            ],
        }


def _quality_json(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if target.against_float:
        found["against_float"] = rows_json(target.against_float)
    if target.accuracy is not None:
        found["accuracy"] = target.accuracy.as_json()
    return found


def _run_json(run: Run) -> dict[str, Any]:
    entry = {"entry": run.entry} if run.entry else {}
    return entry | {
        "dims": run.dims,
        "status": run.status,
        "ok": run.ok,
        "instructions": run.instructions,
        "cycles_estimated": run.cycles_estimated,
        "seconds": run.seconds,
        "outputs": [_difference_json(d) for d in run.outputs],
        **({"states": [_difference_json(d) for d in run.states]} if run.states else {}),
    }


def _difference_json(difference: Difference) -> dict[str, Any]:
    return {
        "name": difference.name,
        "shape": list(difference.shape),
        "max_abs": difference.max_abs,
        "max_rel": difference.max_rel,
        "mismatches": difference.mismatches,
        "of_allowed": _finite(difference.of_allowed),
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a target said to one case."""

    status: int
    outputs: dict[str, Array]
    instructions: int | None
    seconds: float
    states: dict[str, Array] = field(default_factory=dict)
    cycles_estimated: int | None = None


def default_reference(source: Any) -> str:
    """ONNX Runtime for ONNX files and models in memory, else the NumPy references of the ops."""
    foreign = isinstance(source, str | Path) and Path(source).suffix.lower() != ".onnx"
    return "numpy" if foreign else "onnxruntime"


def run_job(job: Job) -> Result:
    first = job.projects[0]
    program = program_of(first)
    cases = _cases(job, program)
    known: KernelResults = {}
    references = _references(job, program, known)
    expected = (
        _answers_of(references, program, cases)
        if references
        else _stored(str(job.reference), program.shared, len(cases))
    )
    foreign = any(not isinstance(one, NumpyReference) for one in references.values())
    judge = Judge(job.tolerance, _model(job, program, cases, known), foreign)
    floats = _of_floats(job, program, cases)
    targets = []
    for number, project in enumerate(job.projects):
        step(f"running on {project.board.name}", number, len(job.projects))
        answers = (
            _on_host(project, cases, job.sanitize)
            if project.board.family == "host" or project.board.cuda
            else _on_board(project, cases, job)
        )
        runs = tuple(
            _judged(program.interfaces[case.entry], case, answer, truth, partial(judge, number))
            for number, (case, answer, truth) in enumerate(
                zip(cases, answers, expected, strict=True)
            )
        )
        runs = tuple(
            run for run, case in zip(runs, cases, strict=True) if not (case.fills and run.ok)
        )
        outputs = [answer.outputs for answer in answers]
        rows = () if floats is None else float_rows(outputs, floats)
        right = None if job.labels is None else accuracy(job.labels, outputs, expected, floats)
        memory, numerics = memory_of(project), project.view.numerics
        emulated = project.board.cuda is not None
        targets.append(Target(project.board.name, memory, runs, rows, right, numerics, emulated))
    finished()
    source = job.source
    name = Path(source).name if isinstance(source, str | Path) else first.name
    return Result(name, tuple(targets))


def _is_stored(job: Job) -> bool:
    return job.reference is not None and job.reference.endswith(".npz")


def _cases(job: Job, program: Program) -> list[Case]:
    interface = program.shared
    if program.several:
        cases = entry_sequences(program, job.at, job.inputs)
    else:
        cases = cases_of(interface, job.at, job.inputs)
        if _is_stored(job):
            return cases
        chosen = bool(job.at or job.inputs)
        cases = sequences_of(interface, cases, job.inputs, chosen=chosen)
    return drawn_inside(job.projects[0], cases, job.inputs.keys())


def _judged(
    interface: Interface,
    case: Case,
    answer: Answer,
    truth: Mapping[str, Array],
    judge: Callable[[str, Array, Array], Difference],
) -> Run:
    """The answer, compared with the reference's."""
    dims = interface.fixed_sizes
    dims |= {f.source: case.sizes[f.symbol.name] for f in interface.sizes}
    outputs, states = (
        tuple(judge(name, value, truth[name]) for name, value in found.items() if name in truth)
        for found in (answer.outputs, answer.states)
    )
    return Run(
        dims, answer.status, answer.instructions, answer.seconds, outputs, case.entry, states,
        answer.cycles_estimated,
    )  # fmt: skip


class ThreadsDiffer(RelaxAotError):
    """A run with several threads gave other bits than one with one thread."""


def _on_host(project: Built, cases: Sequence[Case], sanitize: bool) -> list[Answer]:
    """With all threads of the project, whose results have the bits of one thread."""
    answers = _host_answers(project, cases, sanitize, workers=True)
    threads = program_of(project).shared.threads
    if threads > 1:
        alone = _host_answers(project, cases, sanitize, workers=False)
        for case, one, several in zip(cases, alone, answers, strict=True):
            for name, value in {**one.outputs, **one.states}.items():
                found = {**several.outputs, **several.states}.get(name)
                if found is None or found.tobytes() != value.tobytes():
                    raise ThreadsDiffer(
                        f"{name} has other bits with {threads} threads than with one, at"
                        f" {case.shown}; please report this model"
                    )
    return answers


def _host_answers(
    project: Built, cases: Sequence[Case], sanitize: bool, *, workers: bool
) -> list[Answer]:
    if isinstance(project, Project):
        model = host_model(project, sanitize=sanitize, workers=workers)
        models = {case.entry: model for case in cases}
    else:
        host = entries_host(project, sanitize=sanitize, workers=workers)
        models = {case.entry: host[case.entry] for case in cases}
    answers = []
    for number, case in enumerate(cases):
        step(f"running on host: {case.shown}", number, len(cases))
        answers.append(_host_answer(project, models[case.entry], case))
    return answers


def _host_answer(project: Built, model: HostModel, case: Case) -> Answer:
    if case.anew:
        model.reset()
    start = time.perf_counter()
    try:
        outputs = run_case(model, case)
    except StatusError as error:
        return Answer(error.status, {}, None, 0.0)
    seconds = time.perf_counter() - start
    return Answer(0, outputs, None, seconds, _states(project, case, model.state))


def _states(project: Built, case: Case, block: Array | None) -> dict[str, Array]:
    if block is None or not parts_of(project)[case.entry].interface.states:
        return {}
    return states_of(project, case.entry, case.sizes, block)


def _on_board(project: Built, cases: Sequence[Case], job: Job) -> list[Answer]:
    start = time.perf_counter()
    emulations = (
        emulate_cases(project, cases, cycles=job.cycles and can_estimate(project.board))
        if job.port is None
        else run_cases(project, cases, on_port(job.port, job.baud))
    )
    seconds = (time.perf_counter() - start) / max(len(cases), 1)
    answers = []
    for case, e in zip(cases, emulations, strict=True):
        block = np.frombuffer(e.state, np.uint8) if e.status == 0 else None
        states = _states(project, case, block)
        answers.append(
            Answer(e.status, e.outputs, e.instructions, seconds, states, e.cycles_estimated)
        )
    return answers


# The reference


def _model(job: Job, program: Program, cases: Sequence[Case], known: KernelResults) -> ErrorModel:
    calls = [
        ModelCall(
            named_inputs(program.interfaces[case.entry], case),
            case.sizes,
            case.anew or number == 0,
            case.entry,
        )
        for number, case in enumerate(cases)
    ]
    modules = {name: one.source_module for name, one in parts_of(job.projects[0]).items()}
    blocked = any(has_partial_sums(project) for project in job.projects)
    vectors = any(has_vector_functions(project) for project in job.projects)
    tf32 = any(rounds_factors(project) for project in job.projects)
    halves = any(rounds_weights(project) for project in job.projects)
    return ErrorModel(
        modules, calls, known, blocked=blocked, vectors=vectors, tf32=tf32, halves=halves
    )


def named_inputs(interface: Interface, case: Case) -> dict[str, Array]:
    return {p.source: a for p, a in zip(interface.inputs, case.inputs, strict=True)}


def _references(job: Job, program: Program, known: KernelResults) -> dict[str, Reference]:
    """By entry; none where results are stored."""
    if program.several:
        return _entry_references(job)
    return {} if _is_stored(job) else {"": _reference(job, known)}


def _reference(job: Job, known: KernelResults) -> Reference:
    module = parts_of(job.projects[0])[""].source_module
    match job.reference or default_reference(job.source):
        case "numpy":
            return NumpyReference(module, known=known)
        case "onnxruntime":
            return OnnxReference(job.source, job.fix, job.state).with_module(module)
        case "litert":
            return LitertReference(job.source, job.fix, job.state).with_module(module)
        case "torch":
            return TorchReference(job.source, module, job.fix, job.state).with_module(module)
        case other:
            raise ReferenceFailed(
                f"--reference {other}: references are onnxruntime, numpy, litert, torch and"
                " FILE.npz"
            )


def _entry_references(job: Job) -> dict[str, Reference]:
    """References that share the state."""
    if _is_stored(job):
        raise ReferenceFailed(
            "--reference FILE.npz contains the outputs of one model; entries are compared with"
            " onnxruntime or numpy"
        )
    if job.reference not in (None, "numpy", "onnxruntime"):
        raise ReferenceFailed(
            f"--reference {job.reference}: entries are compared with onnxruntime or numpy"
        )
    held: dict[str, Array] = {}
    references: dict[str, Reference] = {}
    for name, project in parts_of(job.projects[0]).items():
        source = job.source.get(name)
        if source is None or (job.reference or default_reference(source)) == "numpy":
            references[name] = NumpyReference(project.source_module, held)
        else:
            found = OnnxReference(source, job.fix, job.state, held)
            references[name] = found.with_module(project.source_module)
    return references


def _of_floats(job: Job, program: Program, cases: Sequence[Case]) -> list[dict[str, Array]] | None:
    """What the float model computes: by the program that reads it, where there is one."""
    if job.float_module is None:
        return None
    reference: Reference = (
        NumpyReference(job.float_module)
        if default_reference(job.source) == "numpy"
        else OnnxReference(job.source, job.fix, job.state).with_module(job.float_module)
    )
    return _answers_of({"": reference}, program, cases)


def _answers_of(
    references: Mapping[str, Reference], program: Program, cases: Sequence[Case]
) -> list[dict[str, Array]]:
    results = []
    for number, case in enumerate(cases):
        step(f"reference: {case.shown}", number, len(cases))
        reference, interface = references[case.entry], program.interfaces[case.entry]
        if case.anew:
            reference.reset()
        shapes = {part.source: part.shape(case.sizes) for part in interface.states}
        try:
            results.append(reference(named_inputs(interface, case), shapes, case.sizes))
        except RelaxAotError as error:
            if case.entry:
                error.add_note(f"in the entry {case.entry}")
            raise
    return results


def _stored(path: str, interface: Interface, count: int) -> list[dict[str, Array]]:
    try:
        arrays = read_npz(Path(path))
    except ValueError as error:
        raise ReferenceFailed(f"cannot read {path} as .npz: {error}") from None
    results: list[dict[str, Array]] = [{} for _ in range(count)]
    for port in interface.outputs:
        if port.source not in arrays:
            raise ReferenceFailed(f"{path} has no {port.source!r}, only {sorted(arrays)}")
        try:
            array = by_sample(array_of(port.type.dtype, arrays[port.source]), port)
        except ValueError as error:
            raise ReferenceFailed(f"{path}: {port.source!r} must be {port.type}: {error}") from None
        sampled = array.ndim == port.type.rank + 1
        if sampled and len(array) != count:
            raise ReferenceFailed(
                f"{path}: {port.source!r} has {len(array)} samples, but there are {count} runs"
            )
        for index, result in enumerate(results):
            result[port.source] = array[index] if sampled else array
    return results
