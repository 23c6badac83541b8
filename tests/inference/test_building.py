# SPDX-License-Identifier: Apache-2.0
"""What is known of values while a function is built."""

from __future__ import annotations

import numpy as np
import pytest

from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.sizes import Shared, SizeError
from relax_aot.ir.graph import Symbol, Var
from relax_aot.ir.types import DType, TensorType, shape_of
from relax_aot.transforms import fold_constants


def with_size(high: int) -> tuple[FunctionBuilder, Var]:
    """A function whose value `n` holds the size n."""
    builder = FunctionBuilder()
    builder.symbol(Symbol("n", 1, high, "axis 0 of x"))
    x = builder.param("x", TensorType(DType.F32, shape_of("n")))
    return builder, builder.call("size_of", x)[0]


def test_an_integer_that_may_wrap_is_not_known() -> None:
    builder, size = with_size(70_000)
    narrow = builder.call("cast", size, to=DType.I32, saturate=False)[0]
    assert builder.dims(narrow) is not None
    assert builder.dims(builder.call("mul", narrow, narrow)[0]) is None
    assert builder.dims(builder.call("mul", size, size)[0]) is not None


def test_an_integer_that_cannot_wrap_is_known() -> None:
    builder, size = with_size(40_000)
    narrow = builder.call("cast", size, to=DType.I32, saturate=False)[0]
    assert builder.dims(builder.call("mul", narrow, narrow)[0]) is not None


def test_a_negative_size_is_named() -> None:
    builder = FunctionBuilder()
    row = builder.constant("row", np.zeros((1, 3), np.float32))
    with pytest.raises(SizeError, match=r"expand needs sizes of 0 or more.*f32\[-3, 3\]"):
        builder.call("expand", row, shape=(-3, 3))


@pytest.mark.parametrize("index", [3, -4])
def test_a_constant_index_out_of_range_is_left_to_run_time(index: int) -> None:
    builder, size = with_size(9)
    data = builder.constant("data", np.arange(3))
    place = builder.constant("place", np.array(index))
    found = builder.call("gather", data, place, axis=0)[0]
    assert [call.op for call in builder.body] == ["size_of", "gather"]
    assert builder.dims(found) is None
    sizes = builder.call("reshape", size, shape=(1,))[0]
    assert builder.dims(builder.call("gather", sizes, place, axis=0)[0]) is None


def test_a_value_without_elements_is_known() -> None:
    builder = FunctionBuilder()
    axes = builder.param("axes", TensorType(DType.I64, shape_of(0)))
    assert builder.dims(axes) == ()


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("kind", [DType.F16, DType.BF16])
def test_weights_of_half_precision_stay_so_on_request(kind: DType, keeps: bool) -> None:
    """Their product decodes them as it reads them; a value of few elements is converted."""
    builder = FunctionBuilder("main", Shared(keeps_half=keeps))

    def wide(size: int) -> Var:
        data = np.random.default_rng(size).normal(size=(size, 20)).astype(kind.numpy)
        (moved,) = builder.call("transpose", builder.constant("w", data), perm=(1, 0))
        return builder.call("cast", moved, to=DType.F32, saturate=False)[0]

    x = builder.param("x", TensorType(DType.F32, shape_of(3, 20)))
    results = [builder.call("matmul", x, wide(size))[0] for size in (40, 2)]
    module = fold_constants.run(builder.module(results))
    kinds = {constant.data.shape: constant.type.dtype for constant in module.constants}
    assert kinds[20, 40] is (kind if keeps else DType.F32)
    assert kinds[20, 2] is DType.F32
