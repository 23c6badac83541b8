# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions as convolutions of stride 1, one for each residue by the stride.

Output positions of one residue read the same taps of the kernel, at windows that move by one from
position to position. A nest whose sums run over taps chosen by a remainder of an output variable is
divided by that remainder: for each residue, its positions are a nest that stores with the stride,
and its taps are a range. Residues that no tap reaches store the starts of their sums. (Sub-pixel
convolution: Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.)

The order in which each sum adds its products stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import lcm, prod

from relax_aot.ir.dims import ZERO, Bounds, Dim, FloorDiv, Mod, assume, ceildiv, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, Kernel, Load, Stmt, Store, expressions, walk
from relax_aot.ir.rewrite import map_index_dims
from relax_aot.scheduling.contraction import symbols_of, unclipped
from relax_aot.scheduling.nest import Nest, bounds_known, nest_of, ranges, without_lets
from relax_aot.scheduling.targets import Target

MOST = 16
"""Nests that one becomes at most."""

EXAMPLES = (
    Example(
        why="three taps in steps of two: even positions have two of them, odd ones have one",
        target="dsp",
        before="""
            symbol n in 1..9
            kernel @up(%x: f32[n], %w: f32[3]) -> (%y: f32[2*n + 1]) {
              for i in 0..2*n + 1 {
                local sum: f32 = 0.0:f32
                let phase = i % 2
                let count = (-phase + 4) // 2
                let oldest = i // 2 - count + 1
                for k in max(-oldest, 0)..min(n - oldest, count) {
                  sum = (sum + (%x[oldest + k] * %w[phase + 2*count - 2*k - 2]))
                }
                %y[i] = sum
              }
            }""",
        after="""
            kernel @up(%x: f32[n], %w: f32[3]) -> (%y: f32[2*n + 1]) {
              for i in 0..n + 1 {
                local sum: f32 = 0.0:f32
                for k in max(-i + 1, 0)..min(-i + n + 1, 2) {
                  sum = (sum + (%x[i + k - 1] * %w[-2*k + 2]))
                }
                %y[2*i] = sum
              }
              for i in 0..n {
                local sum: f32 = 0.0:f32
                sum = (sum + (%x[i] * %w[1]))
                %y[2*i + 1] = sum
              }
            }""",
    ),
    Example(
        why="kernels shorter than the stride do not reach all positions",
        target="dsp",
        before="""
            symbol n in 1..9
            kernel @up(%x: f32[n], %w: f32[1]) -> (%y: f32[2*n]) {
              for i in 0..2*n {
                local sum: f32 = 0.5:f32
                for k in max(-(i // 2), 0)..min(n - i // 2, (-(i % 2) + 2) // 2) {
                  sum = (sum + (%x[i // 2 + k] * %w[i % 2]))
                }
                %y[i] = sum
              }
            }""",
        after="""
            kernel @up(%x: f32[n], %w: f32[1]) -> (%y: f32[2*n]) {
              for i in 0..n {
                local sum: f32 = 0.5:f32
                sum = (sum + (%x[i] * %w[0]))
                %y[2*i] = sum
              }
              for i in 0..n {
                local sum: f32 = 0.5:f32
                %y[2*i + 1] = sum
              }
            }""",
    ),
    Example(
        why="each position needs the one before",
        target="dsp",
        before="""
            symbol n in 2..9
            kernel @up(%x: f32[n], %y0: f32[1]) -> (%y: f32[n]) {
              %y[0] = %y0[0]
              for i in 1..n {
                local sum: f32 = %y[i - 1]
                for k in 0..i % 2 {
                  sum = (sum + (%x[k] * %x[i]))
                }
                %y[i] = sum
              }
            }""",
    ),
)


def run(module: Module, _: Target) -> Module:
    return replace(module, kernels=tuple(_divided(k, module.bounds) for k in module.kernels))


def _divided(kernel: Kernel, bounds: Bounds) -> Kernel:
    if kernel.parallel:
        return kernel
    nests: list[Nest] = []
    body = tuple(_body(without_lets(kernel.body), bounds, nests))
    if not nests:
        return kernel
    pairs = tuple(pair for pair in kernel.in_place if all(_steady(n, pair) for n in nests))
    return replace(kernel, body=body, in_place=pairs)


def _steady(nest: Nest, pair: tuple[str, str]) -> bool:
    """Whether an iteration reads of an input no other element than it writes of the output that
    has its memory, so that iterations may run in any order."""
    read, written = pair
    exprs = (expr for stmt in walk(nest.leaf) for expr in expressions(stmt))
    loaded = {e.index for e in exprs if isinstance(e, Load) and e.buffer.name == read}
    stores = (stmt for stmt in walk(nest.leaf) if isinstance(stmt, Store))
    stored = {stmt.index for stmt in stores if stmt.buffer.name == written}
    return not loaded or not stored or (loaded == stored and len(stored) == 1)


def _body(body: Sequence[Stmt], bounds: Bounds, nests: list[Nest]) -> Iterator[Stmt]:
    """The statements, with the outermost nests divided that may be; adds these to `nests`."""
    for stmt in body:
        found = nest_of(stmt, bounds) if isinstance(stmt, For) else None
        periods = {} if found is None else _periods(found)
        if prod(periods.values()) > MOST:
            yield stmt
        elif found is not None and periods:
            nests.append(found)
            yield from _phases(found, periods, bounds)
        elif isinstance(stmt, For) and bounds_known(stmt, bounds):
            yield replace(stmt, body=tuple(_body(stmt.body, ranges((stmt,), bounds), nests)))
        else:
            yield stmt


def _periods(found: Nest) -> Mapping[str, int]:
    """How many residues of each loop have taps of their own; empty where loops have an order."""
    loops, sizes = found.loops, [d for lp in found.reductions for d in (lp.start, lp.stop)]
    periods: dict[str, int] = {}
    for loop in loops:
        period = lcm(*(_period(size, loop.variable) for size in sizes))
        if period > 1:
            periods[loop.variable] = period
    split = [loop for loop in loops if loop.variable in periods]
    apart = found.free >= {lp.variable for lp in loops} and not symbols_of(*loops) & {*periods}
    return periods if apart and all(loop.start == 0 for loop in split) else {}


def _period(size: Dim, name: str) -> int:
    """After how many steps of a variable the remainders in a size are the same again."""
    period = 1
    for part in size.parts:
        for atom in part.atoms:
            if isinstance(atom, Mod) and name in atom.numerator.symbols:
                inner = [a for p in atom.numerator.parts for a in p.atoms]
                known = [a.denominator for a in inner if isinstance(a, FloorDiv)]
                if not all(dim.is_constant for dim in (*known, atom.denominator)):
                    return 1
                period = lcm(period, atom.denominator.constant * lcm(*(d.constant for d in known)))
    return period


def _phases(found: Nest, periods: Mapping[str, int], bounds: Bounds) -> list[For]:
    """A nest for each residue, those with most taps first, whose scratch others may use."""
    made: list[tuple[int, For]] = []
    for residues in product(*(range(period) for period in periods.values())):
        at = dict(zip(periods, residues, strict=True))
        loops = tuple(
            replace(lp, stop=ceildiv(lp.stop - at[lp.variable], periods[lp.variable]))
            if lp.variable in at
            else lp
            for lp in found.loops
        )
        places = {name: Dim.of(name) * period + at[name] for name, period in periods.items()}
        body = _trimmed(_placed(found.leaf, places), _inside(loops, bounds))
        taps = prod(unclipped(stmt) or 1 for stmt in walk(body) if isinstance(stmt, For))
        for loop in reversed(loops):
            body = [replace(loop, body=tuple(body))]
        made += [(taps, stmt) for stmt in body if isinstance(stmt, For)]
    return [stmt for _, stmt in sorted(made, key=lambda pair: -pair[0])]


def _placed(body: Sequence[Stmt], at: Mapping[str, Dim]) -> tuple[Stmt, ...]:
    return map_index_dims(tuple(body), lambda dim: dim.substitute(at))


def _inside(loops: tuple[For, ...], bounds: Bounds) -> Bounds:
    """What holds in an iteration: also that variables are less than symbolic ends."""
    below = [("<=", Dim.of(loop.variable), loop.stop - 1) for loop in loops]
    return assume(ranges(loops, bounds), below)


def _trimmed(body: Sequence[Stmt], bounds: Bounds) -> list[Stmt]:
    """Loops over taps without those that have none; bounds are numbers, and a single tap is no
    loop, where windows are never clipped."""
    result: list[Stmt] = []
    for stmt in body:
        if not isinstance(stmt, For):
            result.append(stmt)
            continue
        count = unclipped(stmt)
        if count is not None and count < 1:
            continue
        inner = _trimmed(stmt.body, ranges((stmt,), bounds))
        start, stop = simplify(stmt.start, bounds), simplify(stmt.stop, bounds)
        whole = start == 0 and stop == count
        if inner and whole and count == 1:
            result += _placed(inner, {stmt.variable: ZERO})
        elif inner:
            start, stop = (start, stop) if whole else (stmt.start, stmt.stop)
            result.append(replace(stmt, start=start, stop=stop, body=tuple(inner)))
    return result
