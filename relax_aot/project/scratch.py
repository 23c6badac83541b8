# SPDX-License-Identifier: Apache-2.0
"""Which kernels keep little scratch memory: those that make an arena larger than it may be."""

from __future__ import annotations

from collections.abc import Callable

from relax_aot import planning, scheduling
from relax_aot.ir.dims import interval
from relax_aot.ir.graph import Module
from relax_aot.planning import order
from relax_aot.project.board import Board


def scheduled(
    module: Module,
    schedule: Callable[[frozenset[str]], Module],
    board: Board,
    *,
    smallest: bool,
    keep_states: bool,
) -> Module:
    """By `schedule`, which is given the names of kernels that keep little scratch: those at which
    more is alive than in the smallest arena, or than the board has room for."""

    def arena_bytes(module: Module) -> int:
        return planning.plan(order.run(module, keep_states=keep_states)).arena_bytes

    fast = schedule(frozenset())
    if board.cuda is not None or not (smallest or board.memories):
        return fast
    names = frozenset(kernel.name for kernel in module.kernels)
    if not smallest:
        room = _room(module, board)
        large = names - scheduling.fitting(fast, room)
        some = schedule(large) if large else fast
        return some if not large or arena_bytes(some) <= room else fast
    lean = schedule(names)
    least = arena_bytes(lean)
    if arena_bytes(fast) <= least:
        return fast
    some = schedule(names - scheduling.fitting(fast, least))
    return some if arena_bytes(some) <= least else lean


def _room(module: Module, board: Board) -> int:
    """Bytes of RAM that stack, inputs and outputs leave."""
    ports = {value.name: value for value in (*module.main.params, *module.main.results)}
    taken = sum(interval(value.type.bytes, module.bounds)[1] for value in ports.values())
    memory = sum(one.size for one in board.memories if one.kind == "ram")
    return memory - board.stack_bytes - taken
