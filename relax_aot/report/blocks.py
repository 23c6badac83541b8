# SPDX-License-Identifier: Apache-2.0
"""The work of a kernel in the device form, as that of its first block and thread."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace

from relax_aot.ir.axes import DEVICE_AXES
from relax_aot.ir.loops import Binary, Expr, For, If, Index, Kernel, Let, Stmt

_COMPARE = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip


def on_device(kernel: Kernel) -> bool:
    return any(isinstance(stmt, For) and stmt.axis in DEVICE_AXES for stmt in kernel.body)


def first_block(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel:
    """The kernel without the sides of branches that its first block and thread do not take: those
    of the edges, which few others take."""
    return replace(kernel, body=_body(kernel.body, dict(sizes)))


def _body(body: tuple[Stmt, ...], known: dict[str, int]) -> tuple[Stmt, ...]:
    known = dict(known)
    result: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Let() if stmt.value.symbols <= known.keys():
                known[stmt.name] = stmt.value.evaluate(known)
                result.append(stmt)
            case For():
                inside = dict(known)
                inside.pop(stmt.variable, None)
                if stmt.axis in DEVICE_AXES and stmt.start.symbols <= known.keys():
                    inside[stmt.variable] = stmt.start.evaluate(known)
                result.append(replace(stmt, body=_body(stmt.body, inside)))
            case If():
                taken = _holds(stmt.condition, known)
                if taken is None:
                    sides = (_body(stmt.then, known), _body(stmt.otherwise, known))
                    result.append(replace(stmt, then=sides[0], otherwise=sides[1]))
                else:
                    result.extend(_body(stmt.then if taken else stmt.otherwise, known))
            case _:
                result.append(stmt)
    return tuple(result)


def _holds(condition: Expr, known: Mapping[str, int]) -> bool | None:
    """None where it depends on more than sizes."""
    match condition:
        case Binary(op="&&" | "||", left=left, right=right):
            sides = (_holds(left, known), _holds(right, known))
            decides = condition.op == "||"
            if decides in sides:
                return decides
            return None if None in sides else not decides
        case Binary(left=Index(dim=left), right=Index(dim=right)) if condition.op in _COMPARE:
            if left.symbols | right.symbols <= known.keys():
                return bool(_COMPARE[condition.op](left.evaluate(known), right.evaluate(known)))
    return None
