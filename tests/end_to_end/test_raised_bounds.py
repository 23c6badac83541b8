# SPDX-License-Identifier: Apache-2.0
"""Bounds so low that a tile, a panel or a strip holds all of a size, and raised when compiling."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from relax_aot import driver
from relax_aot.verify.host import (
    STRICT_FLAGS,
    HostBuildError,
    HostModel,
    build_shared,
    library_files,
)
from relax_aot.verify.library import Library
from tests.conftest import QUICK_FLAGS
from tests.models.onnx_text import model_of, random_weights

LOW, RAISED = 6, 75
SIZES = (1, 6, 7, 33, 50, 74, 75)


def _float(**shapes: tuple[int, ...]) -> dict[str, Any]:
    return random_weights(np.random.default_rng(5), **shapes)


def _codes(**shapes: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(6)
    return {
        name: rng.integers(-20, 20, shape).astype(np.int8) for name, shape in shapes.items()
    } | {"s": np.float32(0.05), "t": np.float32(0.4), "z": np.int8(3)}


def strided() -> onnx.ModelProto:
    return model_of(
        "strided (float[1, 4, n] x) => (float[1, 8, m] y)",
        "y = Conv <kernel_shape = [5], pads = [2, 2], strides = [2]> (x, w, b)",
        _float(w=(8, 4, 5), b=(8,)),
    )


def image() -> onnx.ModelProto:
    return model_of(
        "image (float[1, 2, n, n] x) => (float[1, 5, p, p] y)",
        """
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w, b)
        r = Relu(c)
        d = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 4> (r, v, u)
        y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (d, k)
        """,
        _float(w=(4, 2, 3, 3), b=(4,), v=(4, 1, 3, 3), u=(4,), k=(5, 4, 3, 3)),
    )


def attention() -> onnx.ModelProto:
    return model_of(
        "attention (float[n, 16] x) => (float[n, 16] y)",
        """
        t = Transpose <perm = [1, 0]> (x)
        s = MatMul(x, t)
        p = Softmax(s)
        o = MatMul(p, x)
        y = MatMul(o, w)
        """,
        _float(w=(16, 16)),
    )


def outer() -> onnx.ModelProto:
    return model_of(
        "outer (float[n, 12] x, float[12, n] z) => (float[n, n] y)", "y = MatMul(x, z)", {}
    )


def codes() -> onnx.ModelProto:
    return model_of(
        "model (int8[1, 4, n, n] x) => (int8[1, 6, p, p] y)",
        """
        c = QLinearConv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, s, z, w, s, zero, t, z)
        d = QLinearConv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 8>
            (c, t, z, v, s, zero, t, z)
        e = QLinearConv <kernel_shape = [1, 1]> (d, t, z, k, s, zero, t, z)
        y = QLinearConv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>
            (e, t, z, u, s, zero, t, z)
        """,
        _codes(w=(8, 4, 3, 3), v=(8, 1, 3, 3), k=(8, 8, 1, 1), u=(6, 8, 3, 3))
        | {"zero": np.int8(0)},
    )


def code_lines() -> onnx.ModelProto:
    return model_of(
        "code_lines (int8[n, 24] x) => (int8[n, 9] y)",
        "y = QLinearMatMul(x, s, z, w, s, zero, t, z)",
        _codes(w=(24, 9)) | {"zero": np.int8(0)},
    )


def branches() -> onnx.ModelProto:
    """The branch of sizes other than the bound, which only sizes above it leave."""
    return model_of(
        "branches (float[n, 4] x) => (float[p, 4] y)",
        """
        zero = Constant <value = int64[1] {0}> ()
        seven = Constant <value = int64[1] {7}> ()
        six = Constant <value = int64[1] {6}> ()
        size = Shape <start = 0, end = 1> (x)
        same = Equal(size, six)
        other = Not(same)
        y = If <
            then_branch = some () => (float[q, 4] o) {
                first = Slice(x, zero, seven, zero)
                sum = ReduceSum(first, zero)
                o = Add(x, sum)
            },
            else_branch = six_rows () => (float[r, 4] twice) { twice = Concat <axis = 0> (x, x) }
        > (other)
        """,
        {},
    )


KINDS = (strided, image, attention, outer, codes, code_lines, branches)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host", "mps2-an386", "mps3-an547", "aarch64-linux"])
@pytest.mark.parametrize("make", KINDS)
def test_what_held_all_of_a_size_holds_a_part(make: Any, board: str) -> None:
    """On the host, by the C that micro-kernels have in addition to their intrinsics."""
    model = make()
    project = driver.compile_model(
        model, board, driver.Options(bounds={"n": (1, LOW)}, name="raised")
    )
    flags = (*STRICT_FLAGS, *QUICK_FLAGS, f"-DRAISED_N_MAX={RAISED}")
    ours = HostModel(project.interface, Library(build_shared(library_files(project), flags)))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    truth = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(7)
    for n in SIZES:
        inputs = {
            value.name: rng.integers(-60, 60, shape).astype(np.int8)
            if value.type == "tensor(int8)"
            else rng.normal(size=shape).astype(np.float32)
            for value in truth.get_inputs()
            for shape in [[n if size == "n" else size for size in value.shape]]
        }
        (expected,) = truth.run(None, inputs)
        if expected.dtype == np.int8:
            np.testing.assert_array_equal(ours(inputs)["y"], expected)
        else:
            np.testing.assert_allclose(ours(inputs)["y"], expected, rtol=1e-3, atol=1e-4)


def of_codes() -> onnx.ModelProto:
    """Sums of as many products as the size, in 32 bits."""
    return model_of(
        "of_codes (int8[3, n] x, int8[n, 5] w) => (int8[3, 5] y)",
        """
        a = DequantizeLinear(x, s, zero)
        b = DequantizeLinear(w, s, zero)
        c = MatMul(a, b)
        y = QuantizeLinear(c, t, zero)
        """,
        _codes() | {"zero": np.int8(0)},
    )


def part() -> onnx.ModelProto:
    """A part, that data tell, of a quarter: no row of up to 3, whatever data say."""
    return model_of(
        "part (float[n, 4] x, int64[1] k) => (float[p, 4] y)",
        """
        zero = Constant <value = int64[1] {0}> ()
        four = Constant <value = int64[1] {4}> ()
        size = Shape <start = 0, end = 1> (x)
        quarter = Div(size, four)
        rows = Slice(x, zero, quarter, zero)
        some = Slice(rows, zero, k, zero)
        y = MatMul(some, w)
        """,
        _float(w=(4, 4)),
    )


@pytest.mark.parametrize(
    ("make", "low", "raised"), [(of_codes, 6, 131072), (part, 3, RAISED)], ids=["sums", "part"]
)
def test_what_holds_for_some_sizes_only_is_refused_by_the_compiler(
    make: Any, low: int, raised: int
) -> None:
    project = driver.compile_model(
        make(), options=driver.Options(bounds={"n": (1, low)}, name="raised")
    )
    files = library_files(project)
    build_shared(files, (*STRICT_FLAGS, f"-DRAISED_N_MAX={low}"))
    with pytest.raises(HostBuildError, match="the maximum of the generated code"):
        build_shared(files, (*STRICT_FLAGS, f"-DRAISED_N_MAX={raised}"))
