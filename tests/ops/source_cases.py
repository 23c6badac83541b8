# SPDX-License-Identifier: Apache-2.0
"""Nodes at which ONNX's text, its reference evaluator and the runtimes may disagree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from relax_aot.ops._op import Array
from tests.ops.onnx_node import Node, i64, scalar

INF, NAN = np.inf, np.nan


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def i32(*values: Any) -> Array:
    return np.array(values, np.int32)


def cases() -> Iterator[tuple[str, Node]]:
    """Names and nodes; a name says what is odd about the node."""
    rng = np.random.default_rng(23)
    yield from _windows(rng)
    yield from _special_values()
    yield from _integers()
    yield from _indices(rng)
    yield from _images(rng)
    yield from _shapes(rng)
    yield from _recurrent(rng)


def _windows(rng: np.random.Generator) -> Iterator[tuple[str, Node]]:
    x = rng.normal(size=(1, 2, 7, 8)).astype(np.float32)
    w = rng.normal(size=(3, 2, 3, 3)).astype(np.float32)
    for ceil, include, stride, pad, dilation in product((0, 1), (0, 1), (1, 2, 3), (0, 1), (1, 2)):
        attrs: dict[str, Any] = {
            "kernel_shape": [3, 2], "strides": [stride] * 2, "pads": [pad] * 4,
            "ceil_mode": ceil, "dilations": [dilation] * 2,
        }  # fmt: skip
        label = f"ceil={ceil} stride={stride} pad={pad} dilation={dilation}"
        average = attrs | {"count_include_pad": include}
        yield f"AveragePool {label} include={include}", Node("AveragePool", (x,), average, opset=22)
        if include:
            continue
        yield f"LpPool {label}", Node("LpPool", (x,), attrs | {"p": 3}, opset=22)
        for order in (0, 1):
            places = attrs | {"storage_order": order}
            name = f"MaxPool {label} order={order}"
            yield name, Node("MaxPool", (x,), places, outputs=2, opset=22)
    for auto, stride, dilation in product(("SAME_UPPER", "SAME_LOWER", "VALID"), (1, 2), (1, 2)):
        attrs = {"auto_pad": auto, "strides": [stride] * 2, "dilations": [dilation] * 2}
        label = f"{auto} stride={stride} dilation={dilation}"
        yield f"Conv {label}", Node("Conv", (x, w), attrs, opset=22)
        pool = attrs | {"kernel_shape": [3, 2]}
        yield f"MaxPool {label}", Node("MaxPool", (x,), pool, opset=22)
        if dilation == 1:
            back = {"auto_pad": auto, "strides": [stride] * 2}
            turned = np.ascontiguousarray(w.transpose(1, 0, 2, 3))
            yield f"ConvTranspose {label}", Node("ConvTranspose", (x, turned), back, opset=22)
            sized = back | {"output_shape": [7 * stride + 1, 8 * stride + 1]}
            name = f"ConvTranspose output_shape {label}"
            yield name, Node("ConvTranspose", (x, turned), sized, opset=22)


def _special_values() -> Iterator[tuple[str, Node]]:
    odd = f32(NAN, INF, -INF, -0.0, 0.0, 1.5, 2.5, -0.5, -1.5, 3e38, 1e-40)
    for op in ("Relu", "Abs", "Neg", "Sign", "Round", "Floor", "Ceil", "Sigmoid", "Tanh", "Exp",
               "Softplus", "Softsign", "Erf", "HardSigmoid", "LeakyRelu", "Elu", "Selu", "Celu",
               "ThresholdedRelu", "IsNaN", "IsInf", "Sqrt", "Log", "Reciprocal"):  # fmt: skip
        yield f"{op} of special values", Node(op, (odd,), opset=22 if op != "Celu" else 12)
    yield "HardSwish of special values", Node("HardSwish", (odd,), opset=22)
    yield "Mish of special values", Node("Mish", (odd,), opset=22)
    yield "Gelu of special values", Node("Gelu", (odd,), opset=20)
    yield "Gelu tanh of special values", Node("Gelu", (odd,), {"approximate": "tanh"}, opset=20)
    other = odd[::-1].copy()
    for op in ("Max", "Min", "Pow", "Equal", "Less", "PRelu", "Div"):
        yield f"{op} of special values", Node(op, (odd, other), opset=13)
    for fmod in (0, 1):
        left, right = f32(5, -5, 5, -5, 0, -0.0, INF, 5), f32(3, 3, -3, -3, 3, -3, 3, INF)
        if fmod:
            yield "Mod fmod", Node("Mod", (left, right), {"fmod": 1}, opset=13)
    limits = np.array(2, np.float32), np.array(-1, np.float32)
    yield "Clip min > max", Node("Clip", (f32(-3, 0, 3, NAN), *limits), opset=13)
    rows = np.array([[1, NAN, 3], [3, 3, 1], [-INF, -INF, -INF], [INF, 1, INF]], np.float32)
    for op, last in product(("ArgMax", "ArgMin"), (0, 1)):
        attrs = {"axis": 1, "select_last_index": last}
        yield f"{op} ties and NaN last={last}", Node(op, (rows,), attrs, opset=13)
    floor = np.full((1, 1, 3), -INF, np.float32)
    yield "MaxPool of -inf alone", Node("MaxPool", (floor,), {"kernel_shape": [2]}, opset=22)
    yield "GlobalMaxPool of -inf alone", Node("GlobalMaxPool", (floor,), {}, opset=22)
    for op in ("ReduceMax", "ReduceMin", "ReduceLogSumExp", "ReduceSum", "ReduceProd", "ReduceL1"):
        yield f"{op} of special values", Node(op, (rows, i64(1)), opset=18)
    for op, opset in product(("Softmax", "LogSoftmax", "Hardmax"), (11, 13)):
        attrs = {"axis": 1}
        yield f"{op}-{opset} of special rows", Node(op, (rows,), attrs, opset=opset)
        cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4) % 5
        yield f"{op}-{opset} axis 1 of 3", Node(op, (cube,), attrs, opset=opset)
        empty = np.zeros((2, 0), np.float32)
        yield f"{op}-{opset} of an empty axis", Node(op, (empty,), attrs, opset=opset)
    ties = f32([2, 1, 2, 1, 3])
    for largest, ordered in product((0, 1), (0, 1)):
        attrs = {"largest": largest, "sorted": ordered}
        yield (f"TopK ties largest={largest} sorted={ordered}",
               Node("TopK", (ties, i64(3)), attrs, outputs=2, opset=11))  # fmt: skip
    for to in (np.int32, np.int64, np.int8, np.uint8, np.bool_):
        kind = {np.int32: 6, np.int64: 7, np.int8: 3, np.uint8: 2, np.bool_: 9}[to]
        inside = f32(-1.7, -0.5, 0.5, 1.5, 2.5, 100.9, -0.0)
        name = np.dtype(to).name
        yield f"Cast to {name}", Node("Cast", (inside,), {"to": kind}, opset=19)
        yield f"Cast to {name} out of range", Node("Cast", (odd,), {"to": kind}, opset=19)
    for zero in (np.uint8(128), np.int8(-3)):
        name = zero.dtype.name
        values = f32(0.5, 1.5, 2.5, -0.5, -1.5, 1e6, -1e6, 300, INF, -INF)
        args = (values, np.array(1, np.float32), np.array(zero))
        yield f"QuantizeLinear to {name}", Node("QuantizeLinear", args, opset=19)


def _integers() -> Iterator[tuple[str, Node]]:
    x, y = i32(7, -7, 7, -7, 2**31 - 1), i32(2, 2, -2, -2, 3)
    yield "Div of integers", Node("Div", (x, y), opset=14)
    yield "Mod of integers", Node("Mod", (x, y), opset=13)
    yield "Mod of integers fmod", Node("Mod", (x, y), {"fmod": 1}, opset=13)
    yield "Pow int ** float", Node("Pow", (x[:4], f32(2, 3, 0.5, 2)), opset=15)
    yield "Pow float ** int", Node("Pow", (f32(2, -2, 0, 2), i32(3, 3, 0, -1)), opset=15)
    bits = np.array([1, 255, 3, 9], np.uint8)
    by = np.array([7, 1, 8, 200], np.uint8)
    for direction in ("LEFT", "RIGHT"):
        few = Node("BitShift", (bits[:2], by[:2]), {"direction": direction}, opset=11)
        many = Node("BitShift", (bits, by), {"direction": direction}, opset=11)
        yield f"BitShift {direction}", few
        yield f"BitShift {direction} by the width or more", many
    yield "Abs of the least integer", Node("Abs", (i32(-(2**31), 5),), opset=13)
    yield "ReduceMean of integers", Node("ReduceMean", (i32([-7, 2], [3, 4]), i64(1)), opset=18)
    for limits in ((0, 10, 3), (10, 0, -3), (0, 0, 1), (5, 0, 1)):
        args = tuple(np.array(v, np.int64) for v in limits)
        yield f"Range {limits}", Node("Range", args, opset=11)
    for reals in ((0, 1, 0.1), (1, 0, -0.3), (0.5, 5.5, 1), (0, 0.3, 0.1)):
        args = tuple(np.array(v, np.float32) for v in reals)
        yield f"Range {reals}", Node("Range", args, opset=11)


def _indices(rng: np.random.Generator) -> Iterator[tuple[str, Node]]:
    x = rng.normal(size=(3, 4)).astype(np.float32)
    for exclusive, reverse in product((0, 1), (0, 1)):
        attrs = {"exclusive": exclusive, "reverse": reverse}
        name = f"CumSum exclusive={exclusive} reverse={reverse}"
        yield name, Node("CumSum", (x, scalar(1)), attrs, opset=14)
    twice, updates = np.array([[1, 1, -1]]), f32([5, 6, 7])
    for reduction in ("none", "add", "mul", "max", "min"):
        scatter = {"axis": 1, "reduction": reduction}
        name = f"ScatterElements duplicates {reduction}"
        yield name, Node("ScatterElements", (x, twice, updates), scatter, opset=18)
        rows = np.array([[1], [1], [-1]])
        name = f"ScatterND duplicates {reduction}"
        yield name, Node("ScatterND", (x, rows, x * 2), {"reduction": reduction}, opset=18)
    yield "GatherND batch", Node("GatherND", (x, np.array([[1], [0], [-1]])), {"batch_dims": 1},
                                 opset=13)  # fmt: skip
    yield "GatherElements negative", Node("GatherElements", (x, np.array([[-1, 0, -3, 1]])),
                                          opset=13)  # fmt: skip
    values = f32(2, 1, 1, 3, 2)
    for ordered in (0, 1):
        yield f"Unique sorted={ordered}", Node("Unique", (values,), {"sorted": ordered}, outputs=4,
                                               opset=11)  # fmt: skip
    boxes = f32([[0, 0, 1, 1], [0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [1, 3, 0, 2]])
    scores = f32([[0.9, 0.9, 0.75, 0.6, 0.6]])
    for center, threshold in product((0, 1), (0.0, 0.5)):
        args = (boxes[None], scores[None], i64(5), f32(threshold), f32(0.1))
        yield (f"NonMaxSuppression ties center={center} iou={threshold}",
               Node("NonMaxSuppression", args, {"center_point_box": center}, opset=11))  # fmt: skip
    yield "OneHot out of range", Node("OneHot", (i64(1, -1, 9, -9), scalar(4), f32(0, 1)), opset=11)


def _images(rng: np.random.Generator) -> Iterator[tuple[str, Node]]:
    x = rng.normal(size=(1, 2, 5, 6)).astype(np.float32)
    grid = rng.uniform(-1.6, 1.6, size=(1, 4, 4, 2)).astype(np.float32)
    for mode, padding, align in product(
        ("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)
    ):
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
        name = f"GridSample {mode} {padding} align={align}"
        yield name, Node("GridSample", (x, grid), attrs, opset=20)
    rois = f32([0, 0, 5, 4], [1, 1, 1, 1], [-2, -3, 9, 9], [4, 3, 1, 1])
    for mode, ratio, transform in product(
        ("avg", "max"), (0, 2), ("half_pixel", "output_half_pixel")
    ):
        attrs = {"mode": mode, "sampling_ratio": ratio, "output_height": 2, "output_width": 3,
                 "coordinate_transformation_mode": transform}  # fmt: skip
        name = f"RoiAlign {mode} ratio={ratio} {transform}"
        yield name, Node("RoiAlign", (x, rois, i64(0, 0, 0, 0)), attrs, opset=16)
    for size in (2, 3, 4):
        four = rng.normal(size=(1, 5, 2, 2)).astype(np.float32)
        yield f"LRN size={size}", Node("LRN", (four,), {"size": size, "alpha": 0.9}, opset=13)
    deep = rng.normal(size=(1, 8, 2, 3)).astype(np.float32)
    for order in ("DCR", "CRD"):
        attrs = {"blocksize": 2, "mode": order}
        yield f"DepthToSpace {order}", Node("DepthToSpace", (deep,), attrs, opset=13)
    for align in (0, 1):
        theta = rng.normal(size=(1, 2, 3)).astype(np.float32)
        args = (theta, i64(1, 1, 3, 4))
        yield f"AffineGrid {align}", Node("AffineGrid", args, {"align_corners": align}, opset=20)


def _shapes(rng: np.random.Generator) -> Iterator[tuple[str, Node]]:
    x = rng.normal(size=(2, 4)).astype(np.float32)
    for mode in ("constant", "edge", "reflect", "wrap"):
        for pads in ((0, 2, 1, 1), (0, -1, 0, 2), (0, 3, 0, 3), (0, 6, 0, 5), (1, -2, -1, 3)):
            yield f"Pad {mode} {pads}", Node("Pad", (x, i64(*pads)), {"mode": mode}, opset=19)
    for wanted in ((3, 5), (2, 3), (1, 7)):
        yield f"CenterCropPad {wanted}", Node("CenterCropPad", (x, i64(*wanted)), opset=18)
    for start, end in ((2, 2**31 - 1), (9, 2**63 - 1), (-1, -(2**63)), (-9, -(2**31)), (0, 2)):
        backwards = Node("Slice", (x, i64(start), i64(end), i64(1), i64(-2)), opset=13)
        yield f"Slice {start}..{end} backwards", backwards
    for opset in (7, 10, 12):
        yield f"Dropout-{opset} mask", Node("Dropout", (x,), opset=opset, outputs=2)
    for equation in ("...j->...", "i...->i", "ij", "ij->ji", "...ij->...ji"):
        yield f"Einsum {equation}", Node("Einsum", (x,), {"equation": equation}, opset=12)
    column = rng.normal(size=(1, 5, 5)).astype(np.float32)
    yield "Col2Im", Node("Col2Im", (column, i64(5, 5), i64(1, 5)), opset=18)
    signal = rng.normal(size=(1, 6, 1)).astype(np.float32)
    for onesided, inverse in ((0, 0), (1, 0), (0, 1)):
        attrs = {"onesided": onesided, "inverse": inverse}
        yield f"DFT {attrs}", Node("DFT", (signal, scalar(8)), attrs | {"axis": 1}, opset=17)
    edges = np.array(0, np.float32), np.array(4096, np.float32)
    counts = scalar(8), scalar(64), scalar(8192)
    yield "MelWeightMatrix", Node("MelWeightMatrix", (*counts, *edges), opset=17)
    for kind, opset in (("GroupNormalization", 18), ("GroupNormalization", 21)):
        y = rng.normal(size=(1, 4, 3)).astype(np.float32)
        n = 2 if opset == 18 else 4
        args = (y, rng.normal(size=n).astype(np.float32), rng.normal(size=n).astype(np.float32))
        yield f"{kind}-{opset}", Node(kind, args, {"num_groups": 2}, opset=opset)
    constant = np.full((1, 2, 3, 3), 5, np.float32)
    yield "MeanVarianceNormalization of a constant", Node("MeanVarianceNormalization", (constant,),
                                                          opset=13)  # fmt: skip


def _recurrent(rng: np.random.Generator) -> Iterator[tuple[str, Node]]:
    x = rng.normal(size=(4, 2, 3)).astype(np.float32)
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        w = rng.normal(size=(1, gates * 2, 3)).astype(np.float32)
        r = rng.normal(size=(1, gates * 2, 2)).astype(np.float32)
        b = rng.normal(size=(1, gates * 4)).astype(np.float32)
        lens = i32(4, 2)
        options: list[dict[str, Any]] = [{}, {"clip": 0.5}, {"direction": "reverse"}]
        if op == "GRU":
            options += [{"linear_before_reset": 1}, {"linear_before_reset": 1, "clip": 0.5}]
        if op == "LSTM":
            options += [{"input_forget": 1}]
        for more, some in product(options, (None, lens)):
            label = f"{op} {more} {'lens' if some is not None else ''}"
            attrs = {"hidden_size": 2, **more}
            outputs = 3 if op == "LSTM" else 2
            yield label, Node(op, (x, w, r, b, some), attrs, outputs=outputs, opset=14)
        begun = [rng.normal(size=(1, 2, 2)).astype(np.float32) for _ in range(outputs - 1)]
        inputs = (x, w, r, b, i32(3, 0), *begun)
        yield f"{op} of no step", Node(op, inputs, {"hidden_size": 2}, outputs=outputs, opset=14)
