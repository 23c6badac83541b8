# SPDX-License-Identifier: Apache-2.0
"""One verification of several entries: sequences of calls that share the state, on host and
boards, against references that are given the state by hand."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.progress import finished, step
from relax_aot.project.entries import EntriesProject
from relax_aot.verify.compare import Difference, Tolerance
from relax_aot.verify.entries_emulate import EntryCall, emulate_entries
from relax_aot.verify.entries_host import entries_host
from relax_aot.verify.error_model import ErrorModel, ModelCall
from relax_aot.verify.figures import entries_memory
from relax_aot.verify.host import StatusError
from relax_aot.verify.job import (
    Answer,
    Result,
    Run,
    Target,
    default_reference,
    judged,
    named_inputs,
)
from relax_aot.verify.judge import Judge
from relax_aot.verify.onnx_reference import OnnxReference
from relax_aot.verify.reference import NumpyReference, Reference, ReferenceFailed
from relax_aot.verify.samples import (
    RANDOM_SIZES,
    TRIES,
    Case,
    SizeChoiceError,
    allowed,
    input_of,
)

Array = NDArray[Any]
ROUNDS = 2
"""How often a sequence calls every entry, so that each follows each."""


@dataclass(frozen=True)
class EntriesJob:
    """Entries already compiled for each board, and how to judge them."""

    sources: Mapping[str, Any]
    projects: tuple[EntriesProject, ...]
    fix: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    at: tuple[Mapping[str, int], ...] = ()
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """By name, or by `entry.name` where entries differ."""
    reference: str | None = None
    tolerance: Tolerance | None = None
    """None: the error model."""
    sanitize: bool = False


def run_entries_job(job: EntriesJob) -> Result:
    project = job.projects[0]
    sequences = [_calls(project, sizes, job.inputs, n) for n, sizes in enumerate(_sizes(job))]
    expected = _expected(job, sequences)
    judge = Judge(job.tolerance, _model(project, sequences), job.reference != "numpy")
    targets = []
    for number, one in enumerate(job.projects):
        step(f"running on {one.board.name}", number, len(job.projects))
        answers = (
            _on_host(one, sequences, sanitize=job.sanitize)
            if one.board.family == "host"
            else _on_board(one, sequences)
        )
        calls = [call for sequence in sequences for call in sequence]
        runs = tuple(
            _run(one, call, answer, truth, partial(judge, number))
            for number, (call, answer, truth) in enumerate(
                zip(calls, answers, expected, strict=True)
            )
        )
        targets.append(Target(one.board.name, entries_memory(one), runs))
    finished()
    return Result(project.name, tuple(targets))


def _run(
    project: EntriesProject,
    call: EntryCall,
    answer: Answer,
    truth: Mapping[str, Array],
    judge: Callable[[str, Array, Array], Difference],
) -> Run:
    interface = project.entries[call.entry].interface
    sizes = {f.symbol.name: call.sizes[f.source] for f in interface.dims}
    return judged(interface, Case(sizes, call.inputs), answer, truth, judge, call.entry)


def _model(project: EntriesProject, sequences: Sequence[Sequence[EntryCall]]) -> ErrorModel:
    calls = []
    for sequence in sequences:
        for number, call in enumerate(sequence):
            interface = project.entries[call.entry].interface
            sizes = {f.symbol.name: call.sizes[f.source] for f in interface.dims}
            inputs = named_inputs(interface, Case(sizes, call.inputs))
            calls.append(ModelCall(inputs, sizes, number == 0, call.entry))
    modules = {name: one.source_module for name, one in project.entries.items()}
    return ErrorModel(modules, calls)


# What is called


def _sizes(job: EntriesJob) -> list[dict[str, int]]:
    """What was asked for; else the lowest, the highest and random sizes that every entry takes."""
    project = job.projects[0]
    interfaces = [entry.interface for entry in project.entries.values()]
    symbols = {f.source: f.symbol for f in interfaces[0].bounded}
    for requested in job.at:
        for name in requested:
            if name not in symbols:
                raise SizeChoiceError(
                    f"--at {name}=...: no entry has such a size, only {sorted(symbols)}"
                )
    if job.at:
        return [{n: one.get(n, s.high) for n, s in symbols.items()} for one in job.at]
    source = random.Random(0)
    candidates = [{n: s.low for n, s in symbols.items()}, {n: s.high for n, s in symbols.items()}]
    for _ in range(TRIES if symbols else 0):
        candidates.append({n: source.randint(s.low, s.high) for n, s in symbols.items()})
    chosen: list[dict[str, int]] = []
    for sizes in candidates:
        fits = all(
            allowed(interface, {f.symbol.name: sizes[f.source] for f in interface.dims})
            for interface in interfaces
        )
        if fits and sizes not in chosen:
            chosen.append(sizes)
        if len(chosen) == RANDOM_SIZES + 2:
            break
    if not chosen:
        raise SizeChoiceError("no sizes found that all entries accept; give some with --at")
    return chosen


def _calls(
    project: EntriesProject, sizes: dict[str, int], arrays: Mapping[str, Array], seed: int
) -> list[EntryCall]:
    """Every entry in order, and again; a state begins with the first call."""
    rng = np.random.default_rng(seed)
    calls = []
    for name in [*project.entries] * ROUNDS:
        interface = project.entries[name].interface
        named = {f.symbol.name: sizes[f.source] for f in interface.dims}
        own = {
            p.source: arrays.get(f"{name}.{p.source}", arrays.get(p.source))
            for p in interface.inputs
        }
        given = {source: array for source, array in own.items() if array is not None}
        inputs = tuple(input_of(p, interface.shape(p, named), given, rng) for p in interface.inputs)
        calls.append(EntryCall(name, sizes, inputs))
    return calls


# Who answers


def _expected(job: EntriesJob, sequences: Sequence[Sequence[EntryCall]]) -> list[dict[str, Array]]:
    if job.reference is not None and job.reference.endswith(".npz"):
        raise ReferenceFailed(
            "--reference FILE.npz contains the outputs of one model; entries are compared with"
            " onnxruntime or numpy"
        )
    if job.reference not in (None, "numpy", "onnxruntime"):
        raise ReferenceFailed(
            f"--reference {job.reference}: entries are compared with onnxruntime or numpy"
        )
    results = []
    held: dict[str, Array] = {}
    project = job.projects[0]
    references = {name: _reference(job, name, held) for name in project.entries}
    for sequence in sequences:
        held.clear()
        for call in sequence:
            interface = project.entries[call.entry].interface
            sizes = {f.symbol.name: call.sizes[f.source] for f in interface.dims}
            named = {p.source: a for p, a in zip(interface.inputs, call.inputs, strict=True)}
            shapes = {
                part.source: tuple(d.evaluate(sizes) for d in part.type.shape)
                for part in interface.states
            }
            try:
                results.append(references[call.entry](named, shapes, sizes))
            except RelaxAotError as error:
                error.add_note(f"in the entry {call.entry}")
                raise
    return results


def _reference(job: EntriesJob, entry: str, held: dict[str, Array]) -> Reference:
    source = job.sources.get(entry)
    if source is None or (job.reference or default_reference(source)) == "numpy":
        return NumpyReference(job.projects[0].entries[entry].source_module, held)
    return OnnxReference(source, job.fix, job.state, held)


def _on_host(
    project: EntriesProject, sequences: Sequence[Sequence[EntryCall]], *, sanitize: bool
) -> list[Answer]:
    host = entries_host(project, sanitize=sanitize)
    answers = []
    for sequence in sequences:
        host.reset()
        for call in sequence:
            start = time.perf_counter()
            try:
                outputs = host.run_at(call.entry, call.sizes, call.inputs)
            except StatusError as error:
                answers.append(Answer(error.status, {}, None, 0.0))
                continue
            answers.append(Answer(0, outputs, None, time.perf_counter() - start))
    return answers


def _on_board(project: EntriesProject, sequences: Sequence[Sequence[EntryCall]]) -> list[Answer]:
    start = time.perf_counter()
    found = emulate_entries(project, *sequences)
    seconds = (time.perf_counter() - start) / max(len(found), 1)
    return [Answer(e.status, e.outputs, e.instructions, seconds) for e in found]
