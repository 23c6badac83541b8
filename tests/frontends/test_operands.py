# SPDX-License-Identifier: Apache-2.0
"""Operands that do not belong together are refused with a message, or checked by the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import InternalError, RelaxAotError

REFUSED = {
    "former broadcast": (6, "float[2, 3] x, float[3] w", "Add(x, w)", "without `broadcast`"),
    "rank of a product": (
        11, "float[2, n] x, float[3] w, float[4] b", "Gemm(w, x, b)", "needs matrices",
    ),
    "starts": (
        17, "float[4] x, int64 s, int64[1] e", "Slice(x, s, e)", "first elements of a Slice",
    ),
    "ends": (
        17, "float[4, 3] x", "Slice <starts = [1, 1], ends = [2]> (x)", "2 starts, 1 ends",
    ),
    "parts": (18, "float[4] x", "Split <num_outputs = 1099511627776> (x)", "has 1 outputs"),
    "mask": (
        23, "float[1, 2, 3, 4] x, uint8[3, 3] m", "Attention(x, x, x, m)", "a mask of u8",
    ),
    "mask of one number": (
        23, "float[1, 2, 3, 4] x, bool m", "Attention(x, x, x, m)", "a mask of bool",
    ),
    "sizes": (11, "float[4, 3] x", "TopK <axis = 0> (x, k)", "holds 2 sizes"),
    "groups": (
        21, "float[1, 4, 3] x, float[4] w", "GroupNormalization <num_groups = 0> (x, w, w)",
        "'num_groups' is 0",
    ),
    "channels": (17, "float[1, 4, 3] x", "LRN <size = -1> (x)", "'size' is -1"),
    "chosen": (17, "float[4] x, bool c", "Compress(x, c)", "condition of a Compress is bool"),
    "bias": (
        17, "float[1, 4, 3] x, float[4] w, float b", "InstanceNormalization(x, w, b)",
        "a number for each channel",
    ),
    "scale": (
        21, "float[4] x, float[1, 4, 3] w", "GroupNormalization <num_groups = 2> (x, w, w)",
        "does not take f32",
    ),
    "window": (17, "float[1, 9, 1] x, float w", "STFT(x, k, w)", "a window of f32"),
    "units": (
        17, "float[4, 1, 3] x, float[1, 6, 3] w, float[1, 6, n] r", "GRU(x, w, r)",
        "needs hidden_size",
    ),
}  # fmt: skip
"""An operator set, inputs, a node and what the error says."""


WINDOWS = {
    "Conv": "x, w", "ConvTranspose": "x, w", "MaxPool": "x", "AveragePool": "x", "LpPool": "x",
    "MaxUnpool": "x, i", "Col2Im": "c, k, k",
}  # fmt: skip
SIZES = {
    "RoiAlign <output_height = {}> (x, w0, i0)": 0,
    "MaxRoiPool <pooled_shape = [2, {}]> (x, w1)": 0,
    "DepthToSpace <blocksize = {}> (x)": -2,
    "SpaceToDepth <blocksize = {}> (x)": -1,
    "ConvTranspose <group = {}> (x, w)": 0,
    "DeformConv <offset_group = {}> (x, w, x)": 0,
    "ConvTranspose <output_padding = [{}, 0]> (x, w)": -1,
}
"""Nodes, and a number that they do not take."""


ATTRIBUTES = [
    (kind, name)
    for kind in WINDOWS
    for name in ("strides", "dilations", "kernel_shape")
    if (name != "kernel_shape" or "ool" in kind) and (kind, name) != ("MaxUnpool", "dilations")
]


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize(("kind", "name"), ATTRIBUTES)
def test_windows_have_positive_numbers(kind: str, name: str, number: int) -> None:
    given = {"kernel_shape": "2, 2"} if "ool" in kind else {}
    attributes = ", ".join(f"{k} = [{v}]" for k, v in {**given, name: f"1, {number}"}.items())
    refused(f"{kind} <{attributes}> ({WINDOWS[kind]})", f"'{name}' is 1, {number}; at least 1")


@pytest.mark.parametrize("node", SIZES)
def test_sizes_are_positive(node: str) -> None:
    refused(node.format(SIZES[node]), "at least")


def refused(node: str, said: str) -> None:
    model = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 19]>
        g (float[1, 4, n, 6] x, float[1, 36, n] c, int64[1, 4, n, 6] i) => (float[p, q, r, s] y)
        <int64[2] i0 = {{0, 0}}, int64[2] k = {{3, 3}}>
        {{ y = {node} }}"""
    )
    for name, shape in {"w": (4, 4, 3, 3), "w0": (2, 4), "w1": (2, 5)}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    with pytest.raises(RelaxAotError, match=said) as raised:
        driver.load(model, Options(bounds={"n": (1, 9)}))
    assert not isinstance(raised.value, InternalError)
    assert "bound" not in str(raised.value)


@pytest.mark.parametrize(("opset", "inputs", "node", "said"), REFUSED.values(), ids=REFUSED)
def test_operands_that_do_not_fit_are_refused(
    opset: int, inputs: str, node: str, said: str
) -> None:
    opset = 9 if "starts =" in node else opset
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": {opset}]> g ({inputs}) => (float[p] y)'
        f" <int64[2] k = {{1, 2}}> {{ y = {node} }}"
    )
    bounds = {"n": (1, 4)} if "n]" in inputs else {}
    with pytest.raises(RelaxAotError, match=said) as raised:
        driver.load(model, Options(bounds=bounds))
    assert not isinstance(raised.value, InternalError)


LISTS = {
    "Slice": ("starts", "ends", "axes", "steps"),
    "Slice of all axes": ("starts", "ends"),
    "Pad": ("pads",),
    "Pad of some axes": ("pads", "axes"),
    "Tile": ("repeats",),
}


def lists_model(case: str, lengths: Mapping[str, int | str]) -> onnx.ModelProto:
    names = LISTS[case]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 5])]
    inputs += [helper.make_tensor_value_info(n, TensorProto.INT64, [lengths[n]]) for n in names]
    given = ["x", *names]
    if case == "Pad of some axes":
        given.insert(2, "")
    node = helper.make_node(case.partition(" ")[0], given, ["y"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def right_length(name: str, case: str) -> int:
    if name == "pads":
        return 2 if "some" in case else 4
    return 2 if name == "repeats" or "all" in case else 1


RESULT: dict[str, int | tuple[int, int]] = {"y_0": 40, "y_1": 40}


@pytest.mark.parametrize("case", LISTS)
def test_lists_of_other_lengths_are_refused(case: str) -> None:
    """A kernel read or wrote beyond the end of the shorter one."""
    names = LISTS[case]
    right = {name: right_length(name, case) for name in names}
    rx.compile(lists_model(case, right), bounds=RESULT)
    for name in names:
        for length in (right[name] - 1, right[name] + 2):
            model = lists_model(case, {**right, name: length})
            with pytest.raises(RelaxAotError) as raised:
                rx.compile(model, bounds=RESULT)
            assert not isinstance(raised.value, InternalError)


@pytest.mark.parametrize("case", LISTS)
def test_lengths_of_lists_are_checked_by_the_run(case: str) -> None:
    names = LISTS[case]
    right = {name: right_length(name, case) for name in names}
    model = lists_model(case, {name: f"n_{name}" for name in names})
    run = rx.compile(model, bounds=RESULT | {f"n_{name}": (0, 8) for name in names}).host()
    values = {"starts": 1, "ends": 4, "axes": 1, "steps": 1, "pads": 2, "repeats": 2}
    x = np.ones((6, 5), np.float32)

    def arrays(lengths: dict[str, int]) -> dict[str, Any]:
        return {name: np.full(count, values[name], np.int64) for name, count in lengths.items()}

    run(x=x, **arrays(right))
    for name in names:
        for length in (right[name] - 1, right[name] + 2):
            with pytest.raises(RelaxAotError):
                run(x=x, **arrays({**right, name: length}))


@pytest.mark.parametrize("kind", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize(
    "shape", [("b", 1, 6), ("b", "t", 6), ("t", 6), (1, "t", 1), (6,)], ids=str
)
def test_a_scale_may_differ_between_rows(kind: str, shape: tuple[int | str, ...]) -> None:
    """As in a diffusion model, whose steps scale each sample."""
    centered = kind == "LayerNormalization"
    named: dict[str, tuple[int | str, ...]] = {"x": ("b", "t", 6), "w": shape, "v": shape}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, axes) for name, axes in named.items()
    ]
    given = ["x", "w", "v"] if centered else ["x", "w"]
    node = helper.make_node(kind, given, ["y"], axis=-1, epsilon=1e-3)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs[: len(given)], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=9)
    run = rx.compile(model, bounds={"b": 3, "t": 5}).host()
    rng = np.random.default_rng(0)
    for b, t in ((1, 1), (2, 3), (3, 5)):
        known = {"b": b, "t": t}
        sizes = [axis if isinstance(axis, int) else known[axis] for axis in shape]
        x, w, v = (rng.normal(size=s).astype(np.float32) for s in ([b, t, 6], sizes, sizes))
        wide = x.astype(np.float64)
        wide -= wide.mean(-1, keepdims=True) if centered else 0
        wide /= np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-3)
        wanted = wide * w + v if centered else wide * w
        arrays = dict(zip(given, (x, w, v), strict=False))
        np.testing.assert_allclose(run(**arrays)["y"], wanted, rtol=1e-5, atol=1e-5)
