# SPDX-License-Identifier: Apache-2.0
"""Work grows with the number of calls, not with its square; counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.fusion.checking.ranges import Ranges
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import Bounds, Dim, assume, dim_max, dim_min, prove_le
from relax_aot.ir.graph import Module, Symbol
from relax_aot.ir.types import DType, TensorType
from relax_aot.project.board import load_board


def ladder(calls: int) -> Module:
    """Steps of several kinds, each of which reads what was made one and three steps before."""
    b = FunctionBuilder()
    n, m = b.symbol(Symbol("n", 1, 64)), b.symbol(Symbol("m", 1, 9))
    values = [b.param(f"x{i}", TensorType(DType.F32, (n, m * 4))) for i in range(3)]
    while len(b.body) < calls:
        x, y = values[-1], values[-3]
        (both,) = b.call("concat", x, y, axis=0)
        (part,) = b.call("slice", both, starts=(n // 2,), lengths=(n,), axes=(0,), steps=(1,))
        (turned,) = b.call("transpose", part, perm=(1, 0))
        (square,) = b.call("matmul", x, turned)
        (mixed,) = b.call("matmul", square, y)
        (flat,) = b.call("reshape", mixed, shape=(n * m, 4))
        (mean,) = b.call("reduce", flat, kind="mean", axes=(1,), keepdims=True)
        (centered,) = b.call("sub", flat, mean)
        (back,) = b.call("reshape", centered, shape=(n, m * 4))
        values += b.call("softmax", back, axis=-1)
    return b.module(values[-1:])


def compiled_calls(module: Module) -> int:
    """How many Python functions run while the module goes through all stages."""
    return python_calls(
        lambda: driver.compile_module(module, load_board("host"), Options(name="ladder"))
    )


def python_calls(work: Callable[[], object], most: int = sys.maxsize) -> int:
    count = 0

    def counting(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"
        assert count <= most

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.slow
def test_twice_the_calls_are_not_four_times_the_work() -> None:
    compiled_calls(ladder(20))  # what is done once for all, such as reading templates
    small, large = compiled_calls(ladder(60)), compiled_calls(ladder(120))
    assert large < 2.5 * small, (small, large)


def cached_rows() -> tuple[Dim, Bounds]:
    """The rows of a mask that are not cached, broadcast with those of a query, as a decoder with
    sizes of their own for the mask and the cache has them, and what is known of them."""
    t, tot, p = Dim.of("t"), Dim.of("tot"), Dim.of("p")
    masked = tot - dim_min(p, tot)
    rows = dim_max(t, masked) * dim_min(1, masked)
    bounds = Bounds.of({"t": (1, 6), "tot": (2, 22), "p": (1, 16)})
    return rows, assume(bounds, (("==", tot, p + t), ("==", rows, t)))


def test_relations_between_minima_and_maxima_are_not_tried_in_every_order() -> None:
    t, tot = Dim.of("t"), Dim.of("tot")
    rows, bounds = cached_rows()
    least = dim_min(tot - t, tot)
    apart = (
        tot * t * (least - tot + t - 2) - t * t * (least - dim_min(1, tot - least) + 1) - t * rows
    )
    python_calls(lambda: prove_le(0, apart, bounds), most=300_000)


@pytest.mark.long
def test_a_proof_about_variables_up_to_maxima_is_given_up() -> None:
    t, p = Dim.of("t"), Dim.of("p")
    rows, bounds = cached_rows()
    ranges = Ranges(bounds)
    head, row, key = (
        Dim.of(ranges.variable(name, Dim.of(0), stop))
        for name, stop in (("head", Dim.of(4)), ("row", rows), ("key", p + t))
    )
    elements = (rows - head * t - row) * (p + t) - key
    python_calls(lambda: ranges.known_lt(Dim.of(0), elements), most=3_000_000)
