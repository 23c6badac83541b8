# SPDX-License-Identifier: Apache-2.0
"""Everything that a report says, as plain values: docs/reference/report.md has the schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import interval
from relax_aot.ir.loops import Kernel
from relax_aot.planning import Plan, inner_sizes
from relax_aot.planning.steps import Step, walk_steps
from relax_aot.project import Project
from relax_aot.report.cost import Cost, cost_of
from relax_aot.report.device import device_figures
from relax_aot.report.memory_map import (
    bytes_at,
    curve_rows,
    entry_symbols,
    lower_bound_at,
    need_at,
    usual_sizes,
)
from relax_aot.verify.profile import Profile

Sizes = Mapping[str, int]

CURVE = ("size", "arena_bytes", "lower_bound_bytes", "arena_bytes_at_bound")
"""The columns of a curve."""

SCHEMA = 1
"""Rises when a field changes its meaning or goes away."""


class SizeError(RelaxAotError):
    """A size to show that the model does not have or cannot take."""


def chosen_sizes(plan: Plan, at: Sequence[Sizes]) -> list[dict[str, int]]:
    """The sizes that are asked for, the others at their upper bounds; without any: lowest,
    middle and highest."""
    symbols = {s.name: s for s in entry_symbols(plan)}
    for sizes in at:
        for name, size in sizes.items():
            if name not in symbols:
                known = ", ".join(sorted(symbols)) or "none"
                raise SizeError(f"--at {name}={size}: no such symbol; known are: {known}")
            low, high = symbols[name].low, symbols[name].high
            if not low <= size <= high:
                raise SizeError(f"--at {name}={size}: the bounds are {low}..{high} (--bound)")
    highs = {s.name: s.high for s in symbols.values()}
    return [{**highs, **sizes} for sizes in at] or usual_sizes(plan)


def figures(
    project: Project, at: Sequence[Sizes] = (), counted: Profile | None = None
) -> dict[str, Any]:
    plan = project.plan
    chosen = chosen_sizes(plan, at)
    return {
        "schema": SCHEMA,
        "model": project.name,
        "source": plan.module.source,
        "board": project.board.name,
        "numerics": project.view.numerics,
        "memory": {
            "arena_bytes": plan.arena_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "state_bytes": project.state_bytes,
            "const_bytes": project.const_bytes,
        },
        "board_memories": [asdict(room) for room in project.rooms],
        "symbols": [
            {"name": s.name, "low": s.low, "high": s.high, "origin": s.origin}
            for s in entry_symbols(plan)
        ],
        "conditions": [
            {"relation": f"{c.left} {c.relation} {c.right}", "origin": c.origin}
            for c in plan.module.conditions
        ],
        "regions": [_region(plan, number, chosen) for number in range(len(plan.arenas))],
        "values": _values(plan),
        "curves": {
            symbol.name: [dict(zip(CURVE, row, strict=True)) for row in curve_rows(plan, symbol)]
            for symbol in entry_symbols(plan)
            if symbol.high > symbol.low
        },
        "fusion": _fusion(project),
        "floats": list(project.floats),
        "quantized": None if project.quantized is None else asdict(project.quantized),
        "layers": list(project.quantized.lines()) if project.quantized is not None else [],
        "in_place": [
            {"kernel": step.callee.name, "value": name, "replaced": _replaced(plan, name)}
            for step in _steps(plan)
            for name in step.updates
        ],
        "staged": list(staged_values(plan)),
        "kernels": list(_kernels(plan, chosen)),
        "device": device_figures(project, chosen),
        "instructions": None if counted is None else counted.as_json(),
        "constants": constant_kinds(plan),
        "states": [
            {
                "name": s.source,
                "type": str(s.type),
                "greatest_bytes": _greatest(plan, s.type.bytes),
                "length": s.length and plan.module.source_name(s.length),
                "axis": s.axis if s.length else None,
                "capacity": plan.module.lengths[s.length].capacity if s.length else None,
            }
            for s in project.interface.states
        ],
    }


def staged_values(plan: Plan) -> Iterator[dict[str, Any]]:
    """What is written to the arena first, and copied at the end."""
    for commit in plan.commits:
        size = _greatest(plan, plan.program.values[commit.source].type.bytes)
        yield {"value": commit.source, "greatest_bytes": size, "why": commit.why}


def _steps(plan: Plan) -> Iterator[Step]:
    return (node for node in walk_steps(plan.program.nodes) if isinstance(node, Step))


def _greatest(plan: Plan, size: Any) -> int:
    return interval(size, plan.module.bounds)[1]


def _origins(plan: Plan) -> list[str]:
    made = {out.name: c.origin for f in plan.module.functions for c in f.body for out in c.outs}
    return [made.get(slot.var.name, "") for slot in plan.slots]


def _region(plan: Plan, number: int, chosen: Sequence[Sizes]) -> dict[str, Any]:
    arena = plan.arenas[number]
    return {
        "name": arena.region.name,
        "arena_bytes": arena.bytes,
        "lower_bound_bytes": arena.lower_bound_bytes,
        "at": [
            {
                "sizes": dict(sizes),
                "arena_bytes": need_at(plan, number, sizes),
                "lower_bound_bytes": lower_bound_at(plan, number, sizes),
                "bytes": {s.var.name: bytes_at(s, sizes) for s in plan.slots if s.region == number},
            }
            for sizes in chosen
        ],
    }


def _fusion(project: Project) -> dict[str, Any] | None:
    return None if project.fusion is None else asdict(project.fusion)


def _replaced(plan: Plan, name: str) -> list[str]:
    """The values whose memory it took or passed on: kernels joined them into one buffer."""
    views = {
        out.name
        for f in plan.module.functions
        for c in f.body
        if c.op not in ("call_kernel", "call_extern")
        for out in c.outs
    }
    program = plan.program
    return sorted(
        other
        for other in program.roots
        if other not in views and other != name and program.root(other) == name
    )


def step_costs(plan: Plan, sizes: Sizes) -> list[tuple[Step, Cost | None]]:
    """Every step with what one run of it costs; nothing is known of a foreign C function.
    Data-dependent sizes are at their upper bounds."""
    most = inner_sizes(plan.program, plan.module.bounds)
    known = {**sizes, **{n: max(d.evaluate(sizes), 0) for n, d in most.items()}}
    return [
        (s, cost_of(s.callee, known) if isinstance(s.callee, Kernel) else None)
        for s in _steps(plan)
    ]


def _values(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "name": slot.var.name,
            "type": str(slot.var.type),
            "bytes": str(slot.bytes),
            "greatest_bytes": slot.greatest_bytes,
            "offset": slot.offset,
            "region": slot.region,
            "first_step": slot.lifetime.start,
            "last_step": slot.lifetime.stop - 1,
            "below": list(slot.below),
            "origin": origin,
        }
        for slot, origin in zip(plan.slots, _origins(plan), strict=True)
    ]


def _kernels(plan: Plan, chosen: Sequence[Sizes]) -> Iterator[dict[str, Any]]:
    costs = [step_costs(plan, sizes) for sizes in chosen]
    for number, step in enumerate(_steps(plan)):
        cost_at = [table[number][1] for table in costs]
        yield {
            "name": step.callee.name,
            "reads": list(step.args),
            "writes": list(step.outs),
            "origin": step.call.origin,
            "cost": [
                {"sizes": dict(sizes), **(asdict(cost) if cost else {})}
                for sizes, cost in zip(chosen, cost_at, strict=True)
            ],
        }


def constant_kinds(plan: Plan) -> list[dict[str, Any]]:
    """By element type: how many, and their bytes."""
    kinds: dict[str, list[int]] = {}
    for constant in plan.module.constants:
        kinds.setdefault(constant.type.dtype.value, []).append(constant.type.bytes.constant)
    return [
        {"dtype": kind, "count": len(sizes), "bytes": sum(sizes)}
        for kind, sizes in sorted(kinds.items())
    ]
