# SPDX-License-Identifier: Apache-2.0
"""The graph before and after fusion in one drawing: calls before it are rows on the left, the
calls that they became are boxes to their right, values are arcs from writer to reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from relax_aot.fusion.summary import Member, Passed

ROW = 22.0
ARCS = 110.0
"""Room for arcs left of the rows."""
COLUMN = 375.0
GAP = 30.0
CHARACTER = 6.6
"""Width of a character of the drawing's monospaced text, at least."""
MOST_ROWS = 600
"""More than a page can show: the figures as JSON have them all."""


@dataclass(frozen=True, slots=True)
class Box:
    """A call. `style`: one before fusion, one that several became (joined), or alone."""

    x: float
    y: float
    width: float
    height: float
    label: str
    title: str
    style: str


@dataclass(frozen=True, slots=True)
class Arc:
    """A value on its way from one call to another; `style` gone where fusion removed it from
    memory."""

    path: str
    title: str
    style: str


@dataclass(frozen=True, slots=True)
class Ladder:
    width: float
    height: float
    before: tuple[Box, ...]
    after: tuple[Box, ...]
    arcs: tuple[Arc, ...]
    rows_left_out: int


def ladder(members: Sequence[Member]) -> Ladder:
    shown = members[:MOST_ROWS]
    rows = tuple(_row(number, member) for number, member in enumerate(shown))
    return Ladder(
        width=ARCS + 2 * COLUMN + GAP,
        height=max(len(shown), 1) * ROW,
        before=rows,
        after=tuple(_joined(shown)),
        arcs=tuple(_arcs(shown)),
        rows_left_out=len(members) - len(shown),
    )


def fitting(text: str, width: float) -> str:
    """As much of a label as has room."""
    room = int(width / CHARACTER)
    return text if len(text) <= room else f"{text[: room - 1]}…" if room > 3 else ""


def _row(number: int, member: Member) -> Box:
    first = member.writes[0]
    text = f"{_kind(member)}  {first.type}"
    title = f"{member.kernel}: {member.origin}\nwrites {', '.join(map(_value, member.writes))}"
    return _box(ARCS, number, 1, text, title, "before")


def _kind(member: Member) -> str:
    """A kernel's name without the name of its result."""
    return member.kernel.removesuffix(f"_{member.writes[0].name}")


def _box(x: float, row: int, rows: int, text: str, title: str, style: str) -> Box:
    label = fitting(text, COLUMN - 8)
    return Box(x, row * ROW + 2, COLUMN, rows * ROW - 4, label, title, style)


def _joined(members: Sequence[Member]) -> Iterator[Box]:
    """One box for the rows that stand together and became the same call."""
    row = 0
    for into, group in groupby(members, key=lambda m: m.into):
        together = list(group)
        text = " + ".join(map(_kind, together))
        what = ", ".join(into) or "nothing: unused"
        title = f"writes {what}"
        if len(into) > 1:
            title = f"computed in each of: {what}"
        yield _box(
            ARCS + COLUMN + GAP,
            row,
            len(together),
            text,
            title,
            "joined" if len(together) > 1 else "alone",
        )
        row += len(together)


def _arcs(members: Sequence[Member]) -> Iterator[Arc]:
    writers = {
        value.name: (row, value) for row, member in enumerate(members) for value in member.writes
    }
    for row, member in enumerate(members):
        for name in member.reads:
            if name not in writers:
                continue
            source, value = writers[name]
            fate = "" if value.kept else "; not in memory any more"
            style = "value" if value.kept else "gone"
            yield Arc(_path(source, row), f"{_value(value)}{fate}", style)


def _path(source: int, row: int) -> str:
    """From the lower half of one row to the upper half of another, further out the longer."""
    start, end = source * ROW + ROW * 0.65, row * ROW + ROW * 0.35
    out = ARCS - min(8.0 + 7.0 * abs(row - source), ARCS - 4.0)
    return f"M{ARCS:g} {start:g}C{out:g} {start:g} {out:g} {end:g} {ARCS:g} {end:g}"


def _value(value: Passed) -> str:
    return f"{value.name}: {value.type}, at most {value.greatest_bytes:,} bytes"
