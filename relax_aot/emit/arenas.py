# SPDX-License-Identifier: Apache-2.0
"""Slots and arenas as the templates see them: constants of sizes, offsets and needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.emit.c_names import Names, comment
from relax_aot.emit.contexts import RunContext
from relax_aot.ir.types import C_TYPES
from relax_aot.planning import Slot
from relax_aot.planning.allowed import most_by_relations

_FEW = 4
"""No more than so many names stand in one nest of RAOT_MAX."""


@dataclass(frozen=True, slots=True)
class LocalView:
    c_name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class SlotView:
    arena: str
    """The member of the memory struct that it lies in."""
    c_name: str
    c_type: str
    size_macro: str
    offset_macro: str
    size: str
    supports: tuple[LocalView, ...]
    """Constants that the offset is made of, where it has many."""
    offset: str
    end_macro: str
    end: str
    place: str
    """The offset as a run reads it."""
    note: str


@dataclass(frozen=True, slots=True)
class ArenaView:
    """One arena: what it is called in C, its greatest size, and its need for given dims."""

    member: str
    macro: str
    function: str
    place: str
    """The region, for a comment, where there are several."""
    used: bool
    bytes: int
    """At the declared bounds."""
    parts: tuple[LocalView, ...]
    greatest: str
    fixed_needs: tuple[str, ...]
    """Ends of slots of one size that have none above them; slots below need less."""
    needs: tuple[LocalView, ...]
    """Of each slot of varying size that has none above it: its offset, and its bytes."""
    locals: tuple[LocalView, ...]
    relations: bool
    """Whether sizes that relations exclude could need more than its greatest size."""
    table: TableView | None
    """Where a run computes the offsets."""


@dataclass(frozen=True, slots=True)
class TableView:
    """What raot/place.h computes the offsets of one call from."""

    function: str
    count: int
    size_of: str
    below: str
    sizes: str
    locals: tuple[LocalView, ...]


def slot_views(context: RunContext) -> tuple[SlotView, ...]:
    prefix, plan = context.interface.prefix, context.plan
    names = Names(before=f"{prefix}_UNDER__99")
    macro_of = {s.var.name: names.claim(s.var.name).upper() for s in plan.slots}
    views = []
    for slot in context.slots:
        name = macro_of[slot.var.name]
        size, offset = f"{prefix}_SIZE_{name}", f"{prefix}_OFFSET_{name}"
        under = dict.fromkeys(context.merged.get(one, one) for one in slot.below)
        below = [f"{prefix}_END_{macro_of[one]}" for one in under]
        supports, value = greatest_of(f"{prefix}_UNDER_{name}", below)
        views.append(
            SlotView(
                context.arenas[slot.region].member,
                context.values[slot.var.name],
                C_TYPES[slot.var.type.dtype],
                size,
                offset,
                context.constant(slot.bytes),
                supports,
                value,
                f"{prefix}_END_{name}",
                f"(long long){offset} + {size}",
                _place(context, slot, offset),
                comment(f"{slot.var.type}, at most {slot.greatest_bytes} bytes"),
            )
        )
    return tuple(views)


def _place(context: RunContext, slot: Slot, offset: str) -> str:
    if not _placed(context, slot.region):
        return offset
    number = [s for s in context.plan.slots if s.region == slot.region].index(slot)
    return f"(size_t)offsets_{context.arenas[slot.region].member}[{number}]"


def _placed(context: RunContext, region: int) -> bool:
    """A run computes the offsets. Without sizes of a call, there is one choice of offsets."""
    slots = [s for s in context.plan.slots if s.region == region]
    varies = context.interface.dims and not all(slot.bytes.is_constant for slot in slots)
    return context.plan.dynamic and bool(varies)


def _table(context: RunContext, region: int, function: str) -> TableView:
    slots = [s for s in context.plan.slots if s.region == region]
    numbers = {slot.var.name: number for number, slot in enumerate(slots)}
    sizes = list(dict.fromkeys(slot.bytes for slot in slots))
    below = [(len(slot.below), *(numbers[name] for name in slot.below)) for slot in slots]
    return TableView(
        function,
        len(slots),
        ", ".join(str(sizes.index(slot.bytes)) for slot in slots),
        ", ".join(str(number) for row in below for number in row),
        ", ".join(context.dim(context.for_any_length(size)) for size in sizes),
        _need_locals(context, slots, related=False),
    )


def arena_views(context: RunContext, slots: tuple[SlotView, ...]) -> tuple[ArenaView, ...]:
    plan = context.plan
    covered = {context.merged.get(n, n) for slot in context.slots for n in slot.below}
    views = []
    for number, port in enumerate(context.arenas):
        tops = [
            (view, slot)
            for view, slot in zip(slots, context.slots, strict=True)
            if slot.region == number and slot.var.name not in covered
        ]
        stem = f"{port.macro.removesuffix('_ARENA')}_TOP"
        size = plan.arenas[number].bytes
        parts, greatest = greatest_of(stem, [view.end_macro for view, _ in tops])
        related = any(
            most_by_relations(slot.bytes, plan.module)
            for slot in plan.slots
            if slot.region == number
        )
        table = None
        if _placed(context, number):
            related, tops = True, []
            table = _table(context, number, f"{context.interface.name}_place_{port.member}")
            if size < max(s.offset + s.greatest_bytes for s in plan.slots if s.region == number):
                greatest = f"RAOT_MIN({greatest}, {context.within} ? {size} : INT32_MAX)"
        if all(slot.bytes.is_constant for slot in plan.slots if slot.region == number):
            parts, greatest = (), str(size)
        views.append(
            ArenaView(
                port.member,
                port.macro,
                port.need,
                f" in {plan.arenas[number].region.name}" if len(plan.arenas) > 1 else "",
                number in context.arenas_used,
                size,
                parts,
                greatest,
                tuple(view.end_macro for view, slot in tops if slot.bytes.is_constant),
                tuple(
                    LocalView(
                        view.offset_macro, context.bytes(context.for_any_length(slot.bytes)), ""
                    )
                    for view, slot in tops
                    if not slot.bytes.is_constant
                ),
                _need_locals(context, [slot for _, slot in tops], related),
                related,
                table,
            )
        )
    return tuple(views)


def _need_locals(context: RunContext, tops: Sequence[Slot], related: bool) -> tuple[LocalView, ...]:
    sizes = (context.for_any_length(slot.bytes) for slot in tops)
    used = frozenset[str]().union(*(size.symbols for size in sizes))
    for condition in context.interface.conditions if related else ():
        symbols = condition.left.symbols | condition.right.symbols
        used |= frozenset() if symbols & context.plan.module.lengths.keys() else symbols
    return tuple(
        LocalView(context.symbols[f.symbol.name], f"dims->{f.c_name}", "")
        for f in context.interface.dims
        if f.symbol.name in used
    )


def greatest_of(stem: str, parts: Sequence[str]) -> tuple[tuple[LocalView, ...], str]:
    """The greatest of constants; through constants of its own where there are many, since
    the text of a nested macro doubles with each level."""
    views: list[LocalView] = []
    while len(parts) > _FEW:
        level = []
        for start in range(0, len(parts), _FEW):
            name = f"{stem}_{len(views)}"
            views.append(LocalView(name, _nested(parts[start : start + _FEW]), ""))
            level.append(name)
        parts = level
    return tuple(views), _nested(parts)


def _nested(parts: Sequence[str]) -> str:
    if not parts:
        return "0"
    if len(parts) == 1:
        return parts[0]
    return f"RAOT_MAX({_nested(parts[: len(parts) // 2])}, {_nested(parts[len(parts) // 2 :])})"
