# SPDX-License-Identifier: Apache-2.0
"""Parameters of kernels become loads from a table of the call (`ir/parameters.py`).

This is the last step: schedules see numbers, and a kernel reads each of them once, where it
begins. A table stands among the constants, with the limits that its numbers are checked against.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Constant, Module
from relax_aot.ir.loops import (
    Bind,
    Buffer,
    Cast,
    Declare,
    Expr,
    Kernel,
    Lit,
    Load,
    Local,
    Stmt,
    expressions,
    index_dims,
    parts,
    walk,
)
from relax_aot.ir.names import unused_name
from relax_aot.ir.parameters import FloatParameter, Parameter
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType, TensorType, shape_of

Number = Parameter | FloatParameter


@dataclass(frozen=True, slots=True)
class _Table:
    """Numbers of one type that a kernel reads, and what it is to do for that."""

    buffer: Buffer
    numbers: tuple[Number, ...]

    def constant(self, call: Call) -> Constant:
        data = np.array([number.value for number in self.numbers], self.buffer.dtype.numpy)
        limits = tuple(number.words for number in self.numbers)
        name = f"{call.outs[0].name}.{self.buffer.name}"
        type_ = TensorType(self.buffer.dtype, shape_of(len(self.numbers)))
        return Constant(name, type_, data, limits=limits)


def parameters_of(module: Module) -> dict[str, Parameter]:
    """Those that sizes of micro-kernels may become, by their symbols."""
    numbers = (number for kernel in module.kernels for number in _numbers(kernel))
    return {n.symbol: n for n in numbers if isinstance(n, Parameter)}


def place_parameters(module: Module, known: dict[str, Parameter]) -> Module:
    """The module with a table for each kernel that has parameters."""
    placed = {kernel.name: _placed(kernel, known) for kernel in module.kernels}
    constants: list[Constant] = []

    def call(before: Call) -> Call:
        _, tables = placed[before.ref("kernel")] if before.op == "call_kernel" else (None, ())
        added = [table.constant(before) for table in tables]
        constants.extend(added)
        return replace(before, args=(*before.args, *(constant.var for constant in added)))

    functions = tuple(replace(f, body=tuple(map(call, f.body))) for f in module.functions)
    return replace(
        module,
        functions=functions,
        kernels=tuple(kernel for kernel, _ in placed.values()),
        constants=(*module.constants, *constants),
    )


def _numbers(kernel: Kernel) -> Iterator[Number]:
    for stmt in walk(kernel.body):
        for expr in expressions(stmt):
            for part in parts(expr):
                if isinstance(part, Lit) and isinstance(part.value, Parameter | FloatParameter):
                    yield part.value


def _placed(kernel: Kernel, known: dict[str, Parameter]) -> tuple[Kernel, tuple[_Table, ...]]:
    """Numbers that stand in sizes are bound to names of sizes, others to scalars."""
    named = dict.fromkeys(_numbers(kernel))
    symbols = {
        name for stmt in walk(kernel.body) for dim in index_dims(stmt) for name in dim.symbols
    }
    sizes = [known[name] for name in sorted(symbols & known.keys())]
    whole = [number for number in named if isinstance(number, Parameter)]
    single = [number for number in named if isinstance(number, FloatParameter)]
    taken = {buffer.name for buffer in kernel.buffers}
    head: list[Stmt] = []
    locals_: dict[str, Local] = {}
    tables: list[_Table] = []
    sides: list[tuple[DType, str, list[Number]]] = [
        (DType.I32, "parameters", [*sizes, *whole]),
        (DType.F32, "scales", [*single]),
    ]
    for kind, stem, numbers in sides:
        if not numbers:
            continue
        buffer = Buffer(unused_name(stem, taken), kind, shape_of(len(numbers)))
        tables.append(_Table(buffer, tuple(numbers)))
        for position, number in enumerate(numbers):
            load = Load(buffer, (Dim.of(position),))
            if position < len(sizes) and isinstance(number, Parameter):
                low, high = map(Dim.of, number.limits)
                head.append(Bind(number.symbol, load, low, high, "clamped"))
            else:
                local = locals_[repr(number)] = Local(f"{number.symbol}_{position}", kind)
                head.append(Declare(local, load))
    if not tables:
        return kernel, ()

    def rule(expr: Expr) -> Expr:
        local = locals_.get(repr(expr.value)) if isinstance(expr, Lit) else None
        if local is None:
            return expr
        return local if local.dtype is expr.dtype else Cast(local, expr.dtype)

    body = (*head, *map_exprs(kernel.body, rule))
    inputs = (*kernel.inputs, *(table.buffer for table in tables))
    return replace(kernel, inputs=inputs, body=body), tuple(tables)
