# SPDX-License-Identifier: Apache-2.0
"""Rows of states of recurrent layers by micro-kernels (`state_rows.h`), where functions of rows are
a table and compilers make no vectors.

A loop matches by its statements: new states that are mixed from old ones and `tanh` of candidates,
or that are gates of cells, stored in two places. Gates are rows of one array. Results keep their
bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from relax_aot.ir.dims import ZERO, row_major
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Apply, Declare, Expr, For, Load, Local, Store, apply, as_expr
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import moved, stride
from relax_aot.scheduling.epilogue import matched
from relax_aot.scheduling.nest import without_lets
from relax_aot.scheduling.strips import reads_early, written_out
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="states that are mixed",
        target="dsp",
        before="""
            symbol n in 1..9
            kernel @gru(%g: f32[n, 12], %x: f32[n, 4]) -> (%h: f32[n, 4], %y: f32[n, 4]) {
              for i in 0..n {
                for j in 0..4 {
                  local update: f32 = %g[i, j]
                  local fresh: f32 = gate_tanh((%x[i, j] + (%g[i, j + 4] * %g[i, j + 8])))
                  %h[i, j] = fma(update, %h[i, j], ((1.0:f32 - update) * fresh))
                  %y[i, j] = %h[i, j]
                }
              }
            }""",
        after="""
            kernel @gru(...
              for i in 0..n {
                micro raot_mix_reset_states_f32(%h[i, 0], %y[i, 0], %g[i, 0], %x[i, 0]) [4, 4]
              }
            }""",
    ),
    Example(
        why="candidates without resets",
        target="dsp",
        before="""
            kernel @gru(%g: f32[12]) -> (%h: f32[4], %y: f32[9]) {
              for j in 0..4 {
                local fresh: f32 = gate_tanh(%g[j + 8])
                %h[j] = fma(%g[j], %h[j], ((1.0:f32 - %g[j]) * fresh))
                %y[j + 5] = %h[j]
              }
            }""",
        after="""
            kernel @gru(...
              micro raot_mix_states_f32(%h[0], %y[5], %g[0]) [4, 4]
            }""",
    ),
    Example(
        why="cells and states",
        target="dsp",
        before="""
            kernel @lstm(%g: f32[16]) -> (%c: f32[4], %h: f32[4], %y: f32[4]) {
              for j in 0..4 {
                local before: f32 = %c[j]
                local enter: f32 = gate_sigmoid(%g[j])
                local forget: f32 = gate_sigmoid(%g[j + 8])
                local cell: f32 = ((forget * before) + (enter * gate_tanh(%g[j + 12])))
                %c[j] = cell
                %h[j] = (gate_sigmoid(%g[j + 4]) * gate_tanh(cell))
                %y[j] = %h[j]
              }
            }""",
        after="""
            kernel @lstm(...
              micro raot_cell_states_f32(%h[0], %y[0], %c[0], %g[0]) [4, 4]
            }""",
    ),
    Example(
        why="rows of gates that are not equally far apart",
        target="dsp",
        before="""
            kernel @gru(%g: f32[14], %x: f32[4]) -> (%h: f32[4], %y: f32[4]) {
              for j in 0..4 {
                local fresh: f32 = gate_tanh((%x[j] + (%g[j + 4] * %g[j + 10])))
                %h[j] = fma(%g[j], %h[j], ((1.0:f32 - %g[j]) * fresh))
                %y[j] = %h[j]
              }
            }""",
    ),
    Example(
        why="states that another iteration reads",
        target="dsp",
        before="""
            kernel @gru(%g: f32[12], %x: f32[4]) -> (%h: f32[5], %y: f32[4]) {
              for j in 0..4 {
                local fresh: f32 = gate_tanh((%x[j] + (%g[j + 4] * %g[j + 8])))
                %h[j + 1] = fma(%g[j], %h[j], ((1.0:f32 - %g[j]) * fresh))
                %y[j] = %h[j + 1]
              }
            }""",
    ),
)


def _row(name: str) -> Local:
    return Local(name, DType.F32)


def _mixed(candidate: Expr) -> Expr:
    update = _row("update")
    rest = (as_expr(1.0, DType.F32) - update) * apply("gate_tanh", candidate)
    return Apply("fma", (update, _row("states"), rest))


def _sigmoid(name: str) -> Expr:
    return apply("gate_sigmoid", _row(name))


_CELL = _sigmoid("forget") * _row("cells") + _sigmoid("enter") * apply(
    "gate_tanh", _row("candidate")
)


@dataclass(frozen=True, slots=True)
class _Form:
    """A micro-kernel: the new values of its rows, in the order in which they are stored, its rows
    of gates, of which it may read only some, and what else it reads."""

    name: str
    values: Mapping[str, Expr]
    gates: tuple[str, ...]
    more: tuple[str, ...] = ()


_FORMS = (
    _Form(
        "raot_mix_reset_states_f32",
        {"states": _mixed(_row("x") + _row("reset") * _row("candidate"))},
        ("update", "reset", "candidate"),
        ("x",),
    ),
    _Form(
        "raot_mix_states_f32",
        {"states": _mixed(_row("candidate"))},
        ("update", "", "candidate"),
    ),
    _Form(
        "raot_cell_states_f32",
        {"cells": _CELL, "states": _sigmoid("leave") * apply("gate_tanh", _CELL)},
        ("enter", "leave", "forget", "candidate"),
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets that compute gates of rows alone."""
    return apply_module(module, target, match) if target.gates == 1 else module


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    (loop,) = without_lets((stmt,))
    if not isinstance(loop, For) or loop.start != 0 or loop.axis or not loop.stop.is_constant:
        return None
    count = sum(isinstance(one, Declare) for one in loop.body)
    stores = [one for one in loop.body[count:] if isinstance(one, Store)]
    if len(stores) != len(loop.body) - count or len(stores) < 2:
        return None
    *updated, copy = stores
    if copy.value != Load(updated[-1].buffer, updated[-1].index):
        return None
    for form in _FORMS:
        rows = _rows(form, loop, updated)
        if rows is not None and _apart(rows, loop, copy):
            return partial(_emit, w, form.name, rows, loop, copy)
    return None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Operands by name, and the distances of rows of gates from the first one, in rows."""

    operands: Mapping[str, Load]
    gates: Mapping[int, Load]


def _rows(form: _Form, loop: For, updated: Sequence[Store]) -> _Rows | None:
    """What stands for each row of a form."""
    if len(updated) != len(form.values):
        return None
    places = {n: Load(one.buffer, one.index) for n, one in zip(form.values, updated, strict=True)}
    found: Mapping[str, Expr] | None = places
    for pattern, store in zip(form.values.values(), updated, strict=True):
        value = written_out(store.value, loop.body)
        before = loop.body[: loop.body.index(store)]
        if value is None or found is None or not reads_early(store.value, before, loop.body):
            return None
        found = matched(pattern, value, found)
    if found is None or not all(isinstance(one, Load) for one in found.values()):
        return None
    loads = {name: one for name, one in found.items() if isinstance(one, Load)}
    gates = {n: loads[name] for n, name in enumerate(form.gates) if name}
    return _Rows({name: loads[name] for name in (*form.values, *form.more)}, gates)


def _apart(rows: _Rows, loop: For, copy: Store) -> int:
    """From one row of gates to the next one, where all rows are contiguous and in memory of their
    own; else 0."""
    first = rows.gates[0]
    at = {n: row_major(load.index, load.buffer.shape) for n, load in rows.gates.items()}
    far = at[max(at)] - at[0]
    apart = far.constant // max(at) if far.is_constant else 0
    places: list[Load | Store] = [copy, *rows.operands.values(), *rows.gates.values()]
    buffers = {copy.buffer, first.buffer, *(load.buffer for load in rows.operands.values())}
    fits = (
        apart >= loop.stop.constant
        and all(place - at[0] == n * apart for n, place in at.items())
        and all(load.buffer == first.buffer for load in rows.gates.values())
        and len(buffers) == 2 + len(rows.operands)
        and all(stride(place, loop.variable) == 1 for place in places)
    )
    return apart if fits else 0


def _emit(w: Writer, name: str, rows: _Rows, loop: For, copy: Store) -> None:
    start = {loop.variable: ZERO}
    w.micro(
        name, **{n: moved(load, start) for n, load in rows.operands.items()}, y=moved(copy, start),
        gates=moved(rows.gates[0], start), count=loop.stop, apart=_apart(rows, loop, copy),
    )  # fmt: skip
