# SPDX-License-Identifier: Apache-2.0
"""Attention on a device: a block computes some rows of queries over blocks of keys.

No row of scores is stored. Half-precision values are multiplied by matrix units where the device
has them (attention_matrices.py), others by single threads (attention_tiles.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Kernel,
)
from relax_aot.scheduling.devices.attention_matrices import matrices
from relax_aot.scheduling.devices.attention_operands import Pair, pair_of
from relax_aot.scheduling.devices.attention_tiles import tiles
from relax_aot.scheduling.devices.operands import (
    extent,
)
from relax_aot.scheduling.join import join_around
from relax_aot.scheduling.nest import greatest, names_in
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Context, Target
from relax_aot.scheduling.writer import Writer

LEAST = 16
"""Fewer queries are rows of their own."""
FormOf = Callable[[Writer, Pair, Target], bool]
"""Writes the launch of an attention; whether it can."""
FORMS: tuple[FormOf, ...] = (matrices, tiles)


def run(module: Module, target: Target) -> Module:
    """Kernels of one attention in their device form; those that fusion left apart are joined for
    it."""
    context = Context(target)

    def in_blocks(kernel: Kernel) -> Kernel | None:
        return attention(kernel, module.bounds, context)

    for scalar in ("exp_below", "exp"):  # of floats, and of half-precision values
        module = join_around(module, scalar, lambda kernel: in_blocks(kernel) is not None)
    made = {kernel.name: in_blocks(kernel) for kernel in module.kernels}
    return with_kernels(module, {name: one for name, one in made.items() if one is not None})


def attention(
    kernel: Kernel, bounds: Bounds, context: Context, forms: Sequence[FormOf] = FORMS
) -> Kernel | None:
    """A kernel of one attention in its device form; None for other kernels, and for few queries."""
    pair = pair_of(kernel, bounds, context)
    if pair is None or greatest(extent(pair.scores.rows), bounds) < LEAST:
        return None
    w = Writer(names_in(kernel), bounds)
    with w.block() as launches:
        if not any(form(w, pair, context.target) for form in forms):
            return None
    gone = pair.found.rows
    scratch = tuple(buffer for buffer in kernel.scratch if buffer.name not in gone)
    return replace(kernel, body=tuple(launches), scratch=scratch, in_place=())
