# SPDX-License-Identifier: Apache-2.0
"""Sizes are solved as trying all of them does, and never guessed."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relax_aot.ir.dims import Dim, Relation, dim_max, dim_min, parse_dim
from relax_aot.ir.solve import solve

SYMBOLS = ("n", "m", "k")
NAMES = st.sampled_from(SYMBOLS).map(Dim.of)
NUMBERS = st.integers(1, 4).map(Dim.of)
DIMS = st.recursive(
    NAMES | NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, NUMBERS).map(lambda pair: pair[0] // pair[1]),
        st.tuples(inner, NAMES).map(lambda pair: pair[0] // pair[1]),
        st.tuples(inner, NUMBERS).map(lambda pair: pair[0] % pair[1]),
        st.tuples(inner, inner).map(lambda pair: dim_min(*pair)),
        st.tuples(inner, inner).map(lambda pair: dim_max(*pair)),
    ),
    max_leaves=5,
)
RANGES = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda p: (p[0], p[0] + p[1]))
RELATIONS = st.tuples(st.sampled_from(["==", "<="]), DIMS, DIMS)


def fits(
    equations: list[tuple[Dim, int]], relations: list[Relation], sizes: dict[str, int]
) -> bool:
    try:
        return all(dim.evaluate(sizes) == value for dim, value in equations) and all(
            a.evaluate(sizes) == b.evaluate(sizes)
            if relation == "=="
            else a.evaluate(sizes) <= b.evaluate(sizes)
            for relation, a, b in relations
        )
    except ZeroDivisionError:
        return False


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    dims=st.lists(DIMS, min_size=1, max_size=4),
    values=st.lists(st.integers(0, 12), min_size=4, max_size=4),
    ranges=st.tuples(RANGES, RANGES, RANGES),
    relations=st.lists(RELATIONS, max_size=2),
)
def test_a_size_is_solved_where_all_solutions_agree(
    dims: list[Dim],
    values: list[int],
    ranges: tuple[tuple[int, int], ...],
    relations: list[Relation],
) -> None:
    equations = list(zip(dims, values, strict=False))
    named = dict(zip(SYMBOLS, ranges, strict=True))
    every = [
        dict(zip(SYMBOLS, sizes, strict=True))
        for sizes in product(*(range(low, high + 1) for low, high in ranges))
    ]
    right = [sizes for sizes in every if fits(equations, relations, sizes)]
    found = solve(equations, relations, named, {})
    if len(right) == 1:
        assert found.sizes == right[0] and not found.ambiguous and not found.impossible
    elif right:
        for name, size in found.sizes.items():
            assert {sizes[name] for sizes in right} == {size}, name
        assert found.ambiguous
        for example in found.examples:
            assert any(example.items() <= sizes.items() for sizes in right)
    else:
        # What is solved may lie outside of the bounds: the caller evaluates its shapes.
        inside = all(named[n][0] <= size <= named[n][1] for n, size in found.sizes.items())
        complete = found.sizes.keys() == named.keys() and inside
        assert not (complete and fits(equations, relations, found.sizes))


@pytest.mark.parametrize(
    ("shapes", "ranges", "expected"),
    [
        ({"n + p": 12, "n - p": 2}, {"n": (1, 9**9), "p": (1, 9**9)}, {"n": 7, "p": 5}),
        ({"n*m": 12, "n*m + n": 16}, {"n": (1, 9**9), "m": (1, 9**9)}, {"n": 4, "m": 3}),
        ({"n*m": 4093, "m": 1}, {"n": (1, 4096), "m": (1, 4096)}, {"n": 4093, "m": 1}),
        ({"(n + 3)//4": 9, "n % 4": 2}, {"n": (1, 9**9)}, {"n": 34}),
        ({"n*n": 49}, {"n": (1, 9**6)}, {"n": 7}),
        ({"n + p": 9}, {"n": (5, 16), "p": (4, 8)}, {"n": 5, "p": 4}),
        ({"n": 200}, {"n": (1, 8)}, {"n": 200}),
    ],
)
def test_systems_with_one_solution(
    shapes: dict[str, int], ranges: dict[str, tuple[int, int]], expected: dict[str, int]
) -> None:
    found = solve([(parse_dim(text), size) for text, size in shapes.items()], [], ranges, {})
    assert found.sizes == expected and not found.ambiguous and not found.impossible


@pytest.mark.slow
def test_a_search_that_takes_too_long_is_given_up() -> None:
    dim = parse_dim("n*n*n*m + m*m*k + n % 7 + k // 3")
    ranges = dict.fromkeys(SYMBOLS, (1, 10**6))
    found = solve([(dim, 10**15 + 7)], [], ranges, {})
    assert set(found.ambiguous) == set(SYMBOLS) and not found.examples


def test_sizes_that_are_given_complete_an_ambiguous_system() -> None:
    ranges = {"n": (1, 9), "p": (1, 9)}
    assert set(solve([(parse_dim("n + p"), 8)], [], ranges, {}).ambiguous) == {"n", "p"}
    assert solve([(parse_dim("n + p"), 8)], [], ranges, {"p": 3}).sizes == {"n": 5, "p": 3}
