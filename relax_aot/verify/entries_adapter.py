# SPDX-License-Identifier: Apache-2.0
"""Several entries behind the one table of raot_model.h: the first size says which entry is
called, the others are the sizes of all; inputs, outputs and results are those of all in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.emit.interface import Interface
from relax_aot.emit.render import render
from relax_aot.verify.adapter import InitSize, TableView, entry_source, entry_table, held_of


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
class EntriesAdapterView(TableView):
    entries: tuple[EntryView, ...]
    most_dims: int

    @property
    def run(self) -> str:
        return "call"


def entries_adapter_files(shared: Interface, interfaces: Sequence[Interface]) -> dict[str, str]:
    """A table for each entry, the one over them, and `model_sizes.h`."""
    view = _view(shared, interfaces)
    files = {f"adapter_{interface.name}.c": entry_source(interface) for interface in interfaces}
    files["adapter.c"] = render("verify/entries_adapter.c.j2", adapter=view)
    files["model_sizes.h"] = render("verify/model_sizes.h.j2", adapter=view)
    return files


def _view(shared: Interface, interfaces: Sequence[Interface]) -> EntriesAdapterView:
    bounded = interfaces[0].bounded + shared.lengths
    place = {field.source: number for number, field in enumerate(bounded, 1)}
    entries, inputs, outputs, results = [], 0, 0, 0
    for number, interface in enumerate(interfaces):
        sizes = ", ".join(f"dims[{place[field.source]}]" for field in interface.sizes) or "0"
        table = entry_table(interface)
        entries.append(EntryView(number, table, sizes, inputs, outputs, results))
        inputs += len(interface.inputs)
        outputs += len(interface.outputs)
        results += len(interface.results)
    return EntriesAdapterView(
        interface=shared,
        interfaces=tuple(interfaces),
        table="raot_model",
        dim_count=1 + len(bounded),
        greatest=_greatest(interfaces),
        has_init=shared.has_init,
        init_sizes=tuple(InitSize(f.c_name, f"dims[{place[f.source]}]") for f in shared.dims),
        lengths=held_of(shared, shared.lengths, 1 + len(interfaces[0].bounded)),
        entries=tuple(entries),
        most_dims=max(1, *(len(interface.sizes) for interface in interfaces)),
    )


def _greatest(interfaces: Sequence[Interface]) -> str:
    """One block holds the arenas of the entry that runs, one behind the other."""
    text = ""
    for interface in interfaces:
        own = " + ".join(f"(long long){arena.macro}_BYTES" for arena in interface.arenas) or "0"
        text = f"RAOT_MAX({text}, {own})" if text else own
    return text
