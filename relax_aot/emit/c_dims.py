# SPDX-License-Identifier: Apache-2.0
"""Sizes as C expressions.

Run-time sizes and indices are int32_t; constant expressions over the bounds are
`long long`, so that a raised bound cannot overflow before it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from relax_aot.ir.bounds import GREATEST
from relax_aot.ir.dim_expr import Monomial, Term
from relax_aot.ir.dims import Bounds, Dim, FloorDiv, Max, Min, Mod, interval, maximize, row_major
from relax_aot.ir.evaluate import magnitude

Names = Mapping[str, str]
ATOM, UNARY, PRODUCT, SUM, RELATION, EQUALITY, AND, OR, TERNARY = range(9, 0, -1)
"""How tightly the outermost operator of a C expression binds."""


def within(text: str, binds: int, least: int) -> str:
    """In parentheses where it binds less tightly than `least`."""
    return text if binds >= least else f"({text})"


def dim_c(dim: Dim, names: Names, bounds: Bounds) -> str:
    """An int32_t expression."""
    return sum_c(dim.terms, names, bounds)[0]


def sum_c(terms: tuple[Term, ...], names: Names, bounds: Bounds) -> tuple[str, int]:
    """The same with how tightly it binds: what is added, what is subtracted, then a number; the
    number is first where all else is subtracted."""
    text, binds = "0", ATOM
    adds = any(coefficient > 0 and factors for coefficient, factors in terms)
    for place, (coefficient, factors) in enumerate(
        sorted(terms, key=lambda term: (adds and not term[1], term[0] < 0, not term[1]))
    ):
        product, tight = _product_c(abs(coefficient), factors, names, bounds)
        if place:
            text, binds = f"{text} {'+' if coefficient > 0 else '-'} {product}", SUM
        else:
            text = product if coefficient > 0 else f"-{product}"
            binds = tight if coefficient > 0 else min(tight, UNARY)
    return text, binds


def _product_c(
    coefficient: int, factors: Monomial, names: Names, bounds: Bounds
) -> tuple[str, int]:
    atoms = [_atom_c(atom, names, bounds) for atom, power in factors for _ in range(power)]
    if coefficient != 1 or not atoms:
        atoms.append((str(coefficient), ATOM))
    if len(atoms) == 1:
        return atoms[0]
    first, *others = atoms
    parts = [within(*first, PRODUCT), *(within(*other, UNARY) for other in others)]
    return " * ".join(parts), PRODUCT


def _atom_c(atom: object, names: Names, bounds: Bounds) -> tuple[str, int]:
    match atom:
        case str():
            return names[atom], ATOM
        case FloorDiv(left, right) | Mod(left, right):
            divides = isinstance(atom, FloorDiv)
            parts = [sum_c(side.terms, names, bounds) for side in (left, right)]
            if interval(left, bounds)[0] >= 0 and interval(right, bounds)[0] > 0:
                sign = "/" if divides else "%"
                return f"{within(*parts[0], PRODUCT)} {sign} {within(*parts[1], UNARY)}", PRODUCT
            return f"raot_floor_{'div' if divides else 'mod'}({parts[0][0]}, {parts[1][0]})", ATOM
        case Min(args) | Max(args):
            function = "raot_min_i32" if isinstance(atom, Min) else "raot_max_i32"
            return _nested(function, [dim_c(arg, names, bounds) for arg in args]), ATOM
        case _:
            raise AssertionError(atom)


def linear_c(
    index: tuple[Dim, ...], shape: tuple[Dim, ...], names: Names, bounds: Bounds, *, flat: bool
) -> str:
    """The row-major position of an element, as `(i * columns + j) * depth + k` with the indices in
    their order. As one sum where that leaves no division, and, if `flat`, where all sizes but the
    first are numbers."""
    if any(dim.divides for dim in index) and not (whole := row_major(index, shape)).divides:
        return dim_c(whole, names, bounds)
    terms: tuple[Term, ...] = ()
    known, fixed = dict(names), flat and all(size.is_constant for size in shape[1:])

    def named(group: tuple[Term, ...]) -> Dim:
        name = f"({len(known)}"
        known[name] = f"({sum_c(group, known, bounds)[0]})"
        return Dim.of(name)

    for position, size in zip(index, shape, strict=True):
        if terms and fixed:
            terms = tuple((c * size.constant, factors) for c, factors in terms)
        elif terms and size != 1:
            total = named(terms) if len(terms) > 1 else Dim(terms)
            factor = named(size.terms) if len(size.terms) > 1 else size
            terms = (total * factor).terms
        sums = {factors: coefficient for coefficient, factors in terms}
        for coefficient, factors in position.terms:
            sums[factors] = sums.get(factors, 0) + coefficient
        terms = tuple((c, factors) for factors, c in sums.items() if c)
    return sum_c(terms, known, bounds)[0]


def greatest_c(dim: Dim, macros: Names, bounds: Bounds) -> str:
    """The greatest value over the box, as a `long long` constant expression in the bounds."""
    return _constant_c(maximize(dim, bounds), macros, bounds.lows)


def bound_limits(sizes: Iterable[Dim], bounds: Bounds, terms: int) -> dict[str, int]:
    """For each symbol the highest bound at which no constant expression for `sizes`, nor a
    sum of `terms` of them, can pass a `long long`. Above it nothing could be checked in C."""
    greatest = [maximize(size, bounds) for size in set(sizes)]
    declared = {name: bounds.range(name)[1] for name in bounds}

    def held(limit: int) -> bool:
        raised = {name: max(high, limit) for name, high in declared.items()}
        return all(magnitude(size, raised) * terms < 2**63 for size in greatest)

    low, high = 0, GREATEST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if held(middle) else (low, middle - 1)
    return {name: max(declared[name], low) for name in declared}


def _constant_c(dim: Dim, macros: Names, wide: Bounds) -> str:
    terms = []
    for coefficient, factors in dim.terms:
        parts = [f"{coefficient}LL"] if coefficient != 1 or not factors else []
        parts += [_constant_atom(atom, macros, wide) for atom, n in factors for _ in range(n)]
        terms.append(" * ".join(parts))
    return " + ".join(terms).replace("+ -", "- ") or "0LL"


def _constant_atom(atom: object, macros: Names, wide: Bounds) -> str:
    match atom:
        case str():
            return f"(long long){macros[atom]}"
        case FloorDiv() | Mod():
            sign = "/" if isinstance(atom, FloorDiv) else "%"
            left = _constant_c(atom.numerator, macros, wide)
            right = _constant_c(atom.denominator, macros, wide)
            if interval(atom.numerator, wide)[0] >= 0 and interval(atom.denominator, wide)[0] > 0:
                return f"(({left}) {sign} ({right}))"
            name = "RAOT_FLOOR_DIV" if sign == "/" else "RAOT_FLOOR_MOD"
            return f"{name}({left}, {right})"
        case Min() | Max():
            name = "RAOT_MIN" if isinstance(atom, Min) else "RAOT_MAX"
            return _nested(name, [_constant_c(a, macros, wide) for a in atom.args])
        case _:
            raise AssertionError(atom)


def _nested(function: str, parts: list[str]) -> str:
    """The calls of a function of two arguments."""
    return reduce(lambda first, other: f"{function}({first}, {other})", parts)
