# SPDX-License-Identifier: Apache-2.0
"""The kernel interpreter against Python's exact integers and NumPy's floats."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax_aot.evaluation import scalars
from relax_aot.evaluation.interpret import Array, IndexFault, run_kernel
from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    Binary,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Lit,
    Local,
    Select,
    Store,
    apply,
    binary,
)
from relax_aot.ir.types import DType, shape_of

INTEGERS = [dtype for dtype in DType if dtype.is_int]
N = Dim.of("n")


def kernel_of(
    formula: Callable[..., Expr], result: DType, *inputs: DType, size: int | str = "n"
) -> Kernel:
    xs = [Buffer(f"x{i}", dtype, shape_of(size)) for i, dtype in enumerate(inputs)]
    y = Buffer("y", result, shape_of(size))
    k = KernelBuilder("k", xs, [y])
    with k.loops(*y.shape) as at:
        k.store(y[at], formula(*(x[at] for x in xs)))
    return k.finish()


def evaluate(formula: Callable[..., Expr], result: DType, *inputs: np.ndarray) -> np.ndarray:
    kernel = kernel_of(formula, result, *(DType.of(x.dtype) for x in inputs))
    (y,) = run_kernel(kernel, inputs, {"n": inputs[0].shape[0]})
    return y


@given(st.sampled_from(INTEGERS), st.data())
def test_integers_wrap_at_their_width(dtype: DType, data: st.DataObject) -> None:
    info = np.iinfo(str(dtype.numpy))
    a, b = (data.draw(st.integers(int(info.min), int(info.max))) for _ in "ab")
    left, right = np.array([a], dtype.numpy), np.array([b], dtype.numpy)
    signs: list[tuple[str, Callable[[int, int], int]]] = [
        ("+", operator.add), ("-", operator.sub), ("*", operator.mul),
        ("&", operator.and_), ("|", operator.or_), ("^", operator.xor),
    ]  # fmt: skip
    for sign, exact in signs:
        (found,) = evaluate(lambda x, y, s=sign: binary(s, x, y), dtype, left, right)
        assert (int(found) - exact(a, b)) % 2 ** (8 * dtype.bytes) == 0


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integer_division_truncates_and_a_divisor_of_zero_gives_zero(dtype: type) -> None:
    low = np.iinfo(dtype).min
    a: Array = np.array([7, -7, 7, -7, 5, low], dtype)
    b: Array = np.array([2, 2, -2, -2, 0, -1], dtype)
    of = DType.of(np.dtype(dtype))
    assert evaluate(lambda x, y: x / y, of, a, b).tolist() == [3, -3, -3, 3, 0, low]
    assert evaluate(lambda x, y: binary("%", x, y), of, a, b).tolist() == [1, 1, -1, -1, 0, 0]
    assert evaluate(lambda x, y: apply("fmod", x, y), of, a, b).tolist() == [1, -1, 1, -1, 0, 0]


def test_shifts_by_the_width_or_more_give_zero() -> None:
    a, b = np.array([-128, -1, 1, 1], np.int8), np.array([7, 1, 8, -1], np.int8)
    assert evaluate(lambda x, y: binary(">>", x, y), DType.I8, a, b).tolist() == [-1, -1, 0, 0]
    assert evaluate(lambda x, y: binary("<<", x, y), DType.I8, a, b).tolist() == [0, -2, 0, 0]


@given(st.lists(st.floats(width=32), min_size=1, max_size=8))
def test_single_precision_rounds_after_each_operation(values: list[float]) -> None:
    x = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        expected = (x * np.float32(0.1) + x) / np.float32(3)
    found = evaluate(lambda v: (v * 0.1 + v) / 3.0, DType.F32, x)
    np.testing.assert_array_equal(found, expected)


def test_a_fused_product_rounds_once() -> None:
    x = np.array([1 + 2.0**-12], np.float32)
    exact = np.float32(float(x[0]) ** 2 - 1.0)
    assert evaluate(lambda v: apply("fma", v, v, Lit(-1.0, DType.F32)), DType.F32, x) == exact
    assert evaluate(lambda v: v * v - 1.0, DType.F32, x) != exact


def test_half_precision_is_rounded_only_when_stored() -> None:
    x = np.array([60000], np.float16)
    half = Lit(0.5, DType.F16)
    assert evaluate(lambda v: (v + v) * half, DType.F16, x) == np.float16(60000)


def test_conversions_truncate_and_then_wrap_or_saturate() -> None:
    x = np.array([1.9, -1.9, 300.0, -300.0, inf, -inf, nan], np.float32)
    wrapped = evaluate(lambda v: Cast(v, DType.I8), DType.I8, x)
    assert wrapped.tolist() == [1, -1, 44, -44, -1, 0, 0]  # infinities saturate to 64 bits first
    clamped = evaluate(lambda v: Cast(v, DType.I8, "saturate"), DType.I8, x)
    assert clamped.tolist() == [1, -1, 127, -128, 127, -128, 0]
    big = np.array([2**62 + 2**38 + 1], np.int64)
    assert evaluate(lambda v: Cast(v, DType.F32), DType.F32, big) == big.astype(np.float32)


def test_maximum_and_minimum_keep_nan() -> None:
    a, b = np.array([nan, 1, 2], np.float32), np.array([1, nan, 3], np.float32)
    np.testing.assert_array_equal(
        evaluate(lambda x, y: apply("max", x, y), DType.F32, a, b), [nan, nan, 3]
    )
    np.testing.assert_array_equal(
        evaluate(lambda x, y: apply("min", x, y), DType.F32, a, b), [nan, nan, 2]
    )


def test_only_the_chosen_side_is_evaluated() -> None:
    x, y = Buffer("x", DType.I32, shape_of(2)), Buffer("y", DType.I32, shape_of(3))
    k = KernelBuilder("k", [x], [y])
    with k.loops(3) as (i,):
        inside = binary("<", Index(i), Index(Dim.of(2)))
        k.store(y[(i,)], Select(inside, x[(i,)], Lit(9, DType.I32)))
    (found,) = run_kernel(k.finish(), [np.array([4, 5], np.int32)], {})
    assert found.tolist() == [4, 5, 9]


def test_conjunction_stops_at_the_first_false() -> None:
    x, y = Buffer("x", DType.BOOL, shape_of(2)), Buffer("y", DType.BOOL, shape_of(3))
    k = KernelBuilder("k", [x], [y])
    with k.loops(3) as (i,):
        inside = binary("<", Index(i), Index(Dim.of(2)))
        k.store(y[(i,)], Binary("&&", inside, x[(i,)]))
    (found,) = run_kernel(k.finish(), [np.array([True, True])], {})
    assert found.tolist() == [True, True, False]


def gather_kernel() -> Kernel:
    x, at = Buffer("x", DType.F32, shape_of("n")), Buffer("at", DType.I64, shape_of(1))
    y = Buffer("y", DType.F32, shape_of(1))
    k = KernelBuilder("k", [x, at], [y])
    zero = (Dim.of(0),)
    place = k.index("place", at[zero], 0, N - 1)
    k.store(y[zero], x[(place,)])
    return k.finish()


def test_an_index_from_data_is_checked() -> None:
    x = np.array([1, 2, 3], np.float32)
    (found,) = run_kernel(gather_kernel(), [x, np.array([2])], {"n": 3})
    assert found.tolist() == [3]
    for bad in (3, -1, 2**40):
        with pytest.raises(IndexFault, match=r"outside 0\.\.2"):
            run_kernel(gather_kernel(), [x, np.array([bad])], {"n": 3})


def test_an_access_outside_its_buffer_is_caught() -> None:
    x, y = Buffer("x", DType.F32, shape_of("n")), Buffer("y", DType.F32, shape_of("n"))
    k = KernelBuilder("k", [x], [y])
    with k.loops(N) as (i,):
        k.store(y[(i,)], x[(i + 1,)])
    with pytest.raises(AssertionError, match="outside"):
        run_kernel(k.finish(), [np.zeros(2, np.float32)], {"n": 2})


def test_an_element_that_is_not_written_is_caught() -> None:
    y = Buffer("y", DType.F32, shape_of("n"))
    k = KernelBuilder("k", [], [y])
    with k.loops(N - 1) as at:
        k.store(y[at], 0.0)
    with pytest.raises(AssertionError, match="not written everywhere"):
        run_kernel(k.finish(), [], {"n": 2})


def test_a_read_before_a_write_is_caught() -> None:
    y = Buffer("y", DType.F32, shape_of("n"))
    k = KernelBuilder("k", [], [y])
    with k.loops(N) as at:
        k.store(y[at], y[at] + 1.0)
    with pytest.raises(AssertionError, match="read before it is written"):
        run_kernel(k.finish(), [], {"n": 2})


@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3)
def test_a_fused_product_is_the_exact_result_rounded_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    with np.errstate(all="ignore"):
        found = scalars.fused(np.float32(a), np.float32(b), np.float32(c))
        near = np.float32(float(exact))
        around = {near, np.nextafter(near, np.float32(inf)), np.nextafter(near, np.float32(-inf))}
    if not np.isfinite(near):
        return
    distance = min(abs(Fraction(float(v)) - exact) for v in around if np.isfinite(v))
    assert np.isfinite(found) and abs(Fraction(float(found)) - exact) == distance


def test_an_output_may_take_the_memory_of_an_input() -> None:
    x, y = Buffer("x", DType.I32, shape_of("n")), Buffer("y", DType.I32, shape_of("n"))
    k = KernelBuilder("k", [x], [y])
    with k.loops(N) as (i,):
        k.store(y[(i,)], x[(N - 1 - i,)])
    given = np.array([1, 2, 3], np.int32)
    assert run_kernel(k.finish(), [given], {"n": 3})[0].tolist() == [3, 2, 1]
    assert run_kernel(k.finish(), [given], {"n": 3}, {"y": "x"})[0].tolist() == [3, 2, 3]
    assert given.tolist() == [1, 2, 3]


def test_a_loop_variable_may_have_the_name_of_a_size_of_the_module() -> None:
    y = Buffer("y", DType.I64, shape_of(3))
    kernel = Kernel("k", (), (y,), (), (For("m", Dim.of(0), Dim.of(3), (
        Store(y, (Dim.of("m"),), Index(Dim.of("m"))),)),))  # fmt: skip
    assert run_kernel(kernel, [], {"m": 7})[0].tolist() == [0, 1, 2]


def test_a_name_ends_with_its_block() -> None:
    y = Buffer("y", DType.I64, shape_of(1))
    zero = (Dim.of(0),)
    loop = For("i", Dim.of(0), Dim.of(1), (Store(y, zero, Index(Dim.of("i"))),))
    inner = Declare(Local("v", DType.I64), Lit(1, DType.I64))
    kernel = Kernel("k", (), (y,), (), (loop, If(Lit(True, DType.BOOL), (inner,)),
                                        Store(y, zero, Local("v", DType.I64))))  # fmt: skip
    with pytest.raises(AssertionError, match="v is not declared"):
        run_kernel(kernel, [], {})
