# SPDX-License-Identifier: Apache-2.0
"""A minimal reproducer: the smallest range of adjacent calls that still fails.

A range of the entry's calls is a module of its own. The values that it reads become inputs, and
the values that other calls read become results. Small ranges are tried first, so most reproducers
are one call.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot import driver
from relax_aot.diagnose.sources import first_source_difference
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.reference import KernelResults, evaluate
from relax_aot.externs import ExternError
from relax_aot.frontends.text import save
from relax_aot.ir.graph import Call, Constant, Function, Module, Var
from relax_aot.progress import step
from relax_aot.project.board import Board
from relax_aot.verify.emulate import emulate_cases
from relax_aot.verify.error_model import ErrorModel, ModelCall
from relax_aot.verify.host import host_model
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
from relax_aot.verify.samples import SizeChoiceError, cases_of
from relax_aot.version import VERSION

Array = NDArray[Any]
TEXT_NAME = "reproducer.raot"
INPUTS_NAME = "inputs.npz"
EXPECTED_NAME = "expected.npz"
DIFFERS = "results differ"


class NothingWrong(RelaxAotError):
    """The model does not fail."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a module. Failures with the same `kind` count as the same bug."""

    kind: str
    message: str
    mistake: RelaxAotError | None = None
    """A user error, which is not a bug."""


@dataclass(frozen=True, slots=True)
class Reproducer:
    module: Module
    failure: Failure
    calls: int
    of_calls: int
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """The inputs of the failure, if it depends on them."""
    expected: Mapping[str, Array] = field(default_factory=dict)
    """Results of ONNX Runtime, if the module's own reference is wrong too."""


def minimize(
    module: Module,
    board: Board,
    options: Options,
    sizes: Sequence[dict[str, int]] = (),
    outside: OnnxValues | None = None,
) -> Reproducer:
    """Return the smallest part with the failure of the whole module. `outside` is the reference
    if the C equals the module's own reference."""
    whole = failure_of(module, board, options, sizes)
    if whole is None and outside is not None:
        misread = _misread(module, board, options, sizes, outside)
        if misread is not None:
            return misread
    if whole is None:
        raise NothingWrong(
            f"the model compiles for {board.name} and equals its reference, so it has no failure "
            "to reproduce; add the options of the failure: --at, --board, --bound"
        )
    if whole.mistake is not None:
        raise whole.mistake
    count = len(module.main.body)
    for number, part in enumerate(_parts(module), 1):
        step(f"part {number}: {len(part.main.body)} of {count} calls")
        found = failure_of(part, board, options, ())
        if found is not None and found.kind == whole.kind:
            return Reproducer(part, found, len(part.main.body), count)
    return Reproducer(module, whole, count, count)


def _misread(
    module: Module,
    board: Board,
    options: Options,
    sizes: Sequence[dict[str, int]],
    outside: OnnxValues,
) -> Reproducer | None:
    """Return the first call whose meaning differs from that of the source model."""
    project = driver.compile_module(module, board, options)
    found = first_source_difference(project, outside, sizes)
    if found is None:
        return None
    plain = module.without_states
    part = cut(plain, found.position, found.position + 1)
    difference = found.difference
    failure = Failure(
        DIFFERS,
        f"%{difference.name} differs from ONNX Runtime: {difference.mismatches} elements differ,"
        f" by {difference.max_abs:g} at most",
    )
    arrays = {p.name: found.arrays[p.name] for p in part.main.params}
    expected = {v.name: found.arrays[v.name] for v in part.main.results}
    expected[difference.name] = found.wanted
    return Reproducer(part, failure, 1, len(module.main.body), arrays, expected)


def failure_of(
    module: Module, board: Board, options: Options, sizes: Sequence[dict[str, int]]
) -> Failure | None:
    """Compile, build, run and compare the module; return its failure, or None."""
    try:
        return _difference(module, board, options, sizes)
    except (ExternError, SizeChoiceError) as error:
        return Failure(type(error).__name__, str(error), error)
    except RelaxAotError as error:
        return Failure(type(error).__name__, str(error))
    except Exception as error:  # noqa: BLE001 - any exception may be the bug
        return Failure(type(error).__name__, f"{type(error).__name__}: {error}")


def _difference(
    module: Module, board: Board, options: Options, sizes: Sequence[dict[str, int]]
) -> Failure | None:
    project = driver.compile_module(module, board, options)
    for case in drawn_inside(project, cases_of(project.interface, sizes, {}), set()):
        ports = zip(project.interface.inputs, case.inputs, strict=True)
        known: KernelResults = {}
        expected = evaluate(module, {p.name: a for p, a in ports}, case.sizes, known)
        calls = [ModelCall(named_inputs(project.interface, case), case.sizes)]
        blocked, vectors = has_partial_sums(project), has_vector_functions(project)
        tf32, halves = rounds_factors(project), rounds_weights(project)
        model = ErrorModel(
            {"": module}, calls, known, blocked=blocked, vectors=vectors, tf32=tf32, halves=halves
        )
        judge = Judge(None, model)
        if board.family == "host":
            outputs = host_model(project).run_at(case.sizes, case.inputs)
        else:
            (run,) = emulate_cases(project, [case])
            outputs = run.outputs
        for port in project.interface.outputs:
            found = judge(0, port.source, outputs[port.source], expected[port.name])
            if not found.ok:
                return Failure(
                    DIFFERS,
                    f"{port.source} at {case.shown}: {found.mismatches} elements differ, by"
                    f" {found.max_abs:g} at most",
                )
    return None


def _parts(module: Module) -> Iterator[Module]:
    """Ranges of one call, of two, of four and so on, which overlap by half."""
    plain = module.without_states
    count, size = len(module.main.body), 1
    while size < count:
        for start in range(0, count - size + 1, max(size // 2, 1)):
            part = cut(plain, start, start + size)
            if part.main.results:
                yield part
        size *= 2


def cut(module: Module, start: int, stop: int) -> Module:
    """Return the calls `start` to `stop` of the entry as a module."""
    main, constants = module.main, module.constant_table
    body = main.body[start:stop]
    made = {out.name for call in body for out in call.outs}
    read = dict.fromkeys(v for call in body for v in call.inputs if v.name not in made)
    params = tuple(v for v in read if v.name not in constants)
    later = {v.name for call in main.body[stop:] for v in call.inputs}
    later |= {v.name for v in main.results}
    results = tuple(o for call in body for o in call.outs if o.name in later)
    used = {v.name for v in read}
    entry = Function(main.name, params, body, results)
    functions = (entry, *_called(module, body))
    for function in functions[1:]:
        used |= {v.name for call in function.body for v in call.inputs}
        used |= {v.name for v in function.results}
    part = replace(
        module,
        functions=functions,
        constants=tuple(c for c in module.constants if c.name in used),
    )
    return _sizes_shown(part, params, main.params)


def _called(module: Module, body: Sequence[Call]) -> tuple[Function, ...]:
    """The functions that the calls of `body` use, directly or indirectly."""
    wanted: list[str] = []
    waiting = [name for call in body for name in call.bodies]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.append(name)
            waiting += [n for call in module.function_table[name].body for n in call.bodies]
    return tuple(f for f in module.functions if f.name in wanted)


def _sizes_shown(part: Module, params: Sequence[Var], before: Sequence[Var]) -> Module:
    """Add the inputs that define the symbols of `part` which `params` do not define."""
    shown = {str(size) for v in params for size in v.type.shape}
    needed = {s.name for s in part.symbols if not s.inner and s.name not in shown} & _mentioned(
        part
    )
    extra = [v for v in before if v not in params and v.type.symbols & needed]
    main = part.main
    entry = Function(main.name, (*params, *extra), main.body, main.results)
    names = {v.name for v in (*entry.params, *entry.results)}
    mentioned = _mentioned(part) | frozenset[str]().union(*(v.type.symbols for v in extra))
    return replace(
        part,
        functions=(entry, *part.functions[1:]),
        symbols=tuple(s for s in part.symbols if s.name in mentioned),
        conditions=tuple(
            c for c in part.conditions if c.left.symbols | c.right.symbols <= mentioned
        ),
        aliases=tuple(a for a in part.aliases if a.name in names | mentioned),
    )


def _mentioned(part: Module) -> frozenset[str]:
    values = [v for f in part.functions for v in f.params]
    values += [v for f in part.functions for call in f.body for v in (*call.outs, *call.inputs)]
    return frozenset[str]().union(*(v.type.symbols for v in values))


def with_random_weights(module: Module) -> Module:
    """Replace float constants by random numbers, for confidential models."""
    rng = np.random.default_rng(2718)

    def drawn(constant: Constant) -> Constant:
        if not constant.type.dtype.is_float:
            return constant
        data = rng.normal(size=constant.data.shape) * 0.1
        return replace(constant, data=data.astype(constant.data.dtype))

    return replace(module, constants=tuple(drawn(c) for c in module.constants))


def write_reproducer(found: Reproducer, board: Board, options: Options, folder: Path) -> Path:
    """Write the part as text, with a note about the failure and the command that shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = save(found.module, folder / TEXT_NAME)
    judged = "--reference numpy"
    if found.expected:
        np.savez(folder / INPUTS_NAME, **dict(found.arrays))  # type: ignore[arg-type]  # arrays by name
        np.savez(folder / EXPECTED_NAME, **dict(found.expected))  # type: ignore[arg-type]  # as above
        judged = f"--inputs {INPUTS_NAME} --reference {EXPECTED_NAME}"
    note = (
        f"relax_aot {VERSION}, board {board.name}\n"
        f"{found.failure.kind}: {found.failure.message}\n"
        f"{found.calls} of {found.of_calls} calls remain\n\n"
        f"relax-aot verify {TEXT_NAME} --board {board.name} {judged}"
        f"{''.join(_beside(options, folder))}\n"
    )
    (folder / "README.txt").write_text(note, encoding="utf-8")
    return path


def _beside(options: Options, folder: Path) -> Iterator[str]:
    """Options that the text does not contain; paths are relative to the reproducer."""
    if options.optimize != "speed":
        yield f" --optimize {options.optimize}"
    if options.numerics != "blocked":
        yield f" --numerics {options.numerics}"
    for table in options.externs:
        yield f" --extern {shlex.quote(os.path.relpath(table, folder))}"
    for library in options.libraries:
        yield f" --library {shlex.quote(library)}"
