# SPDX-License-Identifier: Apache-2.0
"""Operators of TensorFlow Lite along axes and windows, against its own reference kernels."""

from __future__ import annotations

import pytest

from tests.frontends.test_tflite_operators import (
    BOOL,
    I8,
    I16,
    I32,
    U8,
    Case,
    S,
    T,
    check_case,
    constant,
    q,
)

KEPT = ({"keepDims": True}, {"keepDims": False})
IMAGE = (2, 9, 8, 3)


def shape_after(axes: list[int], keep: bool) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(S) if keep or i not in axes)


REDUCED = [
    Case(name, [kind, constant(axes)],
         [T(shape_after(axes, options["keepDims"]), kind.dtype, kind.scale, kind.zero)],
         "ReducerOptions", options, atol=2e-5)
    for name, kinds in (
        ("MEAN", (T(S), q(I8), q(U8))),
        ("SUM", (T(S), T(S, I32, low=-9, high=9))),
        ("REDUCE_MAX", (T(S), q(I8), q(U8))),
        ("REDUCE_MIN", (T(S), q(I8))),
        ("REDUCE_PROD", (T(S),)),
        ("REDUCE_ANY", (T(S, BOOL),)),
        ("REDUCE_ALL", (T(S, BOOL),)),
    )
    for kind in kinds
    for options in KEPT
    for axes in ([1], [0, 2])
]  # fmt: skip
MEANS = [
    Case("MEAN", [q(dtype, (2, 7, 5, 33)), constant([1, 2])],
         [q(dtype, (2, 1, 1, 33), scale, 30)], "ReducerOptions", {"keepDims": True})
    for dtype in (I8, U8)
    for scale in (0.011, 0.05, 0.21)
]  # fmt: skip
SUMS = [Case("SUM", [q(U8, (9, 40)), constant([0])], [q(U8, (40,), 0.4, 3)], "ReducerOptions")]
OTHERS = [
    Case("L2_NORMALIZATION", [T((3, 7))], [T((3, 7))], "L2NormOptions", version=1),
    *(
        Case("CUMSUM", [T(S), constant(1)], [T(S)], "CumsumOptions",
             {"exclusive": exclusive, "reverse": reverse}, 1e-5)
        for exclusive in (False, True)
        for reverse in (False, True)
    ),
]  # fmt: skip


def pooled(size: int, width: int, stride: int, same: bool) -> int:
    return -(-size // stride) if same else (size - width) // stride + 1


POOLS = [
    Case(name, [kind],
         [T((2, pooled(9, height, 2, pad == 0), pooled(8, width, step, pad == 0), 3),
            kind.dtype, kind.scale, kind.zero)],
         "Pool2DOptions",
         {"padding": pad, "strideH": 2, "strideW": step, "filterHeight": height,
          "filterWidth": width, "fusedActivationFunction": act}, version=2)
    for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D")
    for kind in (T(IMAGE), q(I8, IMAGE), q(U8, IMAGE), q(I16, IMAGE))
    for height, width, step, pad, act in ((3, 2, 1, 0, 0), (2, 3, 3, 1, 1), (9, 8, 1, 1, 3))
]  # fmt: skip
RESIZED = [
    Case(name, [T((1, 5, 4, 3), kind.dtype, kind.scale, kind.zero), constant(sizes)],
         [T((1, *sizes, 3), kind.dtype, kind.scale, kind.zero)], table,
         {"alignCorners": align, "halfPixelCenters": half}, version=3)
    for name, table in (
        ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
        ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
    )
    for kind in (T(S), q(I8), q(U8), q(I16))
    if not (name == "RESIZE_BILINEAR" and kind.dtype is U8)
    for align, half in ((False, False), (True, False), (False, True))
    for sizes in ((9, 7), (3, 2), (1, 11))
]  # fmt: skip
RESIZED += [
    Case("L2_POOL_2D", [T(IMAGE)], [T((2, 9, 8, 3))], "Pool2DOptions",
         {"padding": 0, "strideH": 1, "strideW": 1, "filterHeight": 3, "filterWidth": 2},
         atol=1e-5),
]  # fmt: skip
ALL = [*REDUCED, *MEANS, *SUMS, *OTHERS, *POOLS, *RESIZED]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_what_is_gathered_equals_the_reference_kernel(case: Case) -> None:
    check_case(case)
