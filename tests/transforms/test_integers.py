# SPDX-License-Identifier: Apache-2.0
"""QDQ models become integers with the results of ONNX Runtime without optimization."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot import driver, transforms
from relax_aot.evaluation.reference import evaluate
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Micro, walk
from relax_aot.ir.types import DType
from relax_aot.verify.emulate import emulate
from tests.transforms.qdq import Qdq, unoptimized

Array = NDArray[Any]
Build = Callable[[Qdq], onnx.ModelProto]


def conv(
    shape: list[int | str],
    filters: tuple[int, ...],
    *,
    per_channel: bool = True,
    biased: bool = True,
    after: str = "",
    **attrs: Any,
) -> Build:
    def build(q: Qdq) -> onnx.ModelProto:
        step = float(np.float32(q.rng.uniform(0.01, 0.1)))
        x = q.input(shape, step)
        w, scales = q.weights(*filters, axis=0 if per_channel else None)
        args = [x, w]
        if biased:
            args.append(q.bias(filters[0], np.float32(step) * scales))
        y = q.node("Conv", *args, **attrs)
        if after == "Relu":
            y = q.node("Relu", y)
        if after == "Clip":
            y = q.node("Clip", y, q.tensor(np.float32(0)), q.tensor(np.float32(6)))
        return q.model(y, 0.17)

    return build


def separable(q: Qdq) -> onnx.ModelProto:
    """Images that convolutions leave where they are."""
    step = 0.05
    x = q.input(["n", 3, "h", "w"], step)
    for filters, groups in (((5, 3, 1, 1), 1), ((5, 1, 3, 3), 5), ((5, 5, 1, 1), 1)):
        w, scales = q.weights(*filters, axis=0)
        bias = q.bias(filters[0], np.float32(step) * scales)
        pads = [filters[-1] // 2] * 4
        step = 0.09
        x = q.requantized(q.node("Conv", x, w, bias, group=groups, pads=pads), step)
    return q.model(q.node("Relu", x), 0.09)


def gemm(trans: int, *, per_channel: bool = True) -> Build:
    def build(q: Qdq) -> onnx.ModelProto:
        step = float(np.float32(q.rng.uniform(0.01, 0.1)))
        x = q.input(["n", 20], step)
        shape = (7, 20) if trans else (20, 7)
        w, scales = q.weights(*shape, axis=(0 if trans else 1) if per_channel else None)
        b = q.bias(7, np.float32(step) * scales)
        return q.model(q.node("Gemm", x, w, b, transB=trans), 0.21)

    return build


def matmul(q: Qdq) -> onnx.ModelProto:
    x = q.input([2, "n", 24])
    w, _ = q.weights(24, 9, axis=1)
    return q.model(q.node("MatMul", x, w), 0.3)


def heads(q: Qdq) -> onnx.ModelProto:
    """A product whose columns are stored as three times four heads."""
    x = q.input(["n", 7, 33], 0.1)
    w, _ = q.weights(33, 60, axis=1)
    y = q.requantized(q.node("MatMul", x, w), 0.3, 5)
    y = q.node("Reshape", y, q.tensor(np.array([0, 7, 3, 4, 5])))
    return q.model(q.node("Transpose", y, perm=[2, 0, 3, 1, 4]), 0.3, 5)


def silu(q: Qdq) -> onnx.ModelProto:
    x = q.input(["n", 40], 0.05, 3)
    gate = q.requantized(q.node("Sigmoid", x), 1 / 256, -128 if q.kind is np.int8 else 0)
    return q.model(q.node("Mul", x, gate), 0.02, 3)


def attention_scores(q: Qdq) -> onnx.ModelProto:
    x, y = q.input([2, "n", 16]), q.input([2, "n", 16])
    turned = q.node("Transpose", y, perm=[0, 2, 1])
    return q.model(q.node("MatMul", x, turned), 0.9)


def scaled_scores(q: Qdq) -> onnx.ModelProto:
    x, y = q.input([2, "n", 16]), q.input([2, 16, "n"])
    scores = q.node("Div", q.node("MatMul", x, y), q.tensor(np.float32(8)))
    return q.model(q.node("Relu", scores), 0.11)


def pair(op: str, *, relu: bool = False, other: tuple[int | str, ...] = (2, "n", 5)) -> Build:
    def build(q: Qdq) -> onnx.ModelProto:
        y = q.node(op, q.input([2, "n", 5]), q.input(list(other)))
        return q.model(q.node("Relu", y) if relu else y, 0.11 if op != "Mul" else 0.5)

    return build


def unary(op: str, **attrs: Any) -> Build:
    return lambda q: q.model(q.node(op, q.input(["n", 40]), **attrs), 0.013)


def hard_swish(q: Qdq) -> onnx.ModelProto:
    x = q.input(["n", 40])
    shifted = q.node("Add", x, q.tensor(np.float32(3)))
    limited = q.node("Clip", shifted, q.tensor(np.float32(0)), q.tensor(np.float32(6)))
    product = q.node("Mul", x, limited)
    return q.model(q.node("Div", product, q.tensor(np.float32(6))), 0.03)


def pool(op: str, shape: list[int | str], **attrs: Any) -> Build:
    return lambda q: q.model(q.node(op, q.input(shape, 0.04, 3), **attrs), 0.04, 3)


def concat(q: Qdq) -> onnx.ModelProto:
    parts = [q.input(["n", 3], 0.05, 1), q.input(["n", 4], 0.07, 7), q.input(["n", 2], 0.05, 1)]
    return q.model(q.node("Concat", *parts, axis=1), 0.05, 1)


def moved(q: Qdq) -> onnx.ModelProto:
    x = q.node("Transpose", q.input(["n", 3, 8]), perm=[0, 2, 1])
    x = q.node("Reshape", x, q.tensor(np.array([0, -1])))
    x = q.node("Slice", x, *(q.tensor(np.array([v])) for v in (1, 20, 1, 2)))
    return q.model(x, 0.09)


def softmax(q: Qdq) -> onnx.ModelProto:
    y = q.node("Softmax", q.input(["n", 11]), axis=-1)
    return q.model(y, 1 / 256, int(np.iinfo(q.kind).min))


def padded(q: Qdq) -> onnx.ModelProto:
    x = q.node("Pad", q.input([1, 2, "h", 6]), q.tensor(np.array([0, 0, 1, 2, 0, 0, 0, 1])))
    return q.model(x, 0.09)


def two_layers(q: Qdq) -> onnx.ModelProto:
    """A residual block: quantized values with two readers, without floats between."""
    step = 0.05
    x = q.requantized(q.node("Relu", q.input(["n", 4, 6, 6], step)), step)
    w, scales = q.weights(4, 4, 3, 3, axis=0)
    bias = q.bias(4, np.float32(step) * scales)
    y = q.requantized(q.node("Conv", x, w, bias, pads=[1, 1, 1, 1]), 0.13)
    return q.model(q.node("Relu", q.node("Add", x, y)), 0.15)


CONVOLUTIONS: dict[str, Build] = {
    "conv": conv([1, 3, 9, 8], (5, 3, 3, 3)),
    "conv padded": conv([2, 3, 9, 8], (5, 3, 3, 3), pads=[1, 1, 1, 1]),
    "conv odd padding": conv([1, 2, 9, 8], (4, 2, 5, 2), pads=[2, 0, 1, 1], strides=[2, 3]),
    "conv dilated": conv([1, 2, 9, 8], (4, 2, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2]),
    "conv grouped": conv([1, 4, 7, 7], (6, 2, 3, 3), group=2, pads=[1, 1, 1, 1]),
    "depthwise": conv([1, 6, 7, 7], (6, 1, 3, 3), group=6, pads=[1, 1, 1, 1], after="Relu"),
    "pointwise": conv([1, 12, 5, 5], (8, 12, 1, 1), after="Clip"),
    "conv symbolic": conv(["n", 3, "h", "w"], (4, 3, 3, 3), pads=[1, 1, 0, 1], strides=[2, 2]),
    "conv 1d": conv(["n", 3, "h"], (4, 3, 3), pads=[1, 1]),
    "conv one scale": conv([1, 3, 9, 8], (5, 3, 3, 3), per_channel=False, after="Relu"),
    "conv without bias": conv([1, 3, 9, 8], (5, 3, 3, 3), biased=False, pads=[1, 1, 1, 1]),
    "separable": separable,
    "gemm": gemm(0),
    "gemm turned": gemm(1),
    "gemm one scale": gemm(1, per_channel=False),
    "matmul": matmul,
    "heads": heads,
    "scores": attention_scores,
    "scaled scores": scaled_scores,
    "block": two_layers,
}
EXACT: dict[str, Build] = {
    "add": pair("Add"),
    "add relu": pair("Add", relu=True),
    "add row": pair("Add", other=(5,)),
    "sub": pair("Sub"),
    "mul": pair("Mul"),
    "relu": unary("Relu"),
    "leaky": unary("LeakyRelu", alpha=0.1),
    "hard swish": hard_swish,
    "max pool": pool("MaxPool", ["n", 2, "h", 7], kernel_shape=[3, 2], pads=[1, 0, 1, 1]),
    "average pool": pool("AveragePool", ["n", 2, "h", 8], kernel_shape=[2, 2], strides=[2, 2]),
    "average pool apart": pool("AveragePool", [1, 9, 8, 8], kernel_shape=[8, 8], strides=[8, 8]),
    "average pool whole": pool("AveragePool", [1, 9, 4, 4], kernel_shape=[4, 4]),
    "average pool padded": pool("AveragePool", [1, 9, 7, 7], kernel_shape=[3, 3],
                                strides=[2, 2], pads=[1, 1, 1, 1]),
    "average pool by ones": pool("AveragePool", ["n", 5, "h", 8], kernel_shape=[3, 3],
                                 pads=[1, 1, 1, 1], count_include_pad=1),
    "average pool line": pool("AveragePool", [2, 3, "h"], kernel_shape=[3], strides=[2]),
    "global pool": pool("GlobalAveragePool", ["n", 9, 4, 4]),
    "global pool odd": pool("GlobalAveragePool", ["n", 9, 7, 5]),
    "concat": concat,
    "moved": moved,
    "padded": padded,
}  # fmt: skip
NEAR: dict[str, Build] = {
    "sigmoid": unary("Sigmoid"),
    "silu": silu,
    "tanh": unary("Tanh"),
    "softmax": softmax,
    "mean": lambda q: q.model(
        q.node("ReduceMean", q.input(["n", "h", 6]), axes=[1], keepdims=0), 0.05
    ),
}
SIZES = {"n": 3, "h": 6, "w": 9}


def built(build: Build, kind: type) -> tuple[Module, onnx.ModelProto, dict[str, Array]]:
    q = Qdq(np.random.default_rng(len(SIZES)), kind)
    model = build(q)
    info = np.iinfo(kind)
    named = {s for i in q.inputs for s in (d.dim_param for d in i.type.tensor_type.shape.dim) if s}
    module = transforms.run(rx.load(model, bounds=dict.fromkeys(named, (1, 12))))
    shapes = {
        i.name: [SIZES.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim]
        for i in q.inputs
    }
    inputs: dict[str, Array] = {
        name: q.rng.integers(info.min, info.max + 1, shape).astype(kind)
        for name, shape in shapes.items()
    }
    return module, model, inputs


def codes(module: Module, inputs: dict[str, Array]) -> Array:
    sizes = {s.name: SIZES[s.name] for s in module.symbols}
    (result,) = evaluate(module, inputs, sizes).values()
    return result.astype(np.int32)


def floats(module: Module) -> list[str]:
    """Calls that make floats of more than one element."""
    return [
        call.op
        for function in module.functions
        for call in function.body
        for out in call.outs
        if out.type.dtype is DType.F32
    ]


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("name", [*CONVOLUTIONS, *EXACT, *NEAR])
def test_codes_equal_those_of_onnx_runtime(name: str, kind: type) -> None:
    build = (CONVOLUTIONS | EXACT | NEAR)[name]
    module, model, inputs = built(build, kind)
    assert floats(module) == []
    apart = np.abs(codes(module, inputs) - unoptimized(model, inputs).astype(np.int32))
    if name in EXACT:
        assert apart.max() == 0
    else:
        # Float sums may step over a middle that exact ones do not reach.
        assert apart.max() <= 1
        assert (apart > 0).mean() <= 0.01


def test_large_windows_of_pools_have_no_weights() -> None:
    """A byte for each element of 8 x 8 would be more than most models have elsewhere."""
    module, _, _ = built(EXACT["average pool by ones"], np.int8)
    assert "conv_integer" in {call.op for call in module.main.body}
    q = Qdq(np.random.default_rng(3), np.int8)
    y = q.node("AveragePool", q.input([1, 9, 17, 8]), kernel_shape=[8, 8], strides=[8, 8])
    module = transforms.run(rx.load(q.model(y, 0.05)))
    assert [call.op for call in module.main.body] == ["qaverage_pool"]
    assert sum(constant.type.elements.constant for constant in module.constants) < 100


def test_products_for_heads_run_through_micro_kernels() -> None:
    for board in ("host", "mps2-an386", "mps3-an547", "aarch64-linux"):
        q = Qdq(np.random.default_rng(7), np.int8)
        made = driver.compile_model(heads(q), board, driver.Options(bounds={"n": (1, 3)}))
        statements = [s for k in made.plan.module.kernels for s in walk(k.body)]
        assert any(isinstance(stmt, Micro) for stmt in statements), board


def test_a_byte_times_a_function_of_it_is_a_table() -> None:
    module, _, _ = built(silu, np.int8)
    assert [call.op for call in module.main.body] == ["lookup"]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("scales", [(0.1, 0.1, 1e-45), (1e-45, 0.1, 3e38), (3e38, 0.1, 0.2)])
def test_sums_of_scales_that_no_weights_express_are_those_of_floats(
    scales: tuple[float, float, float],
) -> None:
    q = Qdq(np.random.default_rng(5), np.int8)
    both = [q.input([1, 6], scale, 3) for scale in scales[:2]]
    model = q.model(q.node("Add", *both), scales[2], 3)
    rng = np.random.default_rng(6)
    inputs = {f"x{n}": rng.integers(-128, 128, (1, 6)).astype(np.int8) for n in range(2)}
    module = transforms.run(rx.load(model))
    assert [call.op for call in module.main.body] == ["qbinary"]
    np.testing.assert_array_equal(codes(module, inputs), unoptimized(model, inputs))


def test_ops_with_several_results_stay_beside_codes() -> None:
    q = Qdq(np.random.default_rng(2), np.int8)
    x = q.input([6, 4], 0.1)
    values = q.node("TopK", x, q.tensor(np.array([2])))
    places = q.fresh()
    q.nodes[-1].output.append(places)
    y = q.node("Mul", values, q.node("Cast", places, to=onnx.TensorProto.FLOAT))
    model = q.model(y, 0.25)
    inputs = {q.inputs[0].name: q.rng.integers(-128, 128, (6, 4)).astype(np.int8)}
    (result,) = rx.compile(rx.load(model)).host()(inputs).values()
    np.testing.assert_array_equal(result, unoptimized(model, inputs))


def test_the_header_states_the_real_value_of_quantized_elements() -> None:
    q = Qdq(np.random.default_rng(1), np.int8)
    y = q.node("Relu", q.input([1, 4], 0.5, 3))
    project = rx.compile(q.model(y, 0.25, -128), name="net")
    header = project.files["net.h"].decode()
    assert "/* int8[1, 4]; NET_X0_COUNT elements; real value = (q - 3) * 0.5 */" in header
    assert "/* int8[1, 4]; NET_Y_COUNT elements; real value = (q + 128) * 0.25 */" in header


@pytest.mark.slow
@pytest.mark.parametrize("form", ["qdq", "qop"])
@pytest.mark.parametrize("net", ["kws", "resnet8"])
def test_real_models_give_the_codes_of_onnx_runtime(
    net: str, form: str, shared_models: Path
) -> None:
    with np.load(shared_models / f"{net}_vectors.npz") as file:
        vectors = dict(file)
    path = shared_models / f"{net}_int8_{form}.onnx"
    # The two largest values that live together, and scratch: of Cortex-M, at most 4608 bytes, and
    # 9472 more for resnet8 where windows of three are transformed; 17 408 for resnet8 where sums
    # are made by vectors; four panels of positions on hosts; little with small functions.
    floors = {"kws": (20_608, 20_608, 17_024), "resnet8": (46_848, 50_176, 50_176)}[net]
    boards = (("mps2-an386", "mps3-an547"), ("host",), ("aarch64-linux",))
    for names, most in zip(boards, floors, strict=True):
        for name in names:
            assert driver.compile_model(path, name).plan.arena_bytes <= most
    small = driver.compile_model(path, "mps2-an386", driver.Options(optimize="size"))
    assert small.plan.arena_bytes <= {"kws": 17_024, "resnet8": 34_912}[net]
    least = driver.compile_model(path, "mps2-an386", driver.Options(optimize="memory"))
    assert least.plan.arena_bytes <= {"kws": 20_608, "resnet8": 37_376}[net]
    host = rx.compile(path).host()
    for x, y in zip(vectors["x_int8_nchw"], vectors[f"y_int8_ort_{form}"], strict=True):
        (result,) = host(input=x.reshape(1, *x.shape[-3:])).values()
        np.testing.assert_array_equal(result.reshape(-1), y.reshape(-1))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CONVOLUTIONS, *EXACT, *NEAR])
def test_c_gives_the_codes_of_the_ops(name: str) -> None:
    """At the lowest, the highest and a size between, where there are symbols."""
    build = (CONVOLUTIONS | EXACT | NEAR)[name]
    q = Qdq(np.random.default_rng(7), np.int8)
    model = build(q)
    shapes = {
        i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in q.inputs
    }
    symbols = sorted({n for shape in shapes.values() for n in shape if isinstance(n, str)})
    least = {"n": 1, "h": 4, "w": 5}
    module = rx.load(model, bounds={s: (least[s], 9) for s in symbols})
    host = rx.compile(module).host()
    coded = transforms.run(module)
    for size in (least, dict.fromkeys(symbols, 9), {"n": 4, "h": 7, "w": 6}):
        inputs: dict[str, Array] = {
            key: q.rng.integers(-128, 128, [size.get(n, n) for n in shape]).astype(np.int8)
            for key, shape in shapes.items()
        }
        (expected,) = evaluate(coded, inputs, {s: size[s] for s in symbols}).values()
        (result,) = host(inputs).values()
        np.testing.assert_array_equal(result, expected)


MEANS: dict[str, tuple[str, dict[str, Any], int]] = {
    "global": ("GlobalAveragePool", {}, 15),
    "pool": ("AveragePool", {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1]}, 130),
}


@pytest.mark.qemu
@pytest.mark.parametrize("name", MEANS)
def test_means_have_the_bits_of_floats_where_those_are_calls(name: str) -> None:
    """A mean of a few floats is computed where integers are near a middle. `most`: instructions
    for each element."""
    op, attrs, most = MEANS[name]
    q = Qdq(np.random.default_rng(3), np.int8)
    model = q.model(q.node(op, q.input([1, 24, 8, 8], 0.05, 3), **attrs), 0.05, -3)
    samples = [{"x0": q.rng.integers(-128, 128, (1, 24, 8, 8)).astype(np.int8)} for _ in range(3)]
    host = rx.compile(model).host()
    for sample, run in zip(samples, emulate(driver.compile_model(model, "mps2-an385"), samples),
                           strict=True):  # fmt: skip
        np.testing.assert_array_equal(run.outputs["y"], host(**sample)["y"])
        np.testing.assert_array_equal(run.outputs["y"], unoptimized(model, sample))
        assert run.instructions is not None
        assert run.instructions < most * sample["x0"].size
