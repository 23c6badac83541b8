# SPDX-License-Identifier: Apache-2.0
"""Attention on a device: a block computes some rows of queries over blocks of keys.

No row of scores is stored, except for few queries, whose keys are in parts (attention_parts.py).
Half-precision values are multiplied by matrix units where the device has them
(attention_matrices.py), others by single threads (attention_tiles.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from relax_aot.ir.dims import Bounds, Dim, dim_min, simplify
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Buffer, For, Kernel, Stmt
from relax_aot.scheduling.attention import Attention, attention_of
from relax_aot.scheduling.devices.attention_factors import of_operands
from relax_aot.scheduling.devices.attention_keys import by_rows
from relax_aot.scheduling.devices.attention_matrices import matrices
from relax_aot.scheduling.devices.attention_operands import Pair, pair_of
from relax_aot.scheduling.devices.attention_parts import PART, in_parts
from relax_aot.scheduling.devices.attention_rows import without_copies
from relax_aot.scheduling.devices.attention_tiles import tiles
from relax_aot.scheduling.devices.forms import Form
from relax_aot.scheduling.devices.literals import with_literals
from relax_aot.scheduling.devices.operands import extent
from relax_aot.scheduling.join import join_around
from relax_aot.scheduling.nest import greatest, names_in
from relax_aot.scheduling.passes import fma
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Context, Target
from relax_aot.scheduling.writer import Writer

LEAST = 16
"""Fewer queries take parts of keys."""
FormOf = Callable[[Writer, Pair, Context], bool]
"""Writes the launch of an attention; whether it can."""
FORMS: tuple[FormOf, ...] = (matrices, tiles)


def run(module: Module, target: Target) -> Module:
    """Kernels of one attention in their device form; those that fusion left apart are joined for
    it."""
    context = Context(target)

    def in_blocks(kernel: Kernel) -> Kernel | None:
        reduced = tuple(number for name, number in target.reduced if name == kernel.name)
        return attention(kernel, module.bounds, replace(context, reduced=reduced))

    def pair(kernel: Kernel) -> Pair | None:
        plain = without_copies(kernel, module.bounds)
        return _pair(plain, module.bounds, context)[1]

    for scalar in ("exp_below", "exp"):  # of floats, and of half-precision values
        module = join_around(module, scalar, lambda kernel: in_blocks(kernel) is not None)
    if any(kind.is_half for kind in target.matrices):
        module = by_rows(module, pair)
    made = {kernel.name: in_blocks(with_literals(kernel, module)) for kernel in module.kernels}
    return with_kernels(module, {name: one for name, one in made.items() if one is not None})


def attends(kernel: Kernel, bounds: Bounds, target: Target) -> bool:
    """Whether a kernel is one attention, of two products."""
    return _pair(without_copies(kernel, bounds), bounds, Context(target))[1] is not None


def attention(
    kernel: Kernel, bounds: Bounds, context: Context, forms: Sequence[FormOf] = FORMS
) -> Kernel | None:
    """A kernel of one attention in its device form; None for other kernels, and for few queries
    with few keys."""
    kernel = without_copies(kernel, bounds)
    matched, pair = _pair(kernel, bounds, context)
    if matched is None or pair is None:
        return None
    rows = extent(pair.scores.rows)
    many = simplify(dim_min(rows // LEAST, 1), bounds)
    long = greatest(pair.found.length, bounds) > PART
    if not long and greatest(rows, bounds) < LEAST:
        return None
    if many == 0:
        return _few(kernel, matched[0], pair, bounds, context)
    if many == 1 or not long:
        return _many(kernel, pair, Writer(names_in(kernel), bounds), context, forms)
    few = _few(kernel, matched[0], pair, bounds, context)
    w = Writer(names_in(kernel) | names_in(few), bounds)
    made = _many(kernel, pair, w, context, forms)
    if made is None:
        return None
    body = (*_chosen(made, many), *_chosen(few, 1 - many))
    own = tuple(buffer for buffer in made.scratch if buffer.name not in _names(kernel.scratch))
    return replace(few, body=body, scratch=(*few.scratch, *own))


def _pair(
    kernel: Kernel, bounds: Bounds, context: Context
) -> tuple[tuple[list[For], Attention] | None, Pair | None]:
    """The attention of a kernel, and its products."""
    matched = attention_of(kernel, bounds)
    pair = pair_of(*matched, bounds, context) if matched is not None else None
    return matched, of_operands(pair) if pair is not None else None


def _many(
    kernel: Kernel, pair: Pair, w: Writer, context: Context, forms: Sequence[FormOf]
) -> Kernel | None:
    """Blocks of queries and keys."""
    with w.block() as launches:
        if not any(form(w, pair, context) for form in forms):
            return None
    gone = pair.found.rows
    scratch = tuple(buffer for buffer in kernel.scratch if buffer.name not in gone)
    return replace(kernel, body=tuple(launches), scratch=(*scratch, *w.scratch), in_place=())


def _few(
    kernel: Kernel, loops: Sequence[For], pair: Pair, bounds: Bounds, context: Context
) -> Kernel:
    """Parts of keys, for less than LEAST queries."""
    queries = {loop.variable for loop in pair.scores.rows}
    fewer = [
        replace(loop, stop=loop.start + simplify(dim_min(loop.extent, LEAST - 1), bounds))
        if loop.variable in queries
        else loop
        for loop in loops
    ]
    plain = in_parts(kernel, fewer, pair.found, bounds)
    (fused,) = fma.run(Module((), (plain,)), context.target).kernels
    form = Form(fused, bounds, context)
    made = form.made()
    assert not form.copies, f"{kernel.name}: a part of keys fits in shared memory"
    return made


def _names(buffers: Sequence[Buffer]) -> set[str]:
    return {buffer.name for buffer in buffers}


def _chosen(kernel: Kernel, chosen: Dim) -> Iterator[Stmt]:
    """Launches that have no blocks where `chosen` is 0."""
    for stmt in kernel.body:
        yield replace(stmt, stop=stmt.stop * chosen) if isinstance(stmt, For) else stmt
