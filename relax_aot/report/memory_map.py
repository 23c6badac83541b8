# SPDX-License-Identifier: Apache-2.0
"""The arena as a drawing at given sizes, and its bytes as a curve over each symbol.

Offsets are those of the generated C: at the upper bounds, where only the values shrink, or
dynamic ones. So what is drawn for smaller sizes is where they really lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relax_aot.ir.dims import maximize
from relax_aot.ir.graph import Symbol
from relax_aot.planning import Plan, Slot
from relax_aot.planning.orientation import offsets_at
from relax_aot.report.ladder import fitting

WIDTH, HEIGHT = 900.0, 300.0
TITLE = 24.0
CURVE_WIDTH, CURVE_HEIGHT = 720.0, 200.0
HUES = (205, 30, 120, 275, 355, 175, 55, 235)
POINTS = 33
"""Sizes at most on a curve."""

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Rectangle:
    """One value of the arena: time across, bytes up, in the units of the drawing."""

    x: float
    y: float
    width: float
    height: float
    hue: int
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """One arena at one set of sizes; all maps of a page have one scale."""

    title: str
    width: float
    height: float
    bound_y: float
    rectangles: tuple[Rectangle, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A map, and how far down it begins."""

    y: float
    map: MemoryMap


@dataclass(frozen=True, slots=True)
class Drawing:
    """Several maps in one picture; `title` is the height of the line above each."""

    width: float
    height: float
    title: float
    maps: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes over one symbol, the others at their upper bounds."""

    symbol: str
    width: float
    height: float
    need: str
    bound: str
    built: str
    """Points of polylines."""
    frame: str
    """The part of the plane that is shown: the curve with room for the axes' texts."""
    low: int
    high: int
    most: str
    """What the axes reach: `low..high` of the symbol, and bytes."""
    rows: tuple[tuple[int, int, int, int], ...]
    """(size, bytes that are needed, lower bound, bytes of a build with that bound)."""
    texts: tuple[tuple[str, ...], ...]
    """The rows, for people."""


def bytes_at(slot: Slot, sizes: Sizes) -> int:
    return max(slot.bytes.evaluate(sizes), 0)


def need_at(plan: Plan, region: int, sizes: Sizes) -> int:
    """What `<name>_arena_bytes` gives for these sizes."""
    offsets = offsets_of(plan, sizes)
    ends = (offsets[s.var.name] + bytes_at(s, sizes) for s in plan.slots if s.region == region)
    return max(ends, default=0)


def offsets_of(plan: Plan, sizes: Sizes) -> dict[str, int]:
    """Where a run at these sizes has the values."""
    if not plan.dynamic:
        return {s.var.name: s.offset for s in plan.slots}
    needs = {s.var.name: bytes_at(s, sizes) for s in plan.slots}
    return offsets_at({s.var.name: s.below for s in plan.slots}, needs)


def lower_bound_at(plan: Plan, region: int, sizes: Sizes) -> int:
    """The greatest sum of bytes alive at one time."""
    slots = [s for s in plan.slots if s.region == region]
    starts = {slot.lifetime.start for slot in slots}
    alive = (
        sum(bytes_at(s, sizes) for s in slots if s.lifetime.start <= step < s.lifetime.stop)
        for step in starts
    )
    return max(alive, default=0)


def need_of_bounds(plan: Plan, bounds: Sizes) -> int:
    """The arena of the same plan when the C is compiled with these upper bounds."""
    highs = {s.name: s.high for s in plan.module.symbols} | dict(bounds)
    most = {
        s.var.name: max(maximize(s.bytes, plan.module.bounds).evaluate(highs), 0)
        for s in plan.slots
    }
    offsets = offsets_at({s.var.name: s.below for s in plan.slots}, most)
    return sum(
        max(
            (offsets[s.var.name] + most[s.var.name] for s in plan.slots if s.region == r), default=0
        )
        for r in range(len(plan.arenas))
    )


def entry_symbols(plan: Plan) -> list[Symbol]:
    return [s for s in plan.module.symbols if not s.inner]


def usual_sizes(plan: Plan) -> list[dict[str, int]]:
    """Lowest, middle and highest; one where nothing varies."""
    symbols = entry_symbols(plan)
    steps = [
        {s.name: s.low for s in symbols},
        {s.name: (s.low + s.high) // 2 for s in symbols},
        {s.name: s.high for s in symbols},
    ]
    return [sizes for n, sizes in enumerate(steps) if sizes not in steps[:n]]


def sizes_text(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "fixed sizes"


def stacked(maps: Sequence[MemoryMap]) -> Drawing:
    """Maps below each other, each under its title."""
    places = [Placed(n * (HEIGHT + TITLE), drawn) for n, drawn in enumerate(maps)]
    return Drawing(WIDTH, len(maps) * (HEIGHT + TITLE), TITLE, tuple(places))


def maps_of(plan: Plan, chosen: Sequence[Sizes]) -> list[MemoryMap]:
    """One map for each arena and each of the sizes."""
    return [_map(plan, region, sizes) for sizes in chosen for region in range(len(plan.arenas))]


def _map(plan: Plan, region: int, sizes: Sizes) -> MemoryMap:
    scale = HEIGHT / max(plan.arenas[region].bytes, 1)
    steps = max((s.lifetime.stop for s in plan.slots), default=1)
    need, bound = need_at(plan, region, sizes), lower_bound_at(plan, region, sizes)
    offsets = offsets_of(plan, sizes)
    place = f"{plan.arenas[region].region.name}, " if len(plan.arenas) > 1 else ""
    return MemoryMap(
        f"{place}{sizes_text(sizes)}: {need:,} bytes, lower bound {bound:,}",
        WIDTH,
        HEIGHT,
        round(HEIGHT - bound * scale, 2),
        tuple(
            _rectangle(slot, number, sizes, offsets[slot.var.name], WIDTH / steps, scale)
            for number, slot in enumerate(plan.slots)
            if slot.region == region
        ),
    )


def _rectangle(
    slot: Slot, number: int, sizes: Sizes, offset: int, unit: float, scale: float
) -> Rectangle:
    size, life = bytes_at(slot, sizes), slot.lifetime
    height, width = size * scale, (life.stop - life.start) * unit
    return Rectangle(
        x=round(life.start * unit, 2),
        y=round(HEIGHT - offset * scale - height, 2),
        width=round(width, 2),
        height=round(height, 2),
        hue=HUES[number % len(HUES)],
        label=fitting(slot.var.name, width - 6) if height > 16 else "",
        title=f"{slot.var.name}: {slot.var.type}, {size:,} bytes at {offset:,},"
        f" steps {life.start} to {life.stop - 1}",
    )


def curves_of(plan: Plan) -> list[Curve]:
    return [_curve(plan, s) for s in entry_symbols(plan) if s.high > s.low]


def curve_rows(plan: Plan, symbol: Symbol) -> list[tuple[int, int, int, int]]:
    """The rows of a `Curve`; the other symbols are at their upper bounds."""
    highs = {s.name: s.high for s in entry_symbols(plan)}
    span = symbol.high - symbol.low
    count = min(POINTS, span + 1)
    values = sorted({symbol.low + span * n // max(count - 1, 1) for n in range(count)})
    regions = range(len(plan.arenas))
    rows = []
    for value in values:
        sizes = {**highs, symbol.name: value}
        need = sum(need_at(plan, region, sizes) for region in regions)
        bound = sum(lower_bound_at(plan, region, sizes) for region in regions)
        rows.append((value, need, bound, need_of_bounds(plan, sizes)))
    return rows


def _curve(plan: Plan, symbol: Symbol) -> Curve:
    rows = curve_rows(plan, symbol)
    most = max(max(row[1] for row in rows), 1)
    span = symbol.high - symbol.low

    def line(column: int) -> str:
        return " ".join(
            f"{(row[0] - symbol.low) / span * CURVE_WIDTH:.1f},"
            f"{CURVE_HEIGHT - row[column] / most * CURVE_HEIGHT:.1f}"
            for row in rows
        )

    shown = rows[:: max(len(rows) // 8, 1)]
    shown += [] if shown[-1] == rows[-1] else [rows[-1]]
    return Curve(
        symbol.name, CURVE_WIDTH, CURVE_HEIGHT, line(1), line(2), line(3),
        f"-90 -14 {CURVE_WIDTH + 110:g} {CURVE_HEIGHT + 40:g}",
        symbol.low, symbol.high, f"{most:,}", tuple(shown),
        tuple(tuple(f"{cell:,}" for cell in row) for row in shown),
    )  # fmt: skip
