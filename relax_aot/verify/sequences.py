# SPDX-License-Identifier: Apache-2.0
"""Calls of a model with state: several in a row, so that the state is carried from one to the next.

A sequence begins with a fresh state. The sizes that shape the state are the same in all its calls;
other sizes change from call to call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.interface import Interface
from relax_aot.ir.dims import interval
from relax_aot.project import Project
from relax_aot.verify.program import Program
from relax_aot.verify.samples import Case, allowed, input_of, sizes_to_run

Array = NDArray[Any]
CALLS = 4
"""Calls in a row, at least."""
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
        first, *rest = _filled(interface, group, cases, shaping, arrays, rng)
        found += [replace(first, anew=True), *rest]
    return found


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
    position = cases.index(group[-1]) + 1 if len(fitting) == len(cases) else 0
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
    fields = interfaces[0].bounded
    cases = []
    for seed, chosen in enumerate(sizes_to_run(fields, interfaces, at)):
        rng = np.random.default_rng(seed)
        sizes = {f.source: chosen[f.symbol.name] for f in fields}
        for number, name in enumerate([*program.interfaces] * ROUNDS):
            interface = program.interfaces[name]
            own = {**arrays}
            for port in interface.inputs:
                if f"{name}.{port.source}" in arrays:
                    own[port.source] = arrays[f"{name}.{port.source}"]
            named = {f.symbol.name: sizes[f.source] for f in interface.dims}
            case = _case(interface, named, own, rng)
            cases.append(replace(case, anew=number == 0, entry=name, others=sizes))
    return cases


def states_of(project: Project, sizes: Mapping[str, int], block: Array) -> dict[str, Array]:
    """The states in a state block, by the source's names of the outputs that they keep."""
    interface, module, unit = project.interface, project.source_module, project.plan.alignment
    start = interface.header_bytes(unit)
    found = {}
    for part in interface.states:
        shape = tuple(size.evaluate(sizes) for size in part.type.shape)
        dtype = np.dtype(np.uint8) if part.type.dtype.value == "bool" else part.type.dtype.numpy
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        data = block[start : start + count].copy().view(dtype).reshape(shape)
        found[module.source_name(part.output)] = data.astype(part.type.dtype.numpy)
        most = interval(part.type.bytes, project.plan.module.bounds)[1]
        start += -(-most // unit) * unit
    return found
