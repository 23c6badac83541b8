# SPDX-License-Identifier: Apache-2.0
"""Attention of few queries: the keys of a row in parts, which are independent.

Each part gives its greatest score, the sum of its powers and its sums of values; a second loop
combines them in the order of the parts. Both are plain loops, whose iterations become warps or
blocks as others do. The length of a part is fixed, so that the bits of a row depend on its keys
alone.

Source: Dao et al., "Flash-Decoding for long-context inference", 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, dim_min, simplify
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    Kernel,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    apply,
    binary,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.attention import Attention, applied, replaced
from relax_aot.scheduling.nest import names_in
from relax_aot.scheduling.passes.online_softmax import in_block
from relax_aot.scheduling.writer import Writer

PART = 128
"""Keys of a part."""


def in_parts(kernel: Kernel, loops: Sequence[For], found: Attention, bounds: Bounds) -> Kernel:
    """The kernel of one attention as plain loops over rows and parts. `loops`: over rows."""
    return _Parts(Writer(names_in(kernel), bounds), tuple(loops), found).kernel(kernel)


class _Parts:
    """The loops of one attention. `peaks`, `totals` and `sums`: the results of each part."""

    def __init__(self, w: Writer, loops: tuple[For, ...], found: Attention) -> None:
        self.w, self.loops, self.found = w, loops, found
        self.count = simplify(ceildiv(found.length, PART), w.bounds)
        shape = (*(loop.extent for loop in loops), self.count)
        self.peaks, self.totals = (
            w.buffer(name, DType.F32, *shape) for name in ("peaks", "totals")
        )
        self.sums = w.buffer("sums", DType.F32, *shape, *(loop.stop for loop in found.mix.loops))
        self.row = tuple(Dim.of(loop.variable) - loop.start for loop in loops)
        self.columns = tuple(Dim.of(loop.variable) for loop in found.mix.loops)

    def kernel(self, kernel: Kernel) -> Kernel:
        w, narrow = self.w, dict[str, Buffer]()
        with w.block() as body:
            with w.nest(self.loops), w.range("part", self.count) as part:
                self._part(part, narrow)
            with w.nest(self.loops):
                self._combine()
        scratch = tuple(narrow.get(buffer.name, buffer) for buffer in kernel.scratch)
        return replace(kernel, body=tuple(body), scratch=(*scratch, *w.scratch), in_place=())

    def _part(self, part: Dim, narrow: dict[str, Buffer]) -> None:
        w, found, kind = self.w, self.found, self.found.power.dtype
        base = part * PART
        length = dim_min(found.length - base, PART)
        width = w.let("width", length, length, length)
        inside = in_block(found, narrow, base, width, PART)

        def each_key(*stmts: Stmt) -> None:
            w.add(*inside((For(found.key, ZERO, found.length, stmts),)))

        peak, shift, total = (Local(w.fresh(name), kind) for name in ("most", "shift", "part_sum"))
        w.add(*inside(found.scores), Declare(peak, Lit(-inf, kind)))
        each_key(Assign(peak, apply("max", peak, found.score)))
        w.add(Declare(shift, replaced(peak, -inf, 0.0)), Declare(total, Lit(0.0, kind)))
        power = found.power
        stored = Store(power.buffer, power.index, applied("exp_below", found.score, shift))
        each_key(stored, Assign(total, Binary("+", total, power)))
        w.add(*inside(found.rounding))
        at = (*self.row, part)
        w.add(Store(self.peaks, at, _wide(peak)), Store(self.totals, at, _wide(total)))
        mix = found.mix
        with w.nest(mix.loops):
            w.add(Declare(mix.sum, Lit(0.0, mix.sum.dtype)), *inside((mix.keys,)))
            w.add(Store(self.sums, (*at, *self.columns), _wide(mix.sum)))

    def _combine(self) -> None:
        w, found, mix = self.w, self.found, self.found.mix
        peak, shift, whole, mixed = (
            Local(w.fresh(name), DType.F32) for name in ("most", "shift", "whole", "mixed")
        )
        zero = Lit(0.0, DType.F32)
        w.add(Declare(peak, Lit(-inf, DType.F32)))
        with w.range("part", self.count) as part:
            w.add(Assign(peak, apply("max", peak, self._of(self.peaks, part))))
        w.add(Declare(shift, replaced(peak, -inf, 0.0)), Declare(whole, zero))
        with w.range("part", self.count) as part:
            weighted = self._weighted(self._of(self.totals, part), part, shift)
            w.add(Assign(whole, Binary("+", whole, weighted)))
        empty: Expr = binary("==", found.length, 0)
        if found.one_total:
            empty = Binary("==", whole, zero)
        w.add(Assign(whole, Select(empty, Lit(1.0, DType.F32), whole)))
        with w.nest(mix.loops):
            w.add(Declare(mixed, zero))
            with w.range("part", self.count) as part:
                sums = self._of(self.sums, part, *self.columns)
                weighted = self._weighted(sums, part, shift)
                w.add(Assign(mixed, Binary("+", mixed, weighted)))
            result: Expr = Binary("/", mixed, whole)
            if mix.sum.dtype.is_half:
                result = Cast(result, mix.sum.dtype)
            w.finish(mix.after, mix.sum, result, {})

    def _weighted(self, value: Expr, part: Dim, shift: Local) -> Expr:
        """What a part adds: its values belong to its own maximum."""
        return Binary("*", value, apply("exp_below", self._of(self.peaks, part), shift))

    def _of(self, buffer: Buffer, *at: Dim) -> Load:
        return Load(buffer, (*self.row, *at))


def _wide(value: Expr) -> Expr:
    return Cast(value, DType.F32) if value.dtype.is_half else value
