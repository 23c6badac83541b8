# SPDX-License-Identifier: Apache-2.0
"""Constants of 4 and 2 bits take a half and a quarter of a byte.

The elements of a row-major constant follow each other in its bytes, the first one in the lowest
bits. Kernels extract what they read. A constant that something else than a kernel reads keeps a
byte for each element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from relax_aot.ir.dims import row_major
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array, Call, Constant, Function, Module
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Kernel, Lit, Load, binary
from relax_aot.ir.rewrite import map_exprs, rewrite_module
from relax_aot.ir.types import DType, shape_of
from relax_aot.scheduling.targets import Target

EXAMPLES = (
    Example(
        why="two weights in a byte",
        before="""
            symbol n in 1..9
            const %w: i4[3, 5] = splat 7
            kernel @scale(%x: f32[n, 5], %w: i4[3, 5]) -> (%y: f32[n, 5]) {
              for i in 0..n {
                for j in 0..5 {
                  %y[i, j] = (%x[i, j] * cast(%w[2, j], f32, wrap))
                }
              }
            }""",
        after="""
            kernel @scale(%x: f32[n, 5], %w: u8[8]) -> (%y: f32[n, 5]) {
              for i in 0..n {
                for j in 0..5 {
                  %y[i, j] = (%x[i, j] * cast(((((cast(%w[j // 2 + 5], i32, ...
                }
              }
            }""",
        target="scalar",
    ),
    Example(
        why="an element of a byte",
        before="""
            const %w: i8[4] = splat 7
            kernel @cast(%w: i8[4]) -> (%y: f32[4]) {
              for i in 0..4 {
                %y[i] = cast(%w[i], f32, wrap)
              }
            }""",
        target="scalar",
    ),
)


def run(module: Module, _: Target) -> Module:
    """The module with packed constants, and kernels that read them."""
    names = {c.name for c in module.constants if c.type.dtype.is_stored_int}
    names -= {*_read_otherwise(module)}
    while outside := {*_read_as_bytes(module, names)}:
        names -= outside
    if not names:
        return module
    made = {c.name: _packed(c) for c in module.constants if c.name in names}
    reading = {k.name: _reading(k, _inputs(module, k, names)) for k in module.kernels}

    def rule(_: Function, call: Call) -> Call:
        if call.op != "call_kernel":
            return call
        args = (made[v.name].var if v is not None and v.name in made else v for v in call.args)
        return replace(call, args=tuple(args))

    constants = tuple(made.get(c.name, c) for c in module.constants)
    functions = rewrite_module(module, rule).functions
    kernels = tuple(reading.values())
    return replace(module, functions=functions, kernels=kernels, constants=constants)


def _read_otherwise(module: Module) -> Iterator[str]:
    """Values that something else than a kernel reads."""
    for function in module.functions:
        yield from (result.name for result in function.results)
        for call in function.body:
            if call.op != "call_kernel":
                yield from (var.name for var in call.inputs)


def _inputs(module: Module, kernel: Kernel, names: set[str]) -> frozenset[str]:
    """The inputs of a kernel that are these constants in all of its calls."""
    calls = module.kernel_calls[kernel.name]
    columns = {b.name: {c.inputs[at].name for c in calls} for at, b in enumerate(kernel.inputs)}
    return frozenset(name for name, given in columns.items() if given and given <= names)


def _read_as_bytes(module: Module, names: set[str]) -> Iterator[str]:
    """Of these constants, those given to a kernel that is called with something else too."""
    for kernel in module.kernels:
        packed = _inputs(module, kernel, names)
        for at, buffer in enumerate(kernel.inputs):
            if buffer.name not in packed:
                given = {call.inputs[at].name for call in module.kernel_calls[kernel.name]}
                yield from given & names


def _packed(constant: Constant) -> Constant:
    """The same name: nothing reads the elements of before."""
    bits = constant.type.dtype.bits
    per_byte = 8 // bits
    values = np.asarray(constant.data).astype(np.int8).reshape(-1).astype(np.uint8)
    values = values & np.uint8(2**bits - 1)
    padded = np.zeros(-(-values.size // per_byte) * per_byte, np.uint8)
    padded[: values.size] = values
    rows: Array = padded.reshape(-1, per_byte) << np.arange(0, 8, bits, dtype=np.uint8)
    data = np.bitwise_or.reduce(rows, axis=1).astype(np.uint8)
    type_ = Buffer("", DType.U8, shape_of(data.size)).type
    return replace(constant, type=type_, data=data)


def _reading(kernel: Kernel, names: frozenset[str]) -> Kernel:
    """The kernel with these inputs packed."""
    if not names:
        return kernel
    buffers = {b.name: _bytes_of(b) for b in kernel.inputs if b.name in names}

    def rule(expr: Expr) -> Expr:
        match expr:
            case Load(buffer) if buffer.name in buffers and buffer.dtype.is_stored_int:
                return Cast(_extracted(expr, buffers[buffer.name]), buffer.dtype)
            case Cast(Cast(value, narrow), to, mode) if narrow.is_stored_int and mode != "bits":
                return Cast(value, to) if value.dtype is DType.I32 else expr
        return expr

    inputs = tuple(buffers.get(buffer.name, buffer) for buffer in kernel.inputs)
    return replace(kernel, inputs=inputs, body=map_exprs(kernel.body, rule))


def _bytes_of(buffer: Buffer) -> Buffer:
    elements, per_byte = buffer.type.elements, 8 // buffer.dtype.bits
    return replace(buffer, dtype=DType.U8, shape=((elements + per_byte - 1) // per_byte,))


def _extracted(load: Load, source: Buffer) -> Expr:
    """The element as an integer, its sign extended."""
    bits = load.dtype.bits
    place, per_byte = row_major(load.index, load.buffer.shape), 8 // bits
    byte = Cast(Load(source, (place // per_byte,)), DType.I32)
    shift = Cast(Index((place % per_byte) * bits), DType.I32)
    low = binary("&", binary(">>", byte, shift), Lit(2**bits - 1, DType.I32))
    if not load.dtype.is_signed:
        return low
    sign = Lit(2 ** (bits - 1), DType.I32)
    return binary("-", binary("^", low, sign), sign)
