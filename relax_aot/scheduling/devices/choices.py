# SPDX-License-Identifier: Apache-2.0
"""Loops that choose one of their elements, such as the place of the largest one.

    for j in 0..n { if (better(best, x[j])) { best = x[j]; place = index(j) } }

Lanes choose among some elements each, and then two choices at a time are compared. Where neither is
better than the other, or each is, the condition decides in the plain loop by the order of elements:
so their places do here.
"""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Declare,
    Expr,
    For,
    If,
    Index,
    Lit,
    Local,
    Select,
    parts,
)
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType

NO, YES = Lit(False, DType.BOOL), Lit(True, DType.BOOL)
NOWHERE = Lit(-1, DType.I64)
"""The place of a choice among no elements."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`best` is the chosen `value`, and `place` where it is; `better` tells whether a value takes
    the place of the best one so far."""

    best: Local
    place: Local
    value: Expr
    better: Expr

    def beats(self, value: Expr, best: Expr) -> Expr:
        """Whether a value is chosen rather than the best one."""

        def rule(expr: Expr) -> Expr:
            if expr == self.value:
                return value
            return best if expr == self.best else expr

        (made,) = map_exprs((Declare(Local("_", DType.BOOL), self.better),), rule)
        assert isinstance(made, Declare)
        return made.value

    def first(self, best: Local, place: Local) -> Expr:
        """Whether the value is chosen, where nothing may have been chosen so far."""
        return Binary("||", Binary("<", place, Lit(0, DType.I64)), self.beats(self.value, best))

    def replaces(self, other: tuple[Expr, Expr], own: tuple[Expr, Expr]) -> Expr:
        """Whether another choice is taken rather than the own one: its value and place."""
        (value, place), (best, at) = other, own
        forth, back = self.beats(value, best), self.beats(best, value)
        later, earlier = Binary("<", at, place), Binary("<", place, at)
        compared = Select(forth, Select(back, later, YES), Select(back, NO, earlier))
        exists, none = Binary("<=", Lit(0, DType.I64), place), Binary("<", at, Lit(0, DType.I64))
        return Binary("&&", exists, Binary("||", none, compared))


def choice_of(loop: For) -> Choice | None:
    """The choice that a loop makes; None where it does something else."""
    match loop.body:
        case (
            If(
                better,
                (
                    Assign(Local() as best, value),
                    Assign(Local() as place, Index(at)),
                ),
                (),
            ),
        ) if at == Dim.of(loop.variable) and place.dtype is DType.I64:
            pass
        case _:
            return None
    read = {expr for expr in parts(value) if isinstance(expr, Local)}
    compared = {expr for expr in parts(better) if isinstance(expr, Local)}
    if best.dtype is not value.dtype or {best, place} & read or place in compared:
        return None
    return Choice(best, place, value, better)
