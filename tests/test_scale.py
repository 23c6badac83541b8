# SPDX-License-Identifier: Apache-2.0
"""Work grows with the number of calls, not with its square; counted, not timed."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.inference.build import FunctionBuilder
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


def python_calls(module: Module) -> int:
    """How many Python functions run while the module goes through all stages."""
    count = 0

    def counting(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        driver.compile_module(module, load_board("host"), Options(name="ladder"))
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.slow
def test_twice_the_calls_are_not_four_times_the_work() -> None:
    python_calls(ladder(20))  # what is done once for all, such as reading templates
    small, large = python_calls(ladder(60)), python_calls(ladder(120))
    assert large < 2.5 * small, (small, large)
