# SPDX-License-Identifier: Apache-2.0
"""Kernels with other scratch memory, and the values of their calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from relax_aot.ir.graph import Call, Function, Module
from relax_aot.ir.loops import Kernel
from relax_aot.ir.names import names_of, scratch_of
from relax_aot.ir.rewrite import rewrite_module


def with_kernels(module: Module, kernels: Mapping[str, Kernel]) -> Module:
    """The module with these kernels instead of those of the same names, whose inputs and outputs
    are the same. Each call has the scratch of its kernel; that of a buffer which the kernel had
    before keeps its name."""
    before, names = module.kernel_table, names_of(module)

    def call(_: Function, line: Call) -> Call:
        if line.op != "call_kernel" or line.ref("kernel") not in kernels:
            return line
        old, new = before[line.ref("kernel")], kernels[line.ref("kernel")]
        if old.scratch == new.scratch:
            return line
        results, scratch = line.outs[: len(old.outputs)], line.outs[len(old.outputs) :]
        known = {buffer.name: v for buffer, v in zip(old.scratch, scratch, strict=True)}
        added = [buffer for buffer in new.scratch if buffer.name not in known]
        made = dict(zip(added, scratch_of(line, added, names), strict=True))
        outs = (
            made[buffer] if buffer in made else replace(known[buffer.name], type=buffer.type)
            for buffer in new.scratch
        )
        return replace(line, outs=(*results, *outs))

    changed = tuple(kernels.get(kernel.name, kernel) for kernel in module.kernels)
    return replace(rewrite_module(module, call), kernels=changed)
