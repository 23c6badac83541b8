# SPDX-License-Identifier: Apache-2.0
"""Shared scratch: two scratch buffers of a kernel become one where the first is read for the last
time before the second is written.

Kernels fused by rows pass several values from step to step: the scores of a row become its
weights. Each weight is written after the score at the same place is read, so one buffer serves
both. Every number is computed as before.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from relax_aot.fusion.accesses import Access, accesses
from relax_aot.fusion.checking.independence import private_scratch
from relax_aot.fusion.legality import one_to_one, opaque
from relax_aot.ir.dims import Bounds
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Buffer, For, Kernel
from relax_aot.ir.rewrite import map_buffers
from relax_aot.scheduling.nest import bounds_known, ranges
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Target

EXAMPLES = (
    Example(
        why="a power is stored where its score was",
        before="""
            symbol n in 1..9
            kernel @powers(%x: f32[n, 4]) -> (%y: f32[n]) scratch (%s: f32[4], %w: f32[4]) {
              for i in 0..n {
                for j in 0..4 {
                  %s[j] = (%x[i, j] * 0.5:f32)
                }
                local total: f32 = 0.0:f32
                for j in 0..4 {
                  %w[j] = exp(%s[j])
                  total = (total + %w[j])
                }
                %y[i] = (%w[0] / total)
              }
            }""",
        after="""
            kernel @powers(%x: f32[n, 4]) -> (%y: f32[n]) scratch (%s: f32[4]) {
              for i in 0..n {
                for j in 0..4 {
                  %s[j] = (%x[i, j] * 0.5:f32)
                }
                local total: f32 = 0.0:f32
                for j in 0..4 {
                  %s[j] = exp(%s[j])
                  total = (total + %s[j])
                }
                %y[i] = (%s[0] / total)
              }
            }""",
        target="fpu",
    ),
    Example(
        why="the first is read again after the second is written",
        before="""
            symbol n in 1..9
            kernel @powers(%x: f32[n, 4]) -> (%y: f32[n]) scratch (%s: f32[4], %w: f32[4]) {
              for i in 0..n {
                for j in 0..4 {
                  %s[j] = (%x[i, j] * 0.5:f32)
                }
                for j in 0..4 {
                  %w[j] = exp(%s[(3 - j)])
                }
                %y[i] = %w[0]
              }
            }""",
        target="fpu",
    ),
)


def run(module: Module, _: Target) -> Module:
    kernels = {kernel.name: share(kernel, module.bounds) for kernel in module.kernels}
    return with_kernels(module, kernels)


def share(kernel: Kernel, bounds: Bounds) -> Kernel:
    """The kernel with as few scratch buffers as its steps need, each of one type."""
    types = [buffer.type for buffer in kernel.scratch]
    if len(types) == len(set(types)) or kernel.parallel or opaque(kernel.body):
        return kernel
    loops: list[For] = []
    body, inside = kernel.body, bounds
    while len(body) == 1 and isinstance(body[0], For) and bounds_known(body[0], inside):
        loops.append(body[0])
        inside, body = ranges((body[0],), inside), body[0].body
    own = frozenset(buffer.name for buffer in kernel.scratch)
    if loops:
        own = private_scratch(kernel, loops[-1], bounds.open) or frozenset()
    for first, second in permutations([b for b in kernel.scratch if b.name in own], 2):
        if first.type == second.type and _follows(kernel, first, second, len(loops), bounds):
            return share(_joined(kernel, first, second), bounds)
    return kernel


def _follows(kernel: Kernel, first: Buffer, second: Buffer, depth: int, bounds: Bounds) -> bool:
    """Whether no element of `second` is accessed before the last access to any element of `first`,
    in the statements below `depth` loops, or to the same element in the statement of both."""
    one, other = (list(accesses(kernel.body, buffer.name)) for buffer in (first, second))
    if not one or not other:
        return False
    last, begin = max(a.path[depth] for a in one), min(a.path[depth] for a in other)
    if last != begin:
        return last < begin
    one, other = ([a for a in found if a.path[depth] == last] for found in (one, other))
    return _same_element([*one, *other], depth, bounds) and (
        max(a.path for a in one) < min(a.path for a in other)
    )


def _same_element(found: list[Access], depth: int, bounds: Bounds) -> bool:
    """Whether they access one element in each iteration of the loops that they share, each
    iteration another."""
    at, loops = found[0].at, found[0].ranges
    return all(a.at == at and a.loops == found[0].loops for a in found) and (
        not found[0].data and one_to_one(at, loops[depth:], ranges(loops[:depth], bounds))
    )


def _joined(kernel: Kernel, first: Buffer, second: Buffer) -> Kernel:
    body = map_buffers(kernel.body, lambda b: first if b.name == second.name else b)
    scratch = tuple(buffer for buffer in kernel.scratch if buffer != second)
    return replace(kernel, body=body, scratch=scratch)
