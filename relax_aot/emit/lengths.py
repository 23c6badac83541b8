# SPDX-License-Identifier: Apache-2.0
"""The lengths of growing states in C: where the state block holds them, and how they change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relax_aot.emit.c_names import comment
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.functions import length_functions
from relax_aot.emit.interface import DimField, Interface, StatePart
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Growth
from relax_aot.ir.types import TensorType

DEVICE_BYTES = 16
"""The alignment of all values on a GPU."""


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
    """A C condition: there is no room for the rows of this call. Nothing where it stores none, or
    drops others."""
    first: str
    """In C, the number of the first row of a window; nothing where it is 0."""
    slack: int
    """The greatest number of that row."""


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
        slack = slack_of(context, field) if growth.is_window else growth.slack
        full = f"{context.dim(_step(field))} > {field.macro} - {name}"
        if field.symbol.name not in growth.after.symbols:
            full = f"{context.dim(growth.after)} > {field.macro}"
        full = "" if _step(field) == 0 or growth.is_window else full
        first = first_c(context.interface, field) if growth.is_window else ""
        views.append(GrowthView(name, field.macro, full, first, slack))
    return tuple(views)


def grown(context: RunContext) -> Iterator[str]:
    """The last statements of a run: the lengths after it."""
    for field in context.interface.lengths:
        growth = field.symbol.growth
        assert growth is not None
        if _step(field) == 0:
            continue
        place = header_c(context.interface, field, const="")
        if growth.is_window:
            yield from _slid(context, field, growth, place)
        else:
            yield f"{place} = {context.dim(growth.after)};"


def _slid(context: RunContext, field: DimField, growth: Growth, length: str) -> Iterator[str]:
    """A window drops its first rows, and moves the others where it has dropped many."""
    kept, place = growth.capacity, first_c(context.interface, field, const="")
    slack = slack_of(context, field)
    yield "{"
    yield f"    const int32_t total = {context.dim(growth.after)};"
    yield f"    const int32_t rows = total > {kept} ? {kept} : total;"
    yield f"    const int32_t first = {place} + (total > {kept} ? total - {kept} : 0);"
    yield f"    {length} = rows;"
    yield f"    {place} = first > {slack} ? 0 : first;"
    if context.interface.device:
        yield "}"  # the last launches of the run have moved the rows
        return
    yield f"    if (first > {slack}) {{"
    for part in context.interface.states:
        if part.length == field.symbol.name:
            blocks, row = (context.bytes(size) for size in row_sizes(part))
            start = f"raot_at(memory->state, {part.macro})"
            spots = f"{growth.places}, (size_t)first, (size_t)rows"
            yield f"        raot_move_rows({start}, {blocks}, {row}, {spots});"
    yield "    }"
    yield "}"


def slack_of(context: RunContext, field: DimField) -> int:
    """The greatest number of the first row of a window. On a GPU, where kernels access 16 bytes at
    a time, other rows begin at row 0 in each call."""
    growth = field.symbol.growth
    assert growth is not None
    parts = (part for part in context.interface.states if part.length == field.symbol.name)
    aligned = all(row_sizes(part)[1] % DEVICE_BYTES == 0 for part in parts)
    return growth.slack if aligned or not context.interface.device else 0


def row_sizes(part: StatePart) -> tuple[Dim, Dim]:
    """The blocks of rows of a growing state, and the bytes of one row."""
    shape = part.type.shape
    blocks = TensorType(part.type.dtype, shape[: part.axis]).elements
    return blocks, TensorType(part.type.dtype, shape[part.axis + 1 :]).bytes


def first_row(context: RunContext, part: StatePart) -> str:
    """The first row of a window, in C; nothing for other states."""
    for field in context.interface.windows:
        if part.length and field.source == context.plan.module.source_name(part.length):
            return first_c(context.interface, field)
    return ""


def bytes_before(context: RunContext, part: StatePart) -> str:
    """The bytes in front of the first row of a window, in C."""
    return f"(size_t){first_row(context, part)} * {context.bytes(row_sizes(part)[1])}"


def first_index(interface: Interface, field: DimField) -> int:
    """Where the header of the state block holds the first row of a window."""
    names = [one.source for one in interface.windows]
    return 1 + len(interface.state_header) + len(interface.all_lengths) + names.index(field.source)


def first_c(interface: Interface, field: DimField, const: str = "const ") -> str:
    """The first row of a window, in the header of the state block."""
    return f"(({const}int32_t *)memory->{interface.header_member})[{first_index(interface, field)}]"


def header_c(interface: Interface, field: DimField, const: str = "const ") -> str:
    """A length in the header of the state block."""
    return f"(({const}int32_t *)memory->{interface.header_member})[{_index(interface, field)}]"


def _index(interface: Interface, field: DimField) -> int:
    """Where the header of the state block holds a length."""
    names = [one.source for one in interface.all_lengths]
    return 1 + len(interface.state_header) + names.index(field.source)


def _step(field: DimField) -> Dim:
    assert field.symbol.growth is not None
    return field.symbol.growth.after - Dim.of(field.symbol.name)
