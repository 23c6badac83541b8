# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers with quantized weights, against plain loops in double precision, against the
float layers of ONNX Runtime, and between targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relax_aot as rx
from relax_aot import driver
from relax_aot.ir.loops import Micro, walk
from relax_aot.ops._gates import gate_sigmoid, gate_tanh
from relax_aot.quantization import Choice, QuantizeError
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import StatusError, host_model

Array = NDArray[Any]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
KINDS = {"int8": 0, "int8d": 32, "int8w": 128, "int4d": 32, "int4w": 32}
"""Rows of a group of weights; 0: all of them."""
INTEGERS = ("multiply_pairs", "multiply_nhwc", "dot4_i8")
OFTEN = ("int8", "int8w")
WIDTH, MOST = 37, 7


def layer(kind: str, name: str, width: int, hidden: int, **attrs: Any) -> tuple[Any, list[Any]]:
    """A node, and its weights."""
    rng = np.random.default_rng(len(name) + hidden)
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * hidden

    def normal(*shape: int) -> Array:
        return np.asarray(rng.normal(size=shape) / np.sqrt(shape[-1]), np.float32)

    arrays = {"w": normal(ways, rows, width), "r": normal(ways, rows, hidden)}
    arrays["b"] = normal(ways, 2 * rows)
    if attrs.pop("peepholes", False):
        arrays["p"] = normal(ways, 3 * hidden)
    state = [attrs.pop(key, "") for key in ("lens", "h0", "c0")]
    inputs = ["x", *(f"{name}_{part}" for part in "wrb"), *state[: 3 if kind == "LSTM" else 2]]
    inputs += [f"{name}_p"] if "p" in arrays else []
    outputs = [f"{name}_y", f"{name}_h"] + ([f"{name}_c"] if kind == "LSTM" else [])
    node = helper.make_node(kind, inputs, outputs, name=name, hidden_size=hidden, **attrs)
    return node, [numpy_helper.from_array(a, f"{name}_{part}") for part, a in arrays.items()]


def model_of(layers: list[tuple[Any, list[Any]]], ports: dict[str, Any]) -> onnx.ModelProto:
    made = [(name, TensorProto.INT32 if name == "lens" else TensorProto.FLOAT, shape)
            for name, shape in ports.items()]  # fmt: skip
    inputs = [helper.make_tensor_value_info(*one) for one in made]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for node, _ in layers
        for name in node.output
    ]
    tensors = [tensor for _, tensors in layers for tensor in tensors]
    graph = helper.make_graph([node for node, _ in layers], "layers", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


PORTS: dict[str, list[int | str]] = {
    "x": ["t", "n", WIDTH],
    "lens": ["n"],
    "h0": [1, "n", 40],
    "c0": [2, "n", 9],
    "k0": [2, "n", 9],
}
BOUNDS = {"t": (1, MOST), "n": (1, 3)}


@cache
def layers() -> onnx.ModelProto:
    """Every kind of layer in a model."""
    return model_of(
        [
            layer("GRU", "a", WIDTH, 40, linear_before_reset=1, h0="h0"),
            layer("GRU", "bb", WIDTH, 5, direction="reverse"),
            layer(
                "LSTM", "ccc", WIDTH, 9, direction="bidirectional", peepholes=True, h0="c0", c0="k0"
            ),
            layer("RNN", "dddd", WIDTH, 33, direction="reverse", lens="lens"),
        ],
        PORTS,
    )


def inputs(t: int, n: int) -> dict[str, Array]:
    rng = np.random.default_rng(t + 20)
    sizes: dict[int | str, Any] = {"t": t, "n": n}
    made: dict[str, Array] = {
        name: rng.normal(size=[sizes.get(size, size) for size in shape])
        for name, shape in PORTS.items()
    }
    floats = {name: array.astype(np.float32) for name, array in made.items() if name != "lens"}
    return {**floats, "lens": rng.integers(0, t + 1, n).astype(np.int32)}


def samples() -> dict[str, Array]:
    return {name: array[None] for name, array in inputs(5, 3).items()}


@cache
def project(kind: str, board: str = "host") -> Any:
    calibrate = samples() if kind == "int8" else {}
    options = driver.Options(bounds=BOUNDS, quantize=Choice(kind), calibrate=calibrate)
    return driver.compile_model(layers(), board, options)


# Plain loops


def decoded(rows: Array, kind: str) -> Array:
    """Weights as integers times the scales of their groups."""
    most, group = (7 if kind.startswith("int4") else 127), KINDS[kind] or rows.shape[-1]
    parts = []
    for first in range(0, rows.shape[-1], group):
        part = rows[..., first : first + group].astype(np.float64)
        step = (np.abs(part).max(axis=-1, keepdims=True) / most).astype(np.float32)
        parts.append(np.rint(part / step) * step)
    return np.concatenate(parts, axis=-1)


def seen(row: Array, kind: str) -> Array:
    """Activations as bytes times the scale of the row."""
    if kind.endswith("w") or not row.any():
        return row
    step = np.abs(row).max() / 127
    return np.asarray(np.rint(row / step) * step)


@dataclass(frozen=True)
class Gates:
    """Functions of the gates."""

    sigmoid: Callable[[Array], Array]
    tanh: Callable[[Array], Array]


EXACT = Gates(lambda x: np.asarray(1 / (1 + np.exp(-x))), np.tanh)
TABLE = Gates(gate_sigmoid, gate_tanh)
"""Where rows of activations are bytes."""


def run(node: Any, weights: dict[str, Array], feeds: dict[str, Array], kind: str) -> list[Array]:
    """The results of a layer as ONNX defines it, with quantized factors."""
    gates = EXACT if kind.endswith("w") else TABLE
    sigmoid, tanh = gates.sigmoid, gates.tanh
    attrs = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    hidden, direction = attrs["hidden_size"], attrs.get("direction", b"forward").decode()
    given = dict(zip(("x", "w", "r", "b", "lens", "h", "c", "p"), node.input, strict=False))
    arrays = {key: {**weights, **feeds}.get(name) for key, name in given.items()}
    x = feeds["x"].astype(np.float64)
    ways = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[direction]
    y = np.zeros((len(x), len(ways), x.shape[1], hidden))
    ends = np.zeros((2, len(ways), x.shape[1], hidden))
    for way, backwards in enumerate(ways):
        w, r = (decoded(arrays[key][way], kind) for key in "wr")  # type: ignore[index]
        wb, rb = np.split(arrays["b"][way].astype(np.float64), 2)  # type: ignore[index]
        for n in range(x.shape[1]):
            lens = arrays.get("lens")
            steps = range(len(x) if lens is None else lens[n])
            h, c = (
                np.zeros(hidden) if state is None else state[way, n].astype(float)
                for state in map(arrays.get, "hc")
            )
            for t in reversed(steps) if backwards else steps:
                a, s = w @ seen(x[t, n], kind) + wb, r @ seen(h, kind) + rb
                if node.op_type == "RNN":
                    h = tanh(a + s)
                elif node.op_type == "LSTM":
                    i, o, f, g = np.split(a + s, 4)
                    peepholes = arrays.get("p")
                    p = np.zeros(3 * hidden) if peepholes is None else peepholes[way].astype(float)
                    pi, po, pf = np.split(p, 3)
                    c = sigmoid(f + pf * c) * c + sigmoid(i + pi * c) * tanh(g)
                    h = sigmoid(o + po * c) * tanh(c)
                else:
                    z, reset = np.split(sigmoid((a + s)[: 2 * hidden]), 2)
                    last = slice(2 * hidden, None)
                    inner = reset * s[last]
                    if not attrs.get("linear_before_reset"):
                        inner = r[last] @ seen(reset * h, kind) + rb[last]
                    h = (1 - z) * tanh(a[last] + inner) + z * h
                y[t, way, n] = h
            ends[:, way, n] = h, c
    return [y, ends[0], ends[1]]


def expected(
    kind: str, feeds: dict[str, Array], model: onnx.ModelProto | None = None
) -> dict[str, Array]:
    graph = (model or layers()).graph
    weights = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    found: dict[str, Array] = {}
    for node in graph.node:
        found |= dict(zip(node.output, run(node, weights, feeds, kind), strict=False))
    return found


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in OFTEN else pytest.mark.slow) for k in KINDS]
)
def test_layers_are_their_definition_with_quantized_factors(kind: str) -> None:
    """At the lowest, the highest and other sizes."""
    host = host_model(project(kind))
    for t, n in ((1, 1), (4, 2), (MOST, 3)):
        feeds = inputs(t, n)
        found, right = host(**feeds), expected(kind, feeds)
        for name, array in found.items():
            np.testing.assert_allclose(array, right[name], atol=2e-5, err_msg=f"{name} {t} {n}")


def test_sizes_outside_their_bounds_end_with_a_status() -> None:
    host = host_model(project("int8"))
    for t, n in ((MOST + 1, 1), (1, 4)):
        with pytest.raises(StatusError, match="RAOT_ERR_SIZE"):
            host(**inputs(t, n))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "kind"),
    [("mps2-an386", "int8")]
    + [
        pytest.param(board, kind, marks=pytest.mark.slow)
        for board in ("mps2-an386", "mps3-an547", "aarch64-linux")
        for kind in KINDS
        if (board, kind) != ("mps2-an386", "int8")
    ],
)
def test_on_boards_a_sequence_has_the_same_bits_beside_any_others(board: str, kind: str) -> None:
    """By micro-kernels, near the definition; alone, and in longer sequences."""
    built = project(kind, board)
    body = [stmt for kernel in built.plan.module.kernels for stmt in walk(kernel.body)]
    names = {stmt.kernel.name for stmt in body if isinstance(stmt, Micro)}
    family = {"int8": INTEGERS, "int8d": ("dot_groups",), "int4d": ("dot_groups",)}
    products = family.get(kind, ("multiply_q", "dot_parts"))
    assert any(part in name for name in names for part in products), names
    whole = inputs(MOST, 3)
    x, alone = whole["x"], {**whole, "x": whole["x"][:, 1:2], "lens": whole["lens"][1:2]}
    alone |= {name: whole[name][:, 1:2] for name in ("h0", "c0", "k0")}
    short = {**whole, "x": x[:3], "lens": np.minimum(whole["lens"], 3)}
    runs = [run.outputs for run in emulate(built, [whole, alone, short])]
    right = expected(kind, whole)
    for name, array in runs[0].items():
        np.testing.assert_allclose(array, right[name], atol=2e-5, err_msg=name)
        axis = 2 if name.endswith("y") else 1
        assert np.take(array, [1], axis).tobytes() == runs[1][name].tobytes(), name
    assert runs[0]["a_y"][:3].tobytes() == runs[2]["a_y"].tobytes()


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "width"),
    [
        ("mps2-an386", 10),
        ("nucleo-l4r5zi", 10),
        *(pytest.param("mps2-an386", width, marks=pytest.mark.slow) for width in (5, 131, 530)),
    ],
)
def test_a_sequence_on_cortex_m4_sums_four_channels_of_a_row(board: str, width: int) -> None:
    """33 channels are no multiple of four; three rows of inputs are computed together, with the
    same bits. Rows are quantized to the pairs that products read."""
    layers = [layer("GRU", "a", width, 33), layer("RNN", "bb", width, 33)]
    model = model_of(layers, {"x": ["t", 1, width]})
    x = np.random.default_rng(1).normal(size=(7, 1, width)).astype(np.float32)
    options = driver.Options(
        bounds={"t": (1, 7)}, quantize=Choice("int8"), calibrate={"x": x[None]}
    )
    built = driver.compile_model(model, board, options)
    body = [stmt for kernel in built.plan.module.kernels for stmt in walk(kernel.body)]
    names = [stmt.kernel.name for stmt in body if isinstance(stmt, Micro)]
    assert names.count("raot_multiply_pair_row_f32") == 5
    assert names.count("raot_multiply_pair_rows_f32") == 2
    assert names.count("raot_quantize_pairs_s16") == 5
    assert not {"raot_quantize_row_s8", "raot_gather_pairs_s8"} & set(names)
    whole, first, short = (run.outputs for run in emulate(built, [{"x": x[:t]} for t in (7, 1, 4)]))
    right = expected("int8", {"x": x}, model)
    for name in ("a_y", "bb_y"):
        np.testing.assert_allclose(whole[name], right[name], atol=2e-5)
        assert whole[name][:1].tobytes() == first[name].tobytes()
        assert whole[name][:4].tobytes() == short[name].tobytes()


@pytest.mark.qemu
@pytest.mark.parametrize(
    "kind", ["int8", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("int8d", "int4d"))]
)
def test_rows_of_states_on_cortex_m4_have_micro_kernels(kind: str) -> None:
    """33 and 10 states are no multiple of four."""
    layers = [
        layer("GRU", "a", 6, 33, linear_before_reset=1),
        layer("GRU", "bb", 6, 33),
        layer("LSTM", "ccc", 6, 10, direction="bidirectional"),
    ]
    model = model_of(layers, {"x": ["t", 2, 6]})
    x = np.random.default_rng(1).normal(size=(7, 2, 6)).astype(np.float32)
    calibrate = {"x": x[None]} if kind == "int8" else {}
    options = driver.Options(bounds={"t": (1, 7)}, quantize=Choice(kind), calibrate=calibrate)
    built = driver.compile_model(model, "mps2-an386", options)
    body = [stmt for kernel in built.plan.module.kernels for stmt in walk(kernel.body)]
    names = [stmt.kernel.name for stmt in body if isinstance(stmt, Micro)]
    assert names.count("raot_mix_reset_states_f32") == names.count("raot_mix_states_f32") == 1
    assert names.count("raot_cell_states_f32") == 2
    (run,) = emulate(built, [{"x": x}])
    for name, right in expected(kind, {"x": x}, model).items():
        np.testing.assert_allclose(run.outputs[name], right, atol=2e-5, err_msg=name)


def test_the_error_follows_from_the_steps_of_the_quantization() -> None:
    """An RNN whose recurrent weights shrink errors: of its weights, its inputs and its states."""
    node, tensors = layer("RNN", "rnn", WIDTH, 24)
    r = numpy_helper.to_array(tensors[1]) * np.float32(0.15)
    tensors[1] = numpy_helper.from_array(r, "rnn_r")
    host = rx.compile(
        model_of([(node, tensors)], {"x": ["t", "n", WIDTH]}), bounds={"t": 60, "n": 1},
        quantize="int8", calibrate={"x": np.zeros((1, 3, 1, WIDTH), np.float32)},
    ).host()  # fmt: skip
    w, b = (numpy_helper.to_array(tensors[at])[0].astype(np.float64) for at in (0, 2))
    r = r[0].astype(np.float64)
    x = np.random.default_rng(2).normal(size=(60, 1, WIDTH)).astype(np.float32)
    y, h, error = host(x=x)["rnn_y"][:, 0, 0], np.zeros(24), np.zeros(24)
    of_weights = [np.abs(m).max(axis=1) / 254 for m in (w, r)]
    for t, row in enumerate(x[:, 0].astype(np.float64)):
        wide = np.abs(h) + error
        error = np.abs(r) @ error + of_weights[1] * wide.sum()
        error += (np.abs(r).sum(axis=1) + len(h) * of_weights[1]) * wide.max() / 254
        error += of_weights[0] * np.abs(row).sum()
        error += (np.abs(w).sum(axis=1) + len(row) * of_weights[0]) * np.abs(row).max() / 254
        h = np.tanh(w @ row + r @ h + b[:24] + b[24:])
        assert (np.abs(y[t] - h) <= error + 1e-5).all(), t
    assert error.max() < 0.5


def test_a_state_stays_near_the_floats_for_a_hundred_calls() -> None:
    """One step a call, as in a stream: a GRU and an LSTM of 64 units."""
    ports = {"x": [1, 1, 20], "h": [1, 1, 64], "c": [1, 1, 64], "g": [1, 1, 64]}
    model = model_of(
        [layer("LSTM", "l", 20, 64, h0="h", c0="c"), layer("GRU", "g2", 20, 64, h0="g")], ports
    )
    state = {"h": "l_h", "c": "l_c", "g": "g2_h"}
    x = np.random.default_rng(0).normal(size=(100, 1, 1, 20)).astype(np.float32)
    project = rx.compile(model, quantize="int8", calibrate={"x": x[:4]}, state=state)
    host, session = project.host(), onnxruntime.InferenceSession(model.SerializeToString())
    held = {name: np.zeros((1, 1, 64), np.float32) for name in state}
    ours: dict[str, list[Array]] = {"l_y": [], "g2_y": []}
    theirs: dict[str, list[Array]] = {"l_y": [], "g2_y": []}
    for row in x:
        floats = dict(zip(
            (one.name for one in session.get_outputs()),
            session.run(None, {"x": row, **held}), strict=True,
        ))  # fmt: skip
        held = {name: floats[output] for name, output in state.items()}
        found = host(x=row)
        for name in ours:
            ours[name].append(found[name].ravel().astype(np.float64))
            theirs[name].append(floats[name].ravel().astype(np.float64))
    for name in ours:
        for a, b in zip(ours[name], theirs[name], strict=True):
            assert a @ b / np.sqrt((a @ a) * (b @ b)) > 0.99


def test_constants_shrink_on_a_microcontroller() -> None:
    """A GRU keyword network and two LSTMs that suppress noise: their weights are bytes."""
    floats, found = (
        driver.compile_model(
            layers(), "mps2-an386", driver.Options(bounds=BOUNDS, quantize=choice, calibrate=data)
        ).const_bytes
        for choice, data in ((None, {}), (Choice("int8"), samples()))
    )
    assert floats > 3 * found


def test_layers_that_stay_floats_are_named() -> None:
    node, tensors = layer("RNN", "rnn", 4, 6)
    model = model_of([(node, tensors[:1] + tensors[2:])], {"x": [3, 1, 4], "rnn_r": [1, 6, 6]})
    why = "its recurrent weights are no constants of f32"
    with pytest.raises(QuantizeError, match=why):
        rx.compile(model, quantize="int8w")
    other = layer("GRU", "gru", 4, 6)
    both = model_of(
        [(node, tensors[:1] + tensors[2:]), other], {"x": [3, 1, 4], "rnn_r": [1, 6, 6]}
    )
    project = rx.compile(both, quantize="int8w")
    assert project.quantized is not None
    assert any(why in line and "rnn_y" in line for line in project.quantized.lines())
    kept = rx.compile(layers(), bounds=BOUNDS, quantize="int8w", keep_float=["a", "ccc"])
    ops = {call.op for call in kept.built.source_module.main.body}
    assert {"gru", "lstm", "qgru", "qrnn"} <= ops


@pytest.mark.parametrize(("name", "kind"), [("GRU", "int8w"), ("LSTM", "int4d")])
def test_layers_of_half_precision_are_those_of_floats_rounded(name: str, kind: str) -> None:
    node, tensors = layer(name, "a", 6, 5, peepholes=name == "LSTM")
    arrays = [numpy_helper.to_array(tensor).astype(np.float16) for tensor in tensors]
    names = [tensor.name for tensor in tensors]
    x = np.random.default_rng(3).normal(size=(4, 1, 6)).astype(np.float16)
    results = []
    for dtype in (np.float16, np.float32):
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        weights = [
            numpy_helper.from_array(a.astype(dtype), n) for a, n in zip(arrays, names, strict=True)
        ]
        ports = [helper.make_tensor_value_info("x", element, ["t", 1, 6])]
        outputs = [helper.make_tensor_value_info(n, element, None) for n in node.output]
        graph = helper.make_graph([node], "layers", ports, outputs, weights)
        sets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=8)
        options = driver.Options(bounds={"t": (1, MOST)}, quantize=Choice(kind))
        project = driver.compile_model(model, "host", options)
        results.append(host_model(project)(x=x.astype(dtype)))
    halves, floats = results
    for output, found in halves.items():
        np.testing.assert_array_equal(found, floats[output].astype(np.float16))


def test_panels_that_are_half_full_run_by_vectors() -> None:
    """24 columns fill three quarters of a panel of 32, 17 about half of it."""
    for hidden in (24, 17):
        model = model_of(
            [layer("GRU", "a", 20, hidden, linear_before_reset=1)], {"x": ["t", 1, 20]}
        )
        built = rx.compile(model, bounds={"t": (1, 3)}, quantize="int8w", board="mps3-an547").built
        body = [stmt for kernel in built.plan.module.kernels for stmt in walk(kernel.body)]
        names = [stmt.kernel.name for stmt in body if isinstance(stmt, Micro)]
        assert sum("multiply_q8" in name for name in names) == 3, names
