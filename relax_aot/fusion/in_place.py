"""Which output of a kernel may take the memory of which input.

Each turn of the loops around a read and a write has a slab of both tensors to itself,
and within a turn the read comes first. Schedules keep that: whatever they do to the
loops, an element of the input is read for the last time before the element of the
output at the same place is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from relax_aot.fusion import legality
from relax_aot.fusion.indexing import At, plain_variable
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Buffer, For, If, Kernel, Let, Load, Stmt, Store, expressions

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write, where it stands in the text and the loops around it with their
    depth in `path`."""

    index: At
    path: Path
    loops: tuple[tuple[int, str], ...]


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
    accesses = list(_accesses(kernel.body, (), (), {}))
    reads = [a for name, stored, a in accesses if name == source.name and not stored]
    writes = [a for name, stored, a in accesses if name == target.name and stored]
    return all(_read_first(read, write) for read in reads for write in writes)


def _worked_out(index: At, lets: dict[str, Dim]) -> At:
    """The index with names of index expressions replaced by what they stand for."""
    return tuple(dim.substitute(lets) for dim in index)


def _read_first(read: Access, write: Access) -> bool:
    shared = 0
    for one, other in zip(read.path, write.path, strict=False):
        if one != other:
            break
        shared += 1
    for depth, variable in read.loops:
        if depth < shared and not _slab(variable, read.index, write.index):
            return False
    return read.path[shared:] <= write.path[shared:]


def _slab(variable: str, one: At, other: At) -> bool:
    """Some axis of both is this loop's variable: no two turns touch the same elements."""
    return any(
        plain_variable(a) == variable and plain_variable(b) == variable
        for a, b in zip(one, other, strict=True)
    )


def _accesses(
    body: tuple[Stmt, ...],
    path: Path,
    loops: tuple[tuple[int, str], ...],
    lets: dict[str, Dim],
) -> Iterator[tuple[str, bool, Access]]:
    """(buffer, whether it is written, where), in the order of the text. A statement reads
    before it writes."""
    for position, stmt in enumerate(body):
        here = (*path, position)
        for expr in expressions(stmt):
            if isinstance(expr, Load):
                index = _worked_out(expr.index, lets)
                yield expr.buffer.name, False, Access(index, (*here, 0), loops)
        match stmt:
            case Store():
                index = _worked_out(stmt.index, lets)
                yield stmt.buffer.name, True, Access(index, (*here, 1), loops)
            case Let():
                lets = {**lets, stmt.name: stmt.value.substitute(lets)}
            case For():
                inner = (*loops, (len(here) - 1, stmt.variable))
                yield from _accesses(stmt.body, here, inner, lets)
            case If():
                yield from _accesses(stmt.then, (*here, 1), loops, lets)
                yield from _accesses(stmt.otherwise, (*here, 2), loops, lets)
            case _:
                pass
