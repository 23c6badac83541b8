"""Choices for a target: sums of products fused, contractions in blocks of registers.

With `--optimize size` code weighs more than time, and kernels are made alike, so that they can
share functions. Whatever is chosen, each result has the bits of the plain loops on the same
target.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel
from relax_aot.ir.unused import without_unused, without_unused_module
from relax_aot.scheduling.blocking import block_kernel, work_of
from relax_aot.scheduling.contraction import contract
from relax_aot.scheduling.fold_comparisons import fold_comparisons
from relax_aot.scheduling.integer import integer_module
from relax_aot.scheduling.parameters import parameters_of, place_parameters
from relax_aot.scheduling.rounding import round_module
from relax_aot.scheduling.strips import strip_kernel, strip_module
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.tiles import tile_kernel, tile_module
from relax_aot.scheduling.unify_kernels import unify_kernels

COMPACT = 8
"""How much more code weighs with `--optimize size`."""


def schedule(module: Module, target: Target, optimize: str = "speed") -> Module:
    small = optimize == "size"
    target = replace(target, code=target.code // COMPACT, compact=True) if small else target
    module = plain(module)
    known = parameters_of(module)
    work = sum(work_of(kernel, module.bounds) for kernel in module.kernels)
    if target.integers:
        form = "dsp8" if small and target.integers == "dsp" else target.integers
        module = integer_module(round_module(module), form)
    if target.rows:
        module = tile_module(strip_module(module, target.rows), target)
    kernels = tuple(block_kernel(kernel, target, module.bounds, work) for kernel in module.kernels)
    module = replace(module, kernels=unify_kernels(kernels) if small else kernels)
    return place_parameters(without_unused_module(module), known)


def plain(module: Module) -> Module:
    """The loops as they were lowered: what a schedule must keep the bits of."""
    return replace(
        module, kernels=tuple(fold_comparisons(contract(kernel)) for kernel in module.kernels)
    )


def schedule_kernel(
    kernel: Kernel, target: Target, bounds: Bounds, finite: frozenset[str] = frozenset()
) -> Kernel:
    """One kernel by itself; `finite`: the inputs that hold neither infinity nor NaN."""
    if target.rows:
        kernel = strip_kernel(kernel, bounds, target.rows)
        kernel = tile_kernel(kernel, target, bounds, frozenset(), finite).kernel
    return without_unused(block_kernel(kernel, target, bounds))
