# SPDX-License-Identifier: Apache-2.0
"""Keys of an attention as rows of memory, where kernels store them for it alone.

Models transpose keys before their product with queries, and kernels that compute keys store them
so: the steps of a key are as far apart as there are keys, and rows of keys of a dynamic number have
no alignment. As rows, keys are copied in vectors of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Module, Var
from relax_aot.ir.loops import Kernel
from relax_aot.scheduling.devices.attention_operands import Pair
from relax_aot.scheduling.devices.vectors import VECTOR
from relax_aot.scheduling.passes.channels_last import (
    agreeing,
    changed_by,
    inner_channels,
    kernel_calls,
    moved,
    operands,
    plainly_accessed,
)

PairOf = Callable[[Kernel], Pair | None]


def by_rows(module: Module, pair_of: PairOf) -> Module:
    """With the last two axes of such keys swapped. `pair_of`: the attention of a kernel."""
    chosen = _chosen(module, pair_of)
    if not chosen:
        return module
    changed = changed_by(module, chosen)
    module = moved(module, chosen, _swapped, "rows")
    kernels = (
        inner_channels(one, changed[one.name], module.bounds, products=True)
        for one in module.kernels
    )
    return replace(module, kernels=tuple(kernels))


def _swapped(axes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return (*axes[:-2], axes[-1], axes[-2])


def _chosen(module: Module, pair_of: PairOf) -> set[Var]:
    """Keys that kernels alone store and load, element by element."""
    fixed = {constant.var for constant in module.constants}
    for function in module.functions:
        fixed |= {*function.params, *function.results}
        for call in function.body:
            if call.op != "call_kernel":
                fixed |= {*call.inputs, *call.outs}
    useful, calls = set[Var](), kernel_calls(module)
    for kernel in module.kernels:
        keys, plain = _keys(kernel, pair_of), plainly_accessed(kernel)
        for call in calls[kernel.name]:
            for buffer, var in operands(kernel, call):
                if buffer.name not in plain or buffer in kernel.scratch:
                    fixed.add(var)
                elif buffer.name == keys:
                    useful.add(var)
    return agreeing(module, useful - fixed)


def _keys(kernel: Kernel, pair_of: PairOf) -> str | None:
    """The array of keys that has a key in each column, whose rows would be whole vectors."""
    pair = pair_of(kernel)
    if pair is None:
        return None
    product, load = pair.scores, pair.scores.found.right
    if len(load.index) < 2 or not load.dtype.is_half or len(product.steps) != 1:
        return None
    (step,) = product.steps
    columns = load.index[-1] == Dim.of(product.columns[-1].variable)
    whole = load.index[-2] == Dim.of(step.variable) and load.buffer.shape[-2] % VECTOR == 0
    return load.buffer.name if columns and whole else None
