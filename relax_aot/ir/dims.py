# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes: integer expressions in normal form, and what is provable of them.

A `Dim` is a sum of products of atoms; an atom is a symbol or an opaque floor division,
modulo, minimum or maximum. `==` means equal for all values of the symbols, as far as the
normal form sees; what it does not see is asked with `prove_eq`. There is no `<`:
`prove_le` answers True or "not proven". Expressions are in dim_expr.py, their text in
dim_text.py, proofs in bounds.py, simplification in simplify.py.
"""

from __future__ import annotations

from relax_aot.ir.assume import any_size, assume
from relax_aot.ir.bounds import (
    Bounds,
    Proof,
    Relation,
    interval,
    prove,
    prove_eq,
    prove_le,
    prove_lt,
)
from relax_aot.ir.dim_expr import (
    ONE,
    ZERO,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    ceildiv,
    dim_max,
    dim_min,
    row_major,
)
from relax_aot.ir.dim_text import DimSyntaxError, parse_dim, parse_relation
from relax_aot.ir.extremes import maximize, minimize
from relax_aot.ir.simplify import simplify, solve_for

__all__ = [
    "ONE",
    "ZERO",
    "Bounds",
    "Dim",
    "DimSyntaxError",
    "FloorDiv",
    "Max",
    "Min",
    "Mod",
    "Proof",
    "Relation",
    "any_size",
    "assume",
    "ceildiv",
    "dim_max",
    "dim_min",
    "interval",
    "maximize",
    "minimize",
    "parse_dim",
    "parse_relation",
    "prove",
    "prove_eq",
    "prove_le",
    "prove_lt",
    "row_major",
    "simplify",
    "solve_for",
]
