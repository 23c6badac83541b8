# SPDX-License-Identifier: Apache-2.0
"""Quantized values with a border, as a fill of all places and loops over those inside.

A loop nest that stores a quantized float where index conditions hold, and the same byte elsewhere,
becomes two nests. The inner one has no conditions, so that `quantized_lines` matches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, dim_max, dim_min, prove_le, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Binary, Expr, For, Index, Load, Select, Store
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import stride
from relax_aot.scheduling.nest import coefficient_dim, counted_loops
from relax_aot.scheduling.passes import quantized_lines
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="one place on both sides of each line",
        target="mve",
        before="""
            symbol n in 1..9
            kernel @quantize(%x: f32[4, n], %s: f32[1], %z: u8[1]) -> (%y: u8[4, n + 2]) {
              for i in 0..4 {
                for j in 0..n + 2 {
                  %y[i, j] = select(((index(0) <= index(j - 1)) && (index(j - 1) < index(n))),
                    cast((rint((%x[i, j - 1] / %s[0])) + cast(%z[0], f32, wrap)), u8, saturate),
                    %z[0])
                }
              }
            }""",
        after="""
            kernel @quantize(...
              for i in 0..4 {
                for j in 0..n + 2 {
                  %y[i, j] = %z[0]
                }
              }
              for i in 0..4 {
                for j in 0..n {
                  %y[i, j + 1] = cast((rint((%x[i, j] / %s[0])) + ...
                }
              }
            }""",
    ),
    Example(
        why="a border of other floats",
        target="mve",
        before="""
            kernel @quantize(%x: f32[4], %s: f32[1], %z: u8[6]) -> (%y: u8[6]) {
              for j in 0..6 {
                %y[j] = select(((index(0) <= index(j - 1)) && (index(j - 1) < index(4))),
                  cast((rint((%x[j - 1] / %s[0])) + 3.0:f32), u8, saturate), %z[j])
              }
            }""",
    ),
)  # fmt: skip


def run(module: Module, target: Target) -> Module:
    """Every kernel, for the targets of `quantized_lines`."""
    return apply_module(module, target, match) if target.has_byte_lines else module


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    counted = counted_loops(stmt, w.bounds)
    if counted is None:
        return None
    loops, body = counted
    store = body[0] if len(body) == 1 else None
    if not isinstance(store, Store) or not isinstance(store.value, Select):
        return None
    chosen, names = store.value, {loop.variable for loop in loops}
    found = quantized_lines.quantized(chosen.then, names)
    if found is None or not quantized_lines.is_steady(chosen.otherwise, names):
        return None
    inside = _inside(loops, chosen.condition, w.bounds)
    if inside is None or not isinstance(found.x, Load) or found.x.buffer.name == store.buffer.name:
        return None
    fill = replace(store, value=chosen.otherwise)
    return lambda: _emit(w, loops, inside, fill, replace(store, value=chosen.then))


def _emit(
    w: Writer, loops: Sequence[For], inside: Sequence[tuple[Dim, Dim]], fill: Store, value: Store
) -> None:
    with w.nest(sorted(loops, key=lambda loop: -_distance(fill, loop))):
        w.add(fill)
    within = [
        replace(loop, stop=stop - start) for loop, (start, stop) in zip(loops, inside, strict=True)
    ]
    moves = {loop.variable: start for loop, (start, _) in zip(loops, inside, strict=True)}
    with w.nest(within) as at:
        w.place((value,), {}, {name: dim + moves[name] for name, dim in at.items()})


def _distance(store: Store, loop: For) -> int:
    step = stride(store, loop.variable)
    return step.constant if step is not None and step.is_constant else 1 << 30


def _inside(loops: Sequence[For], condition: Expr, bounds: Bounds) -> list[tuple[Dim, Dim]] | None:
    """The range of each loop in which a conjunction of comparisons of indices holds."""
    ranges = {loop.variable: (ZERO, loop.stop) for loop in loops}
    pending = [condition]
    while pending:
        match pending.pop():
            case Binary("&&", left, right):
                pending += [left, right]
            case Binary("<=" | "<" as op, Index(left), Index(right)):
                room = right - left - (ONE if op == "<" else ZERO)
                if not _narrow(ranges, room):
                    return None
            case _:
                return None
    ends = (ranges[loop.variable] for loop in loops)
    found = [(simplify(start, bounds), simplify(stop, bounds)) for start, stop in ends]
    return found if all(prove_le(start, stop, bounds) for start, stop in found) else None


def _narrow(ranges: dict[str, tuple[Dim, Dim]], room: Dim) -> bool:
    """Limits the range of the one loop that moves `room` to where that is not negative."""
    names = [name for name in ranges if name in room.symbols]
    if not names:
        return room.is_constant and room.constant >= 0
    name, (low, high) = names[0], ranges[names[0]]
    step = coefficient_dim(room, name)
    if len(names) > 1 or step is None or not step.is_constant or abs(step.constant) != 1:
        return False
    rest = room - step * Dim.of(name)
    ends = (dim_max(low, -rest), high) if step == 1 else (low, dim_min(high, rest + 1))
    ranges[name] = ends
    return True
