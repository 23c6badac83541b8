# SPDX-License-Identifier: Apache-2.0
"""The first value that differs: compares every value of a model with its reference, in order.

All values become outputs for this comparison, which prevents most of the fusion. If no value
differs this way but the unchanged model differs, the error is in fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.evaluation.reference import KernelResults, evaluate
from relax_aot.ir.graph import Function, Module, Var
from relax_aot.planning.regions import NoRoom
from relax_aot.project import Project
from relax_aot.project.board import Board, load_board
from relax_aot.project.fit import DoesNotFit
from relax_aot.verify.compare import Difference, Tolerance
from relax_aot.verify.emulate import emulate_cases
from relax_aot.verify.error_model import ErrorModel, ModelCall
from relax_aot.verify.host import StatusError, host_model
from relax_aot.verify.index_draws import drawn_inside
from relax_aot.verify.job import named_inputs
from relax_aot.verify.judge import Judge
from relax_aot.verify.onnx_values import OnnxValues
from relax_aot.verify.program import (
    has_partial_sums,
    has_vector_functions,
    rounds_factors,
    rounds_weights,
)
from relax_aot.verify.samples import Case, cases_of

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ValueRow:
    """The comparison of one value on one board with the reference."""

    board: str
    dims: dict[str, int]
    type: str
    op: str
    origin: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class Found:
    """The lines to print, and whether all values are equal."""

    lines: tuple[str, ...]
    ok: bool


def first_differences(
    module: Module,
    boards: Sequence[str],
    options: Options,
    sizes: Sequence[Mapping[str, int]],
    inputs: dict[str, Array],
    tolerance: Tolerance | None,
    outside: OnnxValues | None = None,
) -> Found:
    """Find the first value that differs, for each board and size. The reference is `outside` for
    the values that it knows, otherwise the ops' NumPy references."""
    first: dict[tuple[str, str], ValueRow] = {}
    counts: dict[tuple[str, str], int] = {}
    for row in per_value(module, boards, options, sizes, inputs, tolerance, outside):
        run = (row.board, ", ".join(f"{k}={v}" for k, v in row.dims.items()) or "fixed sizes")
        counts[run] = counts.get(run, 0) + 1
        if not row.difference.ok:
            first.setdefault(run, row)
    lines = [
        f"{board} at {at}: {_said(first[board, at]) if (board, at) in first else 'equal'}"
        f" ({count} values)"
        for (board, at), count in counts.items()
    ]
    return Found(tuple(lines), not first)


def _said(row: ValueRow) -> str:
    difference = row.difference
    return (
        f"the first value that differs is %{difference.name}: {row.type} = {row.op}, from"
        f" {row.origin or 'the compiler'}: {difference.mismatches} elements, by"
        f" {difference.max_abs:g} at {list(difference.worst or ())} {difference.note}".rstrip()
    )


def per_value(
    module: Module,
    boards: Sequence[str],
    options: Options,
    sizes: Sequence[Mapping[str, int]],
    inputs: dict[str, Array],
    tolerance: Tolerance | None,
    outside: OnnxValues | None = None,
) -> Iterator[ValueRow]:
    """All values in the order of computation, board by board."""
    shown = all_values(module)
    for name in boards:
        judge = partial(_rows, tolerance=tolerance, outside=outside)
        yield from _on_board(shown, load_board(name), options, sizes, inputs, judge)


def all_values(module: Module) -> Module:
    """Make every value of the entry a result, in order, and every state a plain input and result.

    Values with data-dependent sizes are left out."""
    main = module.main
    inner = {s.name for s in module.symbols if s.inner}
    made = [out for call in main.body for out in call.outs if not out.type.symbols & inner]
    return _with_results(module.without_states, made)


def _with_results(module: Module, results: Sequence[Var]) -> Module:
    main = module.main
    entry = Function(main.name, main.params, main.body, tuple(results))
    return replace(module, functions=(entry, *module.functions[1:]))


def _on_board(
    module: Module,
    board: Board,
    options: Options,
    sizes: Sequence[Mapping[str, int]],
    inputs: dict[str, Array],
    rows: Callable[[Project, Case], Iterator[ValueRow]],
) -> list[ValueRow]:
    """Run with all values as results, or with half of them if the board has no room."""
    try:
        project = driver.compile_module(module, board, options)
        cases = cases_of(project.interface, sizes, inputs)
        cases = drawn_inside(project, cases, inputs.keys())
        return [row for case in cases for row in rows(project, case)]
    except (DoesNotFit, NoRoom):
        values = module.main.results
        if len(values) == 1:
            raise
        half = len(values) // 2
        parts = (_with_results(module, values[:half]), _with_results(module, values[half:]))
        return [
            row for part in parts for row in _on_board(part, board, options, sizes, inputs, rows)
        ]


def _rows(
    project: Project, case: Case, tolerance: Tolerance | None, outside: OnnxValues | None
) -> Iterator[ValueRow]:
    module, interface = project.source_module, project.interface
    feed = {p.name: a for p, a in zip(interface.inputs, case.inputs, strict=True)}
    known: KernelResults = {}
    expected = evaluate(module, feed, case.sizes, known)
    named = named_inputs(interface, case)
    blocked = has_partial_sums(project)
    vectors = has_vector_functions(project)
    calls = [ModelCall(named, case.sizes)]
    tf32, halves = rounds_factors(project), rounds_weights(project)
    model = ErrorModel(
        {"": module}, calls, known, blocked=blocked, vectors=vectors, tf32=tf32, halves=halves
    )
    foreign = {} if outside is None else outside(named, case.sizes)
    outputs = _outputs(project, case)
    makers = {out.name: call for call in module.main.body for out in call.outs}
    dims = {f.source: case.sizes[f.symbol.name] for f in interface.dims}
    for port in interface.outputs:
        call = makers[port.name]
        wanted = np.asarray(expected[port.name])
        other = foreign.get(port.name, wanted)
        known_outside = port.name in foreign and other.dtype == wanted.dtype
        judge = Judge(tolerance, model, known_outside)
        wanted = other if known_outside else wanted
        difference = judge(0, port.source, outputs[port.source], wanted)
        difference = replace(difference, name=port.name)
        yield ValueRow(project.board.name, dims, str(port.type), call.op, call.origin, difference)


def _outputs(project: Project, case: Case) -> dict[str, Array]:
    if project.board.family == "host":
        return host_model(project).run_at(case.sizes, case.inputs)
    (run,) = emulate_cases(project, [case])
    if run.status:
        raise StatusError(run.status, f"{project.name}_run")
    return run.outputs
