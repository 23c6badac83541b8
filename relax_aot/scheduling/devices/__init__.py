# SPDX-License-Identifier: Apache-2.0
"""Kernels as loops over the blocks, warps, lanes and threads of a device.

Every kernel gets such a form, by what its loops do. docs/decisions/0026-cuda-device-form.md has
the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relax_aot.ir.axes import ARENA
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Call, Constant, Function, Module
from relax_aot.ir.loops import Buffer, For, Kernel, Let, Stmt, walk
from relax_aot.ir.rewrite import map_buffers, map_statements, rewrite_module
from relax_aot.ir.types import TensorType
from relax_aot.scheduling.apply import packed_inputs
from relax_aot.scheduling.devices.conditions import with_inner_conditions
from relax_aot.scheduling.devices.forms import Form
from relax_aot.scheduling.devices.interchange import interchanged
from relax_aot.scheduling.devices.proofs import Proofs
from relax_aot.scheduling.devices.reductions import in_parts
from relax_aot.scheduling.passes import barriers
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Context, Target


def run(module: Module, target: Target) -> Module:
    """Every kernel in its device form, and its scratch and packed constants in the calls."""
    forms = {kernel.name: _form(kernel, module, target) for kernel in module.kernels}
    kernels = {name: form.made() for name, form in forms.items()}
    before, made = module, dict[str, Constant]()
    module = with_kernels(module, kernels)

    def call(_: Function, line: Call) -> Call:
        if line.op != "call_kernel":
            return line
        name, outs = line.ref("kernel"), list(line.outs)
        inputs = packed_inputs(before, line, kernels[name], forms[name].w.packed, made)
        for place, buffer in enumerate(kernels[name].scratch, len(kernels[name].outputs)):
            if buffer.name in forms[name].copies:
                shape = (Dim.of(forms[name].copies[buffer.name]), *buffer.shape)
                outs[place] = replace(outs[place], type=TensorType(buffer.dtype, shape))
        return replace(line, args=inputs, outs=tuple(outs))

    module = rewrite_module(module, call)
    used = {v.name for f in module.functions for c in f.body for v in c.inputs}
    constants = (c for c in (*module.constants, *made.values()) if c.name in used)
    return replace(module, constants=tuple(constants))


def _form(kernel: Kernel, module: Module, target: Target) -> Form:
    calls = module.kernel_calls[kernel.name]
    given = {b.name: {call.inputs[at].name for call in calls} for at, b in enumerate(kernel.inputs)}
    table = module.constant_table
    known = {name: vars_ for name, vars_ in given.items() if vars_ <= table.keys()}
    finite = (name for name, vars_ in known.items() if all(table[v].is_finite for v in vars_))
    reduced = tuple(number for name, number in target.reduced if name == kernel.name)
    context = Context(target, frozenset(known), frozenset(finite), reduced=reduced)
    kernel = _serial(kernel, target)
    kernel = replace(kernel, in_place=tuple(_unordered_pairs(kernel, module.bounds)))
    if not kernel.parallel:
        kernel = with_inner_conditions(kernel)
        kernel = interchanged(kernel, module.bounds)
        kernel = in_parts(kernel, module.bounds, ordered=target.partial_sums < 2)
    return Form(kernel, module.bounds, context)


def _serial(kernel: Kernel, target: Target) -> Kernel:
    """The kernel without parallel loops, except for one that is in the device form."""
    loops = [stmt for stmt in kernel.body if not isinstance(stmt, Let)]
    if not kernel.parallel or all(isinstance(s, For) and s.axis == "block" for s in loops):
        return kernel
    (kernel,) = barriers.run(Module((), (kernel,)), target).kernels

    def arena(buffer: Buffer) -> Buffer:
        return replace(buffer, scope=ARENA) if buffer in kernel.scratch else buffer

    def serial(stmt: Stmt) -> Stmt:
        return replace(stmt, axis="") if isinstance(stmt, For) else stmt

    body = map_buffers(map_statements(kernel.body, serial), arena)
    return replace(kernel, body=body, scratch=tuple(map(arena, kernel.scratch)))


def _unordered_pairs(kernel: Kernel, bounds: Bounds) -> Iterator[tuple[str, str]]:
    """Permissions to overwrite an operand that no loop has to be in order for."""
    loops = [stmt for stmt in walk(kernel.body) if isinstance(stmt, For)]
    free = Proofs(replace(kernel, in_place=()), bounds)
    for pair in kernel.in_place:
        proofs = Proofs(replace(kernel, in_place=(pair,)), bounds)
        if all(proofs.private(loop) == free.private(loop) for loop in loops):
            yield pair
