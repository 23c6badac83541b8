# SPDX-License-Identifier: Apache-2.0
"""A sample of proofs against an SMT solver: what we prove, it finds no counterexample to.

Ranges are far too wide to be enumerated, and highs are variables where they may be raised.
"""

from __future__ import annotations

from functools import reduce
from random import Random
from typing import Any

import pytest

from relax_aot.ir.dim_expr import Atom
from relax_aot.ir.dims import (
    Bounds,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Relation,
    assume,
    ceildiv,
    dim_max,
    dim_min,
    interval,
    maximize,
    minimize,
    prove_eq,
    prove_le,
    simplify,
)

try:
    import z3
except ImportError:
    pytest.skip("z3-solver is not installed: pip install -e '.[dev]'", allow_module_level=True)

NAMES = ("n", "m")
MILLISECONDS = 400
SAMPLES = 100


def integer(dim: Dim, symbols: dict[str, Any]) -> Any:
    """The size as the solver's expression; its division rounds down for positive divisors."""
    total = z3.IntVal(0)
    for c, monomial in dim.terms:
        term = z3.IntVal(c)
        for atom, power in monomial:
            for _ in range(power):
                term = term * _atom(atom, symbols)
        total = total + term
    return total


def _atom(atom: Atom, symbols: dict[str, Any]) -> Any:
    match atom:
        case str():
            return symbols[atom]
        case FloorDiv():
            assert atom.denominator.constant > 0
            return integer(atom.numerator, symbols) / integer(atom.denominator, symbols)
        case Mod():
            assert atom.denominator.constant > 0
            return integer(atom.numerator, symbols) % integer(atom.denominator, symbols)
        case Min():
            parts = [integer(a, symbols) for a in atom.args]
            return reduce(lambda a, b: z3.If(a <= b, a, b), parts)
        case Max():
            parts = [integer(a, symbols) for a in atom.args]
            return reduce(lambda a, b: z3.If(a >= b, a, b), parts)


def random_dim(random: Random, depth: int = 3) -> Dim:
    if depth == 0 or random.random() < 0.2:
        return (
            Dim.of(random.choice(NAMES)) if random.random() < 0.8 else Dim.of(random.randint(-4, 9))
        )
    a, b = random_dim(random, depth - 1), random_dim(random, depth - 1)
    k = random.choice((2, 3, 4, 8))
    return random.choice(
        (
            a + b, a - b, a * k, a // k, a % k, ceildiv(a, k), dim_min(a, b), dim_max(a, b),
            a + k, -a,
        )
    )  # fmt: skip


def counterexample(claims: list[Any], opposite: Any) -> Any:
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    solver.add(*claims, opposite)
    answer = solver.check()
    return solver.model() if answer == z3.sat else answer


def within(box: dict[str, tuple[int, int]]) -> tuple[dict[str, Any], list[Any]]:
    symbols = {name: z3.Int(name) for name in box}
    ends = [z3.And(symbols[n] >= low, symbols[n] <= high) for n, (low, high) in box.items()]
    return symbols, ends


def wide_box(random: Random) -> dict[str, tuple[int, int]]:
    return {n: (random.randint(0, 4), random.randint(50, 10**6)) for n in NAMES}


RELATIONS: tuple[tuple[Relation, ...], ...] = (
    (),
    (("<=", Dim.of("n"), Dim.of("m")),),
    (("<=", Dim.of("n"), Dim.of("m") * 2 - 1),),
    (("==", Dim.of("n") % 8, Dim.of(0)),),
    (("==", Dim.of("n"), Dim.of("m") * 3),),
    (("==", Dim.of("n") % 4, Dim.of(1)), ("<=", Dim.of("m"), Dim.of("n"))),
)


def near(a: Dim, random: Random) -> Dim:
    """Another expression that is often equal to `a`, or not far from it."""
    k = random.choice((2, 4, 8))
    return random.choice(
        (a // k * k + a % k, a + random.randint(0, 3), dim_max(a, a - 1), ceildiv(a, k) * k,
         a + Dim.of("n") % k, a + Dim.of("m") - 1, dim_min(a, a + Dim.of("n")), a // 1)
    )  # fmt: skip


def said(relation: Relation, symbols: dict[str, Any]) -> Any:
    kind, left, right = relation
    a, b = integer(left, symbols), integer(right, symbols)
    return a == b if kind == "==" else a <= b


@pytest.mark.slow
def test_what_is_proved_has_no_counterexample() -> None:
    random = Random(1)
    proved = confirmed = 0
    for _ in range(SAMPLES):
        box, relations = wide_box(random), random.choice(RELATIONS)
        bounds = assume(Bounds.of(box), relations)
        a = random_dim(random)
        b = near(a, random)
        symbols, claims = within(box)
        claims += [said(relation, symbols) for relation in relations]
        for holds, opposite in (
            (prove_le(a, b, bounds), integer(a, symbols) > integer(b, symbols)),
            (prove_le(b, a, bounds), integer(b, symbols) > integer(a, symbols)),
            (prove_eq(a, b, bounds), integer(a, symbols) != integer(b, symbols)),
        ):
            if holds:
                proved += 1
                answer = counterexample(claims, opposite)
                assert answer in (z3.unsat, z3.unknown), (str(a), str(b), box, relations, answer)
                confirmed += answer == z3.unsat
    assert proved > SAMPLES // 2
    assert confirmed > proved * 0.8


def test_most_of_what_is_true_is_proved() -> None:
    """Not a matter of being right, but of being of use: of 2-symbol claims that the solver
    confirms, we prove most."""
    random = Random(2)
    true = ours = 0
    for _ in range(SAMPLES):
        box, relations = wide_box(random), random.choice(RELATIONS)
        bounds = assume(Bounds.of(box), relations)
        a = random_dim(random, 2)
        b = near(a, random)
        symbols, claims = within(box)
        claims += [said(relation, symbols) for relation in relations]
        if counterexample(claims, integer(a, symbols) > integer(b, symbols)) == z3.unsat:
            true += 1
            ours += prove_le(a, b, bounds)
    assert true > SAMPLES // 3
    assert ours >= 0.8 * true, f"{ours} of {true}"


def test_intervals_enclose_and_simplifying_changes_nothing() -> None:
    random = Random(3)
    for _ in range(SAMPLES):
        box, relations = wide_box(random), random.choice(RELATIONS)
        bounds = assume(Bounds.of(box), relations)
        dim = random_dim(random)
        symbols, claims = within(box)
        claims += [said(relation, symbols) for relation in relations]
        value = integer(dim, symbols)
        low, high = interval(dim, bounds)
        outside = z3.Or(value < low, value > high)
        assert counterexample(claims, outside) in (z3.unsat, z3.unknown), (str(dim), box, relations)
        simple = integer(simplify(dim, bounds), symbols)
        assert counterexample(claims, simple != value) in (z3.unsat, z3.unknown), (str(dim), box)


def test_greatest_sizes_hold_for_any_highs() -> None:
    """`maximize` is a formula in the highs: no high, however large, is passed."""
    random = Random(4)
    for _ in range(SAMPLES):
        box = wide_box(random)
        bounds = Bounds.of(box)
        dim = random_dim(random)
        symbols = {name: z3.Int(name) for name in NAMES}
        highs = {name: z3.Int(f"{name}_high") for name in NAMES}
        claims = [
            z3.And(box[n][0] <= symbols[n], symbols[n] <= highs[n], highs[n] < 2**31) for n in NAMES
        ]
        value = integer(dim, symbols)
        top = integer(maximize(dim, bounds), highs)
        bottom = integer(minimize(dim, bounds), highs)
        answer = counterexample(claims, z3.Or(value > top, value < bottom))
        assert answer in (z3.unsat, z3.unknown), (str(dim), box, answer)
