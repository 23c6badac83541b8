# SPDX-License-Identifier: Apache-2.0
"""Which kernels keep little scratch memory: those that make an arena larger than it may be."""

from __future__ import annotations

from collections.abc import Callable

from relax_aot import planning, scheduling
from relax_aot.ir.dims import interval
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Micro, walk
from relax_aot.microkernels.integers import TILE
from relax_aot.planning import order
from relax_aot.project.board import Board
from relax_aot.project.fit import Need, place

RESERVED = 1 / 8
"""The part of the RAM that arenas leave to the firmware where loops without scratch are right,
too."""


def scheduled(
    module: Module,
    schedule: Callable[[frozenset[str]], Module],
    board: Board,
    *,
    smallest: bool,
    keep_states: bool,
) -> Module:
    """By `schedule`, which is given the names of kernels that keep little scratch: none if the
    arena fits the board and need not be the smallest, else those at which more is alive than in
    that one. An arena with tiles of integers leaves a part of the RAM to the firmware."""

    def arena_bytes(module: Module) -> int:
        return planning.plan(order.run(module, keep_states=keep_states)).arena_bytes

    fast = schedule(frozenset())
    if board.cuda is not None:
        return fast
    part = RESERVED if _multiplies_integers(fast) else 0
    if not smallest and (
        _fits(module, board, _most(fast), part) or _fits(module, board, arena_bytes(fast), part)
    ):
        return fast
    names = frozenset(kernel.name for kernel in module.kernels)
    lean = schedule(names)
    least = arena_bytes(lean)
    if arena_bytes(fast) <= least:
        return fast
    some = schedule(names - scheduling.fitting(fast, least))
    return some if arena_bytes(some) <= least else lean


def _most(module: Module) -> int:
    """Bytes that every plan has room in."""
    results = {out.name: out for one in module.functions for call in one.body for out in call.outs}
    return sum(interval(out.type.bytes, module.bounds)[1] + 64 for out in results.values())


def _multiplies_integers(module: Module) -> bool:
    """Whether kernels have tiles that round floats to integers."""
    statements = (stmt for kernel in module.kernels for stmt in walk(kernel.body))
    return any(isinstance(stmt, Micro) and stmt.kernel is TILE for stmt in statements)


def _fits(module: Module, board: Board, arena_bytes: int, part: float) -> bool:
    """Whether the RAM of a board has room for an arena, with the stack, inputs and outputs, and
    this part for firmware; of a board with regions, that is not asked here."""
    rams = [memory for memory in board.memories if memory.kind == "ram"]
    if not rams or board.regions:
        return True
    ports = {value.name: value for value in (*module.main.params, *module.main.results)}
    needs = [Need("stack", board.stack_bytes, rams[0].name), Need("arena", arena_bytes)]
    needs.append(Need("firmware", int(rams[0].size * part), rams[0].name))
    for name, value in ports.items():
        needs.append(Need(name, interval(value.type.bytes, module.bounds)[1]))
    return not place(rams, needs).homeless
