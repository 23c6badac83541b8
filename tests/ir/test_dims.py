# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes against plain integers: whatever is proved or bounded must hold."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relax_aot.ir import bounds as bounds_module
from relax_aot.ir.dims import (
    Bounds,
    Dim,
    DimSyntaxError,
    ceildiv,
    dim_max,
    dim_min,
    interval,
    maximize,
    minimize,
    parse_dim,
    parse_relation,
    prove_eq,
    prove_le,
    prove_lt,
    simplify,
    solve_for,
)

NAMES = ("n", "m")


def _grow(inner: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    pair = st.tuples(inner, inner)
    number = st.integers(1, 9)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] - p[1]),
        pair.map(lambda p: p[0] * p[1]),
        pair.map(lambda p: dim_min(*p)),
        pair.map(lambda p: dim_max(*p)),
        st.tuples(inner, number).map(lambda p: p[0] // p[1]),
        st.tuples(inner, number).map(lambda p: p[0] % p[1]),
        st.tuples(inner, number).map(lambda p: ceildiv(*p)),
    )


LEAVES = st.one_of(st.sampled_from(NAMES).map(Dim.of), st.integers(-9, 9).map(Dim.of))
DIMS = st.recursive(LEAVES, _grow, max_leaves=6)
RANGES = st.tuples(st.integers(0, 5), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1]))
BOXES = st.tuples(RANGES, RANGES).map(lambda r: dict(zip(NAMES, r, strict=True)))


def points(box: dict[str, tuple[int, int]]) -> list[dict[str, int]]:
    ranges = [range(low, high + 1) for low, high in box.values()]
    return [dict(zip(box, point, strict=True)) for point in itertools.product(*ranges)]


@given(DIMS, BOXES)
def test_interval_is_exact_in_a_small_box(dim: Dim, box: dict[str, tuple[int, int]]) -> None:
    values = [dim.evaluate(point) for point in points(box)]
    assert interval(dim, Bounds.of(box)) == (min(values), max(values))


@pytest.mark.slow
@given(DIMS, BOXES, st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=300)
def test_maximize_and_minimize_hold_for_raised_highs(
    dim: Dim, box: dict[str, tuple[int, int]], more_n: int, more_m: int
) -> None:
    bounds = Bounds.of(box)
    top, bottom = maximize(dim, bounds), minimize(dim, bounds)
    raised = {
        name: (low, min(high + more, low + 20))
        for (name, (low, high)), more in zip(box.items(), (more_n, more_m), strict=True)
    }
    highs = {name: high for name, (_, high) in raised.items()}
    values = [dim.evaluate(point) for point in points(raised)]
    assert bottom.evaluate(highs) <= min(values)
    assert max(values) <= top.evaluate(highs)


@given(DIMS, DIMS, BOXES)
def test_what_is_proved_holds(a: Dim, b: Dim, box: dict[str, tuple[int, int]]) -> None:
    bounds = Bounds.of(box)
    pairs = [(a.evaluate(p), b.evaluate(p)) for p in points(box)]
    assert not prove_le(a, b, bounds) or all(x <= y for x, y in pairs)
    assert not prove_lt(a, b, bounds) or all(x < y for x, y in pairs)
    assert not prove_eq(a, b, bounds) or all(x == y for x, y in pairs)


@given(DIMS, BOXES)
def test_simplify_keeps_every_value(dim: Dim, box: dict[str, tuple[int, int]]) -> None:
    simple = simplify(dim, Bounds.of(box))
    assert all(simple.evaluate(p) == dim.evaluate(p) for p in points(box))


@given(DIMS, st.integers(-5, 9), st.integers(-5, 9))
def test_substitution_is_evaluation(dim: Dim, n: int, m: int) -> None:
    assert dim.substitute({"n": n, "m": m}).constant == dim.evaluate({"n": n, "m": m})


@given(DIMS)
def test_text_round_trip(dim: Dim) -> None:
    assert parse_dim(str(dim)) == dim


@given(st.integers(1, 9), st.integers(-9, 9), st.integers(0, 50))
def test_a_linear_size_is_solved(factor: int, offset: int, n: int) -> None:
    dim = Dim.of("n") * factor + offset
    solved = solve_for(dim, "n", Dim.of(factor * n + offset))
    assert solved is not None
    assert (solved[0].constant, solved[1].constant) == (n, 0)


def test_known_simplifications() -> None:
    n = Dim.of("n")
    assert (n * 8 + 3) // 8 == n
    assert (n * 8 + 9) % 8 == Dim.of(1)
    assert n // 2 // 3 == n // 6
    assert ((n + 1) // 2 + 1) // 2 == (n + 3) // 4
    assert n % 4 % 4 == n % 4
    assert (n % 8 + 3) % 4 == (n + 3) % 4
    assert n * 2 - n - n == Dim.of(0)
    assert dim_min(n, n + 1) == n
    assert dim_max(n, n + 1, 3) == dim_max(3, n + 1)


def test_bounds_of_sizes_that_are_not_monotone() -> None:
    bounds = Bounds.of({"n": (1, 10_000)})
    n = Dim.of("n")
    assert maximize(128 - n, bounds) == Dim.of(127)
    assert interval(n - n // 2, bounds) == (1, 5000)
    assert maximize(n % 8, bounds).evaluate({"n": 3}) >= 3


def test_the_work_for_nested_sizes_grows_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that broadcast one after the other: each holds the one before four times."""
    steps = 0
    real = bounds_module._step

    def step(*given: Any) -> tuple[int, int]:
        nonlocal steps
        steps += 1
        return real(*given)

    monkeypatch.setattr(bounds_module, "_step", step)
    bounds = Bounds.of({f"{name}{i}": (1, 30) for name in ("p", "q") for i in range(6)})
    needed = []
    size = Dim.of("p0") * Dim.of("q0") // 4
    for i in range(1, 6):
        other = Dim.of(f"p{i}") * Dim.of(f"q{i}") // 4
        size = dim_max(size, other) * dim_min(1, size, other)
        before = steps
        assert interval(size, bounds) == (0, 225)
        needed.append(steps - before)
    assert max(needed) <= 100


def test_boxes_share_the_intervals_of_sizes_without_the_symbol_that_differs() -> None:
    size = dim_max(Dim.of("p") * Dim.of("q") // 3, Dim.of("p") * 2 // Dim.of("q"))
    boxes = [Bounds.of({"p": (1, 30), "q": (2, 30), "r": (0, high)}) for high in range(9)]
    before = bounds_module._in_box.cache_info().misses
    first = interval(size, boxes[0])
    once = bounds_module._in_box.cache_info().misses
    assert {interval(size, box) for box in boxes} == {first}
    assert bounds_module._in_box.cache_info().misses == once > before


@pytest.mark.parametrize("text", ["", "n +", "n ** 2", "(n", "n // 0", "min(n", "3n", "n $ 2"])
def test_bad_text_is_refused_with_a_column(text: str) -> None:
    with pytest.raises(DimSyntaxError, match="column"):
        parse_dim(text)


def test_an_error_of_a_relation_names_it() -> None:
    with pytest.raises(DimSyntaxError, match=r"'n < 2\*': .*column"):
        parse_relation("n < 2*")


def test_a_divisor_may_be_zero_at_the_end_of_a_range() -> None:
    """No size is computed there; elsewhere the interval holds it."""
    size = parse_dim("min(1, 64 // (k*m), n // 8)*max(64 // (k*m), n // 8)")
    low, high = interval(size, Bounds.of(dict.fromkeys("kmn", (0, 6))))
    for k, m, n in itertools.product(range(1, 7), range(1, 7), range(7)):
        assert low <= size.evaluate({"k": k, "m": m, "n": n}) <= high


def test_a_dim_has_no_truth_value() -> None:
    with pytest.raises(TypeError):
        bool(Dim.of("n"))


def test_divisors_that_are_sizes_divide_as_polynomials_do() -> None:
    b, n, m = Dim.of("b"), Dim.of("n"), Dim.of("m")
    box = {"b": (1, 5), "n": (1, 6), "m": (0, 4)}
    bounds = Bounds.of(box)
    cases = {
        (b * 4) // (b * 4): Dim.of(1),
        (b * n + n - 1) // n: b,
        (b * n * 6) // (n * 2): b * 3,
        ((n + 1) * (m + 2)) // (n + 1): m + 2,
        (b * n + n) % n: Dim.of(0),
    }
    for dim, plain in cases.items():
        assert simplify(dim, bounds) == plain
    others = [(m * n - b) // n, (b * n + m) % n, (b - n * 3) // (n + b), (m * m + b) // (b + m)]
    for dim in (*cases, *others):
        simple = simplify(dim, bounds)
        assert all(simple.evaluate(p) == dim.evaluate(p) for p in points(box))
    # A divisor that may be 0 is left alone.
    assert simplify(m // m, bounds) == m // m
