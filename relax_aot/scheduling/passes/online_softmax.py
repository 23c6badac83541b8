# SPDX-License-Identifier: Apache-2.0
"""Online softmax: a row of scores that is too long is computed in blocks of keys.

A kernel that computes the scores of a row, their maximum, powers, sum and quotients, and then the
sum of values weighted by them, keeps the whole row in scratch. In blocks of keys, it keeps one
block: with each block come a greater maximum m, the sum of powers, and the weighted sums of
values. Those of the blocks before are multiplied by exp(m_before - m). One division at the end
gives the results.

A block of nothing but -inf adds nothing, and a row of them gives what it gave before. Blocks begin
at fixed positions of keys, so the bits of a row depend on neither other rows nor masked keys
behind it.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867; Dao
et al., "FlashAttention", arXiv:2205.14135, for the weighted sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from relax_aot.fusion.accesses import accesses
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, dim_max, dim_min, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Buffer,
    Declare,
    For,
    Kernel,
    Lit,
    Local,
    Select,
    Stmt,
    Store,
    apply,
    binary,
)
from relax_aot.ir.rewrite import map_accesses, map_index_dims, map_statements
from relax_aot.ir.types import DType
from relax_aot.scheduling.attention import Attention, replaced, rows_of
from relax_aot.scheduling.join import join_around
from relax_aot.scheduling.nest import names_in
from relax_aot.scheduling.passes import shared_scratch
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

_ATTENTION = """
            symbol s in 1..9
            symbol n in 0..5000
            kernel @attend(%q: f32[s, 4], %k: f32[n, 4], %v: f32[n, 8]) -> (%y: f32[s, 8]) scratch (%w: f32[n]) {
              for i in 0..s {
                for j in 0..n {
                  local score: f32 = 0.0:f32
                  for d in 0..4 {
                    score = (score + (%q[i, d] * %k[j, d]))
                  }
                  %w[j] = (score * 0.5:f32)
                }
                local peak: f32 = -inf:f32
                for j in 0..n {
                  peak = max(peak, %w[j])
                }
                local total: f32 = 0.0:f32
                for j in 0..n {
                  %w[j] = exp_below(%w[j], peak)
                  total = (total + %w[j])
                }
                for j in 0..n {
                  %w[j] = fraction(%w[j], total)
                }
                for d in 0..8 {
                  local mix: f32 = 0.0:f32
                  for j in 0..n {
                    mix = (mix + (%w[j] * %v[j, d]))
                  }
                  %y[i, d] = mix
                }
              }
            }"""  # noqa: E501

EXAMPLES = (
    Example(
        why="a row of up to 5000 scores: 256 at a time",
        before=_ATTENTION,
        after="""
            kernel @attend(%q: f32[s, 4], %k: f32[n, 4], %v: f32[n, 8]) -> (%y: f32[s, 8]) scratch (%w: f32[256], %peak_0: f32[], %total_0: f32[], %factor: f32[], %sums: f32[8]) {
              for i in 0..s {
                %peak_0[] = -inf:f32
                %total_0[] = 0.0:f32
                for d in 0..8 {
                  %sums[d] = 0.0:f32
                }
                for key_block in 0..(n + 255) // 256 {
                  let width = max(1, min(-256*key_block + n, 256))
                  for j in 0..width {
                    local score: f32 = 0.0:f32
                    for d in 0..4 {
                      score = (score + (%q[i, d] * %k[j + 256*key_block, d]))
                    }
                    %w[j] = (score * 0.5:f32)
                  }
                  local last: f32 = %peak_0[]
                  local most: f32 = last
                  for j in 0..width {
                    most = max(most, %w[j])
                  }
                  %peak_0[] = most
                  local shift: f32 = select((most == -inf:f32), 0.0:f32, most)
                  local scale: f32 = exp_below(last, shift)
                  local part: f32 = 0.0:f32
                  for j in 0..width {
                    %w[j] = exp_below(%w[j], shift)
                    part = (part + %w[j])
                  }
                  %total_0[] = (part + (%total_0[] * scale))
                  %factor[] = scale
                  for d in 0..8 {
                    local mix: f32 = 0.0:f32
                    for j in 0..width {
                      mix = (mix + (%w[j] * %v[j + 256*key_block, d]))
                    }
                    %sums[d] = (mix + (%sums[d] * %factor[]))
                  }
                }
                local whole: f32 = %total_0[]
                whole = select((index(n) == index(0)), 1.0:f32, whole)
                for d in 0..8 {
                  %y[i, d] = (%sums[d] / whole)
                }
              }
            }""",  # noqa: E501
        target="fpu",
    ),
    Example(
        why="a row of up to 2048 scores is kept",
        before=_ATTENTION.replace("5000", "2048"),
        target="fpu",
    ),
    Example(
        why="the weights of a row are a result: all of them are needed at the end",
        before=_ATTENTION.replace(
            "(%y: f32[s, 8]) scratch (%w: f32[n])", "(%y: f32[s, 8], %w: f32[n])"
        ),
        target="fpu",
    ),
)

_ZERO, _ONE, _LOWEST = (Lit(value, DType.F32) for value in (0.0, 1.0, -inf))


def run(module: Module, target: Target) -> Module:
    """Kernels whose row of scores may take more than `target.score_row` bytes, in blocks. Kernels
    that fusion left apart are joined for it, so that all entries of a model have the same
    blocks."""

    def blocked(kernel: Kernel) -> Kernel:
        return in_blocks(kernel, module.bounds, target.score_row, target.score_block)

    module = join_around(module, "exp_below", lambda kernel: blocked(kernel) is not kernel)
    module = shared_scratch.run(module, target)
    return with_kernels(module, {kernel.name: blocked(kernel) for kernel in module.kernels})


def in_blocks(kernel: Kernel, bounds: Bounds, most: int, block: int) -> Kernel:
    """The kernel in blocks of `block` keys, if it is an attention whose row of scores may take more
    than `most` bytes at the highest sizes; unchanged otherwise."""
    loops, body, found = rows_of(kernel, bounds)
    if found is None or {found.score.dtype, found.mix.sum.dtype} != {DType.F32}:
        return kernel
    fixed = replace(bounds, raisable=frozenset())
    if prove_le(found.length * DType.F32.bytes, most, fixed):
        return kernel
    w = Writer(names_in(kernel), bounds)
    with w.block() as blocked, w.nest(loops):
        w.add(*body[: found.first])
        rows = _emit(found, w, block)
        w.add(*body[found.end :])
    scratch = tuple(rows.get(buffer.name, buffer) for buffer in kernel.scratch)
    return replace(kernel, scratch=(*scratch, *w.scratch), body=tuple(blocked))


def _emit(found: Attention, w: Writer, size: int) -> dict[str, Buffer]:
    """Writes the blocks. Returns the row buffers as they are in a block."""
    mix = found.mix
    scalar: At = ()
    peak, total, factor = (w.buffer(n, DType.F32) for n in ("peak", "total", "factor"))
    sums = w.buffer("sums", DType.F32, *(loop.stop for loop in mix.loops))
    at = tuple(Dim.of(loop.variable) for loop in mix.loops)
    w.add(Store(peak, scalar, _LOWEST), Store(total, scalar, _ZERO))
    with w.nest(mix.loops):
        w.add(Store(sums, at, _ZERO))
    rows: dict[str, Buffer] = {}
    with w.range("key_block", ceildiv(found.length, size)) as number:
        base = number * size
        width = dim_max(dim_min(found.length - base, size), 1)  # a block has a key
        width = w.let("width", width, width, width)
        inside = in_block(found, rows, base, width, size)
        w.add(*inside(found.scores))
        _powers(found, w, inside, (peak, total, factor))
        with w.nest(mix.loops):
            added = Binary("*", sums[at], factor[scalar])
            w.add(Declare(mix.sum, _ZERO), *inside((mix.keys,)))
            w.add(Store(sums, at, Binary("+", mix.sum, added)))
    whole = Local(w.fresh("whole"), DType.F32)
    w.add(Declare(whole, total[scalar]))
    if found.one_total:
        w.add(Assign(whole, replaced(whole, 0.0, 1.0)))
    elif not prove_le(1, found.length, w.bounds):  # no key: the sum of nothing
        w.add(Assign(whole, Select(binary("==", found.length, 0), _ONE, whole)))
    with w.nest(mix.loops):
        w.finish(mix.after, mix.sum, Binary("/", sums[at], whole), {})
    return rows


def in_block(
    found: Attention, rows: dict[str, Buffer], base: Dim, width: Dim, size: int
) -> Callable[[Sequence[Stmt]], tuple[Stmt, ...]]:
    """Statements for the keys of one block; row buffers hold one block."""

    def narrowed(buffer: Buffer, index: At) -> tuple[Buffer, At]:
        if buffer.name not in found.rows:
            return buffer, index
        (axis,) = (n for n, dim in enumerate(index) if not dim.is_constant)
        shape = (*buffer.shape[:axis], Dim.of(size), *buffer.shape[axis + 1 :])
        rows[buffer.name] = replace(buffer, shape=shape)
        at = (*index[:axis], index[axis] - base, *index[axis + 1 :])
        return rows[buffer.name], at

    def rule(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or (stmt.start, stmt.stop) != (ZERO, found.length):
            return stmt
        of_row = (a for a in accesses((stmt,)) if a.name in found.rows)
        if not any(Dim.of(stmt.variable) in access.at for access in of_row):
            return stmt
        key = {stmt.variable: base + Dim.of(stmt.variable)}
        inner = map_index_dims(stmt.body, lambda dim: dim.substitute(key))
        return replace(stmt, stop=width, body=inner)

    return lambda body: map_accesses(map_statements(tuple(body), rule), narrowed)


def _powers(
    found: Attention,
    w: Writer,
    in_block: Callable[[Sequence[Stmt]], tuple[Stmt, ...]],
    state: tuple[Buffer, Buffer, Buffer],
) -> None:
    """The powers of the scores of a block below the new maximum, and their sum."""
    peak, total, factor = (buffer[()] for buffer in state)
    names = ("last", "most", "shift", "scale", "part")
    last, most, shift, scale, part = (Local(w.fresh(name), DType.F32) for name in names)
    score, power = found.score, found.power

    def each_key(*body: Stmt) -> None:
        w.add(*in_block((For(found.key, ZERO, found.length, body),)))

    w.add(Declare(last, peak), Declare(most, last))
    each_key(Assign(most, apply("max", most, score)))
    w.add(Store(peak.buffer, (), most), Declare(shift, replaced(most, -inf, 0.0)))
    w.add(Declare(scale, apply("exp_below", last, shift)), Declare(part, _ZERO))
    stored = Store(power.buffer, power.index, apply("exp_below", score, shift))
    each_key(stored, Assign(part, Binary("+", part, power)))
    w.add(Store(total.buffer, (), Binary("+", part, Binary("*", total, scale))))
    w.add(Store(factor.buffer, (), scale))
