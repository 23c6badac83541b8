# SPDX-License-Identifier: Apache-2.0
"""Calls that a run computes in parts of their rows, one after another (`Division` in ir/graph.py).

The function of a part is the run without its checks. The run checks a call as a whole, so that it
is refused before the first part; what fails later than that removes the rows of earlier parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.emit.arenas import LocalView
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.interface import Port
from relax_aot.emit.lengths import header_c
from relax_aot.emit.run_code import results_only
from relax_aot.emit.step_code import mentioned
from relax_aot.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class PartsView:
    function: str
    """Of one part."""
    parameter: str
    """What it has in addition to the parameters of a run, and which argument is given for it."""
    argument: str
    member: str
    """The size that is divided, in the struct of sizes."""
    rows: str
    """The same as a variable of the run."""
    most: int
    """Rows of a part."""
    locals: tuple[LocalView, ...]
    """Sizes of the part."""
    inputs: tuple[LocalView, ...]
    """Members with rows, and how far the first row of a part is behind that of the call."""
    lengths: tuple[LocalView, ...]
    """Of growing states, in the header: what they were before the call."""


def parts_of(
    context: RunContext, entry: Sequence[LocalView], steps: Sequence[str]
) -> PartsView | None:
    """None where calls are not divided. `entry` are the sizes of a call, `steps` the body."""
    interface = context.interface
    field = interface.divided
    if field is None:
        return None
    rows = context.symbols[field.symbol.name]
    ends = len(results_only(context)) > 0
    return PartsView(
        f"{interface.name}_part", ", int is_last" * ends,
        f", done + part.{field.c_name} == {rows}" * ends, field.c_name, rows, field.part,
        mentioned(tuple(entry), tuple(steps)),
        tuple(
            LocalView(port.c_name, _behind(context, port), "")
            for port in interface.inputs
            if field.symbol.name in port.type.symbols
        ),
        tuple(
            LocalView(header_c(interface, f, const=""), context.symbols[f.symbol.name], "")
            for f in interface.lengths
        ),
    )  # fmt: skip


def _behind(context: RunContext, port: Port) -> str:
    """The elements of the rows of earlier parts."""
    row = context.bytes(TensorType(port.type.dtype, port.type.shape[1:]).elements)
    return "done" if row == "1" else f"(size_t)done * {row}"
