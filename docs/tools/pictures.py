# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the explanations, from the compiler's own sizes and plans.

python -m docs.tools.pictures
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from relax_aot.ir.dims import Bounds, Dim, ceildiv, interval
from relax_aot.planning.conflicts import conflicts_of_lifetimes
from relax_aot.planning.lifetimes import Lifetime
from relax_aot.planning.orientation import Block, Packing, lower_bound, offsets_at, orient
from relax_aot.planning.packing import pack

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
HUES = (205, 30, 120, 275, 355, 175)
HIGH = 96
N = Dim.of("n")
STEP, ROOM, SCALE = 56, 40, 1 / 96
"""Pixels for one step, around the drawing, and for one byte."""


@dataclass(frozen=True, slots=True)
class Value:
    """`first` and `last` step at which it is alive; bytes."""

    name: str
    first: int
    last: int
    size: Dim


VALUES = (
    Value("query", 0, 1, 64 * N),
    Value("scores", 1, 3, 4 * N * 24),
    Value("table", 0, 4, Dim.of(4096)),
    Value("value", 2, 3, 64 * N),
    Value("mixed", 3, 5, 64 * N),
    Value("wide", 4, 5, 128 * N),
)


@dataclass(frozen=True, slots=True)
class Planned:
    below: Mapping[str, tuple[str, ...]]
    offsets: Mapping[str, int]
    """At the upper bound."""
    bound: int


def sizes_at(n: int) -> dict[str, int]:
    return {value.name: value.size.evaluate({"n": n}) for value in VALUES}


def planned() -> Planned:
    sizes = sizes_at(HIGH)
    blocks = [Block(v.name, Lifetime(v.first, v.last + 1), sizes[v.name]) for v in VALUES]
    packing: Packing = pack(blocks).packing
    conflicts = conflicts_of_lifetimes([block.lifetime for block in blocks])
    below = orient(blocks, packing, conflicts)
    assert offsets_at(below, sizes) == dict(packing.offsets)
    return Planned(below, packing.offsets, lower_bound(blocks))


def svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """Colors work on light and dark pages, because the picture has its own background."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        ' font-family="sans-serif" font-size="12" role="img">'
    )
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x: float, y: float, to_x: float, to_y: float, more: str = "") -> str:
    ends = f'x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"'
    return f'<line {ends} stroke="#333"{more}/>'


def arena(
    left: float, floor: float, sizes: Mapping[str, int], offsets: Mapping[str, int]
) -> list[str]:
    """Values as blocks: steps across, bytes up from the floor."""
    parts = []
    for number, value in enumerate(VALUES):
        x, width = left + value.first * STEP, (value.last - value.first + 1) * STEP
        height = sizes[value.name] * SCALE
        y = floor - offsets[value.name] * SCALE - height
        parts.append(
            f'<rect x="{x:g}" y="{y:.2f}" width="{width}" height="{height:.2f}"'
            f' fill="hsl({HUES[number]},65%,78%)" stroke="#333"/>'
        )
        if height >= 12:
            parts.append(text(x + 4, round(y + min(height, 26) / 2 + 4, 2), value.name))
    top = max(offsets[name] + sizes[name] for name in sizes)
    parts.append(line(left, floor, left + 6 * STEP, floor))
    parts.append(text(left, floor + 16, "steps", "start"))
    parts.append(text(left + 6 * STEP, floor + 16, f"{top:,} bytes", "end"))
    return parts


def picture_of_sizes() -> str:
    """One plan: at its bound, at a smaller size, and compiled with a smaller bound."""
    plan, small = planned(), 32
    floor = ROOM + 20 + max(plan.offsets[n] + s for n, s in sizes_at(HIGH).items()) * SCALE
    shown = (
        (f"n = {HIGH}, the bound", HIGH, plan.offsets),
        (f"n = {small}, same build", small, plan.offsets),
        (
            f"n = {small}, built with -D..._N_MAX={small}",
            small,
            offsets_at(plan.below, sizes_at(small)),
        ),
    )
    parts = []
    for place, (title, n, offsets) in enumerate(shown):
        left = ROOM + place * (6 * STEP + ROOM)
        parts.append(text(left, ROOM - 12, title))
        parts += arena(left, floor, sizes_at(n), offsets)
    width = ROOM + len(shown) * (6 * STEP + ROOM)
    return svg(width, floor + ROOM, "One plan at three sizes", parts)


def picture_of_orientation() -> str:
    """The orientation: an arrow goes from a value to those directly below it."""
    plan = planned()
    level: dict[str, int] = {}
    for name, under in plan.below.items():
        level[name] = 1 + max((level[u] for u in under), default=-1)
    rows = max(level.values()) + 1
    columns: dict[str, int] = {}
    for name in plan.below:
        columns[name] = sum(level[other] == level[name] for other in columns)
    wide, high = 150, 74
    floor = ROOM + rows * high

    def center(name: str) -> tuple[float, float]:
        # Every other row is moved aside, so that arrows that skip a row pass its boxes.
        x = ROOM + columns[name] * (wide + ROOM) + wide / 2 + level[name] % 2 * (wide + ROOM) / 2
        return x, floor - level[name] * high - 20

    marker = (
        '<marker id="head" orient="auto" markerWidth="8" markerHeight="8" refX="7" refY="4">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#333"/></marker>'
    )
    parts = [f"<defs>{marker}</defs>"]
    for name, under in plan.below.items():
        x, y = center(name)
        for other in under:
            to_x, to_y = center(other)
            parts.append(line(x, y + 16, to_x, to_y - 16, ' marker-end="url(#head)"'))
    for number, value in enumerate(VALUES):
        x, y = center(value.name)
        parts.append(
            f'<rect x="{x - wide / 2:g}" y="{y - 16:g}" width="{wide}" height="32" rx="4"'
            f' fill="hsl({HUES[number]},65%,78%)" stroke="#333"/>'
        )
        parts.append(text(x, y + 4, f"{value.name}: {value.size} bytes", "middle"))
    most = max(columns.values()) + 1
    return svg(
        2 * ROOM + (most + 0.5) * (wide + ROOM) - ROOM,
        floor + 10,
        "Orientation of the values",
        parts,
    )


def picture_of_curve() -> str:
    """Bytes over n: what a run needs in one build, and what a build with that bound needs."""
    plan = planned()
    width, height = 420, 220
    most = max(plan.offsets[n] + s for n, s in sizes_at(HIGH).items())
    needs, builds = [], []
    for n in range(1, HIGH + 1):
        sizes = sizes_at(n)
        offsets = offsets_at(plan.below, sizes)
        needs.append(max(plan.offsets[name] + sizes[name] for name in sizes))
        builds.append(max(offsets[name] + sizes[name] for name in sizes))
    parts = [
        line(ROOM, ROOM + height, ROOM + width, ROOM + height),
        line(ROOM, ROOM, ROOM, ROOM + height),
    ]
    curves = (
        ("arena of a run, one build", "#06c", needs),
        ("build with that bound", "#c40", builds),
    )
    for place, (name, color, curve) in enumerate(curves):
        points = " ".join(
            f"{ROOM + (n + 1) / HIGH * width:.1f},{ROOM + height - bytes_ / most * height:.1f}"
            for n, bytes_ in enumerate(curve)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        y = ROOM + height - 14 - 18 * place
        parts.append(f'<rect x="{ROOM + 250}" y="{y - 9}" width="12" height="4" fill="{color}"/>')
        parts.append(text(ROOM + 268, y - 3, name))
    parts.append(text(ROOM + width, ROOM + height + 16, f"n = {HIGH}", "end"))
    parts.append(text(ROOM, ROOM + height + 16, "n = 1"))
    parts.append(text(ROOM, ROOM - 10, f"{most:,} bytes"))
    return svg(2 * ROOM + width, 2 * ROOM + height, "Bytes over n", parts)


def picture_of_shapes() -> str:
    """The sizes of values from layer to layer, as formulas with their ranges."""
    bounds = Bounds.of({"n": (1, 256)})
    half = ceildiv(N, Dim.of(2))
    quarter = ceildiv(half, Dim.of(2))
    rows = (
        ("motion", (N, Dim.of(6)), "input"),
        ("stem", (half, Dim.of(16)), "Conv, stride 2"),
        ("mix", (half, Dim.of(16)), "Add: both operands have one formula"),
        ("narrow", (quarter, Dim.of(16)), "Conv, stride 2"),
        ("flat", (16 * quarter,), "Reshape: product of the axes"),
    )
    parts = []
    for place, (name, shape, how) in enumerate(rows):
        y = ROOM + place * 62
        low, high = interval(shape[0], bounds)
        words = f"{name}: [{', '.join(str(axis) for axis in shape)}]"
        parts.append(
            f'<rect x="{ROOM}" y="{y}" width="330" height="34" rx="4" fill="hsl(205,65%,90%)"'
            ' stroke="#333"/>'
        )
        parts.append(text(ROOM + 10, y + 22, words))
        parts.append(text(ROOM + 350, y + 14, how))
        parts.append(text(ROOM + 350, y + 30, f"first axis {low} to {high} for n in 1..256"))
        if place:
            parts.append(line(ROOM + 165, y - 28, ROOM + 165, y))
    return svg(680, ROOM + len(rows) * 62, "Sizes as formulas", parts)


PICTURES_BY_NAME = {
    "curve.svg": picture_of_curve,
    "orientation.svg": picture_of_orientation,
    "shapes.svg": picture_of_shapes,
    "sizes.svg": picture_of_sizes,
}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, draw in PICTURES_BY_NAME.items():
        (PICTURES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
