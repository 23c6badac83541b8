# SPDX-License-Identifier: Apache-2.0
"""Which output of a kernel may take the memory of which input.

Each iteration of the loops around a read and a write has its own slab of both tensors, and
within an iteration the read comes first. Schedules preserve this: an element of the input is
read for the last time before the element of the output at the same index is written.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.fusion import legality
from relax_aot.fusion.accesses import Access, loads, stores
from relax_aot.ir.builder import At
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Buffer, Kernel


def mark(module: Module) -> Module:
    """Every kernel of the module says which of its buffers may be the same memory."""
    kernels = tuple(replace(k, in_place=pairs_of(k)) for k in module.kernels)
    return replace(module, kernels=kernels)


def pairs_of(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """(input, output) pairs, each of one type. A micro-kernel accesses more than the element
    that its operand names."""
    if legality.opaque(kernel.body):
        return ()
    return tuple(
        (source.name, target.name)
        for target in kernel.outputs
        for source in kernel.inputs
        if source.type == target.type and _may_share(kernel, source, target)
    )


def _may_share(kernel: Kernel, source: Buffer, target: Buffer) -> bool:
    reads, writes = loads(kernel.body, source.name), stores(kernel.body, target.name)
    return all(_read_first(read, write) for read in reads for write in writes)


def _read_first(read: Access, write: Access) -> bool:
    shared = 0
    for one, other in zip(read.path, write.path, strict=False):
        if one != other:
            break
        shared += 1
    for depth, loop in zip(read.depths, read.loops, strict=True):
        if depth < shared and not _slab(loop.variable, read.at, write.at):
            return False
    return read.path[shared:] <= write.path[shared:]


def _slab(variable: str, one: At, other: At) -> bool:
    """Some axis of both is this loop's variable: no two iterations touch the same elements."""
    return any(a.symbol == b.symbol == variable for a, b in zip(one, other, strict=True))
