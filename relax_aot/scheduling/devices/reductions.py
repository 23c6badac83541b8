# SPDX-License-Identifier: Apache-2.0
"""Long reductions of whole tensors as two loops: one result for each part, then one of all.

The first loop has independent iterations, so that each becomes a block. The order of a sum is
that of the parts, whose length does not depend on the device.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.loops import Assign, Declare, Expr, For, Kernel, Let, Load, Local, Stmt, Store
from relax_aot.ir.rewrite import map_exprs, map_statements
from relax_aot.scheduling.devices.nests import bounds_after, nest_of
from relax_aot.scheduling.devices.proofs import Proofs, Reduced, cast
from relax_aot.scheduling.nest import names_in
from relax_aot.scheduling.writer import Writer

PART = 8192
"""Elements of a part."""
LEAST = 4
"""Fewer parts are not worth a launch."""


def in_parts(kernel: Kernel, bounds: Bounds, *, ordered: bool) -> Kernel:
    """The kernel with its long reductions in parts, where these are proven to be independent."""
    for position, stmt in enumerate(kernel.body):
        bounds = bounds_after(stmt, bounds) if isinstance(stmt, Let) else bounds
        if not isinstance(stmt, For):
            continue
        proofs = Proofs(kernel, bounds, ordered=ordered)
        w = Writer(names_in(kernel), bounds)
        length = _length(stmt, proofs, bounds)
        sums = proofs.reduced(stmt)
        if not length or not sums:
            continue
        with w.block() as made:
            first, _ = _split(w, stmt, sums, length)
        before, after = kernel.body[:position], kernel.body[position + 1 :]
        scratch = (*kernel.scratch, *w.scratch)
        split = replace(kernel, body=(*before, *made, *after), scratch=scratch)
        if Proofs(split, bounds).independent(first):
            return in_parts(split, bounds, ordered=ordered)
    return kernel


def _length(loop: For, proofs: Proofs, bounds: Bounds) -> int:
    """The iterations of a part; 0 where the loop stays whole."""
    if not (loop.start.symbols | loop.stop.symbols) <= set(bounds):
        return 0
    nest = nest_of(loop, bounds, lambda one: bool(proofs.reduced(one)))
    alone = nest_of(replace(loop, body=()), bounds, lambda _: True)
    if nest is None or alone is None or nest.greatest < LEAST * PART:
        return 0
    length = max(1, PART * alone.greatest // nest.greatest)
    return length if alone.greatest >= LEAST * length else 0


def _split(w: Writer, loop: For, sums: tuple[Reduced, ...], length: int) -> tuple[For, For]:
    count = simplify(ceildiv(dim_max(loop.extent, 0), length), w.bounds)
    kept = [w.buffer(f"{one.local.name}_parts", one.kept, count) for one in sums]
    locals_ = {s.local: Local(w.fresh(f"{s.local.name}_of_part"), s.local.dtype) for s in sums}

    def renamed(expr: Expr) -> Expr:
        return locals_.get(expr, expr) if isinstance(expr, Local) else expr

    def assigned(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Assign):
            return stmt
        return replace(stmt, local=locals_.get(stmt.local, stmt.local))

    at = Dim.of(variable := w.fresh("part"))
    start = loop.start + at * length
    body = map_statements(map_exprs(loop.body, renamed), assigned)
    first = For(variable, ZERO, count, (
        *(Declare(locals_[one.local], one.neutral) for one in sums),
        For(loop.variable, start, dim_min(start + length, loop.stop), body),
        *(Store(b, (at,), cast(locals_[s.local], s.kept)) for s, b in zip(sums, kept, strict=True)),
    ))  # fmt: skip
    again = Dim.of(variable := w.fresh("part"))
    totals = [one.total(w) for one in sums]
    second = For(variable, ZERO, count, tuple(
        Assign(total, one.combined(total, Load(buffer, (again,))))
        for one, total, buffer in zip(sums, totals, kept, strict=True)
    ))  # fmt: skip
    w.add(first)
    for one, total in zip(sums, totals, strict=True):
        w.add(*one.before(total))
    w.add(second)
    for one, total in zip(sums, totals, strict=True):
        w.add(*one.after(total))
    return first, second
