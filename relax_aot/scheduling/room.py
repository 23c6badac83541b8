# SPDX-License-Identifier: Apache-2.0
"""Bytes of scratch with which a kernel does not make the arena larger.

Some other call needs more for its own operands and results than what is alive at this kernel: the
difference is free. Values of the caller and constants take nothing of the arena.
"""

from __future__ import annotations

from collections.abc import Mapping

from relax_aot.ir.bounds import interval
from relax_aot.ir.graph import Call, Function, Module, Var


def room_of(module: Module) -> Mapping[str, int]:
    """By name of the kernel; nothing for modules of several functions, which share an arena."""
    if len(module.functions) != 1:
        return {}
    (function,) = module.functions
    sizes = _arena_values(module, function)
    last = {v.name: at for at, call in enumerate(function.body) for v in (*call.outs, *call.inputs)}
    most = max((_alone(module, call, sizes) for call in function.body), default=0)
    room: dict[str, int] = {}
    alive: set[str] = set()
    for at, call in enumerate(function.body):
        alive |= {out.name for out in call.outs}
        if call.op == "call_kernel":
            free = most - sum(sizes.get(name, 0) for name in alive)
            name = call.ref("kernel")
            room[name] = max(min(free, room.get(name, free)), 0)
        alive -= {name for name in alive if last[name] == at}
    return room


def _arena_values(module: Module, function: Function) -> dict[str, int]:
    """The greatest bytes of each value in the arena."""
    outside = {v.name for v in (*function.params, *function.results)} | module.constant_table.keys()

    def size(value: Var) -> int:
        return interval(value.type.bytes, module.bounds)[1]

    results = (out for call in function.body for out in call.outs)
    return {out.name: size(out) for out in results if out.name not in outside}


def _alone(module: Module, call: Call, sizes: Mapping[str, int]) -> int:
    """What a call needs in every plan. Results may overwrite operands where the kernel permits."""
    read = sum(sizes.get(name, 0) for name in {value.name for value in call.inputs})
    written = sum(sizes.get(out.name, 0) for out in call.outs)
    if call.op != "call_kernel":
        return 0
    return (
        max(read, written) if module.kernel_table[call.ref("kernel")].in_place else read + written
    )
