# SPDX-License-Identifier: Apache-2.0
"""Integer sums in memory that become floats, by a micro-kernel (`scale_sums.h`).

Loops that multiply each sum by a scale and a factor, add a bias and limit the result read lines of
contiguous sums. A line has one scale, one bias and at most one start, which is added to its sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, Load, Store
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import follow, indexed_by, moved, step_of, stride
from relax_aot.scheduling.nest import counted_loops
from relax_aot.scheduling.scaled import Scaled, in_memory, scaled, step_along
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="a scale and a bias of each line",
        target="dsp",
        before="""
            symbol n in 1..9
            kernel @scale(%sums: i32[5, n], %a: f32[5], %s: f32[1], %b: f32[5]) -> (%y: f32[n, 5]) {
              for c in 0..5 {
                for i in 0..n {
                  %y[i, c] = max((((cast(%sums[c, i], f32, wrap) * %a[c]) * %s[0]) + %b[c]),
                    0.0:f32)
                }
              }
            }""",
        after="""
            kernel @scale(...) scratch (%by: f32[3]) {
              %by[0] = %s[0]
              %by[1] = 0.0:f32
              %by[2] = inf:f32
              micro raot_scale_lines_f32(...) [5, n, 1, 5, n, 1, 1]
            }""",
    ),
    Example(
        why="rows that follow each other, one scale",
        target="mve",
        before="""
            kernel @scale(%sums: i32[5, 6], %s: f32[1]) -> (%y: f32[5, 6, 3]) {
              for i in 0..5 {
                for j in 0..6 {
                  %y[i, j, 0] = (cast(%sums[i, j], f32, wrap) * %s[0])
                }
              }
            }""",
        after="""
            kernel @scale(...) scratch (%by: f32[3], %bias: f32[1]) {
              %by[0] = 1.0:f32
              %by[1] = -inf:f32
              %by[2] = inf:f32
              %bias[0] = -0.0:f32
              micro raot_scale_lines_f32(...) [1, 30, 0, 3, 0, 0, 0]
            }""",
    ),
    Example(
        why="a start of each line",
        target="mve",
        before="""
            kernel @scale(%sums: i32[5, 6], %n: i32[5], %s: f32[1]) -> (%y: f32[5, 6]) {
              for c in 0..5 {
                for i in 0..6 {
                  %y[c, i] = (cast((%sums[c, i] + %n[c]), f32, wrap) * %s[0])
                }
              }
            }""",
        after="""
            kernel @scale(...) scratch (%by: f32[3], %bias: f32[1]) {
              %by[0] = 1.0:f32
              %by[1] = -inf:f32
              %by[2] = inf:f32
              %bias[0] = -0.0:f32
              micro raot_scale_lines_from_f32(...) [5, 6, 6, 1, 6, 0, 0, 1]
            }""",
    ),
    Example(
        why="a scale of each sum",
        target="dsp",
        before="""
            kernel @scale(%sums: i32[9], %s: f32[9]) -> (%y: f32[9]) {
              for i in 0..9 {
                %y[i] = (cast(%sums[i], f32, wrap) * %s[i])
              }
            }""",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets whose compilers make no vectors of these loops."""
    fast = target.channels_last or target.dots == "_s16"
    return apply_module(module, target, match) if fast and not target.compact else module


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    counted = counted_loops(stmt, w.bounds)
    if counted is None:
        return None
    loops, body = counted
    store = body[0] if len(body) == 1 else None
    found = scaled(store.value) if isinstance(store, Store) else None
    if found is None or not isinstance(store, Store) or not isinstance(found.total, Load):
        return None
    line = loops[-1].variable
    if stride(found.total, line) != 1 or stride(store, line) is None or line in found.moved_by:
        return None
    if {loop.variable for loop in loops} & indexed_by(found.factor):
        return None
    total = found.total
    return lambda: _emit(w, loops, store, found, total)


def _emit(w: Writer, loops: list[For], store: Store, found: Scaled, total: Load) -> None:
    *outer, line = loops
    inside, count, places = [line], line.stop, (store, total)
    while outer and outer[-1].variable not in found.moved_by:
        if not all(follow(place, outer[-1], inside[0]) for place in places):
            break
        inside.insert(0, outer.pop())
        count = count * inside[0].stop
    operands = [one for one in (found.scale, found.bias, found.start) if one is not None]
    lines, steps = ONE, [ZERO] * (2 + len(operands))
    if outer and _has_lines(outer[-1].variable, found, places):
        lines, along = outer[-1].stop, outer[-1].variable
        steps = [step_of(place, along) for place in places]
        steps += [step_along(operand, along) for operand in operands]
        inside.append(outer.pop())
    by = found.operand(w)
    scale, bias = in_memory(w, found.scale, "scale"), in_memory(w, found.bias, "bias")
    first: dict[str, Dim] = {loop.variable: ZERO for loop in inside}
    names = ("line_step", "sum_line", "scale_step", "bias_step", "start_step")[: len(steps)]
    start = {} if found.start is None else {"start": moved(found.start, first)}
    with w.nest(outer):
        w.micro(
            f"raot_scale_lines{'_from' if start else ''}_f32", out=moved(store, first),
            sums=moved(total, first), **start, scale=moved(scale, first), bias=moved(bias, first),
            by=by, lines=lines, count=count, step=step_of(store, line.variable),
            **dict(zip(names, steps, strict=True)),
        )  # fmt: skip


def _has_lines(variable: str, found: Scaled, places: Sequence[Load | Store]) -> bool:
    """Whether scales and biases are contiguous along a loop, or the same in all iterations."""
    every = (found.scale, found.bias, found.start)
    operands = [one for one in every if isinstance(one, Load)]
    if any(stride(place, variable) is None for place in (*places, *operands)):
        return False
    return all(step_along(one, variable) in (ZERO, ONE) for one in operands)
