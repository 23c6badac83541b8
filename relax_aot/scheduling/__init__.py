"""Choices for a target: sums of products fused, contractions in blocks of registers.

With `--optimize size` code counts more than time, and kernels are unified, so that they can
share functions. Whatever is chosen, each result has the bits of the plain loops on the same
target.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.dims import Bounds
from relax_aot.ir.fold import fold_module
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel
from relax_aot.ir.unused import without_unused, without_unused_module
from relax_aot.scheduling.apply import apply, apply_module, schedule_floats, schedule_integers
from relax_aot.scheduling.parameters import parameters_of, place_parameters
from relax_aot.scheduling.passes import rounding, row_blocks
from relax_aot.scheduling.passes.fma import fuse_multiply_add
from relax_aot.scheduling.passes.fold_comparisons import fold_comparisons
from relax_aot.scheduling.passes.register_blocks import block_kernel, work_of
from relax_aot.scheduling.passes.unify_kernels import unify_kernels
from relax_aot.scheduling.targets import Context, Target

COMPACT = 8
"""How much more code weighs with `--optimize size`."""


def schedule(module: Module, target: Target, optimize: str = "speed") -> Module:
    small = optimize == "size"
    target = replace(target, code=target.code // COMPACT, compact=True) if small else target
    module = plain(module)
    known = parameters_of(module)
    work = sum(work_of(kernel, module.bounds) for kernel in module.kernels)
    module = schedule_contractions(module, target)
    kernels = tuple(block_kernel(kernel, target, module.bounds, work) for kernel in module.kernels)
    module = replace(module, kernels=unify_kernels(kernels) if small else kernels)
    return fold_module(place_parameters(without_unused_module(module), known))


def schedule_contractions(module: Module, target: Target) -> Module:
    """Contractions by the strategies of the target."""
    context = Context(target)
    if target.strategies:
        module = apply_module(rounding.run(module, target), context, schedule_integers, {})
    if target.rows:
        module = row_blocks.run(module, target)
        shares = _shares(module) if target.compact else {}
        module = apply_module(module, context, schedule_floats, shares)
    return module


def _shares(module: Module) -> dict[str, float]:
    """The part of the model's work that each kernel does."""
    work = {kernel.name: work_of(kernel, module.bounds) for kernel in module.kernels}
    whole = max(sum(work.values()), 1)
    return {name: part / whole for name, part in work.items()}


def plain(module: Module) -> Module:
    """The loops as they were lowered: what a schedule must keep the bits of."""
    kernels = (fold_comparisons(fuse_multiply_add(kernel)) for kernel in module.kernels)
    return replace(module, kernels=tuple(kernels))


def schedule_kernel(
    kernel: Kernel, target: Target, bounds: Bounds, finite: frozenset[str] = frozenset()
) -> Kernel:
    """One kernel by itself; `finite`: the inputs that hold neither infinity nor NaN."""
    if target.rows:
        kernel = row_blocks.block_rows(kernel, bounds, target.rows)
        context = Context(target, finite=finite)
        kernel = apply(kernel, bounds, context, schedule_floats).kernel
    return without_unused(block_kernel(kernel, target, bounds))
