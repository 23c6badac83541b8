# SPDX-License-Identifier: Apache-2.0
"""Sizes without what the bounds decide, and sizes solved for a symbol. Part of dims.py."""

from __future__ import annotations

from relax_aot.ir.bounds import Bounds, interval, prove_le, prove_lt
from relax_aot.ir.dim_expr import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    combined,
    dim_max,
    dim_min,
    linear,
    term_quotient,
)


def simplify(dim: Dim, bounds: Bounds) -> Dim:
    """Drop what the bounds decide: pinned symbols, useless min, max, mod and divisions.

    The result is the same size for raised highs too.
    """
    bounds = bounds.open
    pinned = {n: bounds.range(n)[0] for n in dim.symbols if len(set(bounds.range(n))) == 1}
    dim = dim.substitute(pinned)
    total = Dim.of(combined(dim, lambda atom: _simplify_atom(atom, bounds)))
    low, high = interval(total, bounds)
    return Dim.of(low) if low == high else total


def _simplify_atom(atom: Atom, bounds: Bounds) -> Dim:
    match atom:
        case str():
            return Dim.of(atom)
        case FloorDiv():
            a, b = simplify(atom.numerator, bounds), simplify(atom.denominator, bounds)
            whole, rest = _long_division(a, b, bounds)
            low, high = interval(rest // b, bounds)
            return whole + (low if low == high else rest // b)
        case Mod():
            a, b = simplify(atom.numerator, bounds), simplify(atom.denominator, bounds)
            _, rest = _long_division(a, b, bounds)
            low, high = interval(rest, bounds)
            return rest if low >= 0 and b.is_constant and high < b.constant else rest % b
        case Min():
            return dim_min(*_useful(atom.args, bounds, keep_least=True))
        case Max():
            return dim_max(*_useful(atom.args, bounds, keep_least=False))


def _long_division(a: Dim, b: Dim, bounds: Bounds) -> tuple[Dim, Dim]:
    """a = whole * b + rest, as division of polynomials goes; divisors that are numbers are
    done with already. `m*n + n - 1` by `n` is `m + 1` and -1."""
    whole = Dim.of(0)
    if b.is_constant or not prove_lt(0, b, bounds):
        return whole, a
    for _ in range(16):  # a divisor of several terms may leave more terms than it takes
        steps = (term_quotient(term, b.terms[0]) for term in a.terms)
        step = next((found for found in steps if found is not None), None)
        if step is None:
            break
        whole, a = whole + step, a - step * b
    return whole, a


def _useful(args: tuple[Dim, ...], bounds: Bounds, *, keep_least: bool) -> list[Dim]:
    dims = [simplify(a, bounds) for a in args]
    kept: list[Dim] = []
    for position, dim in enumerate(dims):
        pairs = [(o, dim) if keep_least else (dim, o) for o in kept + dims[position + 1 :]]
        if not any(prove_le(low, high, bounds) for low, high in pairs):
            kept.append(dim)
    return kept


def solve_for(dim: Dim, symbol: str, value: Dim) -> tuple[Dim, Dim] | None:
    """`dim == value` for one symbol: (solution, expression that must be 0), or None."""
    split = linear(dim, symbol)
    if split is None:
        return None
    coefficient, rest = split
    target = value - rest
    if coefficient < 0:
        target, coefficient = -target, -coefficient
    return target // coefficient, target % coefficient
