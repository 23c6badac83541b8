# SPDX-License-Identifier: Apache-2.0
"""How far a micro-kernel reads and writes, from its meaning."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from relax_aot.ir.dims import Bounds, interval
from relax_aot.ir.loops import For, If, Let, Load, Stmt, Store, expressions
from relax_aot.ir.microkernel import MicroKernel


@lru_cache(maxsize=4096)
def access_ranges(kernel: MicroKernel, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The elements of each operand, from its address on, that a call with these sizes may touch:
    those of its shape, and none where no iteration accesses it."""
    values = dict(zip(kernel.sizes, sizes, strict=True))
    bounds = Bounds.of({name: (value, value) for name, value in values.items()})
    touched = {buffer.name for buffer in kernel.meaning.scratch}
    _touch(kernel.meaning.body, bounds, touched)
    return tuple(
        max(prod(shape), 0) if operand.name in touched else 0
        for operand, shape in zip(kernel.operands, operand_shapes(kernel, sizes), strict=True)
    )


@lru_cache(maxsize=4096)
def operand_shapes(kernel: MicroKernel, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    values = dict(zip(kernel.sizes, sizes, strict=True))
    return tuple(tuple(d.evaluate(values) for d in o.shape) for o in kernel.operands)


def _touch(body: tuple[Stmt, ...], bounds: Bounds, touched: set[str]) -> None:
    for stmt in body:
        touched |= {load.buffer.name for load in expressions(stmt) if isinstance(load, Load)}
        match stmt:
            case For():
                low, high = interval(stmt.start, bounds)[0], interval(stmt.stop, bounds)[1] - 1
                if low <= high:
                    _touch(stmt.body, bounds.with_range(stmt.variable, low, high), touched)
            case If():
                _touch(stmt.then, bounds, touched)
                _touch(stmt.otherwise, bounds, touched)
            case Let():
                bounds = bounds.with_range(stmt.name, *interval(stmt.value, bounds))
            case Store():
                touched.add(stmt.buffer.name)
            case _:
                pass
