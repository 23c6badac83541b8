# SPDX-License-Identifier: Apache-2.0
"""The figures that a report begins with: RAM, flash, work, accuracy, and which model it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.errors import RelaxAotError
from relax_aot.ir.text import to_text
from relax_aot.project import Project
from relax_aot.report.figures import step_costs
from relax_aot.verify.figures import memory_of

HASH_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Headline:
    """One figure: its title, its value, and what it is made of."""

    title: str
    value: str
    note: str


def headlines(project: Project, sizes: Mapping[str, int], at: str) -> tuple[Headline, ...]:
    """`sizes` are those that the work is counted at; `at` names them."""
    arena, state = project.plan.arena_bytes, project.state_bytes
    ram = Headline("RAM", f"{arena + state:,} bytes", f"arena {arena:,} + state {state:,}")
    costs = [cost for _, cost in step_costs(project.plan, sizes) if cost is not None]
    sign = "" if all(cost.exact for cost in costs) else "at most "
    work = sum(cost.multiply_adds for cost in costs)
    rows = [ram, _flash(project), Headline("Multiply-adds", f"{sign}{work:,}", f"at {at}")]
    if project.quantized is not None and project.quantized.layers:
        worst = min(project.quantized.layers, key=lambda layer: layer.sqnr)
        note = f"signal to quantization noise of the worst layer, {worst.name}"
        rows.append(Headline("Accuracy", f"{worst.sqnr:.1f} dB", note))
    return (*rows, Headline("Model", model_hash(project), "SHA-256 of the model as read"))


def _flash(project: Project) -> Headline:
    constants = f"constants {project.const_bytes:,}"
    unknown = Headline("Flash", f"{project.const_bytes:,} bytes", f"{constants}, without code")
    if project.board.family not in ("cortex_m", "linux"):
        return unknown
    try:
        memory = memory_of(project)
    except RelaxAotError:  # no compiler for this board, or an image that does not link
        return unknown
    code = memory.code_bytes or 0
    whole = code + memory.const_bytes
    return Headline("Flash", f"{whole:,} bytes", f"{constants} + code {code:,}")


def model_hash(project: Project) -> str:
    """Changes with the graph and with the bytes of any constant."""
    digest = hashlib.sha256(to_text(project.source_module).encode())
    for constant in project.source_module.constants:
        digest.update(constant.digest.encode())
    return digest.hexdigest()[:HASH_DIGITS]
