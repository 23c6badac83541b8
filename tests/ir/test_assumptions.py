# SPDX-License-Identifier: Apache-2.0
"""Relations between sizes: whatever is proved from them holds wherever they do."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume as suppose
from hypothesis import given, settings
from hypothesis import strategies as st

from relax_aot.ir.dims import (
    Bounds,
    Dim,
    Proof,
    Relation,
    any_size,
    assume,
    ceildiv,
    dim_max,
    dim_min,
    interval,
    prove,
    prove_eq,
    prove_le,
    prove_lt,
    simplify,
)
from tests.ir.test_dims import DIMS, points

n, m, k = Dim.of("n"), Dim.of("m"), Dim.of("k")
BOX = {"n": (1, 100), "m": (1, 100), "k": (1, 100)}


def known(*relations: Relation) -> Bounds:
    return assume(Bounds.of(BOX), relations)


def test_chains_of_differences() -> None:
    bounds = known(("<=", n, m), ("<=", m, k - 3))
    assert prove_le(n, k, bounds)
    assert prove_le(n + 3, k, bounds)
    assert not prove_le(n + 4, k, bounds)
    assert prove_lt(n * 2, m + k, bounds)
    assert interval(k, bounds)[0] == 4
    assert interval(n, bounds)[1] == 97


def test_a_relation_times_a_size() -> None:
    bounds = known(("<=", n, m * 2))
    assert prove_le(n * k, m * k * 2, bounds)
    assert prove_le(n * n, m * n * 2, bounds)
    assert not prove_le(n * k, m * k, bounds)


def test_a_bound_of_a_product() -> None:
    bounds = known(("<=", n * m, Dim.of(512)))
    assert interval(n * m * 4, bounds)[1] == 2048
    assert prove_le(n * m * 64 + 64, 32832, bounds)


def test_an_equation_spells_a_symbol() -> None:
    bounds = known(("==", n, m * 2), ("==", k, n + 1))
    assert prove_eq(n * m, m * m * 2, bounds)
    assert prove_eq(k, m * 2 + 1, bounds)
    assert interval(m, bounds) == (1, 49)
    assert prove_eq(n * 3 % 6, 0, bounds)


def test_congruences() -> None:
    bounds = known(("==", n % 8, Dim.of(0)))
    assert prove_eq(n // 8 * 8, n, bounds)
    assert prove_eq(n % 4, 0, bounds)
    assert prove_eq(ceildiv(n, 8), n // 8, bounds)
    assert prove_le(8, n, bounds)
    assert prove_eq(n % 4, 0, bounds)
    assert not prove_eq(n % 16, 0, bounds)
    odd = known(("==", n % 2, Dim.of(1)), ("==", (n + m) % 2, Dim.of(0)))
    assert prove_eq(n // 2 * 2 + 1, n, odd)
    both = known(("==", n % 8, Dim.of(0)), ("==", n % 6, Dim.of(0)))
    assert prove_eq(n % 24, 0, both)
    assert interval(n, both) == (24, 96)


@pytest.mark.parametrize(
    "relations",
    [
        [("<=", n, m), ("<=", m + 1, n)],
        [("==", n % 2, Dim.of(0)), ("==", n % 4, Dim.of(1))],
        [("<=", n * m, Dim.of(0))],
        [("==", n * 2, m * 2 + 1)],
        [("<=", Dim.of(201), n + m)],
        [("==", n * n, Dim.of(2))],
        [("==", n, m), ("==", m, k), ("<=", n + 1, k)],
    ],
    ids=str,
)
def test_contradictions_are_seen(relations: list[Relation]) -> None:
    assert not any_size(Bounds.of(BOX), relations)


@pytest.mark.parametrize(
    "relations",
    [
        [("<=", n, m)],
        [("==", n % 8, Dim.of(0)), ("==", n % 5, Dim.of(0))],
        [("==", n * m, k)],
        [("==", n * n, m)],
        [("==", n * 3, m * 2), ("<=", m * m, n * 40)],
    ],
    ids=str,
)
def test_what_can_be_is_no_contradiction(relations: list[Relation]) -> None:
    assert any_size(Bounds.of(BOX), relations)


# For any relations

NUMBERS = st.integers(-4, 6).map(Dim.of)
PLAIN = st.sampled_from([n, m, k, n + m, n * 2, m * 3, n - m, k + 1, n * m, m - 2, n % 3, m // 2])
SIDES = st.one_of(PLAIN, st.tuples(PLAIN, NUMBERS).map(lambda p: p[0] + p[1]), NUMBERS)
MULTIPLES = st.tuples(PLAIN, st.integers(2, 6), st.integers(0, 3)).map(
    lambda p: ("==", p[0] % p[1], Dim.of(p[2]))
)
RELATIONS = st.one_of(st.tuples(st.sampled_from(["<=", "=="]), SIDES, SIDES), MULTIPLES)
RANGES = st.tuples(st.integers(0, 4), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1]))
BOXES = st.tuples(RANGES, RANGES, RANGES).map(lambda r: dict(zip("nmk", r, strict=True)))


def fulfilling(box: dict[str, tuple[int, int]], relations: list[Relation]) -> list[dict[str, int]]:
    def holds(point: dict[str, int]) -> bool:
        return all(
            a.evaluate(point) == b.evaluate(point)
            if relation == "=="
            else a.evaluate(point) <= b.evaluate(point)
            for relation, a, b in relations
        )

    return [point for point in points(box) if holds(point)]


TARGETS = st.one_of(DIMS, SIDES, st.tuples(SIDES, SIDES).map(lambda p: p[0] * p[1]))


@pytest.mark.slow
@given(BOXES, st.lists(RELATIONS, min_size=1, max_size=3), TARGETS, TARGETS, st.integers(2, 6))
@settings(max_examples=300)
def test_what_is_proved_holds(
    box: dict[str, tuple[int, int]], relations: list[Relation], a: Dim, b: Dim, factor: int
) -> None:
    allowed = fulfilling(box, relations)
    suppose(allowed)
    bounds = assume(Bounds.of(box), relations)
    pairs = [(a.evaluate(p), b.evaluate(p)) for p in allowed]
    assert not prove_le(a, b, bounds) or all(x <= y for x, y in pairs)
    assert not prove_lt(a, b, bounds) or all(x < y for x, y in pairs)
    assert not prove_eq(a, b, bounds) or all(x == y for x, y in pairs)
    assert not prove_eq(a % factor, 0, bounds) or all(x % factor == 0 for x, _ in pairs)
    low, high = interval(a, bounds)
    assert low <= min(x for x, _ in pairs) and max(x for x, _ in pairs) <= high
    simple = simplify(a, bounds)
    assert simple.symbols <= a.symbols
    assert all(simple.evaluate(p) == x for p, (x, _) in zip(allowed, pairs, strict=True))


@pytest.mark.slow
@given(BOXES, st.lists(RELATIONS, min_size=1, max_size=3))
@settings(max_examples=300)
def test_no_size_is_lost(box: dict[str, tuple[int, int]], relations: list[Relation]) -> None:
    """`any_size` is False exactly where no size in a small box fulfills the relations."""
    assert any_size(Bounds.of(box), relations) == bool(fulfilling(box, relations))


@pytest.mark.slow
@given(BOXES, st.lists(RELATIONS, max_size=2), TARGETS, TARGETS, st.integers(0, 9))
@settings(max_examples=300)
def test_proofs_hold_for_raised_highs(
    box: dict[str, tuple[int, int]], relations: list[Relation], a: Dim, b: Dim, more: int
) -> None:
    """Where highs may be raised, only what holds then is proved; or it is an assumption."""
    suppose(fulfilling(box, relations))
    bounds = assume(replace(Bounds.of(box), raisable=frozenset(box)), relations)
    proofs = [prove(a, relation, b, bounds) for relation in ("<=", "<", "==")]
    assumptions = [relation for proof in proofs for relation in proof.assumptions]
    assert bool(proofs[0]) >= prove_le(a, b, bounds)
    assert bool(proofs[1]) >= prove_lt(a, b, bounds)
    assert bool(proofs[2]) >= prove_eq(a, b, bounds)
    raised = {name: (low, high + more) for name, (low, high) in box.items()}
    for point in fulfilling(raised, [*relations, *assumptions]):
        x, y = a.evaluate(point), b.evaluate(point)
        assert not proofs[0] or x <= y
        assert not proofs[1] or x < y
        assert not proofs[2] or x == y


def test_what_lows_and_highs_say_today_is_kept_for_the_day_the_highs_are_raised() -> None:
    """The last of at least 31: one element, or none where there are fewer."""
    length = dim_max(0, dim_max(0, n - 30) - dim_max(0, n - 31))
    closed = replace(Bounds.of({"n": (1, 62)}), raisable=frozenset(["n"]))
    assert prove_eq(length * 2, 2, assume(closed, [("==", length, Dim.of(1))]))


def test_highs_that_may_be_raised_prove_nothing_by_themselves() -> None:
    bounds = replace(Bounds.of({"n": (1, 16)}), raisable=frozenset(["n"]))
    assert not prove_le(n, 20, bounds)
    assert prove_le(1, n, bounds)
    assert simplify(dim_min(n, 20), bounds) == dim_min(n, 20)
    assert simplify(dim_max(n, 1), bounds) == n
    proof = prove(n, "<=", 20, bounds)
    assert proof and proof.assumptions == (("<=", n, Dim.of(20)),)
    assert prove(1, "<=", n, bounds) == Proof(True)
    assert prove(n, "<", 16, bounds) == Proof(False)
    assert (proof & prove(0, "<", 21 - n, bounds)).then(n) == Proof(
        n, (("<=", n, Dim.of(20)), ("<=", Dim.of(1), 21 - n))
    )


def test_every_pair_of_small_boxes() -> None:
    """Differences and sums of two symbols, against all their values."""
    for low, high in itertools.product(range(3), range(3, 6)):
        box = {"n": (low, high), "m": (0, 4)}
        for relation in (("<=", n, m), ("<=", m, n), ("==", n, m), ("==", n % 2, m % 2)):
            allowed = fulfilling(box, [relation])
            bounds = assume(Bounds.of(box), [relation])
            for dim in (n - m, n + m, n * m, n // 2 - m // 2):
                values = [dim.evaluate(p) for p in allowed]
                least, most = interval(dim, bounds)
                assert least <= min(values) and max(values) <= most
