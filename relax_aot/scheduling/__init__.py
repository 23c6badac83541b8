"""Choices for a target: sums of products fused, contractions in blocks of registers.

`--optimize size` keeps the loops as they were lowered, but for integer contractions. Whatever
is chosen, each result has the bits of the plain loops on the same target.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel
from relax_aot.scheduling.blocking import block_kernel, work_of
from relax_aot.scheduling.contraction import contract
from relax_aot.scheduling.integer import integer_module
from relax_aot.scheduling.rounding import round_module
from relax_aot.scheduling.strips import strip_kernel, strip_module
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.tiles import tile_kernel, tile_module


def schedule(module: Module, target: Target, optimize: str = "speed") -> Module:
    plain = [contract(kernel) for kernel in module.kernels]
    if optimize == "size":
        module = replace(module, kernels=tuple(plain))
        form = "dsp8" if target.integers == "dsp" else target.integers
        if form:
            module = integer_module(round_module(module), form)
        return tile_module(strip_module(module, target.rows), target) if target.rows else module
    work = sum(work_of(kernel, module.bounds) for kernel in plain)
    module = replace(module, kernels=tuple(plain))
    if target.integers:
        module = integer_module(round_module(module), target.integers)
    if target.rows:
        module = tile_module(strip_module(module, target.rows), target)
    kernels = (block_kernel(kernel, target, module.bounds, work) for kernel in module.kernels)
    return replace(module, kernels=tuple(kernels))


def schedule_kernel(
    kernel: Kernel, target: Target, bounds: Bounds, finite: frozenset[str] = frozenset()
) -> Kernel:
    """One kernel by itself; `finite`: the inputs that hold neither infinity nor NaN."""
    if target.rows:
        kernel = strip_kernel(kernel, bounds, target.rows)
        kernel = tile_kernel(kernel, target, bounds, frozenset(), finite).kernel
    return block_kernel(kernel, target, bounds)
