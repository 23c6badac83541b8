# SPDX-License-Identifier: Apache-2.0
"""Several entries behind the one table of raot_model.h: the first size says which entry is
called, the others are the sizes of all; inputs, outputs and results are those of all in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.emit.interface import Interface
from relax_aot.emit.render import render
from relax_aot.verify.adapter import Member, entry_source, entry_table


@dataclass(frozen=True, slots=True)
class EntryView:
    """Where an entry's part begins in the tables of all."""

    number: int
    table: str
    sizes: str
    """Its own sizes among those of all, as initializers."""
    first_input: int
    first_output: int
    first_result: int


@dataclass(frozen=True, slots=True)
class EntriesAdapterView:
    name: str
    owner: str
    prefix: str
    entries: tuple[EntryView, ...]
    has_state: bool
    has_init: bool
    weights_apart: bool
    state_dims: tuple[Member, ...]
    input_sizes: tuple[str, ...]
    output_sizes: tuple[str, ...]
    input_sum: str
    output_sum: str
    dim_count: int
    most_dims: int
    input_count: int
    output_count: int
    result_count: int
    state_bytes: str
    greatest: str
    input_table: str
    output_table: str
    init: str


def entries_adapter_files(shared: Interface, interfaces: Sequence[Interface]) -> dict[str, str]:
    """A table for each entry, the one over them, and `model_sizes.h`."""
    view = _view(shared, interfaces)
    files = {f"adapter_{interface.name}.c": entry_source(interface) for interface in interfaces}
    files["adapter.c"] = render("verify/entries_adapter.c.j2", adapter=view)
    files["model_sizes.h"] = render("verify/model_sizes.h.j2", adapter=view)
    return files


def _view(shared: Interface, interfaces: Sequence[Interface]) -> EntriesAdapterView:
    bounded = interfaces[0].bounded
    place = {field.source: number for number, field in enumerate(bounded, 1)}
    entries, inputs, outputs, results = [], 0, 0, 0
    for number, interface in enumerate(interfaces):
        sizes = ", ".join(f"dims[{place[field.source]}]" for field in interface.dims) or "0"
        table = entry_table(interface)
        entries.append(EntryView(number, table, sizes, inputs, outputs, results))
        inputs += len(interface.inputs)
        outputs += len(interface.outputs)
        results += len(interface.results)
    sizes_in = tuple(port.macro for interface in interfaces for port in interface.inputs)
    sizes_out = tuple(port.macro for interface in interfaces for port in interface.outputs)
    return EntriesAdapterView(
        shared.name,
        shared.name,
        shared.prefix,
        tuple(entries),
        shared.has_state,
        shared.has_init,
        shared.weights_apart,
        tuple(Member(field.c_name, place[field.source]) for field in shared.dims),
        sizes_in,
        sizes_out,
        _sum(sizes_in),
        _sum(sizes_out),
        1 + len(bounded),
        max(1, *(len(interface.dims) for interface in interfaces)),
        inputs,
        outputs,
        results,
        f"{shared.prefix}_STATE_BYTES" if shared.has_state else "0",
        _greatest(interfaces),
        "input_bytes" if inputs else "NULL",
        "output_bytes" if outputs else "NULL",
        "init" if shared.has_init else "NULL",
    )


def _sum(macros: Sequence[str]) -> str:
    return " + ".join(f"RAOT_ROUND_UP_64({macro})" for macro in macros) or "0"


def _greatest(interfaces: Sequence[Interface]) -> str:
    """One block holds the arenas of the entry that runs, one behind the other."""
    text = ""
    for interface in interfaces:
        own = " + ".join(f"(long long){arena.macro}_BYTES" for arena in interface.arenas)
        text = f"RAOT_MAX({text}, {own})" if text else own
    return text
