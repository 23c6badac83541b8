"""Where loops were cut, the axes that they run along are cut as well.

After that each axis has a loop of its own again, and what is known about kernels whose
index is their loop variables applies.
"""

from __future__ import annotations

from math import prod

from relax_aot.fusion.indexing import ZERO, At, joined
from relax_aot.fusion.nest import Site, perfect_nest, sites
from relax_aot.fusion.piece import buffer_of
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.loops import Expr, For, Let, Load, Stmt, Store, walk
from relax_aot.ir.rewrite import map_exprs, map_statements
from relax_aot.ir.types import TensorType


def refined(body: tuple[Stmt, ...], made: Var) -> tuple[tuple[Stmt, ...], Var]:
    """Where loops were cut, the axes that they run along are cut as well."""
    touched = [*sites(body, made.name), *store_sites(body, made.name)]
    if len({site.index for site in touched}) != 1:
        return body, made
    index: list[Dim] = []
    shape: list[Dim] = []
    loops = perfect_nest(body).loops
    for dim, size in zip(touched[0].index, made.type.shape, strict=True):
        digits = tuple((x.variable, x.stop) for x in loops if x.variable in dim.symbols)
        starts = all(x.start == ZERO for x in loops if x.variable in dim.symbols)
        cut = len(digits) > 1 and starts and joined(digits) == dim
        if cut and prod((stop for _, stop in digits), start=Dim.of(1)) == size:
            index += [Dim.of(name) for name, _ in digits]
            shape += [stop for _, stop in digits]
        else:
            index.append(dim)
            shape.append(size)
    if len(shape) == made.type.rank:
        return body, made
    finer = Var(made.name, TensorType(made.type.dtype, tuple(shape)))
    return _at_index(body, finer, tuple(index)), finer


def _at_index(body: tuple[Stmt, ...], value: Var, index: At) -> tuple[Stmt, ...]:
    """Every access of the value at this index of its new shape."""
    buffer = buffer_of(value)

    def on_expr(expr: Expr) -> Expr:
        reads = isinstance(expr, Load) and expr.buffer.name == value.name
        return Load(buffer, index) if reads else expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and stmt.buffer.name == value.name:
            return Store(buffer, index, stmt.value)
        return stmt

    return map_statements(map_exprs(body, on_expr), on_stmt)


def store_sites(
    body: tuple[Stmt, ...], name: str, loops: tuple[For, ...] = (), lets: tuple[Let, ...] = ()
) -> list[Site]:
    return [
        Site(stmt.index, loops, lets)
        for stmt in walk(body)
        if isinstance(stmt, Store) and stmt.buffer.name == name
    ]
