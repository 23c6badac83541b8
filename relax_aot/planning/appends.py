# SPDX-License-Identifier: Apache-2.0
"""Growing states to which rows are appended in place.

A kernel that copies the old rows to their own places and writes only new rows changes no row that
the state holds: its length changes at the end of a call. So the new value takes the memory of the
old one, whatever is read, or fails, afterwards.
"""

from __future__ import annotations

from collections import Counter

from relax_aot.ir.dims import Bounds, Dim, prove_le
from relax_aot.ir.graph import Module, State
from relax_aot.ir.loops import For, If, Kernel, Let, Micro, Multiply, Stmt, Store
from relax_aot.planning.in_place import Share, joined, one_buffer, shares_of
from relax_aot.planning.steps import Program, Repeat, Step, walk_steps, written_by


def append_in_place(module: Module, program: Program) -> Program:
    """The program where growing states that are appended to have the memory of their old value."""
    found = {s.output: share for s in module.states if (share := _append(module, program, s))}
    inputs = {s.output: s.input for s in module.states}
    return joined(program, {new: inputs[new] for new in found}, list(found.values()))


def _append(module: Module, program: Program, state: State) -> Share | None:
    """How the one step that writes the new value shares the memory of the old one."""
    if not state.length or program.root(state.output) != state.output:
        return None
    steps = list(walk_steps(program.nodes))
    calls = Counter(node.callee.name for node in steps if isinstance(node, Step))
    writers = [
        (position, node)
        for position, node in enumerate(steps)
        if (isinstance(node, Step) and state.output in node.outs)
        or (isinstance(node, Repeat) and state.output in written_by(node))
    ]
    if len(writers) != 1:
        return None
    ((position, step),) = writers
    if not isinstance(step, Step) or not isinstance(step.callee, Kernel):
        return None
    if calls[step.callee.name] != 1 or (*step.args, *step.outs).count(state.input) != 1:
        return None
    for share in shares_of(step, position):
        if (share.before, share.after) == (state.input, state.output):
            kernel = one_buffer(step.callee, share)
            if appends(kernel, share.written, state.axis, Dim.of(state.length), module.bounds):
                return share
    return None


def appends(kernel: Kernel, target: str, axis: int, length: Dim, bounds: Bounds) -> bool:
    """Every row that the kernel writes to the buffer is at or behind `length` on the axis."""
    return _behind(kernel.body, target, axis, length, bounds)


def _behind(body: tuple[Stmt, ...], target: str, axis: int, length: Dim, bounds: Bounds) -> bool:
    for stmt in body:
        match stmt:
            case For():
                inside = _with(bounds, stmt.variable, stmt.start, stmt.stop - 1)
                if not _behind(stmt.body, target, axis, length, inside):
                    return False
            case If():
                for side in (stmt.then, stmt.otherwise):
                    if not _behind(side, target, axis, length, bounds):
                        return False
            case Let():
                bounds = _with(bounds, stmt.name, stmt.value, stmt.value)
            case Store(buffer, index):
                if buffer.name == target and not _proven(index, axis, length, bounds):
                    return False
            case Multiply() if stmt.sums.name == target:
                return False
            case Micro():
                # It writes at its address and behind.
                at = (load for load in stmt.written if load.buffer.name == target)
                if not all(_proven(load.index, axis, length, bounds) for load in at):
                    return False
            case _:
                pass
    return True


def _proven(index: tuple[Dim, ...], axis: int, length: Dim, bounds: Bounds) -> bool:
    known = all(name in bounds for name in index[axis].symbols)
    return known and prove_le(length, index[axis], bounds)


def _with(bounds: Bounds, name: str, least: Dim, most: Dim) -> Bounds:
    known = all(symbol in bounds for symbol in least.symbols | most.symbols)
    return bounds.with_value(name, least, most) if known else bounds
