# SPDX-License-Identifier: Apache-2.0
"""Calls of several entries, one after the other, in one program on an emulated board."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from relax_aot.binaries.stack import frame_of
from relax_aot.emulation.harness import HarnessCall, HarnessResult
from relax_aot.emulation.qemu import require_emulator, run_image
from relax_aot.project.entries import EntriesProject
from relax_aot.verify.emulate import (
    ADAPTER_RUN,
    TIMEOUT_SECONDS,
    Emulation,
    GuardError,
    build_adapted,
)
from relax_aot.verify.entries_adapter import entries_adapter_files
from relax_aot.verify.entries_host import call_dims, call_inputs, entry_sizes, own_result
from relax_aot.verify.host import Array, outputs_of
from relax_aot.verify.library import RawResult
from relax_aot.verify.sizes import (
    InputError,
    as_array,
    given_sizes,
    ordered_inputs,
    require_shapes,
    shown_sizes,
)

ADAPTER_CALL = "call"
"""The function of adapter.c that calls the entry's part of it."""


@dataclass(frozen=True)
class EntryCall:
    """One call of an entry: sizes by the source's names, inputs in its interface's order."""

    entry: str
    sizes: dict[str, int]
    inputs: tuple[Array, ...]


Sample = tuple[str, Mapping[str, Array]] | tuple[str, Mapping[str, Array], Mapping[str, int]]
"""An entry, its inputs by name, and sizes that no input determines."""


def calls_of(
    project: EntriesProject, samples: Sequence[Sample], always: Mapping[str, int] | None = None
) -> list[EntryCall]:
    """By arrays. A size that shapes the state is what the first call that determines it shows.
    `always` are sizes for every call."""
    asked: list[tuple[str, tuple[Array, ...], dict[str, int]]] = []
    first: dict[str, int] = {}
    for entry, arrays, sizes in map(_checked, samples):
        if entry not in project.entries:
            raise InputError(f"unknown entry {entry!r}; entries are {list(project.entries)}")
        interface = project.entries[entry].interface
        named = {name: as_array(value, f"input {name!r}") for name, value in arrays.items()}
        inputs = tuple(ordered_inputs(interface, named))
        given = given_sizes(interface.bounded, {**(always or {}), **sizes})
        first = given | shown_sizes(interface, inputs, given) | first
        asked.append((entry, inputs, given))
    held = {f.source: first[f.source] for f in project.shared.dims if f.source in first}
    anew = project.shared.has_init
    return [
        EntryCall(entry, entry_sizes(project, entry, inputs, given, held, anew=anew), inputs)
        for entry, inputs, given in asked
    ]


def _checked(sample: object) -> tuple[str, Mapping[str, Array], Mapping[str, int]]:
    match sample:
        case (str(entry), Mapping() as arrays):
            return entry, arrays, {}
        case (str(entry), Mapping() as arrays, Mapping() as sizes):
            return entry, arrays, sizes
    raise InputError(
        "a call is (entry, inputs by name) or (entry, inputs by name, sizes by name), got"
        f" {type(sample).__name__}"
    )


def emulate_entries(project: EntriesProject, *sequences: Sequence[EntryCall]) -> list[Emulation]:
    """The state is kept from call to call of a sequence; each starts with a cleared state."""
    calls = [call for sequence in sequences for call in sequence]
    first = [number == 0 for sequence in sequences for number, _ in enumerate(sequence)]
    require_emulator(project.board)
    for call in calls:
        interface = project.entries[call.entry].interface
        named = {f.symbol.name: call.sizes[f.source] for f in interface.dims}
        require_shapes(interface, named, call.inputs)
    given = [
        HarnessCall(
            dims=tuple(call_dims(project, call.entry, call.sizes)),
            inputs=tuple(a.tobytes() for a in call_inputs(project, call.entry, call.inputs)),
            init=project.shared.has_init and anew,
        )
        for call, anew in zip(calls, first, strict=True)
    ]
    runner = partial(run_image, timeout=TIMEOUT_SECONDS)
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        image = build_adapted(project, entries_adapter_files(project), Path(scratch))
        results = runner(image, project.board, given)
        above = sum(frame_of(image.stack_files, name) for name in (ADAPTER_CALL, ADAPTER_RUN))
    return [_emulation(project, c, r, above) for c, r in zip(calls, results, strict=True)]


def _emulation(
    project: EntriesProject, call: EntryCall, result: HarnessResult, above: int
) -> Emulation:
    if not result.guards_ok:
        raise GuardError(
            f"{project.name}_{call.entry} on {project.board.name} wrote outside its memory:"
            f" {', '.join(result.broken)}"
        )
    outputs: dict[str, Array] = {}
    if result.status == 0:
        data = tuple(np.frombuffer(data, np.uint8) for data in result.outputs)
        raw = RawResult(0, result.sizes, data, guards_ok=True, untouched=False)
        interface = project.entries[call.entry].interface
        named = {f.symbol.name: call.sizes[f.source] for f in interface.dims}
        outputs = outputs_of(interface, named, own_result(project, call.entry, raw))
    stack = max(result.stack_bytes - above, 0)
    return Emulation(result.status, outputs, result.instructions, stack)
