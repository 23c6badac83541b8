# SPDX-License-Identifier: Apache-2.0
"""Bytes of scratch with which a kernel does not make the arena larger.

Some other call needs more for its own operands and results than what is alive at this kernel: the
difference is free. Values of the caller and constants take nothing of the arena.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from relax_aot.ir.bounds import interval
from relax_aot.ir.graph import Call, Function, Module, Var


def room_of(module: Module) -> Mapping[str, int]:
    """By name of the kernel; nothing for modules of several functions, which share an arena."""
    if len(module.functions) != 1:
        return {}
    (function,) = module.functions
    sizes = _arena_values(module, function)
    most = max((_alone(module, call, sizes) for call in function.body), default=0)
    return {name: max(free, 0) for name, free in _free(function, sizes, most).items()}


def fitting(module: Module, most: int) -> frozenset[str]:
    """Kernels at which no more than `most` bytes are alive, scratch included, where results
    overwrite operands that the kernel permits them to."""
    found: dict[str, int] = {}
    for function in module.functions:
        free = _free(function, _arena_values(module, function), most, module)
        found |= {name: min(bytes_, found.get(name, bytes_)) for name, bytes_ in free.items()}
    return frozenset(name for name, free in found.items() if free >= 0)


def _free(
    function: Function, sizes: Mapping[str, int], most: int, in_place: Module | None = None
) -> dict[str, int]:
    """What is left of `most` bytes at each kernel, by its name."""
    last = {v.name: at for at, call in enumerate(function.body) for v in (*call.outs, *call.inputs)}
    room: dict[str, int] = {}
    alive: set[str] = set()
    for at, call in enumerate(function.body):
        alive |= {out.name for out in call.outs}
        if call.op == "call_kernel":
            free = most - sum(sizes.get(name, 0) for name in alive)
            if in_place is not None:
                ending = {name for name, end in last.items() if end == at}
                free += _overwritten(in_place, call, sizes, ending)
            name = call.ref("kernel")
            room[name] = min(free, room.get(name, free))
        alive -= {name for name in alive if last[name] == at}
    return room


def _overwritten(
    module: Module, call: Call, sizes: Mapping[str, int], ending: Collection[str]
) -> int:
    """Bytes of the largest result that may take the place of an operand."""
    kernel = module.kernel_table[call.ref("kernel")]
    names = zip((*kernel.inputs, *kernel.outputs), (*call.inputs, *call.outs), strict=False)
    values = {buffer.name: value.name for buffer, value in names}
    pairs = ((values[operand], values[result]) for operand, result in kernel.in_place)
    shared = (min(sizes.get(a, 0), sizes.get(b, 0)) for a, b in pairs if a in ending)
    return max(shared, default=0)


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
