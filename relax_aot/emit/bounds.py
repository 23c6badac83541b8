# SPDX-License-Identifier: Apache-2.0
"""The bounds of sizes in C: which may be changed, and what must hold of a changed one."""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.emit.arenas import LocalView
from relax_aot.emit.c_dims import bound_limits
from relax_aot.emit.c_names import comment
from relax_aot.emit.extern_code import extern_sizes
from relax_aot.emit.interface import DimField, Interface
from relax_aot.ir.dims import Dim
from relax_aot.planning import Plan, inner_sizes


@dataclass(frozen=True, slots=True)
class BoundView:
    c_name: str
    macro: str
    low: int
    high: int
    limit: int
    """The highest bound for which sizes can be computed, though they may be refused."""
    has_made_for: bool
    made_for: int
    """The highest bound that the code is right for, where a proof rests on it."""
    note: str
    range: str
    """What a member of the struct of sizes may be."""
    pinned: bool
    entry: bool
    """False for sizes that the model computes: a member, but not a parameter."""


def bound_views(interface: Interface, plan: Plan, reach: Dim) -> tuple[BoundView, ...]:
    fields = [(f, True) for f in interface.dims] + [(f, False) for f in interface.results]
    sizes = [*_sizes(interface, plan), reach]
    limits = bound_limits(sizes, plan.module.bounds, len(plan.slots) + 8)
    views = []
    for field, entry in fields:
        made_for = _made_for(interface, field)
        views.append(
            BoundView(
                field.c_name, field.macro, field.symbol.low, field.symbol.high,
                limits.get(field.symbol.name, 0), made_for > 0, made_for,
                _note(field, entry=entry), comment(_range_note(field, entry=entry)),
                field.pinned and entry, entry,
            )
        )  # fmt: skip
    return tuple(views)


def fixed_views(interface: Interface) -> tuple[LocalView, ...]:
    """The sizes of one value, of which only the macro is left, and the capacities of states."""
    fixed = [(f, f.symbol.low, _note(f, entry=True)) for f in interface.fixed]
    for field in interface.all_lengths:
        assert field.symbol.growth is not None
        capacity = field.symbol.growth.capacity
        window = field.symbol.growth.is_window
        kind = "rows that the window keeps" if window else "capacity of the growing state"
        note = comment(f"{field.source}: {_listed(field.symbol.origin, kind)}")
        fixed.append((field, capacity, note))
    return tuple(LocalView(f.macro, str(value), note) for f, value, note in fixed)


def _range_note(field: DimField, *, entry: bool) -> str:
    symbol = field.symbol
    if not entry:
        found = "data-dependent, returned in `result`"
        return _described(f"{symbol.low} to {symbol.high}, {found}", symbol.origin)
    high = str(symbol.high) if field.pinned else field.macro
    return _described(f"{symbol.low} to {high}", symbol.origin)


def _described(text: str, origin: str) -> str:
    """A text with the origin of a symbol, which a program in text form may leave out."""
    return f"{text}: {origin}" if origin else text


def _listed(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _note(field: DimField, *, entry: bool) -> str:
    symbol = field.symbol
    determined = "" if entry else "data-dependent, returned in `result`"
    values = f"{symbol.low}..{symbol.high}"
    return comment(f"{field.source}: {_listed(symbol.origin, values, determined)}")


def _made_for(interface: Interface, field: DimField) -> int:
    """What conditions that only a raised bound could break leave of it; else 0."""
    if interface.device:
        return field.symbol.high  # kernels are machine code for these bounds
    symbol = Dim.of(field.symbol.name)
    growths = [one.symbol.growth for one in interface.lengths]
    if any(g and g.is_window and symbol.symbols <= g.after.symbols for g in growths):
        return field.symbol.high  # a window has memory for the rows of such a call
    limits = [
        c.right.constant
        for c in interface.conditions
        if (c.relation, c.left) == ("<=", symbol) and c.right.is_constant
    ]
    return min((limit for limit in limits if limit >= field.symbol.high), default=0)


def _sizes(interface: Interface, plan: Plan) -> list[Dim]:
    """All sizes that are constant expressions over the bounds: bytes, and arguments of externs."""
    inner = inner_sizes(plan.program, plan.module.bounds)
    types = [port.type for port in (*interface.inputs, *interface.outputs)]
    types += [part.type for part in interface.states]
    return (
        [slot.bytes for slot in plan.slots]
        + extern_sizes(plan)
        + [-(-type_.bytes.substitute(inner) // plan.alignment) * plan.alignment for type_ in types]
    )
