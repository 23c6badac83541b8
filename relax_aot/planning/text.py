# SPDX-License-Identifier: Apache-2.0
"""The text form of a plan: who lives where, bottom-up."""

from __future__ import annotations

from relax_aot.planning import Home, Plan


def plan_text(plan: Plan) -> str:
    lines = [
        (
            f"arena {plan.arena_bytes} bytes, aligned to {plan.alignment};"
            f" lower bound {plan.lower_bound_bytes}"
        ),
    ]
    for slot in plan.slots:
        below = ", ".join(f"%{name}" for name in slot.below) or "the bottom"
        lines.append(
            f"slot %{slot.var.name}: {slot.var.type} at {slot.offset},"
            f" {slot.greatest_bytes} bytes, steps {slot.lifetime.start}..{slot.lifetime.stop},"
            f" above {below}"
        )
    for name, home in plan.homes.items():
        if home in (Home.OUTPUT, Home.STATE):
            lines.append(f"{home.value} %{name}")
    lines += [f"commit %{one.source} to %{one.target}: {one.why}" for one in plan.commits]
    return "\n".join(lines) + "\n"
