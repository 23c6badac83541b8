# SPDX-License-Identifier: Apache-2.0
"""Sums of products of floats with factors at indices from data. Tiles read panels of such factors
(scheduling/strategies/f32_tiles.py), so that each index is read once for a whole sum."""

from __future__ import annotations

from collections.abc import Sequence

from relax_aot.fusion.accesses import Access
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Bind,
    Declare,
    Expr,
    For,
    Load,
    Local,
    Stmt,
    parts,
)
from relax_aot.ir.types import DType


def without_fetches(body: tuple[Stmt, ...]) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """A chain of loops without the checked indices from data that it reads, and these."""
    binds = [stmt for stmt in body if isinstance(stmt, Bind) and stmt.trust == "checked"]
    read = {part for stmt in binds for part in parts(stmt.value) if isinstance(part, Local)}
    sources = [stmt for stmt in body if isinstance(stmt, Declare) and stmt.local in read]
    fetched: list[Stmt] = [stmt for stmt in body if stmt in binds or stmt in sources]
    body = tuple(stmt for stmt in body if stmt not in fetched)
    if len(body) == 1 and isinstance(body[0], For):
        loop = body[0]
        inner, more = without_fetches(loop.body)
        body = (For(loop.variable, loop.start, loop.stop, inner),) if more else body
        fetched += more
    return body, tuple(fetched)


def is_factor(body: tuple[Stmt, ...], sites: Sequence[Access], outside: frozenset[str]) -> bool:
    """Whether what the `sites` read is a factor of the sum of products of floats that a kernel
    computes, with loops that do not depend on each other. Indices from data depend on `outside`,
    the variables of output loops."""
    body, _ = without_fetches(body)
    outer: set[str] = set()
    while len(body) == 1 and isinstance(body[0], For):
        outer.add(body[0].variable)
        body = body[0].body
    if len(sites) != 1 or not outside <= outer or len(body) < 3:
        return False
    first, added, *_ = body
    while isinstance(added, For) and len(added.body) == 1:
        added = added.body[0]
    match first, added:
        case Declare(Local(dtype=DType.F32) as total), Assign(local, Binary("+", old, product)):
            factors = _factors(product) if local == total == old else ()
        case _:
            return False
    (site,) = sites
    variables = site.table.keys()
    return any((x.buffer.name, x.index) == (site.name, site.index) for x in factors) and not any(
        (loop.start.symbols | loop.stop.symbols) & variables for loop in site.loops
    )


def _factors(product: Expr) -> Sequence[Load]:
    match product:
        case Binary("*", left, right):
            return [factor for factor in (left, right) if isinstance(factor, Load)]
        case _:
            return ()
