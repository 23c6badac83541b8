# SPDX-License-Identifier: Apache-2.0
"""The report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from relax_aot.report.device import LAUNCH_COLUMNS, TIMES, launch_cells

LARGEST = 10
"""Values in the list of the largest."""


def terminal_text(figures: dict[str, Any]) -> str:
    return "\n".join(line.rstrip() for line in _lines(figures)) + "\n"


def _lines(figures: dict[str, Any]) -> Iterator[str]:
    memory = figures["memory"]
    yield f"{_plain(figures['model'])} for {figures['board']}"
    yield (
        f"arena {memory['arena_bytes']:,} bytes (lower bound {memory['lower_bound_bytes']:,}),"
        f" state {memory['state_bytes']:,}, constants {memory['const_bytes']:,}"
    )
    for s in figures["symbols"]:
        yield f"{s['name']}: {s['low']}..{s['high']}  {_plain(s['origin'])}"
    yield ""
    yield from _table(
        ("region", "sizes", "arena", "lower bound"),
        [
            (r["name"], _sizes(a["sizes"]), f"{a['arena_bytes']:,}", f"{a['lower_bound_bytes']:,}")
            for r in figures["regions"]
            for a in r["at"]
        ],
    )
    if fusion := figures["fusion"]:
        before, after = fusion["before"], fusion["after"]
        yield f"calls {before['calls']} -> {after['calls']}"
        yield f"bytes moved {before['bytes_moved']:,} -> {after['bytes_moved']:,}"
        yield ""
    for title, key in (("quantized layers", "layers"), ("stays in floats", "floats")):
        if figures[key]:
            yield title
            yield from map(_plain, figures[key])
            yield ""
    yield "largest values"
    largest = sorted(figures["values"], key=lambda v: (-v["greatest_bytes"], v["name"]))[:LARGEST]
    yield from _table(
        ("value", "type", "bytes", "offset", "steps"),
        [
            (v["name"], v["type"], f"{v['greatest_bytes']:,}", f"{v['offset']:,}",
             f"{v['first_step']}..{v['last_step']}")
            for v in largest
        ],
    )  # fmt: skip
    if figures["staged"]:
        yield "staged in the arena, copied at the end"
        yield from _table(
            ("value", "bytes", "why"),
            [(s["value"], f"{s['greatest_bytes']:,}", _plain(s["why"])) for s in figures["staged"]],
        )
    kernels = figures["kernels"]
    if kernels:
        yield f"cost at {_sizes(kernels[0]['cost'][-1]['sizes'])}"
        yield from _table(
            ("kernel", "multiply-adds", "loaded", "stored"),
            [(k["name"], *_cost(k["cost"][-1])) for k in kernels],
        )
    if device := figures["device"]:
        yield f"on the GPU at {_sizes(device['launches'][0]['at'][-1]['sizes'])}"
        yield from _table(LAUNCH_COLUMNS, launch_cells(device))
        yield TIMES


def _cost(cost: dict[str, Any]) -> tuple[str, str, str]:
    if "exact" not in cost:
        return ("?", "?", "?")
    sign = "" if cost["exact"] else "<= "
    fields = ("multiply_adds", "loaded_bytes", "stored_bytes")
    first, second, third = (f"{sign if cost[field] else ''}{cost[field]:,}" for field in fields)
    return first, second, third


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed sizes"


def _plain(text: str) -> str:
    """Text of a model without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    cells = [tuple(_plain(cell) for cell in row) for row in (head, *rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(head))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    yield ""
