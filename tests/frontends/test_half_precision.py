# SPDX-License-Identifier: Apache-2.0
"""Operators in half precision compute in float32 and round once, however many calls they become."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import relax_aot as rx
from relax_aot.inference.half_precision import selects
from relax_aot.ir.graph import Module
from relax_aot.ops import all_ops
from relax_aot.ops._op import Array
from relax_aot.verify.op_cases import Case, cases_of, interpreter
from tests.frontends.half_precision import Retyped, inputs_of, module_in, retyped, run
from tests.ops.against_runtime import feeds_of, module_of, node_model, ours
from tests.ops.onnx_node import Node, i64

KINDS = [TensorProto.FLOAT16, TensorProto.BFLOAT16]
LAST_PLACE: dict[int, float] = {TensorProto.FLOAT16: 2.0**-10, TensorProto.BFLOAT16: 2.0**-7}
LEAST: dict[int, float] = {TensorProto.FLOAT16: 2.0**-24, TensorProto.BFLOAT16: 2.0**-133}
SCALES = (1.0, 200.0)
"""The second makes sums and squares overflow in float16."""
ALWAYS_COMPOSITE = {
    "Attention", "GroupQueryAttention", "LRN", "LogSoftmax", "LpNormalization", "Mean",
    "MeanVarianceNormalization", "RotaryEmbedding", "SkipLayerNormalization", "Sum",
}  # fmt: skip


def differences(found: Retyped, kind: int) -> Iterator[str]:
    """Results in half precision that are more than one unit from those in double."""
    half = module_in(found, kind)
    wide = module_in(found, TensorProto.DOUBLE) or module_in(found, TensorProto.FLOAT)
    if half is None or wide is None:
        return
    for scale in SCALES if found.operator not in ("MelWeightMatrix", "OneHot") else SCALES[:1]:
        actual = run(half, inputs_of(found, half, scale))
        exact = run(wide, inputs_of(found, wide, scale))
        for place, (mine, expected) in enumerate(zip(actual, exact, strict=True)):
            if mine.dtype == helper.tensor_dtype_to_np_dtype(kind):
                worst = _units(mine, expected, kind)
                if worst > 1:
                    yield f"{found.name}: result {place} at {scale}: {worst:.1f} units"


def _units(mine: Array, expected: Array, kind: int) -> float:
    """The greatest error in units of the last place; infinite where one overflows alone."""
    expected = expected.astype(np.float64)
    with np.errstate(all="ignore"):
        rounded = expected.astype(mine.dtype).astype(np.float64)
        actual = mine.astype(np.float64)
        # Sums in float32 cancel to no better than their terms allow.
        noise = 2.0**-20 * np.max(np.abs(rounded), initial=0, where=np.isfinite(rounded))
        unit = np.abs(expected) * LAST_PLACE[kind] * 1.01 + LEAST[kind] + noise
        error = np.abs(actual - expected) / unit
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    return float(np.max(np.where(same, 0, np.where(np.isnan(error), np.inf, error)), initial=0))


def narrow_intermediates(module: Module, kind: int) -> list[str]:
    """Values of half precision that one call computes and another computes with, seen through
    calls that move elements."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    computed: set[str] = set()
    found = []
    for call in module.main.body:
        if call.op not in all_ops():
            continue
        moves = selects(call.op, dict(call.attrs))
        read = [arg.name for arg in call.inputs if arg.name in computed]
        if read and not moves:
            found.append(f"{call.op} reads {read}")
        if read or not moves:
            computed |= {out.name for out in call.outs if out.type.dtype.numpy == dtype}
    return found


def firsts(kind: int) -> list[Retyped]:
    """One case for each operator."""
    seen: dict[str, Retyped] = {}
    for found in retyped(kind):
        if found.operator not in seen and module_in(found, kind) is not None:
            seen[found.operator] = found
    return list(seen.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_between_two_computations_is_of_half_precision(kind: int) -> None:
    composite = set()
    for found in firsts(kind):
        module = module_in(found, kind)
        assert module is not None
        assert narrow_intermediates(module, kind) == [], found.name
        known = [call for call in module.main.body if call.op in all_ops() and call.op != "cast"]
        if sum(not selects(call.op, dict(call.attrs)) for call in known) > 1:
            composite.add(found.operator)
    assert composite >= ALWAYS_COMPOSITE, ALWAYS_COMPOSITE - composite


@pytest.mark.slow
def test_one_case_of_every_operator_is_rounded_once() -> None:
    kind = TensorProto.FLOAT16
    assert [text for found in firsts(kind) for text in differences(found, kind)] == []


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_case_is_rounded_once(kind: int) -> None:
    unsupported = ("test_convtranspose", "test_maxpool_with_argmax")
    assert [
        text
        for found in retyped(kind)
        # NumPy has no bfloat16 for these two references.
        if kind == TensorProto.FLOAT16 or not found.name.startswith(unsupported)
        for text in differences(found, kind)
    ] == []


def h(*values: float, shape: tuple[int, ...] = (-1,)) -> Array:
    return np.array(values, np.float16).reshape(shape)


def full(value: float, *shape: int) -> Array:
    return np.full(shape, value, np.float16)


@pytest.mark.parametrize(("node", "expected"), [
    (Node("LRN", (full(300, 1, 2, 2, 2),), {"size": 3}), 69.7),
    (Node("GlobalLpPool", (full(300, 1, 1, 4, 4),)), 1200.0),
    (Node("LpNormalization", (h(40000, 40000, shape=(1, 2)),), {"p": 1}), 0.5),
    (Node("Mean", (h(40000), h(40000))), 40000.0),
    (Node("Sum", (h(40000), h(40000), h(-40000))), 40000.0),
    (Node("Einsum", (full(300, 2, 3), full(300, 3, 2), full(0.01, 2, 2)),
          {"equation": "ij,jk,kl->il"}), 300 * 300 * 3 * 2 * float(np.float16(0.01))),
])  # fmt: skip
def test_large_values_do_not_overflow_on_the_way(node: Node, expected: float) -> None:
    (found,) = ours(module_of(node_model(node), {}), feeds_of(node))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float64), expected, 2.0**-10)


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["RMSNormalization", "SimplifiedLayerNormalization"])
@pytest.mark.parametrize(("kind", "other"), [("float16", "float"), ("float", "float16")])
def test_a_scale_of_another_type_gives_its_type(kind: str, other: str, operator: str) -> None:
    """The result has the type of the scale (ONNX operators, version 23, and ONNX Runtime)."""
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 23]>
        g ({kind}[n,8] x, {other}[8] s) => ({other}[n,8] y) {{ y = {operator}(x, s) }}""")
    types = {"float16": np.float16, "float": np.float32}
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(3, 8)).astype(types[kind]), rng.normal(size=8).astype(types[other])
    found = rx.compile(rx.load(model, bounds={"n": 4})).host()(x=x, s=s)["y"]
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * s
    assert found.dtype == types[other]
    np.testing.assert_allclose(found, wanted, rtol=3e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "other"), [("float16", "float"), ("float", "float16")])
def test_layer_normalization_of_onnx_runtime_has_the_type_of_its_scale(
    kind: str, other: str
) -> None:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 14]>
        g ({kind}[n,8] x, {other}[8] s, {other}[8] b) => ({other}[n,8] y)
        {{ y = LayerNormalization(x, s, b) }}""")
    types = {"float16": np.float16, "float": np.float32}
    rng = np.random.default_rng(0)
    given = {name: rng.normal(size=8).astype(types[other]) for name in "sb"}
    given["x"] = rng.normal(size=(3, 8)).astype(types[kind])
    found = rx.compile(rx.load(model, bounds={"n": 4})).host()(**given)["y"]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = np.asarray(session.run(None, given)[0])
    assert found.dtype == wanted.dtype == types[other]
    np.testing.assert_allclose(found, wanted, rtol=3e-3, atol=2e-3)


def test_a_size_may_be_a_number_of_half_precision() -> None:
    """Memory holds the bits of such a number: the C reads it through a conversion."""
    values = np.array([0, 1], np.float32)
    node = Node("OneHot", (i64(1, 2), np.array(5, np.float16), values), {})
    module = module_of(node_model(node), {"y0_1": (1, 9)})
    defines = [call for call in module.main.body if call.op == "define"]
    assert [call.inputs[0].type.dtype.is_int for call in defines] == [True]
    assert ours(module, feeds_of(node))[0].shape == (2, 5)


@pytest.mark.parametrize("op", ["rnn", "gru", "lstm"])
def test_recurrent_kernels_of_half_precision_equal_their_reference(op: str) -> None:
    """Gates and states of float32 with operands of float16."""
    for case in cases_of([all_ops()[op]]):
        args = tuple(
            a.astype(np.float16) if a is not None and a.dtype == np.float32 else a
            for a in case.sample.args
        )
        if case.symbolic or all(a is None or a.dtype != np.float16 for a in args):
            continue
        half = Case(case.op, replace(case.sample, args=args), case.number, symbolic=False)
        for mine, expected in zip(interpreter([half])(half), half.expected, strict=True):
            np.testing.assert_allclose(
                mine.astype(np.float64), expected.astype(np.float64), 2.0**-10, 1e-6
            )


def test_a_result_may_be_known_while_compiling() -> None:
    """The scores of constant queries and keys are a constant, of floats until it is rounded."""
    model = parser.parse_model("""
<ir_version: 9, opset_import: ["": 24]>
g (float16[1, 1, 3, 2] v, int64[1] keys) => (float16[1, 2, 2, 2] y, float16[1, 2, 2, 3] scores)
{ y, , , scores = Attention <scale = 2.0> (q, k, v, , , , keys) }
""")
    q, k = [[[1, 2], [3, 4]], [[0, 1], [1, 0]]], [[[1, 0], [0, 1], [1, 1]]]
    for name, heads in (("q", q), ("k", k)):
        array = np.array([heads], np.float16)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    v = np.array([[[[1, 2], [3, 4], [5, 6]]]], np.float16)
    found = rx.compile(model).host()(v=v, keys=np.array([3]))
    scores = 2 * np.array([[[[1, 2, 3], [3, 4, 7]], [[0, 1, 1], [1, 0, 1]]]])
    np.testing.assert_array_equal(found["scores"], scores)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(found["y"], weights @ v, rtol=2e-3)
