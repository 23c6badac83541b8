# SPDX-License-Identifier: Apache-2.0
"""A page that people look at: where every value lives over time, and what it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relax_aot.emit.interface import StatePart
from relax_aot.emit.render import render_html
from relax_aot.errors import RelaxAotError
from relax_aot.planning import Plan
from relax_aot.planning.steps import Step, walk_steps
from relax_aot.project import OutputError, Project
from relax_aot.report.cost import Cost
from relax_aot.report.device import LAUNCH_COLUMNS, TIMES, device_figures, launch_cells
from relax_aot.report.figures import (
    chosen_sizes,
    constant_kinds,
    figures,
    staged_values,
    step_costs,
)
from relax_aot.report.headline import Headline, headlines
from relax_aot.report.ladder import Ladder, ladder
from relax_aot.report.memory_map import (
    Curve,
    MemoryMap,
    curves_of,
    maps_of,
    sizes_text,
    stacked,
)
from relax_aot.report.terminal import LARGEST, terminal_text
from relax_aot.verify.profile import Profile


class FormatError(RelaxAotError):
    """A report in a form that does not exist."""


@dataclass(frozen=True, slots=True)
class Row:
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A layer; `share` of the operations of the one with most, 0 to 100."""

    name: str
    share: float
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoomRow:
    """A memory of the board; `share` of it is taken, 0 to 100."""

    memory: str
    size: str
    taken: str
    needs: str
    share: float


@dataclass(frozen=True, slots=True)
class CountedRow:
    """A C function that ran; `share` of all instructions, 0 to 100."""

    function: str
    instructions: str
    origin: str
    share: float


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    source: str
    board: str
    headline: tuple[Headline, ...]
    lower_bound_bytes: int
    state: str
    rooms: tuple[RoomRow, ...]
    maps: tuple[MemoryMap, ...]
    curves: tuple[Curve, ...]
    fusion: tuple[str, ...]
    ladder: Ladder | None
    floats: tuple[str, ...]
    layers: tuple[str, ...]
    apart: tuple[Row, ...]
    shared: tuple[Row, ...]
    sizes: tuple[Row, ...]
    ports: tuple[Row, ...]
    largest: tuple[Row, ...]
    slots: tuple[Row, ...]
    kernels: tuple[KernelRow, ...]
    cost_at: str
    counted: tuple[CountedRow, ...]
    counted_what: str
    constants: tuple[Row, ...]
    conditions: tuple[Row, ...]
    staged: tuple[Row, ...]
    launches: tuple[Row, ...]


def write_report(
    project: Project,
    path: str | os.PathLike[str],
    at: Sequence[Mapping[str, int]] = (),
    form: str = "html",
    counted: Profile | None = None,
) -> Path:
    """Write the report in one of FORMATS. `at`: the sizes to show, else lowest, middle and
    highest. `counted`: instructions to show next to the costs."""
    path = Path(path)
    text = report_text(project, at, form, counted)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None
    return path


def report_text(
    project: Project,
    at: Sequence[Mapping[str, int]] = (),
    form: str = "html",
    counted: Profile | None = None,
) -> str:
    if form not in FORMATS:
        raise FormatError(f"format {form!r}: known are {', '.join(FORMATS)}")
    return FORMATS[form](project, at, counted)


def _html(project: Project, at: Sequence[Mapping[str, int]], counted: Profile | None) -> str:
    return render_html(
        "report.html.j2",
        report=_report(project, at, counted),
        launch_columns=LAUNCH_COLUMNS,
        times=TIMES,
    )


def _svg(project: Project, at: Sequence[Mapping[str, int]], _: Profile | None) -> str:
    maps = maps_of(project.plan, chosen_sizes(project.plan, at))
    return render_html("report.svg.j2", name=project.name, drawing=stacked(maps))


def _json(project: Project, at: Sequence[Mapping[str, int]], counted: Profile | None) -> str:
    return json.dumps(figures(project, at, counted), indent=1) + "\n"


def _text(project: Project, at: Sequence[Mapping[str, int]], counted: Profile | None) -> str:
    return terminal_text(figures(project, at, counted))


FORMATS: Mapping[str, Callable[[Project, Sequence[Mapping[str, int]], Profile | None], str]] = {
    "html": _html,
    "svg": _svg,
    "json": _json,
    "txt": _text,
}


def _report(project: Project, at: Sequence[Mapping[str, int]], counted: Profile | None) -> Report:
    plan, interface = project.plan, project.interface
    chosen = chosen_sizes(plan, at)
    return Report(
        name=project.name,
        source=plan.module.source,
        board=project.board.title,
        headline=headlines(project, chosen[-1], sizes_text(chosen[-1])),
        lower_bound_bytes=plan.lower_bound_bytes,
        state=", ".join(map(_state, interface.states)) or "none",
        rooms=_rooms(project),
        maps=tuple(maps_of(plan, chosen)),
        curves=tuple(curves_of(plan)),
        fusion=_fusion(project),
        ladder=ladder(project.fusion.members) if project.fusion is not None else None,
        floats=project.floats,
        layers=project.quantized.lines() if project.quantized is not None else (),
        apart=_apart(project),
        shared=_shared(plan),
        sizes=tuple(
            Row((f.source, f"{f.symbol.low}..{f.symbol.high}", f.symbol.origin))
            for f in interface.dims
        ),
        ports=tuple(
            Row((kind, port.source, str(port.type)))
            for kind, ports in (("input", interface.inputs), ("output", interface.outputs))
            for port in ports
        ),
        largest=tuple(
            Row((slot.var.name, str(slot.var.type), f"{slot.greatest_bytes:,}"))
            for slot in sorted(plan.slots, key=lambda s: (-s.greatest_bytes, s.var.name))[:LARGEST]
        ),
        slots=tuple(
            Row(
                (
                    slot.var.name, str(slot.var.type), str(slot.bytes),
                    f"{slot.greatest_bytes:,}", f"{slot.offset:,}",
                    f"{slot.lifetime.start}..{slot.lifetime.stop - 1}",
                )
            )
            for slot in plan.slots
        ),
        kernels=_kernels(plan, chosen[-1]),
        cost_at=sizes_text(chosen[-1]),
        counted=_counted(counted) if counted is not None else (),
        counted_what=_counted_what(counted) if counted is not None else "",
        constants=tuple(
            Row((kind["dtype"], str(kind["count"]), f"{kind['bytes']:,}"))
            for kind in constant_kinds(plan)
        ),
        conditions=tuple(Row((str(c), c.origin)) for c in plan.module.conditions),
        staged=tuple(
            Row((one["value"], f"{one['greatest_bytes']:,}", one["why"]))
            for one in staged_values(plan)
        ),
        launches=_launches(project, chosen),
    )  # fmt: skip


def _rooms(project: Project) -> tuple[RoomRow, ...]:
    return tuple(
        RoomRow(
            room.memory,
            f"{room.size:,}",
            f"{room.taken:,}",
            ", ".join(f"{need.what} {need.bytes:,}" for need in room.needs) or "nothing",
            round(100 * room.taken / room.size, 1),
        )
        for room in project.rooms
    )


def _state(part: StatePart) -> str:
    rows = f" ({part.length} rows on axis {part.axis})" if part.length else ""
    return f"{part.source} {part.type}{rows}"


def _counted(profile: Profile) -> tuple[CountedRow, ...]:
    return tuple(
        CountedRow(row.function, f"{row.instructions:,}", row.origin, round(100 * row.share, 1))
        for row in profile.kernels
    )


def _counted_what(profile: Profile) -> str:
    return (
        f"One call on {profile.board} at {sizes_text(profile.dims)}: {profile.as_shipped:,}"
        f" instructions; {profile.instructions:,} with every kernel a function of its own, as"
        " here."
    )


def _kernels(plan: Plan, sizes: Mapping[str, int]) -> tuple[KernelRow, ...]:
    costs = list(step_costs(plan, sizes))
    work = [0 if c is None else c.multiply_adds + c.operations + c.functions for _, c in costs]
    most = max(work, default=0) or 1
    return tuple(
        KernelRow(
            step.callee.name,
            round(100 * own / most, 1),
            (*_cost(cost), step.call.origin or "the compiler"),
        )
        for (step, cost), own in zip(costs, work, strict=True)
    )


def _cost(cost: Cost | None) -> tuple[str, ...]:
    if cost is None:
        return ("unknown",) * 4
    sign = "" if cost.exact else "at most "
    other = cost.operations + cost.functions
    parts = (cost.multiply_adds, other, cost.loaded_bytes, cost.stored_bytes)
    return tuple(f"{sign if part else ''}{part:,}" for part in parts)


def _launches(project: Project, chosen: Sequence[Mapping[str, int]]) -> tuple[Row, ...]:
    """Of a GPU."""
    device = device_figures(project, chosen)
    return tuple(map(Row, launch_cells(device))) if device is not None else ()


def _fusion(project: Project) -> tuple[str, ...]:
    if project.fusion is None:
        return ()
    before, after = project.fusion.before, project.fusion.after
    return (
        f"{before.calls} calls of kernels before fusion, {after.calls} after",
        f"{before.bytes_moved:,} bytes moved before, {after.bytes_moved:,} after",
    )


def _apart(project: Project) -> tuple[Row, ...]:
    """Why neighbors stay two kernels: reason, how often, and where for example."""
    reasons: dict[str, list[str]] = {}
    for note in project.fusion.apart if project.fusion is not None else ():
        reasons.setdefault(note.reason, []).append(f"{note.writer} | {note.reader}")
    return tuple(Row((why, str(len(where)), where[0])) for why, where in sorted(reasons.items()))


def _shared(plan: Plan) -> tuple[Row, ...]:
    """Results that took the memory of an operand."""
    steps = (node for node in walk_steps(plan.program.nodes) if isinstance(node, Step))
    return tuple(Row((step.callee.name, name)) for step in steps for name in step.updates)
