"""Every ONNX operator that is read: a handler, and its limits in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import onnx.defs

from relax_aot.frontends.onnx import control, dense, elementwise, movement, reduction
from relax_aot.frontends.onnx.context import Node
from relax_aot.ir.graph import Var

Handler = Callable[[Node], Var | tuple[Var, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `relax-aot ops`."""

    operator: str
    versions: str
    limits: str


@cache
def handlers() -> Mapping[str, Handler]:
    found: dict[str, Handler] = {}
    for family in (elementwise, movement, reduction, dense, control):
        for name, handler in family.HANDLERS.items():
            assert name not in found, f"operator {name} has two handlers"
            found[name] = handler
    return dict(sorted(found.items()))


def supported() -> list[Row]:
    """Operators of the default domain, with the first and the newest version known."""
    limits: dict[str, str] = {}
    for family in (elementwise, movement, reduction, dense, control):
        limits |= family.LIMITS
    newest = onnx.defs.onnx_opset_version()
    return [Row(name, f"7..{newest}", limits.get(name, "")) for name in handlers()]
