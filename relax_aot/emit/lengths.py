# SPDX-License-Identifier: Apache-2.0
"""The lengths of growing states in C: where the state block holds them, and how they change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relax_aot.emit.c_names import comment
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.functions import length_functions
from relax_aot.emit.interface import DimField, Interface
from relax_aot.ir.dims import Dim


@dataclass(frozen=True, slots=True)
class LengthView:
    """A length: its place in the header, and the functions that read and truncate it."""

    index: int
    get: str
    truncate: str
    get_call: str
    truncate_call: str
    note: str


@dataclass(frozen=True, slots=True)
class GrowthView:
    """What a call does with a length."""

    c_name: str
    macro: str
    full: str
    """A C condition: there is no room for the rows of this call. Nothing where it stores none."""


def length_views(interface: Interface) -> tuple[LengthView, ...]:
    return tuple(
        LengthView(
            _index(interface, field),
            get.declaration,
            truncate.declaration,
            f"{get.name}(&memory)",
            f"{truncate.name}(&memory, length)",
            comment(f"{field.source}: rows of the growing state, at most {field.macro}"),
        )
        for field in interface.all_lengths
        for get, truncate in [length_functions(interface, field)]
    )


def growth_views(context: RunContext) -> tuple[GrowthView, ...]:
    views = []
    for field in context.interface.lengths:
        growth, name = field.symbol.growth, context.symbols[field.symbol.name]
        assert growth is not None
        full = f"{context.dim(_step(field))} > {field.macro} - {name}"
        if field.symbol.name not in growth.after.symbols:
            full = f"{context.dim(growth.after)} > {field.macro}"
        views.append(GrowthView(name, field.macro, full if _step(field) != 0 else ""))
    return tuple(views)


def grown(context: RunContext) -> Iterator[str]:
    """The last statements of a run: the lengths after it."""
    for field in context.interface.lengths:
        if _step(field) != 0:
            assert field.symbol.growth is not None
            place = header_c(context.interface, field, const="")
            yield f"{place} = {context.dim(field.symbol.growth.after)};"


def header_c(interface: Interface, field: DimField, const: str = "const ") -> str:
    """A length in the header of the state block."""
    return f"(({const}int32_t *)memory->state)[{_index(interface, field)}]"


def _index(interface: Interface, field: DimField) -> int:
    """Where the header of the state block holds a length."""
    names = [one.source for one in interface.all_lengths]
    return 1 + len(interface.state_header) + names.index(field.source)


def _step(field: DimField) -> Dim:
    assert field.symbol.growth is not None
    return field.symbol.growth.after - Dim.of(field.symbol.name)
