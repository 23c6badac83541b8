# SPDX-License-Identifier: Apache-2.0
"""Softmax of contiguous rows by a micro-kernel, on cores with an FPU and without vectors.

Compilers read floats one by one and compare each with the maximum by four instructions. The
micro-kernel has the bits of the loops (`raot/softmax.h`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, If, Kernel, Load, Micro, Stmt, Store, walk
from relax_aot.ir.types import DType
from relax_aot.microkernels.softmax import MASKED, PLAIN
from relax_aot.scheduling.attention import Powers, applied, locals_of, powers_of
from relax_aot.scheduling.contraction import moved, stride
from relax_aot.scheduling.targets import Target

EXAMPLES = (
    Example(
        why="a row that a mask may shut",
        before="""
            symbol n in 1..99
            kernel @softmax(%x: f32[3, n]) -> (%y: f32[3, n]) {
              for i in 0..3 {
                local peak: f32 = -inf:f32
                for j in 0..n {
                  peak = max(peak, %x[i, j])
                }
                peak = select((peak == -inf:f32), 0.0:f32, peak)
                local total: f32 = 0.0:f32
                for j in 0..n {
                  %y[i, j] = exp_below(%x[i, j], peak)
                  total = (total + %y[i, j])
                }
                total = select((total == 0.0:f32), 1.0:f32, total)
                for j in 0..n {
                  %y[i, j] = fraction(%y[i, j], total)
                }
              }
            }""",
        after="""
            kernel @softmax(%x: f32[3, n]) -> (%y: f32[3, n]) {
              for i in 0..3 {
                micro raot_softmax_masked_f32(...) [n]
              }
            }""",
        target="fpu",
    ),
    Example(
        why="the elements of a column are not contiguous",
        before="""
            symbol n in 1..99
            kernel @softmax(%x: f32[n, 3]) -> (%y: f32[n, 3]) {
              for i in 0..3 {
                local peak: f32 = -inf:f32
                for j in 0..n {
                  peak = max(peak, %x[j, i])
                }
                local total: f32 = 0.0:f32
                for j in 0..n {
                  %y[j, i] = exp_below(%x[j, i], peak)
                  total = (total + %y[j, i])
                }
                for j in 0..n {
                  %y[j, i] = fraction(%y[j, i], total)
                }
              }
            }""",
        target="fpu",
    ),
)
_LEAST = 16
"""Shorter rows of known length are not worth a call."""


def run(module: Module, target: Target) -> Module:
    """Rows by the micro-kernel, where the target takes it."""
    if not target.softmax:
        return module
    return replace(module, kernels=tuple(map(_by_micro_kernel, module.kernels)))


def _by_micro_kernel(kernel: Kernel) -> Kernel:
    return kernel if kernel.parallel else replace(kernel, body=_block(kernel.body))


def _block(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    found: list[Stmt] = []
    while body:
        match body[0]:
            case For() as loop:
                found.append(replace(loop, body=_block(loop.body)))
            case If() as choice:
                then, otherwise = _block(choice.then), _block(choice.otherwise)
                found.append(replace(choice, then=then, otherwise=otherwise))
            case stmt:
                made = powers_of(body, 1) if len(body) > 1 else None
                if made is not None and (micro := _row(made)) is not None:
                    found.append(micro)
                    body = made.rest[1:]
                    continue
                found.append(stmt)
        body = body[1:]
    return tuple(found)


def _row(made: Powers) -> Micro | None:
    """The softmax of a row, if quotients take the memory of the powers and nothing else reads the
    maximum and the sum."""
    if made.score.dtype is not DType.F32 or made.shut != made.one_total or not made.rest:
        return None
    match made.rest[0]:
        case For(key, _, length, (Store() as store,)) as quotients:
            pass
        case _:
            return None
    own = moved(made.power, {made.key: Dim.of(key)})
    loops = (made.loop, quotients)
    if Load(store.buffer, store.index) != own or store.value != applied(
        "fraction", own, made.total
    ):
        return None
    if any((loop.start, loop.stop) != (ZERO, made.length) for loop in loops):
        return None
    if any(stride(place, made.key) != 1 for place in (made.score, made.power)):
        return None
    later = {local for stmt in walk(made.rest[1:]) for local in locals_of(stmt)}
    if later & {made.peak, made.total}:
        return None
    if made.length.is_constant and made.length.constant < _LEAST:
        return None
    first = {made.key: ZERO}
    values, source = moved(made.power, first), moved(made.score, first)
    return Micro.of(MASKED if made.shut else PLAIN, values=values, count=length, **{"from": source})
