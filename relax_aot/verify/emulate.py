# SPDX-License-Identifier: Apache-2.0
"""A project on an emulated board: built with the harness, run, outputs as arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from relax_aot.binaries.stack import frame_of
from relax_aot.emulation.harness import HarnessCall, HarnessResult
from relax_aot.emulation.qemu import require_emulator, run_image
from relax_aot.errors import RelaxAotError
from relax_aot.files import write_files
from relax_aot.project.board import Board
from relax_aot.toolchain.build import FILES, Image, build_target
from relax_aot.verify.library import RawResult
from relax_aot.verify.program import Array, Built, Program, program_of, require_linked
from relax_aot.verify.samples import Case
from relax_aot.verify.sizes import (
    InputError,
    as_array,
    given_sizes,
    ordered_inputs,
    shown_sizes,
)

SMALL_FLAGS = ("-Os",)
TIMEOUT_SECONDS = 600.0
ADAPTER_FUNCTIONS = ("run", "call")
"""The functions of adapter.c on the way to the model; `call` only where it has several entries."""


class GuardError(RelaxAotError):
    """The generated code wrote outside the memory that it was given."""


@dataclass(frozen=True)
class Emulation:
    """One run on an emulated board."""

    status: int
    """The status of `<name>_run`: 0 is `RAOT_OK`."""
    outputs: dict[str, Array]
    """Arrays by output name."""
    instructions: int | None
    """Instructions of `<name>_run` alone; None if the emulator does not count them."""
    stack_bytes: int
    """The measured stack of `<name>_run`."""
    state: bytes = b""
    """The state block after the run."""
    cycles_estimated: int | None = None
    """An estimate of the cycles of `<name>_run`, where one was asked for."""


EntrySample = tuple[str, Mapping[str, Array]] | tuple[str, Mapping[str, Array], Mapping[str, int]]
"""An entry, its inputs by name, and sizes that no input determines."""
Sample = EntrySample | Mapping[str, Array]
"""Inputs by name are a call of a model without entries."""


def emulate(
    project: Built, samples: Sequence[Sample], sizes: Mapping[str, int] | None = None
) -> list[Emulation]:
    """Consecutive calls in one program, by arrays; a state is kept from call to call. `sizes` are
    those of every call that no shape determines, by the names of the source."""
    return emulate_cases(project, calls_of(program_of(project), samples, sizes or {}))


def calls_of(program: Program, samples: Sequence[Sample], always: Mapping[str, int]) -> list[Case]:
    """By arrays. A size that shapes the state is what the first call that determines it shows.
    Growing states have the rows that init sets before the first call."""
    asked: list[tuple[str, tuple[Array, ...], dict[str, int]]] = []
    first: dict[str, int] = {}
    for entry, arrays, sizes in (_checked(sample, program) for sample in samples):
        if entry not in program.interfaces:
            raise InputError(f"unknown entry {entry!r}; entries are {list(program.interfaces)}")
        interface = program.interfaces[entry]
        named = {name: as_array(value, f"input {name!r}") for name, value in arrays.items()}
        inputs = tuple(ordered_inputs(interface, named))
        fields, fixed = program.fields(entry), interface.fixed_sizes
        given = given_sizes(fields, {**always, **sizes}, fixed)
        first = given | shown_sizes(interface, inputs, given) | first
        asked.append((entry, inputs, given))
    held = {f.source: first[f.source] for f in program.shaping if f.source in first}
    cases = []
    lengths = {f.source: f.first for f in program.shared.lengths}
    capacities = program.shared.capacities
    for entry, inputs, given in asked:
        known = program.sizes(entry, inputs, {**lengths, **given}, held, anew=True)
        own = {f.symbol.name: known[f.source] for f in program.interfaces[entry].sizes}
        cases.append(Case(own, inputs, entry=entry, others=known))
        after = program.lengths_after(entry, known)
        if all(rows <= capacities[name] for name, rows in after.items()):
            lengths |= after
    return cases


def _checked(
    sample: object, program: Program
) -> tuple[str, Mapping[str, Array], Mapping[str, int]]:
    match sample:
        case Mapping() as arrays if not program.several:
            return "", arrays, {}
        case (str(entry), Mapping() as arrays):
            return entry, arrays, {}
        case (str(entry), Mapping() as arrays, Mapping() as sizes):
            return entry, arrays, sizes
    raise InputError(
        "a call is (entry, inputs by name) or (entry, inputs by name, sizes by name), got"
        f" {type(sample).__name__}"
    )


Runner = Callable[[Image, Board, Sequence[HarnessCall]], list[HarnessResult]]
"""Where an image's calls are run: an emulator, or a board at the end of a line."""


def emulate_cases(
    project: Built, cases: Sequence[Case], *, cycles: bool = False
) -> list[Emulation]:
    """Runs the cases in one program. A case that is `anew`, and the first, clears the state.
    `cycles` estimates these, too."""
    require_emulator(project.board)
    runner = partial(run_image, timeout=TIMEOUT_SECONDS, cycles=cycles)
    return run_cases(project, cases, runner)


def run_cases(project: Built, cases: Sequence[Case], runner: Runner) -> list[Emulation]:
    program = program_of(project)
    sizes = [program.case_sizes(case) for case in cases]
    calls = [
        HarnessCall(
            dims=tuple(program.dims(case.entry, known)),
            inputs=tuple(a.tobytes() for a in program.inputs(case.entry, case.inputs)),
            init=program.shared.has_init and (case.anew or number == 0),
        )
        for number, (case, known) in enumerate(zip(cases, sizes, strict=True))
    ]
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        image = build_image(project, Path(scratch))
        results = runner(image, project.board, calls)
        functions = ADAPTER_FUNCTIONS if program.several else ADAPTER_FUNCTIONS[:1]
        above = sum(frame_of(image.stack_files, name) for name in functions)
    return [
        _emulation(program, project.board, case, known, result, above)
        for case, known, result in zip(cases, sizes, results, strict=True)
    ]


def _emulation(
    program: Program,
    board: Board,
    case: Case,
    sizes: Mapping[str, int],
    result: HarnessResult,
    above: int,
) -> Emulation:
    """`above` are the bytes of stack that the adapter takes before it calls the model."""
    if not result.guards_ok:
        raise GuardError(
            f"{program.interfaces[case.entry].name} on {board.name} wrote outside its memory:"
            f" {', '.join(result.broken)}"
        )
    outputs: dict[str, Array] = {}
    if result.status == 0:
        data = tuple(np.frombuffer(data, np.uint8) for data in result.outputs)
        raw = RawResult(0, result.sizes, data, guards_ok=True, untouched=False)
        outputs = program.outputs(case.entry, sizes, raw)
    stack = max(result.stack_bytes - above, 0)
    return Emulation(
        result.status, outputs, result.instructions, stack, result.state, result.cycles
    )


def build_image(project: Built, folder: Path, outside: str = FILES) -> Image:
    """The project with harness and adapter, cross-compiled. Builds are cached by content."""
    require_linked(project, "the program of an emulated board")
    sources = folder / "project"
    support = folder / "support"
    adapter = program_of(project).adapter
    write_files(sources, project.files)
    write_files(support, {name: text.encode() for name, text in adapter.items()})
    return build_target(
        project.board,
        [sources / unit for unit in project.units],
        [sources],
        folder / "image",
        SMALL_FLAGS if project.view.small else (),
        support=[support / name for name in adapter if name.endswith(".c")],
        outside=outside,
    )
