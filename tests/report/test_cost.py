# SPDX-License-Identifier: Apache-2.0
"""Costs against counts by hand and against the published figures of two models."""

from __future__ import annotations

import pytest

from relax_aot.ir.dims import Dim, dim_min
from relax_aot.ir.loops import Buffer, For, If, Kernel, Lit, Load, Store, apply
from relax_aot.ir.types import DType, shape_of
from relax_aot.report.cost import Cost, cost_of
from relax_aot.report.figures import step_costs
from tests.end_to_end.subjects import project_of

N, ROW, COLUMN = Dim.of("n"), Dim.of("i"), Dim.of("j")
X = Buffer("x", DType.F32, shape_of("n", "n"))
Y = Buffer("y", DType.F32, shape_of("n", "n"))


def kernel(*body: For | If) -> Kernel:
    return Kernel("k", (X,), (Y,), (), body)


def scaled() -> Store:
    x = Load(X, (ROW, COLUMN))
    return Store(Y, (ROW, COLUMN), x * x + x)


@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_loops_that_do_not_depend_on_each_other_multiply(n: int) -> None:
    body = For("i", Dim.of(0), N, (For("j", Dim.of(0), N, (scaled(),)),))
    assert cost_of(kernel(body), {"n": n}) == Cost(n * n, 0, 0, 12 * n * n, 4 * n * n)


@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_causal_rows_and_tiles_with_a_rest_are_exact(n: int) -> None:
    rows = For("i", Dim.of(0), N, (For("j", Dim.of(0), ROW + 1, (scaled(),)),))
    assert cost_of(kernel(rows), {"n": n}).multiply_adds == sum(i + 1 for i in range(n))
    stop = dim_min(ROW * 4 + 4, N)
    tiles = For("i", Dim.of(0), (N + 3) // 4, (For("j", ROW * 4, stop, (scaled(),)),))
    assert cost_of(kernel(tiles), {"n": n}).multiply_adds == n


def test_what_data_decide_is_an_upper_bound() -> None:
    x = Load(X, (ROW, ROW))
    choice = If(
        x < 0.0,
        (Store(Y, (ROW, ROW), apply("exp", x)),),
        (Store(Y, (ROW, ROW), Lit(0.0, x.dtype)),),
    )
    cost = cost_of(kernel(For("i", Dim.of(0), N, (choice,))), {"n": 5})
    assert cost == Cost(functions=5, loaded_bytes=40, stored_bytes=20, exact=False)


@pytest.mark.slow
@pytest.mark.parametrize(("board", "more"), [("mps2-an386", 1.0), ("host", 1.05)])
@pytest.mark.parametrize(("name", "published"), [("kws", 2_656_768), ("resnet8", 12_501_632)])
def test_published_multiply_adds(name: str, published: int, board: str, more: float) -> None:
    """MLPerf Tiny counts products with padding too; the loops leave those out. On hosts planes
    of convolutions by channel are long rows, which multiply what lies between lines as well."""
    costs = step_costs(project_of(name, board).plan, {})
    total = sum(cost.multiply_adds for _, cost in costs if cost is not None)
    assert 0.92 * published < total <= more * published


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 17, 40])
def test_the_encoder_costs_what_its_formula_says(n: int) -> None:
    """Four projections, scores and mixture, two layers of 64 to 96, three norms, and fractions of
    four heads: one multiply-add for each score and one for its row."""
    costs = step_costs(project_of("small_encoder").plan, {"n": n, "batch": 2})
    total = sum(cost.multiply_adds for _, cost in costs if cost is not None)
    products = 2 * (4 * n * 64 * 64 + 2 * n * n * 64 + 2 * n * 64 * 96)
    fractions = 2 * 4 * n * (n + 1)
    assert 0 <= total - products - fractions <= 2 * 3 * n * 64 * 2
