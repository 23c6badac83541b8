# SPDX-License-Identifier: Apache-2.0
"""Quantized images between kernels with their channels last (NHWC).

An image of bytes that an integer contraction with known weights reads or writes, and that only
kernels access, element by element, is stored with axis 1 behind the others. Vectors then load and
store the channels of a position at once, and windows are contiguous. Inputs, results and states of
the model keep their layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Module, Var
from relax_aot.ir.loops import Buffer, For, Kernel, Load, Micro, Store, expressions, walk
from relax_aot.ir.rewrite import map_accesses
from relax_aot.ir.types import TensorType
from relax_aot.scheduling.contraction import BYTES, contraction_of, weighted
from relax_aot.scheduling.targets import Target

EXAMPLES = (
    Example(
        why="what two convolutions write and read",
        target="mve",
        before="""
            symbol n in 1..9
            const %w: i8[6, 6, 1] = splat 5
            func @main(%x: i8[1, 6, n]) {
              %y: i8[1, 6, n] = call_kernel(%x, %w) {kernel=@one}
              %z: i8[1, 6, n] = call_kernel(%y, %w) {kernel=@other}
              return %z
            }
            kernel @one(%x: i8[1, 6, n], %w: i8[6, 6, 1]) -> (%y: i8[1, 6, n]) {
              for c in 0..6 {
                for i in 0..n {
                  local sum: i32 = 0:i32
                  for k in 0..6 {
                    sum = (sum + (cast(%x[0, k, i], i32, wrap) * cast(%w[c, k, 0], i32, wrap)))
                  }
                  %y[0, c, i] = cast(sum, i8, saturate)
                }
              }
            }
            kernel @other(%y: i8[1, 6, n], %w: i8[6, 6, 1]) -> (%z: i8[1, 6, n]) {
              for c in 0..6 {
                for i in 0..n {
                  local sum: i32 = 0:i32
                  for k in 0..6 {
                    sum = (sum + (cast(%y[0, k, i], i32, wrap) * cast(%w[c, k, 0], i32, wrap)))
                  }
                  %z[0, c, i] = cast(sum, i8, saturate)
                }
              }
            }""",
        after="""
            ...
              %y.nhwc: i8[1, n, 6] = call_kernel(%x, %w) {kernel=@one}
              %z: i8[1, 6, n] = call_kernel(%y.nhwc, %w) {kernel=@other}
            ...
            kernel @one(%x: i8[1, 6, n], %w: i8[6, 6, 1]) -> (%y: i8[1, n, 6]) {
            ...
                  %y[0, i, c] = cast(sum, i8, saturate)
            ...
            kernel @other(%y: i8[1, n, 6], %w: i8[6, 6, 1]) -> (%z: i8[1, 6, n]) {
            ...
                    sum = (sum + (cast(%y[0, i, k], i32, wrap) * ...))
            ...
                  %z[0, c, i] = cast(sum, i8, saturate)
            ...""",
    ),
    Example(
        why="a value that is viewed with other axes",
        target="mve",
        before="""
            const %w: i8[6, 6, 1] = splat 5
            func @main(%x: i8[1, 6, 4]) {
              %y: i8[1, 6, 4] = call_kernel(%x, %w) {kernel=@one}
              %z: i8[24] = view(%y)
              return %z
            }
            kernel @one(%x: i8[1, 6, 4], %w: i8[6, 6, 1]) -> (%y: i8[1, 6, 4]) {
              for c in 0..6 {
                for i in 0..4 {
                  local sum: i32 = 0:i32
                  for k in 0..6 {
                    sum = (sum + (cast(%x[0, k, i], i32, wrap) * cast(%w[c, k, 0], i32, wrap)))
                  }
                  %y[0, c, i] = cast(sum, i8, saturate)
                }
              }
            }""",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every image that may be, for targets whose vectors hold channels."""
    if not target.channels_last:
        return module
    chosen = _chosen(module)
    if not chosen:
        return module
    changed: dict[str, frozenset[str]] = {}
    for name, calls in _calls(module).items():
        kernel = module.kernel_table[name]
        names = {b.name for call in calls for b, var in _operands(kernel, call) if var in chosen}
        changed[name] = frozenset(names)

    def call(line: Call) -> Call:
        moved = {var: _moved_var(var) for var in chosen}
        args = tuple(None if arg is None else moved.get(arg, arg) for arg in line.args)
        return replace(line, args=args, outs=tuple(moved.get(out, out) for out in line.outs))

    functions = tuple(replace(f, body=tuple(map(call, f.body))) for f in module.functions)
    kernels = tuple(_moved_kernel(kernel, changed[kernel.name]) for kernel in module.kernels)
    return replace(module, functions=functions, kernels=kernels)


def _calls(module: Module) -> dict[str, list[Call]]:
    """Of each kernel, but for checks, whose operands are not those of the kernel alone."""
    found = module.kernel_calls.items()
    return {name: [one for one in calls if one.op == "call_kernel"] for name, calls in found}


def _operands(kernel: Kernel, call: Call) -> Iterator[tuple[Buffer, Var]]:
    yield from zip(kernel.inputs, call.inputs, strict=True)
    yield from zip((*kernel.outputs, *kernel.scratch), call.outs, strict=True)


def _chosen(module: Module) -> set[Var]:
    """Images that every kernel can access in either layout, and that a contraction does access."""
    table, calls = module.kernel_table, _calls(module)
    fixed: set[Var] = set()
    useful: set[Var] = set()
    for function in module.functions:
        fixed |= {*function.params, *function.results}
        for call in function.body:
            if call.op != "call_kernel":
                fixed |= {*call.inputs, *call.outs}
                continue
            kernel = table[call.ref("kernel")]
            fixed |= {var for buffer, var in _operands(kernel, call) if not _is_image(buffer)}
    fixed |= {constant.var for constant in module.constants}
    for kernel in module.kernels:
        accessed = _accessed_by_contractions(kernel, module)
        plain = _plainly_accessed(kernel)
        for call in calls[kernel.name]:
            for buffer, var in _operands(kernel, call):
                if buffer.name not in plain or buffer in kernel.scratch:
                    fixed.add(var)
                elif buffer.name in accessed:
                    useful.add(var)
    useful -= fixed
    return _agreeing(module, useful)


def _agreeing(module: Module, chosen: set[Var]) -> set[Var]:
    """Those of which all calls of each kernel say the same."""
    before: set[Var] = set()
    calls = _calls(module)
    while chosen != before:
        before = set(chosen)
        for kernel in module.kernels:
            pairs = (_operands(kernel, call) for call in calls[kernel.name])
            for operands in zip(*pairs, strict=True):
                values = {var for _, var in operands}
                if not values <= chosen:
                    chosen -= values
    return chosen


def _is_image(buffer: Buffer) -> bool:
    """Bytes with channels and at least one more axis that is longer than 1."""
    extents = buffer.shape[2:]
    return (
        buffer.dtype in BYTES
        and len(extents) > 0
        and buffer.shape[1] != 1
        and any(dim != 1 for dim in extents)
    )


def _plainly_accessed(kernel: Kernel) -> set[str]:
    """Buffers of which no micro-kernel reads or writes more than the element it names."""
    names = {buffer.name for buffer in kernel.buffers}
    for stmt in walk(kernel.body):
        if isinstance(stmt, Micro):
            loads = (expr for expr in expressions(stmt) if isinstance(expr, Load))
            names -= {load.buffer.name for load in loads}
    return names


def _accessed_by_contractions(kernel: Kernel, module: Module) -> set[str]:
    """What integer contractions with known weights read, and what they store, where channels are
    in axis 1."""
    table, calls = module.constant_table, module.kernel_calls[kernel.name]
    known = frozenset(
        buffer.name
        for at, buffer in enumerate(kernel.inputs)
        if calls and all(call.inputs[at].name in table for call in calls)
    )
    found: set[str] = set()
    for stmt in kernel.body:
        if isinstance(stmt, For):
            found |= _accessed(stmt, module.bounds, known)
    return found


def _accessed(stmt: For, bounds: Bounds, known: frozenset[str]) -> set[str]:
    contraction = contraction_of(stmt, bounds)
    roles = weighted(contraction, known) if contraction is not None else None
    if roles is None:
        return set()
    positions = {loop.variable for loop in roles.positions}

    def first(place: Load | Store) -> bool:
        """Whether channels are in axis 1, and positions behind it."""
        _, channels, *others = place.index if len(place.index) > 2 else (None, Dim.of(0))
        behind = frozenset[str]().union(*(dim.symbols for dim in others))
        return bool(positions & behind) and not positions & channels.symbols

    places: list[Load | Store] = [roles.x, *(one for one in roles.after if isinstance(one, Store))]
    return {place.buffer.name for place in places if first(place)}


def _last(axes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return (axes[0], *axes[2:], axes[1])


def _moved_var(var: Var) -> Var:
    return Var(f"{var.name}.nhwc", TensorType(var.type.dtype, _last(var.type.shape)))


def _moved_kernel(kernel: Kernel, names: frozenset[str]) -> Kernel:
    def moved(buffer: Buffer) -> Buffer:
        return replace(buffer, shape=_last(buffer.shape)) if buffer.name in names else buffer

    def access(buffer: Buffer, index: tuple[Dim, ...]) -> tuple[Buffer, tuple[Dim, ...]]:
        return (moved(buffer), _last(index)) if buffer.name in names else (buffer, index)

    if not names:
        return kernel
    return replace(
        kernel,
        inputs=tuple(map(moved, kernel.inputs)),
        outputs=tuple(map(moved, kernel.outputs)),
        body=map_accesses(kernel.body, access),
        in_place=tuple(
            pair for pair in kernel.in_place if (pair[0] in names) == (pair[1] in names)
        ),
    )
