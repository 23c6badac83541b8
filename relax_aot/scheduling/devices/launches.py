# SPDX-License-Identifier: Apache-2.0
"""The launches of a kernel in its device form: each outermost loop over blocks is one.

A launch is a kernel of its own: the names of sizes that its loop needs, the loop, and the buffers
that the loop accesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

from relax_aot.ir.axes import LANES, SHARED
from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Buffer,
    Expr,
    For,
    Kernel,
    Let,
    Load,
    Micro,
    Multiply,
    Reserve,
    Stmt,
    Store,
    expressions,
    index_dims,
    parts,
    walk,
)

REGISTER = 4
"""Bytes."""
STATIC, ALIGNMENT = 48 << 10, 16
"""Bytes of shared memory that arrays of a function may have, and of the alignment of each."""


@dataclass(frozen=True, slots=True)
class Launch:
    """`grid` blocks of `threads` threads run the only loop of `kernel`."""

    kernel: Kernel
    grid: Dim
    threads: int

    @property
    def dynamic_bytes(self) -> int:
        """Of shared memory that a launch asks for, where arrays of a function may not have all."""
        total = sum(shared_bytes(self.kernel).values())
        return total if total > STATIC else 0


def shared_bytes(kernel: Kernel) -> dict[str, int]:
    """The bytes of each array in shared memory, in their order; all are aligned."""
    buffers = [
        stmt.buffer
        for stmt in walk(kernel.body)
        if isinstance(stmt, Reserve) and stmt.buffer.scope == SHARED
    ]
    return {
        one.name: -(-prod(dim.constant for dim in one.shape) * one.dtype.bytes // ALIGNMENT)
        * ALIGNMENT
        for one in buffers
    }


def launches(kernel: Kernel) -> tuple[Launch, ...]:
    """In their order. The body is names of sizes and loops over blocks from 0 on."""
    lets = [stmt for stmt in kernel.body if isinstance(stmt, Let)]
    loops = [stmt for stmt in kernel.body if not isinstance(stmt, Let)]
    return tuple(_launch(kernel, lets, loop) for loop in loops)


def _launch(kernel: Kernel, lets: list[Let], loop: Stmt) -> Launch:
    assert isinstance(loop, For), f"{kernel.name}: only loops over blocks are launched"
    assert (loop.axis, loop.start) == ("block", ZERO), f"{kernel.name}: {loop.variable}"
    needed = {name for stmt in walk((loop,)) for dim in index_dims(stmt) for name in dim.symbols}
    head: list[Let] = []
    for let in reversed(lets):
        if let.name in needed:
            head.insert(0, let)
            needed |= let.value.symbols
    used = {buffer.name for buffer in _accessed((loop,))}

    def kept(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
        return tuple(buffer for buffer in buffers if buffer.name in used)

    own = replace(
        kernel,
        inputs=kept(kernel.inputs),
        outputs=kept(kernel.outputs),
        scratch=kept(kernel.scratch),
        body=(*head, loop),
        in_place=tuple(pair for pair in kernel.in_place if used.issuperset(pair)),
    )
    return Launch(own, loop.extent, _threads(kernel, loop))


def _accessed(body: tuple[Stmt, ...]) -> Iterator[Buffer]:
    for stmt in walk(body):
        yield from (expr.buffer for expr in expressions(stmt) if isinstance(expr, Load))
        if isinstance(stmt, Store):
            yield stmt.buffer
        if isinstance(stmt, Multiply):
            yield stmt.sums


def _threads(kernel: Kernel, loop: For) -> int:
    """Of a block: iterations of its loop over threads, or lanes of its warps."""
    inner = (stmt for stmt in walk(loop.body) if isinstance(stmt, For))
    found = next((stmt for stmt in inner if stmt.axis in ("thread", "warp")), None)
    assert found is not None, f"{kernel.name}: a block has a loop over threads or warps"
    return int(found.extent) * (LANES if found.axis == "warp" else 1)


def array_registers(kernel: Kernel) -> int:
    """What the arrays of one thread take of its registers."""
    reserved = (stmt.buffer for stmt in walk(kernel.body) if isinstance(stmt, Reserve))
    sizes = {"lane": LANES, "register": 1}
    bytes_ = (
        prod(map(int, buffer.shape)) // sizes[buffer.scope] * buffer.dtype.bytes
        for buffer in reserved if buffer.scope in sizes
    )  # fmt: skip
    return sum(-(-count // REGISTER) for count in bytes_)


def adds_products(kernel: Kernel) -> bool:
    """Whether a loop adds products of elements of two buffers to a sum."""
    return any(map(_adds_products, walk(kernel.body)))


def _adds_products(stmt: Stmt) -> bool:
    match stmt:
        case Multiply():
            return True
        case Micro():
            return "mma" in stmt.kernel.name or "multiply" in stmt.kernel.name
        case Assign(sum_, value):
            return sum_ in parts(value) and _has_product(value)
        case Store(buffer, _, value):
            loaded = (part.buffer for part in parts(value) if isinstance(part, Load))
            return buffer in loaded and _has_product(value)
        case _:
            return False


def _has_product(value: Expr) -> bool:
    for part in parts(value):
        match part:
            case Apply("fma", (left, right, _)) | Binary("*", left, right):
                loads = [one for side in (left, right) for one in parts(side)]
                if len({load.buffer for load in loads if isinstance(load, Load)}) > 1:
                    return True
    return False
