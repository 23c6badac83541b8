# SPDX-License-Identifier: Apache-2.0
"""Calls of a model with state: several in a row, so that the state is carried from one to the next.

A sequence begins with a fresh state. The sizes that shape the state are the same in all its calls;
other sizes change from call to call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.interface import Interface
from relax_aot.emit.lengths import first_index
from relax_aot.ir.dims import interval
from relax_aot.verify.lengths import after, calls_between, calls_to, fitting
from relax_aot.verify.program import Built, Program, parts_of, program_of
from relax_aot.verify.samples import (
    Case,
    SizeChoiceError,
    allowed,
    input_of,
    require_inputs,
    sizes_to_run,
)
from relax_aot.verify.sizes import GREATEST_SIZE

Array = NDArray[Any]
CALLS = 4
"""Calls in a row, at least."""
APPENDS = 48
"""Calls that append rows, where no sizes are asked for."""
SHAPES = 3
"""Sequences, where no sizes are asked for and some of them shape the state."""
SEED = 41
ROUNDS = 2
"""How often a sequence calls every entry, so that each follows each."""


def sequences_of(
    interface: Interface, cases: Sequence[Case], arrays: Mapping[str, Array], *, chosen: bool
) -> list[Case]:
    """The cases as sequences, one behind the other; `anew` marks where each begins. `chosen`:
    the user gave sizes or inputs, and all of them run. A model without state is not changed."""
    if not interface.has_state:
        return list(cases)
    shaping = [f.symbol.name for f in interface.state_symbols]
    groups: dict[tuple[int, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(case.sizes[name] for name in shaping), []).append(case)
    found: list[Case] = []
    rng = np.random.default_rng(SEED)
    for number, group in enumerate(groups.values()):
        if number == SHAPES and not chosen:
            break
        calls = _filled(interface, group, cases, shaping, arrays, rng)
        first, *rest = _appended(interface, calls, arrays, rng, chosen=chosen)
        found += [replace(first, anew=True), *rest]
    return found


def _appended(
    interface: Interface,
    calls: Sequence[Case],
    arrays: Mapping[str, Array],
    rng: np.random.Generator,
    *,
    chosen: bool,
) -> list[Case]:
    """The calls, each after those that append the rows which it finds in growing states."""
    held = {f.symbol.name: 0 for f in interface.lengths}
    found: list[Case] = []
    for case in calls:
        for sizes in calls_between(interface, held, case.sizes):
            if len(found) >= APPENDS and not chosen:
                break
            found.append(replace(_case(interface, sizes, {}, rng), fills=True))
            held = after(interface, sizes)
        if any(case.sizes[name] > length for name, length in held.items()):
            case = _case(interface, {**case.sizes, **held}, arrays, rng)
        found.append(case)
        held = after(interface, case.sizes)
    return found


def filling(interface: Interface, case: Case) -> list[Case]:
    """Calls that append the rows which a case finds in growing states."""
    rng = np.random.default_rng(SEED)
    calls = calls_to(interface, case.sizes)
    return [replace(_case(interface, sizes, {}, rng), fills=True) for sizes in calls]


def _filled(
    interface: Interface,
    group: Sequence[Case],
    cases: Sequence[Case],
    shaping: Sequence[str],
    arrays: Mapping[str, Array],
    rng: np.random.Generator,
) -> list[Case]:
    """The group, with more calls where it has few: the same inputs again where all are given,
    else random ones at the sizes of other cases."""
    missing = CALLS - len(group)
    if missing <= 0:
        return list(group)
    if interface.inputs and all(p.source in arrays for p in interface.inputs):
        return list(islice(cycle(group), CALLS))
    fixed = {name: group[0].sizes[name] for name in shaping}
    sizes = [one.sizes | fixed for one in cases]
    fitting = [one for one in sizes if allowed(interface, one)] or [group[0].sizes]
    last = next(number for number, one in enumerate(cases) if one is group[-1])
    position = last + 1 if len(fitting) == len(cases) else 0
    more = islice(cycle(fitting), position, position + missing)
    return [*group, *(_case(interface, one, arrays, rng) for one in more)]


def _case(
    interface: Interface,
    sizes: Mapping[str, int],
    arrays: Mapping[str, Array],
    rng: np.random.Generator,
) -> Case:
    named = dict(sizes)
    inputs = (input_of(p, interface.shape(p, named), arrays, rng) for p in interface.inputs)
    return Case(named, tuple(inputs))


def entry_sequences(
    program: Program, at: Sequence[Mapping[str, int]], arrays: Mapping[str, Array]
) -> list[Case]:
    """For each choice of sizes: every entry in order, and again. `arrays` are inputs by name, or
    by `entry.name` where entries differ."""
    interfaces = list(program.interfaces.values())
    ports = [(name, p.source) for name, one in program.interfaces.items() for p in one.inputs]
    require_inputs([{source, f"{name}.{source}"} for name, source in ports], arrays)
    lengths = program.shared.lengths
    fields = interfaces[0].bounded
    asked = (*fields, *(f for f in lengths if any(f.source in one for one in at)))
    cases: list[Case] = []
    for seed, chosen in enumerate(sizes_to_run(asked, interfaces, at)):
        rng = np.random.default_rng(seed)
        sizes = {f.source: chosen[f.symbol.name] for f in asked}
        first = len(cases)
        held = dict.fromkeys((f.source for f in lengths), 0)
        for case in _filled_entries(program, sizes, rng) if asked != fields else ():
            cases.append(case)
            held |= program.lengths_after(case.entry, case.others)
        for name in [*program.interfaces] * ROUNDS:
            interface = program.interfaces[name]
            own = {**arrays}
            for port in interface.inputs:
                if f"{name}.{port.source}" in arrays:
                    own[port.source] = arrays[f"{name}.{port.source}"]
            known = _with_room(interface, {**sizes, **held})
            named = {f.symbol.name: known[f.source] for f in interface.sizes}
            cases.append(replace(_case(interface, named, own, rng), entry=name, others=known))
            held |= program.lengths_after(name, known)
        cases[first] = replace(cases[first], anew=True)
    return cases


def _filled_entries(
    program: Program, sizes: Mapping[str, int], rng: np.random.Generator
) -> Iterator[Case]:
    """Calls of one entry that append the rows in `sizes`, by the names of the source."""
    for name, interface in program.interfaces.items():
        own = {f.symbol.name: sizes[f.source] for f in interface.sizes if f.source in sizes}
        lengths = {f.symbol.name for f in interface.lengths}
        if not lengths or not lengths <= own.keys():
            continue
        try:
            calls = list(calls_to(interface, own))
        except SizeChoiceError:
            continue
        for call in calls:
            known = {**sizes, **{f.source: call[f.symbol.name] for f in interface.sizes}}
            case = _case(interface, call, {}, rng)
            yield replace(case, entry=name, others=known, fills=True)
        return


def _with_room(interface: Interface, sizes: dict[str, int]) -> dict[str, int]:
    """The sizes by source names, with fewer new rows where growing states have no room for them;
    these states are empty where one row has none."""
    symbols = {f.symbol.name: f.source for f in interface.sizes}
    own = {name: sizes[source] for name, source in symbols.items()}
    if allowed(interface, own) or not interface.lengths:
        return sizes
    empty = {**own, **dict.fromkeys((f.symbol.name for f in interface.lengths), 0)}
    found = next(fitting(interface, own, GREATEST_SIZE), None) or empty
    return {**sizes, **{source: found[name] for name, source in symbols.items()}}


def states_of(
    project: Built, entry: str, sizes: Mapping[str, int], block: Array
) -> dict[str, Array]:
    """The states of an entry in a state block, by the source's names of the outputs that they
    keep; several entries share the block."""
    own = parts_of(project)[entry]
    found = states_at(project, entry, sizes, after(own.interface, sizes), block)
    outputs = {part.source: part.output for part in own.interface.states}
    return {own.source_module.source_name(outputs[name]): data for name, data in found.items()}


def states_at(
    project: Built,
    entry: str,
    sizes: Mapping[str, int],
    rows: Mapping[str, int],
    block: Array,
) -> dict[str, Array]:
    """The same by the source's names of inputs, where growing states hold so many `rows`, by the
    symbols of their lengths."""
    own = parts_of(project)[entry]
    interface, found = own.interface, {}
    starts = _starts(project)
    for part in interface.states:
        start = starts[part.source]
        shape = tuple(size.evaluate(sizes) for size in part.type.shape)
        dtype = np.dtype(np.uint8) if part.type.dtype.value == "bool" else part.type.dtype.numpy
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        data = block[start : start + count].copy().view(dtype).reshape(shape)
        if part.length:
            first = _first_row(interface, own.source_module.source_name(part.length), block)
            data = data.take(range(first, first + rows[part.length]), axis=part.axis)
        found[part.source] = data.astype(part.type.dtype.numpy)
    return found


def _starts(project: Built) -> dict[str, int]:
    """Where states begin in the block of all entries, by the source's names of their inputs."""
    parts, shared = parts_of(project).values(), program_of(project).shared
    unit = max(part.plan.alignment for part in parts)
    most: dict[str, int] = {}
    for one in parts:
        for part in one.interface.states:
            greatest = interval(part.type.bytes, one.plan.module.bounds)[1]
            most.setdefault(part.source, -(-greatest // unit) * unit)
    starts, end = {}, shared.header_bytes(unit)
    for part in shared.states:
        starts[part.source] = end
        end += most[part.source]
    return starts


def _first_row(interface: Interface, length: str, block: Array) -> int:
    """Where the rows of a growing state begin: those of a window move."""
    for field in interface.windows:
        if field.source == length:
            return int(block[: len(block) // 4 * 4].view(np.int32)[first_index(interface, field)])
    return 0
