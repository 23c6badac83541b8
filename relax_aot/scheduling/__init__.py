# SPDX-License-Identifier: Apache-2.0
"""Choices for a target: sums of products fused, contractions in blocks of registers.

With `--optimize size` code counts more than time, and kernels are unified, so that they can
share functions. Each result has the bits of the loops after FMA contraction on the same target,
except for reductions in partial sums (passes/partial_sums.py), whose order is fixed for each
target, for long rows of scores (passes/online_softmax.py), and for rows that are split into
integers (strategies/groups.py); `numerics` ordered keeps all orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relax_aot.externs.rule import ProductRule
from relax_aot.fusion.in_place import proven_pairs
from relax_aot.ir.fold import fold_kernel
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Multiply, Stmt
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.unused import without_unused_module
from relax_aot.scheduling import devices
from relax_aot.scheduling.apply import (
    apply_module,
    schedule_floats,
    schedule_groups,
    schedule_integers,
)
from relax_aot.scheduling.cost import work_of
from relax_aot.scheduling.devices import attention, library
from relax_aot.scheduling.devices.fusing import fusion_policy as fusion_policy
from relax_aot.scheduling.parameters import parameters_of, place_parameters
from relax_aot.scheduling.passes import (
    barriers,
    byte_lines,
    byte_peaks,
    byte_strips,
    byte_sums,
    channels_last,
    column_lanes,
    expanded_rows,
    float_channels_last,
    float_lines,
    fma,
    fractions,
    function_strips,
    half_sums,
    index_scans,
    lookups,
    narrow_constants,
    online_softmax,
    ordered_sums,
    partial_sums,
    phases,
    quantized_borders,
    quantized_lines,
    range_lines,
    register_blocks,
    rescaled_rows,
    rounding,
    row_blocks,
    row_pairs,
    scaled_sums,
    shared_scratch,
    shared_tables,
    softmax_rows,
    state_rows,
    sums_from_zero,
    transposes,
    unify_kernels,
)
from relax_aot.scheduling.room import fitting as fitting
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.threads import run as share_loops


def schedule(
    module: Module,
    target: Target,
    optimize: str = "speed",
    numerics: str = "blocked",
    *,
    lenient: bool = False,
    threads: int = 1,
    products: Sequence[ProductRule] = (),
    lean: frozenset[str] = frozenset(),
    reduced: tuple[tuple[str, int], ...] = (),
) -> Module:
    """Module of kernels -> module of kernels for a target, up to `threads` of them for one loop;
    libraries of a device may compute `products`. Those named in `lean` keep little scratch,
    and launches of a device in `reduced` have smaller tiles. A new permission to overwrite an
    operand that is not proven is an error, or with `lenient` withdrawn, with a note."""
    if target.device:
        own = replace(target, reduced=reduced)
        return schedule_device(module, own, numerics, products)
    target = replace(target, lean=lean)
    module = sums_from_zero.run(module, target)
    if optimize != "size":
        module = phases.run(module, target)
    module = channels_last.run(module, target)
    given = {kernel.name: kernel.in_place for kernel in module.kernels}
    small = optimize == "size"
    if small:  # code weighs eight times as much
        target = replace(target, code=target.code // 8, compact=True, functions=0, scans=False)
        target = replace(target, separate=False, softmax=False, gates=0, sigmoids=0)
        target = replace(target, float_channels=0, transposes=False)
    if optimize != "speed":  # kernels that are merged for memory may be no products by themselves
        target = replace(target, parts="")
    if numerics == "ordered":
        target = replace(target, partial_sums=1, functions=0, separate=False, parts="")
        target = replace(target, floats=() if target.integers else target.floats)
    elif target.partial_sums > 1:  # hides latency with fewer rows of scratch
        target = replace(target, sums=0)
    if numerics == "blocked":
        module = online_softmax.run(module, target)
    module = softmax_rows.run(shared_scratch.run(module, target), target)
    if numerics == "ordered" or (target.partial_sums == 1 and target.functions):
        module = fractions.plain(module)
    elif target.partial_sums == 1:
        module = fractions.run(module, target)
    module = fma.run(half_sums.run(module, target), target)
    module = float_channels_last.run(module, target, numerics)
    if optimize == "speed":
        module = expanded_rows.run(module, target)
    known = parameters_of(module)
    work = sum(work_of(kernel.body, module.bounds) for kernel in module.kernels)
    module = schedule_contractions(module, target)
    module = narrow_constants.run(shared_tables.run(module, target), target)
    unsplit = module.kernel_table
    module = partial_sums.run(fractions.run(module, target), target)
    module = column_lanes.run(module, target)
    module = function_strips.run(state_rows.run(module, target), target)
    module = rescaled_rows.run(module, target)
    module = index_scans.run(module, target)
    module = lookups.run(module, target)
    module = float_lines.run(byte_strips.run(module, target), target)
    module = transposes.run(module, target)
    module = register_blocks.run(module, target, work)
    if small:
        module = unify_kernels.run(module, target)
    module = place_parameters(without_unused_module(module), known)
    module = barriers.run(module, target)
    kernels = (fold_kernel(kernel, module.bounds) for kernel in module.kernels)
    proven = (proven_pairs(k, module.bounds, given.get(k.name, ()), lenient) for k in kernels)
    return share_loops(replace(module, kernels=tuple(proven)), threads, unsplit=unsplit)


def schedule_device(
    module: Module,
    target: Target,
    numerics: str = "blocked",
    products: Sequence[ProductRule] = (),
) -> Module:
    """Kernels as loops over the blocks and threads of a device."""
    if numerics == "tf32":
        target = replace(target, tf32=True)
    if numerics == "ordered":
        target = replace(target, partial_sums=1)
    else:
        module = attention.run(module, target)
    module = fma.run(fractions.plain(sums_from_zero.run(module, target)), target)
    module = place_parameters(without_unused_module(module), parameters_of(module))
    module = phases.run(module, target)
    module = byte_lines.run(channels_last.run(module, target), target)
    folded = (fold_kernel(kernel, module.bounds) for kernel in module.kernels)
    module = replace(module, kernels=tuple(folded))
    chosen = library.products(module, target, products)
    return library.marked(devices.run(module, target), chosen)


def schedule_contractions(module: Module, target: Target) -> Module:
    """Contractions by the strategies of the target."""
    if target.rows and not target.integers:  # their sums lie in the stack, and are calls
        module = apply_module(module, target, schedule_groups)
    module = quantized_lines.run(quantized_borders.run(module, target), target)
    module = ordered_sums.run(byte_sums.run(module, target), target)
    module = byte_peaks.run(module, target)
    module = range_lines.run(module, target)
    if target.strategies or target.byte_rows:
        module = apply_module(rounding.run(module, target), target, schedule_integers)
        module = scaled_sums.run(row_pairs.run(module, target), target)
    if target.rows:
        module = apply_module(row_blocks.run(module, target), target, schedule_floats)
    return _separate(module) if target.separate else module


def _separate(module: Module) -> Module:
    """Tiles whose products are rounded before they are added."""

    def rule(stmt: Stmt) -> Stmt:
        return replace(stmt, separate=True) if isinstance(stmt, Multiply) else stmt

    kernels = (replace(k, body=map_statements(k.body, rule)) for k in module.kernels)
    return replace(module, kernels=tuple(kernels))
