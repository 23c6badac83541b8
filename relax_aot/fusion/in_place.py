# SPDX-License-Identifier: Apache-2.0
"""Which output of a kernel may take the memory of which input.

Each iteration of the loops around a read and a write has its own slab of both tensors, or reads
elements that it or a later iteration writes, and within an iteration the read comes first. The
distances from reads to writes are then not negative in any loop, so schedules that tile or
interchange these loops preserve it: an element of the input is read for the last time before the
element of the output at the same index is written.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from relax_aot.fusion import legality
from relax_aot.fusion.accesses import Access, loads, stores
from relax_aot.fusion.check import FusionError
from relax_aot.fusion.checking.dependences import unproven_pairs
from relax_aot.fusion.checking.in_place import keeps_results
from relax_aot.fusion.checking.terms import World
from relax_aot.ir.builder import At
from relax_aot.ir.dims import Bounds, prove_le
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel
from relax_aot.progress import note


def mark(module: Module, lenient: bool = False) -> Module:
    """Every kernel of the module says which of its buffers may be the same memory."""
    bounds = module.bounds
    marked = (replace(k, in_place=pairs_of(k, bounds)) for k in module.kernels)
    return replace(module, kernels=tuple(proven_pairs(k, bounds, (), lenient) for k in marked))


def proven_pairs(
    kernel: Kernel, bounds: Bounds, given: tuple[tuple[str, str], ...], lenient: bool
) -> Kernel:
    """The kernel, where permissions that are not `given` are proven. Another one is an error, or
    with `lenient` withdrawn, with a note."""
    new = tuple(pair for pair in kernel.in_place if pair not in given)
    unproven = unproven_pairs(replace(kernel, in_place=new), bounds)
    if unproven:
        world = World(bounds)
        unproven = tuple(pair for pair in unproven if not keeps_results(kernel, pair, world))
    for read, written in unproven:
        reason = f"%{written} is not proven to fit the memory of %{read}"
        if not lenient:
            raise FusionError(kernel.name, reason)
        note(
            f"kernel {kernel.name} needs more memory, because {reason}; results are correct. "
            "Please report this model"
        )
    pairs = tuple(pair for pair in kernel.in_place if pair not in unproven)
    return replace(kernel, in_place=pairs) if unproven else kernel


def pairs_of(kernel: Kernel, bounds: Bounds) -> tuple[tuple[str, str], ...]:
    """(input, output) pairs, each of one type. A micro-kernel accesses more than the element
    that its operand names."""
    if legality.opaque(kernel.body):
        return ()
    return tuple(
        (source.name, target.name)
        for target in kernel.outputs
        for source in kernel.inputs
        if source.type == target.type
        and all(
            _read_first(read, write, bounds)
            for read in loads(kernel.body, source.name)
            for write in stores(kernel.body, target.name)
        )
    )


def _read_first(read: Access, write: Access, bounds: Bounds) -> bool:
    pairs = zip(read.path, write.path, strict=False)
    shared = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
    for loop in read.ranges:
        if all(name in bounds for name in loop.start.symbols | loop.stop.symbols):
            bounds = bounds.with_value(loop.variable, loop.start, loop.stop - 1)
    later = False
    for depth, loop in zip(read.depths, read.loops, strict=True):
        if depth >= shared:
            break
        ahead = _ahead(loop.variable, read.at, write.at, bounds)
        if ahead is None:
            return False
        later = later or ahead
    return later or read.path[shared:] <= write.path[shared:]


def _ahead(variable: str, read: At, write: At, bounds: Bounds) -> bool | None:
    """On some axis each iteration of a loop writes its own elements: whether it only reads those
    of later iterations. None: it may read those of earlier ones."""
    found = None
    for one, other in zip(read, write, strict=True):
        if other.symbol != variable:
            continue
        if one == other:
            found = False
        elif all(name in bounds for name in one.symbols | other.symbols):  # none is from data
            if prove_le(other + 1, one, bounds):
                return True
            if prove_le(other, one, bounds):
                found = False
    return found
