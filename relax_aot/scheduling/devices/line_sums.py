# SPDX-License-Identifier: Apache-2.0
"""Sums of lines of bytes, which zero points of the other factor multiply, in a launch before the
product: a tile would add each line again for each tile across (zero_points.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from relax_aot.ir.dims import Dim, simplify
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Kernel,
    Lit,
    Load,
    Local,
    Stmt,
    Store,
)
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.devices.forms import Form
from relax_aot.scheduling.devices.operands import Product, extent
from relax_aot.scheduling.devices.realigned import is_read_once
from relax_aot.scheduling.devices.zero_points import times
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer


def with_summed_lines(
    w: Writer, product: Product, context: Context, most: tuple[int, int], chosen: Dim
) -> Product:
    """The product with the lines of both factors, by the zero points of the other one, as terms
    behind its sums. A line that one tile alone reads is added there. `most`: rows and columns of a
    tile; `chosen`: 1 where the launches have blocks, else 0."""
    found = product.found
    zeros, total = list(found.zeros), cast("Expr", found.sum)
    others = ((product.columns, most[1]), (product.rows, most[0]))
    for at, ((load, _), (across, size)) in enumerate(zip(product.sides, others, strict=True)):
        own, other = zeros[at], zeros[1 - at]
        alone = greatest(extent(across), w.bounds) <= size
        if other == 0 or alone or not is_read_once(product, load, w.bounds):
            continue
        line = _summed(w, product, context, load, (own, other), chosen)
        total, zeros[1 - at] = Binary("+", total, line), 0

    def whole(expr: Expr) -> Expr:
        return total if expr == found.sum else expr

    after = map_exprs(found.after, whole)
    return replace(product, found=replace(found, zeros=(zeros[0], zeros[1]), after=after))


def _summed(
    w: Writer, product: Product, context: Context, load: Load, zeros: tuple[int, int], chosen: Dim
) -> Load:
    """The sum of a line less its own zero points, by that of the other factor, which a launch
    stores."""
    own, other = zeros
    used = indexed_by(load)
    loops = tuple(loop for loop in product.found.nest.loops if loop.variable in used)
    shape = tuple(loop.extent for loop in loops)
    name = f"{load.buffer.name}_sums"
    line = w.buffer(name, DType.I32, *shape)[
        tuple(Dim.of(loop.variable) - loop.start for loop in loops)
    ]
    total = Local("total", DType.I32)
    added = Assign(total, Binary("+", total, Cast(load, DType.I32)))
    body: tuple[Stmt, ...] = (added,)
    for loop in reversed(product.steps):
        body = (replace(loop, body=body),)
    value: Expr = total
    if own != 0:
        steps = Cast(Index(extent(product.steps)), DType.I32)
        value = Binary("-", value, times(steps, own))
    store = Store(line.buffer, line.index, times(value, -other))
    body = (Declare(total, Lit(0, DType.I32)), *body, store)
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    kernel = Kernel(w.fresh(name), (load.buffer,), (line.buffer,), (), body)
    made = Form(kernel, w.bounds, context, w.taken).made()
    assert not made.scratch, f"{name}: sums of lines keep nothing in memory"
    for stmt in made.body:
        if isinstance(stmt, For):
            stmt = replace(stmt, stop=simplify(stmt.stop * chosen, w.bounds))
        w.add(stmt)
    return line
