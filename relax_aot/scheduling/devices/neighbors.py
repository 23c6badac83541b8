# SPDX-License-Identifier: Apache-2.0
"""Quotients that neighbors share: elements of one group of steps have one scale and zero point, so
a thread that copies several of them computes their place once, and compilers load them once."""

from __future__ import annotations

from collections.abc import Sequence

from relax_aot.ir.dim_expr import ATOMS, Atom, atom_parts, combined
from relax_aot.ir.dims import Dim, FloorDiv, Mod
from relax_aot.ir.loops import Stmt
from relax_aot.ir.rewrite import map_index_dims


def with_shared_quotients(
    stmts: Sequence[Stmt], first: Dim, near: Dim, count: int
) -> tuple[Stmt, ...]:
    """Statements for element `near` of `count`, from `first` on, a multiple of that count: divisors
    that are multiples of it divide the first one alone."""
    return map_index_dims(tuple(stmts), lambda dim: shared_quotients(dim, first, near, count))


def shared_quotients(dim: Dim, first: Dim, near: Dim, count: int) -> Dim:
    """An index of these statements."""
    if dim.symbols.isdisjoint(near.symbols):
        return dim

    def value(atom: Atom) -> Dim:
        match atom:
            case str():
                return Dim.of(atom)
            case FloorDiv(numerator, by) | Mod(numerator, by) if (
                numerator == first + near and by.is_constant
            ):
                quotient = isinstance(atom, FloorDiv)
                if by.constant % count == 0:
                    return first // by if quotient else first % by + near
                if count % by.constant == 0:
                    return first // by + near // by if quotient else near % by
        parts = (shared_quotients(part, first, near, count) for part in atom_parts(atom))
        return ATOMS[type(atom)][0](*parts)

    return Dim.of(combined(dim, value))
