# SPDX-License-Identifier: Apache-2.0
"""Calls that are made while compiling: what they leave in the states."""

from __future__ import annotations

from collections.abc import Sequence

from relax_aot.emit.initial import Initial
from relax_aot.errors import RelaxAotError
from relax_aot.ir.entries import EntryCall
from relax_aot.project.entries import EntriesProject
from relax_aot.verify.host import entries_host
from relax_aot.verify.program import Array
from relax_aot.verify.sequences import states_at


def after_calls(project: EntriesProject, calls: Sequence[EntryCall]) -> Initial:
    """The states of entries that were built for the host, after these calls."""
    if project.shared.dims:
        names = ", ".join(field.source for field in project.shared.dims)
        raise RelaxAotError(
            f"the state has the size {names}, which is known when the program starts: calls while"
            " compiling need states of fixed sizes"
        )
    host = entries_host(project)
    for entry, inputs in calls:
        host[entry](inputs)
    block = host[calls[-1][0]].state
    assert block is not None
    lengths = {field.source: host.length(field.source) for field in project.shared.lengths}
    states: dict[str, Array] = {}
    for entry, one in project.entries.items():
        rows = {f.symbol.name: lengths[f.source] for f in one.interface.lengths}
        states |= states_at(project, entry, {}, rows, block)
    return Initial(states, lengths)
