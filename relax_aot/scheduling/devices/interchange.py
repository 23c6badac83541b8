# SPDX-License-Identifier: Apache-2.0
"""Loops of independent iterations inside of a serial loop, moved around it.

A recurrence steps through time for all of a batch. Where no element of the batch reads what
another one writes, at no time, each takes its steps alone: so the loop over the batch can be the
outer one, and its iterations are blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import For, Kernel, Stmt
from relax_aot.scheduling.devices.proofs import Proofs


def interchanged(kernel: Kernel, bounds: Bounds) -> Kernel:
    """The kernel with loops moved outwards, where the order of what depends on each other stays."""
    for position, stmt in enumerate(kernel.body):
        if not isinstance(stmt, For) or Proofs(kernel, bounds).private(stmt) is not None:
            continue
        loops = perfect_nest(stmt)
        for loop in loops[1:]:
            rest = [one for one in loops if one is not loop]
            if any(_depends(one, loop) or _depends(loop, one) for one in rest):
                continue
            outer = _nest((loop, *rest), loops[-1].body)
            body = (*kernel.body[:position], outer, *kernel.body[position + 1 :])
            moved = replace(kernel, body=body)
            if Proofs(moved, bounds).private(outer) is not None:
                return interchanged(moved, bounds)
    return kernel


def perfect_nest(loop: For) -> list[For]:
    """Loops each of which is all that the one around it does."""
    found = [loop]
    while len(found[-1].body) == 1 and isinstance(inner := found[-1].body[0], For):
        found.append(inner)
    return found


def _depends(loop: For, on: For) -> bool:
    return on.variable in loop.start.symbols | loop.stop.symbols


def _nest(loops: Sequence[For], body: tuple[Stmt, ...]) -> For:
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    (outer,) = body
    assert isinstance(outer, For)
    return outer
