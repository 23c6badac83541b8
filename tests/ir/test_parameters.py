# SPDX-License-Identifier: Apache-2.0
"""Parameters stand for all values within their limits: what a value alone tells is not told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Lit, as_expr
from relax_aot.ir.parameters import FloatParameter, Parameter, Undecided, plain, surely
from relax_aot.ir.types import DType

ZERO = Parameter.of(0, "zero", (-128, 127))


def test_arithmetic_keeps_the_formula() -> None:
    odd = ZERO * 2 + 1
    assert isinstance(odd, Parameter) and (plain(odd), odd.range) == (1, (-255, 255))
    assert odd % 2 == 1 and odd // 2 == ZERO
    assert Dim.of(3 - odd) == 2 - Dim.of("zero") * 2
    assert type(ZERO - ZERO) is int and ZERO * 0 == 0


def test_comparisons_are_answered_by_the_limits_alone() -> None:
    assert ZERO != 0 and bool(ZERO)
    assert ZERO < 128 and ZERO >= -128 and not ZERO > 127 and -200 < ZERO < 200
    tests: list[Callable[[], object]] = [
        lambda: ZERO > 0, lambda: max(ZERO, 0), lambda: 1 << ZERO, lambda: ZERO * ZERO,
    ]  # fmt: skip
    for test in tests:
        with pytest.raises(Undecided):
            test()
    assert surely(lambda: ZERO < 128) and not surely(lambda: ZERO < 5)


def test_literals_keep_their_parameters() -> None:
    scale = FloatParameter.of(0.5, "scale", 1.0)
    for number, dtype in ((ZERO, DType.I8), (scale, DType.F32)):
        literal = as_expr(number, dtype)
        assert isinstance(literal, Lit) and literal.value is number
        assert literal != Lit(plain(number) if number is ZERO else 0.5, dtype)
