# SPDX-License-Identifier: Apache-2.0
"""Quantizing after training, judged against the floats that ONNX Runtime or TFLite computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relax_aot as rx
from relax_aot import transforms
from relax_aot.cli.main import cli
from relax_aot.evaluation.reference import evaluate
from relax_aot.quantization import CalibrationError, Choice, QuantizeError, quantize
from relax_aot.quantization.ranges import METHODS
from tests.models.onnx_text import model_of

Array = NDArray[Any]


def perceptron(rng: np.random.Generator) -> onnx.ModelProto:
    """MatMul, Add, Relu, MatMul, Add, Tanh; any number of rows."""
    w1, b1, w2, b2 = (
        rng.normal(size=shape).astype(np.float32) * np.float32(0.3)
        for shape in ((24, 32), (32,), (32, 6), (6,))
    )
    tensors = [
        numpy_helper.from_array(a, n) for n, a in (("a", w1), ("b", b1), ("c", w2), ("d", b2))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"], name="first"),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["s"], name="second"),
        helper.make_node("Add", ["s", "d"], ["t"]),
        helper.make_node("Tanh", ["t"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", k])
        for n, k in (("x", 24), ("y", 6))
    ]
    graph = helper.make_graph(nodes, "perceptron", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def in_floats(model: onnx.ModelProto, x: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {"x": x})[0])


def cosine(a: Array, b: Array) -> float:
    a, b = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def decibels(exact: Array, found: Array) -> float:
    noise = ((exact.astype(np.float64) - found) ** 2).sum()
    return float(10 * np.log10((exact.astype(np.float64) ** 2).sum() / noise))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize("method", METHODS)
def test_a_quantized_model_is_near_its_floats_at_every_size(
    method: str, rng: np.random.Generator
) -> None:
    model = perceptron(rng)
    samples = rng.normal(size=(16, 5, 24)).astype(np.float32)
    project = rx.compile(
        model, bounds={"n": 9}, quantize="int8", calibrate={"x": samples}, calibration=method
    )
    host = project.host()
    for n in (1, 4, 9):
        x = rng.normal(size=(n, 24)).astype(np.float32)
        (y,) = host(x=x).values()
        assert decibels(in_floats(model, x), y) > (25 if method == "minmax" else 15)


def test_products_biases_and_limits_of_a_quantized_model_are_integer_calls(
    rng: np.random.Generator,
) -> None:
    module = rx.load(perceptron(rng), bounds={"n": 9})
    samples = {"x": rng.normal(size=(8, 5, 24)).astype(np.float32)}
    coded, found = quantize(module, samples, Choice())
    ops = [call.op for call in transforms.run(coded).main.body]
    assert ops == [
        "quantize", "matmul_integer", "requantize", "matmul_integer", "requantize", "dequantize",
        "tanh",
    ]  # fmt: skip
    assert [layer.op for layer in found.layers] == [
        "matmul",
        "add",
        "relu",
        "matmul",
        "add",
        "tanh",
    ]


def test_a_normalization_behind_a_convolution_is_part_of_it(rng: np.random.Generator) -> None:
    def numbers(low: float, *shape: int) -> Array:
        return rng.uniform(low, 1.5, shape).astype(np.float32)

    arrays = {"w": numbers(-1, 4, 2, 3, 3), "s": numbers(0.2, 4), "b": numbers(-1, 4),
              "m": numbers(-1, 4), "v": numbers(0.2, 4)}  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="stem"),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "h", 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 1, 1]),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = rx.load(model, bounds={"h": 12})
    samples = rng.normal(size=(8, 1, 2, 10, 8)).astype(np.float32)
    coded, _ = quantize(module, {"x": samples}, Choice())
    ops = [call.op for call in transforms.run(coded).main.body]
    assert ops[:3] == ["quantize", "conv_integer", "requantize"]
    kept, _ = quantize(module, {"x": samples}, Choice(keep_float=("stem",)))
    assert "conv" in [call.op for call in transforms.run(kept).main.body]
    host = rx.compile(coded).host()
    for h in (1, 7, 12):
        x = rng.normal(size=(1, 2, h, 8)).astype(np.float32)
        (y,) = host(x=x).values()
        assert decibels(in_floats(model, x), y) > 30


def test_what_is_kept_in_floats_is_told_by_node_by_result_or_by_operator(
    rng: np.random.Generator,
) -> None:
    module = rx.load(perceptron(rng), bounds={"n": 9})
    samples = {"x": rng.normal(size=(8, 5, 24)).astype(np.float32)}
    for name, products in (("first", 1), ("s", 1), ("matmul", 0), ("MatMul", 0)):
        _, found = quantize(module, samples, Choice(keep_float=(name,)))
        assert [layer.op for layer in found.layers].count("matmul") == products
    unknown = "the model has no layer 'third'.*operators are MatMul, Add"
    with pytest.raises(QuantizeError, match=unknown):
        quantize(module, samples, Choice(keep_float=("third",)))


def test_a_poor_layer_is_suggested_to_stay_in_floats(rng: np.random.Generator) -> None:
    # One weight of each column outweighs the others, so that they are lost in 8 bits.
    model = perceptron(rng)
    weights = numpy_helper.to_array(model.graph.initializer[2]).copy()
    weights[0] = 4000
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(weights, "c"))
    samples = rng.normal(size=(8, 5, 24)).astype(np.float32)
    first = numpy_helper.to_array(model.graph.initializer[0]).copy()
    first[:, 0] = 0
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(first, "a"))
    bias = numpy_helper.to_array(model.graph.initializer[1]).copy()
    bias[0] = 0
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(bias, "b"))
    _, found = quantize(rx.load(model, bounds={"n": 9}), {"x": samples}, Choice())
    assert found.suggestion == ("s",)
    assert "--keep-float s" in found.lines()[-1]


def model_of_nodes(nodes: list[onnx.NodeProto], width: int, **weights: Array) -> onnx.ModelProto:
    """From x f32[n, width] to y f32[n, width]."""
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in ("x", "y")
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("operator", ["LogSoftmax", "MeanVarianceNormalization <axes = [1]>"])
def test_the_name_of_a_result_keeps_all_calls_of_its_node(
    operator: str, rng: np.random.Generator
) -> None:
    """The first of several calls has the name of the result, and others have it with a number."""
    weights = {"w": rng.normal(size=(6, 6)).astype(np.float32)}
    body = f"m = MatMul(x, w) y = {operator} (m)"
    model = model_of("m (float[n, 6] x) => (float[n, 6] y)", body, weights)
    model.graph.node[1].name = "last"
    module = rx.load(model, bounds={"n": 9})
    samples = {"x": rng.normal(size=(8, 5, 6)).astype(np.float32)}
    by_result, by_node = (
        quantize(module, samples, Choice(keep_float=(name,)))[0] for name in ("y", "last")
    )
    assert len({call.op for call in module.main.body if call.origin == "last"}) > 1
    assert [call.op for call in by_result.main.body] == [call.op for call in by_node.main.body]


def test_what_codes_make_infinite_is_suggested_until_nothing_is(rng: np.random.Generator) -> None:
    """Shares below half a code are 0, whose logarithm is no number."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Softmax", ["p"], ["s"]),
        helper.make_node("Log", ["s"], ["g"]),
        helper.make_node("Tanh", ["s"], ["h"]),
        helper.make_node("Add", ["g", "h"], ["y"]),
    ]
    model = model_of_nodes(nodes, 6, w=np.eye(6, dtype=np.float32) * 3)
    samples = rng.normal(size=(8, 5, 6)).astype(np.float32)
    kept: tuple[str, ...] = ()
    for _ in range(4):
        module = rx.load(model, bounds={"n": 9})
        coded, found = quantize(module, {"x": samples}, Choice(keep_float=kept))
        assert all(np.isfinite(layer.sqnr) for layer in found.layers)
        if not found.spoiling:
            break
        assert "g" in found.suggestion or kept
        assert "no quantized layer needs" not in found.lines()[-1]
        assert "infinite or NaN" in found.lines()[-2]
        kept += found.suggestion
    assert "g" in kept and not found.spoiling
    (y,) = evaluate(coded, {"x": samples[0]}, {"n": 5}).values()
    assert np.isfinite(y).all()
    assert decibels(in_floats(model, samples[0]), y) > 15


def test_a_value_that_is_infinite_in_floats_stays_there(rng: np.random.Generator) -> None:
    """Masks of attention hold minus infinity."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Less", ["x", "zero"], ["m"]),
        helper.make_node("Where", ["m", "never", "p"], ["q"]),
        helper.make_node("Softmax", ["q"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    numbers = {"w": np.eye(6, dtype=np.float32) * 2, "zero": np.array(-0.5, np.float32)}
    model = model_of_nodes(nodes, 6, **numbers, never=np.array(-np.inf, np.float32))
    samples = rng.normal(size=(8, 5, 6)).astype(np.float32)
    samples[:, :, 0] = 1
    samples[np.abs(samples + 0.5) < 0.1] = 0  # codes are on the same side of the comparison
    coded, found = quantize(rx.load(model, bounds={"n": 9}), {"x": samples}, Choice())
    assert not found.spoiling and [layer.op for layer in found.layers].count("matmul") == 2
    (y,) = evaluate(coded, {"x": samples[0]}, {"n": 5}).values()
    assert decibels(in_floats(model, samples[0]), y) > 25


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("int8w", 127), ("int4w", 7)])
def test_weights_alone_become_codes_of_groups(
    kind: str, most: int, rng: np.random.Generator
) -> None:
    model = perceptron(rng)
    project = rx.compile(model, bounds={"n": 9}, quantize=kind)
    plain = rx.compile(model, bounds={"n": 9})
    assert project.memory.const_bytes < plain.memory.const_bytes / (3 if kind == "int8w" else 4)

    def rounded(weights: Array) -> Array:
        """Groups of 32 along the inner axis, each with a step of its own."""
        groups = [weights[i : i + 32] for i in range(0, len(weights), 32)]
        steps = [np.abs(group).max(axis=0) / most for group in groups]
        pairs = zip(groups, steps, strict=True)
        return np.concatenate([np.rint(group / step) * step for group, step in pairs])

    a, b, c, d = (numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer)
    host = project.host()
    for n in (1, 9):
        x = rng.normal(size=(n, 24)).astype(np.float32)
        (y,) = host(x=x).values()
        exact = np.tanh(np.maximum(x @ rounded(a) + b, 0) @ rounded(c) + d)
        np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("inside", ["r = Add (a, x)", "r = Neg (x)"])
def test_branches_read_the_floats_around_them(inside: str, rng: np.random.Generator) -> None:
    """Of a value that a product reads as bytes, too."""
    body = f"""
        a = MatMul (x, w)
        b = If (c) <
            then_branch = t () => (float[n, 8] p) {{ p = Relu (a) }},
            else_branch = e () => (float[n, 8] r) {{ {inside} }}>
        y = MatMul (b, v)
    """
    weights = {"w": rng.normal(size=(8, 8)), "v": rng.normal(size=(8, 4))}
    floats = {name: value.astype(np.float32) for name, value in weights.items()}
    model = model_of("g (float[n, 8] x, bool c) => (float[n, 4] y)", body, floats)
    x, c = rng.normal(size=(12, 3, 8)).astype(np.float32), np.arange(12) % 2 == 0
    calibrate = {"x": x, "c": c}
    host = rx.compile(model, bounds={"n": 5}, quantize="int8", calibrate=calibrate).host()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for sample, choice in zip(x, c, strict=True):
        feed = {"x": sample, "c": np.asarray(choice)}
        (exact,) = session.run(None, feed)
        assert cosine(host(**feed)["y"], exact) > 0.995


def test_calibration_data_that_does_not_fit_is_refused(rng: np.random.Generator) -> None:
    module = rx.load(perceptron(rng), bounds={"n": 9})
    with pytest.raises(CalibrationError, match="no input 'x'"):
        quantize(module, {"z": np.zeros((4, 3, 24))}, Choice())
    with pytest.raises(CalibrationError, match="axis of samples"):
        quantize(module, {"x": np.zeros(24)}, Choice())
    with pytest.raises(CalibrationError, match="not finite"):
        quantize(module, {"x": np.full((2, 3, 24), np.nan)}, Choice())


def test_an_error_names_the_sample_whose_sizes_do_not_fit(rng: np.random.Generator) -> None:
    module = rx.load(perceptron(rng), bounds={"n": 9})
    with pytest.raises(rx.RelaxAotError, match="size n is 11, outside") as error:
        quantize(module, {"x": np.zeros((2, 11, 24), np.float32)}, Choice())
    assert error.value.__notes__ == ["in sample 1 of the calibration data, n=11"]


def test_the_command_line_quantizes_and_says_how_well(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(perceptron(rng), tmp_path / "net.onnx")
    data = tmp_path / "data.npz"
    np.savez(data, x=rng.normal(size=(8, 5, 24)).astype(np.float32))
    words = [
        "compile", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "out"), "--bound", "n=9",
        "--quantize", "int8", "--calibrate", str(data),
    ]  # fmt: skip
    cli(words, standalone_mode=False)
    said = capsys.readouterr().out
    assert "SQNR dB" in said and "no quantized layer needs --keep-float" in said
    assert "stays float: tanh %y" in said
    with pytest.raises(rx.RelaxAotError, match="needs sample inputs"):
        cli(words[:-2], standalone_mode=False)


@pytest.mark.slow
@pytest.mark.parametrize("net", ["kws", "resnet8"])
def test_real_models_keep_their_logits(net: str, shared_models: Path) -> None:
    vectors = np.load(shared_models / f"{net}_vectors.npz")
    x, y = vectors["x_fp32_nchw"], vectors["y_fp32"]
    path = shared_models / f"{net}_fp32.onnx"
    (name,) = (p.name for p in rx.load(path).main.params)
    project = rx.compile(path, quantize="int8", calibrate={name: x[:8]})
    host = project.host()

    def logits(p: Array) -> Array:
        """Up to a constant, what softmax was given."""
        found = np.log(np.maximum(p.astype(np.float64).reshape(-1), 1e-30))
        return np.asarray(found - found.mean())

    for i in range(8, 16):
        (found,) = host(**{name: x[i].reshape(1, *x.shape[-3:])}).values()
        assert cosine(logits(found), logits(y[i])) >= 0.99
