# SPDX-License-Identifier: Apache-2.0
"""Parameters of kernels become loads from a table of the call (`ir/parameters.py`).

This is the last step: schedules see numbers, and a kernel reads each of them once, where it
begins. A table stands among the constants, with the limits that its numbers are checked against.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Constant, Function, Module
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
from relax_aot.ir.rewrite import map_exprs, rewrite_module
from relax_aot.ir.types import DType, shape_of

Number = Parameter | FloatParameter
Tables = list[tuple[Buffer, list[Number]]]
"""Numbers of one type each that a kernel reads, and the buffers that it reads them from."""


def parameters_of(module: Module) -> dict[str, Parameter]:
    """Those that sizes of micro-kernels may become, by their symbols."""
    numbers = (number for kernel in module.kernels for number in _numbers(kernel))
    return {n.symbol: n for n in numbers if isinstance(n, Parameter)}


def place_parameters(module: Module, known: dict[str, Parameter]) -> Module:
    """The module with a table for each kernel that has parameters."""
    placed = {kernel.name: _placed(kernel, known) for kernel in module.kernels}
    constants = [*module.constants]

    def rule(_: Function, call: Call) -> Call:
        args = [*call.args]
        for buffer, numbers in placed[call.ref("kernel")][1] if call.op == "call_kernel" else ():
            data = np.array([number.value for number in numbers], buffer.dtype.numpy)
            limits = tuple(number.words for number in numbers)
            name = f"{call.outs[0].name}.{buffer.name}"
            constants.append(Constant(name, buffer.type, data, limits=limits))
            args.append(constants[-1].var)
        return replace(call, args=tuple(args))

    module = rewrite_module(module, rule)
    kernels = tuple(kernel for kernel, _ in placed.values())
    return replace(module, kernels=kernels, constants=tuple(constants))


def _numbers(kernel: Kernel) -> Iterator[Number]:
    for stmt in walk(kernel.body):
        for expr in expressions(stmt):
            for part in parts(expr):
                if isinstance(part, Lit) and isinstance(part.value, Parameter | FloatParameter):
                    yield part.value


def _placed(kernel: Kernel, known: dict[str, Parameter]) -> tuple[Kernel, Tables]:
    """Numbers that stand in sizes are bound to names of sizes, others to scalars."""
    dims = (dim for stmt in walk(kernel.body) for dim in index_dims(stmt))
    symbols = frozenset[str]().union(*(dim.symbols for dim in dims))
    sizes = [known[name] for name in sorted(symbols & known.keys())]
    named = dict.fromkeys(_numbers(kernel))
    whole = [number for number in named if isinstance(number, Parameter)]
    single = [number for number in named if isinstance(number, FloatParameter)]
    taken = {buffer.name for buffer in kernel.buffers}
    head: list[Stmt] = []
    locals_: dict[str, Local] = {}
    tables: Tables = []
    sides: tuple[tuple[DType, str, list[Number]], ...] = (
        (DType.I32, "parameters", [*sizes, *whole]),
        (DType.F32, "scales", [*single]),
    )
    for dtype, stem, numbers in sides:
        buffer = Buffer(unused_name(stem, taken), dtype, shape_of(len(numbers)))
        tables += [(buffer, numbers)] if numbers else []
        for position, number in enumerate(numbers):
            load = Load(buffer, (Dim.of(position),))
            if isinstance(number, Parameter) and position < len(sizes):
                low, high = map(Dim.of, number.limits)
                head.append(Bind(number.symbol, load, low, high, "clamped"))
            else:
                local = locals_[repr(number)] = Local(f"{number.symbol}_{position}", dtype)
                head.append(Declare(local, load))

    def rule(expr: Expr) -> Expr:
        local = locals_.get(repr(expr.value)) if isinstance(expr, Lit) else None
        if local is None:
            return expr
        return local if local.dtype is expr.dtype else Cast(local, expr.dtype)

    body = (*head, *map_exprs(kernel.body, rule))
    inputs = (*kernel.inputs, *(buffer for buffer, _ in tables))
    return replace(kernel, inputs=inputs, body=body), tables
