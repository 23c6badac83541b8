# SPDX-License-Identifier: Apache-2.0
"""A quantized model that is trained again keeps its code: what training changes is in the block.

Trainings differ by weights, biases, scales and zero points (0 and others). The truth is ONNX
Runtime, and TensorFlow Lite's reference kernels.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.quantization import Choice
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import HostModel, StatusError, build_library
from relax_aot.verify.library import Library
from tests.frontends.tflite_models import Maker, truth
from tests.models.onnx_text import model_of
from tests.models.trainings import MANNERS, samples, trained
from tests.models.trainings import network as network_of
from tests.transforms.qdq import Qdq, unoptimized

OPTIONS = Options(weights="blob", name="net")
BOARDS = ("host", "mps2-an386", "mps3-an547")
TRAININGS = (0, 1)
HEADER, ENTRY = 64, 16


@cache
def network(manner: str, seed: int, board: str = "host") -> Project:
    return driver.compile_model(trained(manner, seed), board, OPTIONS)


def block_of(project: Project) -> bytes:
    return project.files["net_weights.bin"]


def assert_same_code(first: Project, other: Project) -> None:
    """Every file but the weights is the same, and so is the hash of the code in both."""
    assert first.files.keys() == other.files.keys()
    changed = [name for name in first.files if first.files[name] != other.files[name]]
    assert changed == ["net_weights.bin"]
    assert block_of(first)[:52] == block_of(other)[:52]


def with_block(code: Project, block: bytes) -> HostModel:
    library = Library(build_library(code))
    library.give_weights(block)
    return HostModel(code.interface, library)


# Whole networks


QUICK = ("qdq channels", "qdq symmetric", "qoperator")
ALL = [m if m in QUICK else pytest.param(m, marks=pytest.mark.long) for m in MANNERS]


@pytest.mark.parametrize(
    ("manner", "board"),
    [
        pytest.param(m, b, marks=() if m in QUICK[:1] else pytest.mark.long)
        for m in MANNERS
        for b in BOARDS
    ],
)
def test_trainings_of_a_network_have_one_code(manner: str, board: str) -> None:
    first = network(manner, TRAININGS[0], board)
    for seed in TRAININGS[1:]:
        assert_same_code(first, network(manner, seed, board))


@pytest.mark.slow
@pytest.mark.parametrize("manner", ALL)
def test_the_code_of_one_training_computes_every_other(manner: str) -> None:
    results = []
    for seed in TRAININGS:
        model = with_block(network(manner, 0), block_of(network(manner, seed)))
        for x in samples(seed, 2):
            expected = unoptimized(trained(manner, seed), {"x": x})
            np.testing.assert_array_equal(model(x=x)["y"], expected)
            results.append(expected)
    assert len({result.tobytes() for result in results}) > 1


@pytest.mark.slow
def test_what_the_compiler_quantizes_itself_keeps_its_code() -> None:
    first, other = (
        driver.compile_model(
            network_of(seed),
            "host",
            replace(OPTIONS, quantize=Choice(), calibrate={"x": np.stack(samples(seed))}),
        )
        for seed in TRAININGS
    )
    assert_same_code(first, other)


def test_a_single_channel_keeps_its_code() -> None:
    """Its bias is one number, and so is the filter of a convolution of 1x1 channels."""
    projects = []
    for seed in TRAININGS:
        rng = np.random.default_rng(seed)
        shapes = {"w": (1, 3, 3, 3), "b": (1,), "v": (1, 1, 1, 1), "c": (1,)}
        weights = {
            name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()
        }
        signature = "m (float[1, 3, 6, 6] x) => (float[1, 1, 4, 4] y)"
        model = model_of(signature, "a = Conv (x, w, b)  r = Relu (a)  y = Conv (r, v, c)", weights)
        x = rng.normal(size=(4, 1, 3, 6, 6)).astype(np.float32)
        chosen = replace(OPTIONS, quantize=Choice(), calibrate={"x": x})
        projects.append(driver.compile_model(model, "host", chosen))
    assert_same_code(*projects)


@pytest.mark.qemu
@pytest.mark.parametrize("board", BOARDS[1:])
def test_a_board_runs_the_block_of_another_training(board: str) -> None:
    first, other = (network("qdq channels", seed, board) for seed in (0, 1))
    files = first.files | {n: f for n, f in other.files.items() if n.startswith("net_weights")}
    (x,) = samples(1, 1)
    (run,) = emulate(replace(first, files=files), [{"x": x}])
    expected = unoptimized(trained("qdq channels", 1), {"x": x})
    np.testing.assert_array_equal(run.outputs["y"], expected)


# Single operators between bytes

Graph = Callable[[Qdq, int], str]
"""A graph of the training with a number; its zero points are 0 in training 0."""


def zero(training: int, other: int) -> int:
    return 0 if training == 0 else other


def conv(limits: tuple[float, float] | None, pads: int, group: int, *, channels: bool) -> Graph:
    def graph(q: Qdq, training: int) -> str:
        x = q.input([1, 4, 7, 7], None, zero(training, 5))
        shape = (8, 4 // group, 3, 3) if group == 1 else (4, 1, 3, 3)
        w, scales = q.weights(*shape, axis=0 if channels else None)
        step = scales * np.float32(_scale_of(q, x))
        y = q.node("Conv", x, w, q.bias(shape[0], step), pads=[pads] * 4, group=group)
        if limits is None:
            return y
        ends = [q.tensor(np.float32(end)) for end in limits]
        return q.node("Clip", y, *ends) if np.isfinite(limits[1]) else q.node("Relu", y)

    return graph


def _scale_of(q: Qdq, number: str) -> float:
    (made,) = (node for node in q.nodes if node.output[0] == number)
    (scale,) = (t for t in q.tensors if t.name == made.input[1])
    return float(onnx.numpy_helper.to_array(scale))


def dense(q: Qdq, training: int) -> str:
    x = q.input([3, 20], None, zero(training, -7))
    w, scales = q.weights(20, 9)
    return q.node("Gemm", x, w, q.bias(9, scales * np.float32(_scale_of(q, x))))


def pair(op: str) -> Graph:
    def graph(q: Qdq, training: int) -> str:
        x = q.input([2, 3, 9], 0.0513 + 0.0107 * training, zero(training, -30))
        y = q.input([2, 3, 9], 0.0722 - 0.0131 * training, zero(training, 11))
        total = q.node(op, x, y)
        return q.node("Relu", total) if op == "Add" else total

    return graph


def single(op: str, **attrs: Any) -> Graph:
    def graph(q: Qdq, training: int) -> str:
        x = q.input([1, 3, 8, 8], 0.04 + 0.02 * training, zero(training, 17))
        return q.node(op, x, **attrs)

    return graph


def concat(q: Qdq, training: int) -> str:
    """The result's scale is that of another operand in each training, as with real ranges."""
    scales = [0.1, 0.05] if training == 0 else [0.05, 0.1]
    parts = [q.input([2, 3], scale, zero(training, 3)) for scale in scales]
    return q.node("Concat", *parts, axis=1)


GRAPHS: Mapping[str, tuple[Graph, float]] = {
    "conv": (conv(None, 0, 1, channels=True), 0.9),
    "conv padded": (conv(None, 1, 1, channels=False), 0.9),
    "conv relu": (conv((0.0, np.inf), 1, 1, channels=True), 0.5),
    "conv relu6": (conv((0.0, 6.0), 1, 1, channels=True), 0.3),
    "depthwise": (conv((0.0, 6.0), 1, 4, channels=True), 0.1),
    "dense": (dense, 0.9),
    "add": (pair("Add"), 0.11),
    "sub": (pair("Sub"), 0.11),
    "mul": (pair("Mul"), 0.2),
    "average": (single("AveragePool", kernel_shape=[2, 2], strides=[2, 2]), 0.05),
    "mean": (single("GlobalAveragePool"), 0.02),
    "max": (single("MaxPool", kernel_shape=[2, 2]), 0.05),
    "table": (single("Sigmoid"), 1 / 256),
    "softmax": (single("Softmax", axis=3), 1 / 256),
    "concat": (concat, 0.1),
}


@cache
def operator(key: str, training: int) -> tuple[Any, Project]:
    graph, scale = GRAPHS[key]
    q = Qdq(np.random.default_rng(training))
    model = q.model(graph(q, training), scale * (1 + training / 7), zero(training, 9 * training))
    return model, driver.compile_model(model, "host", OPTIONS)


@pytest.mark.parametrize("key", GRAPHS)
def test_operators_between_bytes(key: str) -> None:
    _, code = operator(key, 0)
    rng = np.random.default_rng(0)
    for training in TRAININGS:
        model, project = operator(key, training)
        if training:
            assert_same_code(code, project)
        feeds = {
            value.name: rng.integers(-128, 128, [d.dim_value for d in shape.dim]).astype(np.int8)
            for value in model.graph.input
            for shape in (value.type.tensor_type.shape,)
        }
        found = with_block(code, block_of(project))(**feeds)["y"]
        np.testing.assert_array_equal(found, unoptimized(model, feeds))


# TensorFlow Lite


def tflite(training: int, activation: int) -> bytes:
    """conv, depthwise, their sum, a mean, a product of matrices, softmax."""
    rng = np.random.default_rng(training)
    m = Maker()

    def tensor(*shape: int, scale: float, at: int) -> int:
        return m.tensor(shape, np.int8, scale * rng.uniform(0.7, 1.4), zero(training, at))

    def weights(*shape: int, axis: int, x: int) -> tuple[int, int]:
        scales = rng.uniform(0.002, 0.01, shape[axis]).astype(np.float32)
        w = m.constant(rng.integers(-127, 128, shape).astype(np.int8), scales, 0, axis=axis)
        step = scales * np.float32(m.tensors[x].quantization.scale[0])
        bias = rng.integers(-900, 900, shape[axis]).astype(np.int32)
        return w, m.constant(bias, step, 0)

    x = tensor(1, 6, 6, 4, scale=0.05, at=-20)
    a, b = tensor(1, 6, 6, 8, scale=0.08, at=-90), tensor(1, 6, 6, 8, scale=0.08, at=4)
    fused: dict[str, Any] = {"fusedActivationFunction": activation}
    windows: dict[str, Any] = {
        "padding": 0,
        "strideW": 1,
        "strideH": 1,
        **fused,
    }
    conv = "Conv2DOptions"
    m.operator("CONV_2D", [x, *weights(8, 3, 3, 4, axis=0, x=x)], [a], conv, **windows)
    options = {**windows, "depthMultiplier": 1}
    table = "DepthwiseConv2DOptions"
    m.operator("DEPTHWISE_CONV_2D", [a, *weights(1, 3, 3, 8, axis=3, x=a)], [b], table, **options)
    total = tensor(1, 6, 6, 8, scale=0.09, at=6)
    m.operator("ADD", [a, b], [total], "AddOptions", **fused)
    flat = m.tensor((1, 288), np.int8, m.tensors[total].quantization.scale,
                    m.tensors[total].quantization.zeroPoint)  # fmt: skip
    m.operator("RESHAPE", [total, m.constant(np.array([1, 288], np.int32))], [flat])
    dense, y = tensor(1, 5, scale=0.4, at=-3), m.tensor((1, 5), np.int8, 1 / 256, -128)
    w = m.constant(rng.integers(-127, 128, (5, 288)).astype(np.int8), 0.01 * rng.uniform(0.5, 2), 0)
    m.operator("FULLY_CONNECTED", [flat, w, -1], [dense], "FullyConnectedOptions")
    m.operator("SOFTMAX", [dense], [y], "SoftmaxOptions", beta=1.0)
    return m.build([x], [y])


@pytest.mark.slow
@pytest.mark.parametrize("activation", [0, 1, 3])
def test_tensorflow_lite(activation: int) -> None:
    models = [tflite(training, activation) for training in TRAININGS]
    projects = [driver.compile_model(model, "host", OPTIONS) for model in models]
    x = np.random.default_rng(0).integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    for model, project in zip(models, projects, strict=True):
        if project is not projects[0]:
            assert_same_code(projects[0], project)
        found = list(with_block(projects[0], block_of(project))(t0=x).values())
        np.testing.assert_array_equal(found, truth(model, [[x]])[0])


# What the code relies on


def forged(block: bytes, at: int, word: int) -> bytes:
    """The block with another number, and checksums that fit."""
    data = bytearray(block)
    struct.pack_into("<i", data, at, word)
    (count,) = struct.unpack_from("<I", data, 32)
    end = HEADER + ENTRY * count
    for entry in range(HEADER, end, ENTRY):
        offset, size = struct.unpack_from("<II", data, entry)
        struct.pack_into("<I", data, entry + 12, zlib.crc32(data[offset : offset + size]))
    struct.pack_into("<II", data, 52, zlib.crc32(data[end:]), zlib.crc32(data[HEADER:end]))
    struct.pack_into("<I", data, 60, zlib.crc32(data[:60]))
    return bytes(data)


def limits_of(code: Project) -> list[tuple[int, int, int, int]]:
    """Offset, count, lowest and highest, from the C."""
    text = str(code.files["net.c"], "ascii").split("weights_limits[] = {")[1].split("};")[0]
    rows = [row.strip(" {}").replace("u", "") for row in text.split("},")[:-1]]
    return [tuple(int(part) for part in row.strip().strip("{").split(",")) for row in rows]  # type: ignore[misc]  # four each


@pytest.mark.slow
def test_init_refuses_numbers_beyond_the_limits_of_the_code() -> None:
    code = network("qdq channels", 0)
    block, (x,) = block_of(network("qdq channels", 1)), samples(1, 1)
    limits = limits_of(code)
    assert any(low == high for _, _, low, high in limits), "a relu ends at the lowest code"
    for offset, count, low, high in limits:
        for at, word in ((offset, low - 1), (offset + 4 * (count - 1), high + 1)):
            if -(2**31) <= word < 2**31:
                with pytest.raises(StatusError, match="net_init ended with RAOT_ERR_LIMITS"):
                    with_block(code, forged(block, at, word))(x=x)
        with_block(code, forged(block, offset, low))(x=x)
    assert forged(block, limits[0][0], struct.unpack_from("<i", block, limits[0][0])[0]) == block


def test_a_training_that_needs_other_code_is_refused() -> None:
    """A clamp that the type keeps anyway is none: scales for which it is one have other code."""
    graph, _ = GRAPHS["conv relu6"]
    q = Qdq(np.random.default_rng(1))
    other = driver.compile_model(q.model(graph(q, 0), 0.01, 0), "host", OPTIONS)
    _, code = operator("conv relu6", 0)
    block = block_of(other).ljust(len(block_of(code)), b"\0")
    with pytest.raises(StatusError, match="net_init ended with RAOT_ERR_WEIGHTS"):
        with_block(code, block)(x0=np.zeros((1, 4, 7, 7), np.int8))


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("rank", [3, 4])
def test_means_keep_their_code(board: str, rank: int) -> None:
    """Whatever their zero points are: sums of integers, and of floats in an order."""
    sizes = ", ".join(["8"] * (rank - 2))
    text = """
        xd = DequantizeLinear (x, s, z)
        mean = GlobalAveragePool (xd)
        y = QuantizeLinear (mean, t, z)
    """
    signature = f"m (int8[1, 20, {sizes}] x) => (int8[1, 20, {', '.join(['1'] * (rank - 2))}] y)"
    first, *others = (
        driver.compile_model(
            model_of(
                signature, text,
                {"s": np.array(s, np.float32), "t": np.array(1.1 * s, np.float32),
                 "z": np.array(z, np.int8)},
            ), board, OPTIONS,
        ) for z, s in ((3, 0.05), (-7, 0.03), (0, 0.05))
    )  # fmt: skip
    for other in others:
        assert_same_code(first, other)
