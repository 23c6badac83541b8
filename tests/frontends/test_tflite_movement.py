# SPDX-License-Identifier: Apache-2.0
"""Operators of TensorFlow Lite that move elements, against its own reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

import relax_aot as rx
from tests.frontends.test_tflite_operators import (
    BOOL,
    I8,
    I16,
    I32,
    I64,
    U8,
    Case,
    S,
    T,
    check_case,
    constant,
    q,
)
from tests.frontends.tflite_models import Maker, check_model, ours


def moved(
    name: str, inputs: list[T | None], shape: tuple[int, ...], table: str = "", **options: object
) -> list[Case]:
    """The case in floats, and quantized where the values come first."""
    first = next(i for i, t in enumerate(inputs) if t is not None and t.data is None)
    kinds = [T(S), q(I8)] if "DEPTH" in name else [T(S), q(I8), q(I16)]
    version = 2 if name == "BROADCAST_TO" else 1
    found = []
    for kind in kinds:
        made = [
            T(t.shape, kind.dtype, kind.scale, kind.zero)
            if t is not None and t.data is None and i >= first and t.dtype is np.float32
            else t
            for i, t in enumerate(inputs)
        ]
        result = T(shape, kind.dtype, kind.scale, kind.zero)
        found.append(Case(name, made, [result], table, options, 0, version))
    return found


IMAGE = (2, 4, 6, 3)
ALL = [
    *moved("RESHAPE", [T(S), constant([6, -1])], (6, 5), "ReshapeOptions"),
    *moved("RESHAPE", [T(S)], (6, 5), "ReshapeOptions", newShape=[6, 5]),
    *moved("SQUEEZE", [T((2, 1, 3, 1))], (2, 3), "SqueezeOptions", squeezeDims=[1, -1]),
    *moved("SQUEEZE", [T((2, 1, 3, 1))], (2, 3), "SqueezeOptions"),
    *moved("EXPAND_DIMS", [T(S), constant([-2])], (2, 3, 1, 5)),
    *moved("TRANSPOSE", [T(S), constant([2, 0, 1])], (5, 2, 3)),
    *moved("SLICE", [T(S), constant([0, 1, 2]), constant([2, -1, 2])], (2, 2, 2)),
    *moved(
        "STRIDED_SLICE", [T((5, 6, 7)), constant([1, -1, 0]), constant([5, 0, 9]),
                          constant([2, -2, 3])], (2, 3, 3), "StridedSliceOptions",
    ),
    *moved(
        "STRIDED_SLICE", [T((5, 6, 7)), constant([-1, 2, 3]), constant([0, 4, 5]),
                          constant([1, 1, 1])], (4, 4), "StridedSliceOptions",
        beginMask=2, endMask=4, shrinkAxisMask=1,
    ),
    *moved("CONCATENATION", [T(S), T((2, 4, 5)), T(S)], (2, 10, 5), "ConcatenationOptions",
           axis=-2),
    *moved("PACK", [T(S), T(S)], (2, 3, 2, 5), "PackOptions", axis=2, valuesCount=2),
    *moved("PAD", [T(S), constant([[0, 1], [2, 0], [1, 1]])], (3, 5, 7)),
    *moved("PADV2", [T(S), constant([[0, 1], [2, 0], [1, 1]]), T((1,))], (3, 5, 7)),
    *moved("MIRROR_PAD", [T(S), constant([[0, 0], [2, 0], [1, 2]])], (2, 5, 8),
           "MirrorPadOptions", mode=0),
    *moved("MIRROR_PAD", [T(S), constant([[1, 2], [2, 0], [1, 2]])], (5, 5, 8),
           "MirrorPadOptions", mode=1),
    *moved("TILE", [T(S), constant([2, 1, 3])], (4, 3, 15)),
    *moved("BROADCAST_TO", [T((1, 3, 1)), constant([2, 3, 5])], S),
    *moved("REVERSE_V2", [T(S), constant([1])], S),
    *moved("DEPTH_TO_SPACE", [T((2, 3, 2, 12))], (2, 6, 4, 3), "DepthToSpaceOptions", blockSize=2),
    *moved("SPACE_TO_DEPTH", [T(IMAGE)], (2, 2, 3, 12), "SpaceToDepthOptions", blockSize=2),
    *moved("SPACE_TO_BATCH_ND", [T(IMAGE), constant([2, 3]), constant([[1, 1], [0, 3]])],
           (12, 3, 3, 3)),
    *moved("BATCH_TO_SPACE_ND", [T((12, 3, 3, 2)), constant([2, 3]), constant([[1, 1], [0, 3]])],
           (2, 4, 6, 2)),
    *moved("GATHER", [T(S), constant([[2, 0], [1, 1]])], (2, 2, 2, 5), "GatherOptions", axis=1),
    *moved("GATHER_ND", [T(S), constant([[1, 2], [0, 0]])], (2, 5)),
    Case("REVERSE_SEQUENCE", [T(S), constant([2, 3])], [T(S)], "ReverseSequenceOptions",
         {"seqDim": 1, "batchDim": 0}),
    Case("SPLIT", [constant([1]), T((2, 6, 5))], [T((2, 2, 5))] * 3, "SplitOptions",
         {"numSplits": 3}),
    Case("SPLIT_V", [T((2, 6, 5)), constant([1, 3, -1]), constant([1])],
         [T((2, 1, 5)), T((2, 3, 5)), T((2, 2, 5))], "SplitVOptions", {"numSplits": 3}),
    Case("UNPACK", [T((2, 3, 5))], [T((2, 5))] * 3, "UnpackOptions", {"num": 3, "axis": 1}),
    Case("SHAPE", [T(S)], [T((3,), I32)], "ShapeOptions", {"outType": 2}),
    Case("SHAPE", [T(S)], [T((3,), I64)], "ShapeOptions", {"outType": 4}),
    Case("RANK", [T(S)], [T((), I32)]),
    Case("ZEROS_LIKE", [T(S)], [T(S)]),
    Case("FILL", [constant([2, 3]), constant(1.5, np.float32)], [T((2, 3))]),
    Case("RANGE", [constant(3), constant(11), constant(2)], [T((4,), I32)]),
    Case("ONE_HOT", [T((2, 3), I32, low=-1, high=4), constant(4), constant(2.5, np.float32),
                     constant(-1.0, np.float32)], [T((2, 3, 4))], "OneHotOptions", {"axis": -1}),
    Case("TOPK_V2", [T((4, 9)), constant(3)], [T((4, 3)), T((4, 3), I32)]),
    Case("ARG_MAX", [T(S), constant([-1])], [T((2, 3), I32)], "ArgMaxOptions", {"outputType": 2}),
    Case("ARG_MAX", [q(I8), constant([1])], [T((2, 5), I64)], "ArgMaxOptions", {"outputType": 4}),
    Case("ARG_MIN", [q(U8), constant([0])], [T((3, 5), I32)], "ArgMinOptions", {"outputType": 2}),
    Case("SCATTER_ND", [constant([[1], [3], [1]]), T((3, 2)), constant([5, 2])], [T((5, 2))]),
    Case("LOGICAL_NOT", [T(S, BOOL)], [T(S, BOOL)]),
]  # fmt: skip


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_elements_go_where_the_reference_kernel_puts_them(case: Case) -> None:
    check_case(case)


@pytest.mark.parametrize("name", ["SLICE", "STRIDED_SLICE"])
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("between", [False, True])
def test_an_end_is_a_number_where_the_file_leaves_the_axis_open(
    name: str, size: int, between: bool
) -> None:
    """The file has some size there. Where it fixes the size and a bound opens it, the end means
    the whole axis. A tensor `between` has the axis of the input, and no signature of its own."""
    x = np.arange(36, dtype=np.float32).reshape(2, 6, 3)
    for signature in ((2, -1, 3), None):
        maker = Maker()
        given = cut = maker.tensor((2, size, 3), signature=signature)
        result = maker.tensor((2, size, 3), signature=signature)
        if between:
            cut = maker.tensor((2, size, 3))
            maker.operator("ABS", [given], [cut])
        lists = [[0, 0, 0], [2, size, 3], *([[1, 1, 1]] if name == "STRIDED_SLICE" else [])]
        inputs = [cut, *(maker.constant(np.array(one, np.int32)) for one in lists)]
        maker.operator(name, inputs, [result], f"{name.title().replace('_', '')}Options")
        model, bounds = maker.build([given], [result]), {"t0_1": (1, 8)}
        if signature:
            check_model(model, [x], bounds=bounds)
        else:
            np.testing.assert_array_equal(ours(rx.load(model, bounds=bounds), [x])[0], x)


def test_a_slice_follows_a_constant_shape_that_follows_the_batch() -> None:
    """The shape fixes the batch, though the input leaves it open."""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    maker = Maker()
    given = maker.tensor((1, 6), signature=(-1, 6))
    formed, result = maker.tensor((1, 2, 3)), maker.tensor((1, 2, 2))
    shape = maker.constant(np.array([1, 2, 3], np.int32))
    maker.operator("RESHAPE", [given, shape], [formed])
    ends = [maker.constant(np.array(one, np.int32)) for one in ([0, 0, 0], [1, 2, 2])]
    maker.operator("SLICE", [formed, *ends], [result], "SliceOptions")
    module = rx.load(maker.build([given], [result]), bounds={"t0_0": (1, 8)})
    np.testing.assert_array_equal(ours(module, [x])[0], x.reshape(4, 2, 3)[:, :, :2])
