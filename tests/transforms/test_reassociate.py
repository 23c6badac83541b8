# SPDX-License-Identifier: Apache-2.0
"""Chains of products: low-rank weights stay factors, and orders are chosen by symbolic cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import relax_aot as rx
from relax_aot import transforms
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Module
from relax_aot.transforms import reassociate
from tests.models.onnx_text import model_of

WIDE, RANK = 512, 8
A = np.random.default_rng(1).normal(size=(WIDE, RANK)).astype(np.float32)
B = np.random.default_rng(2).normal(size=(RANK, WIDE)).astype(np.float32) / WIDE
FACTOR_BYTES = 2 * 4 * WIDE * RANK

FORMS = {
    "right": ("float[n, 512] x", "w = MatMul(a, b)\ny = MatMul(x, w)"),
    "batched": ("float[2, n, 512] x", "w = MatMul(a, b)\ny = MatMul(x, w)"),
    "left": ("float[512, n] x", "w = MatMul(a, b)\ny = MatMul(w, x)"),
    "linear": (
        "float[n, 512] x",
        "w = MatMul(a, b)\nt = Transpose <perm = [1, 0]> (w)\ny = MatMul(x, t)",
    ),
    "gemm": (
        "float[n, 512] x",
        "w = MatMul(a, b)\ny = Gemm <alpha = 0.5, transB = 1> (x, w, bias)",
    ),
    "adapter": (
        "float[n, 512] x",
        "w = MatMul(a, b)\nu = MatMul(x, w)\nv = MatMul(u, w)\ny = Add(v, x)",
    ),
}
"""Low-rank weights as exporters write them."""


def low_rank(form: str) -> onnx.ModelProto:
    given, text = FORMS[form]
    result = given.replace(" x", " y")
    values: dict[str, Any] = {"a": A, "b": B, "bias": np.linspace(-1, 1, WIDE, dtype=np.float32)}
    used = {name: array for name, array in values.items() if name in text}
    return model_of(f"low ({given}) => ({result})", text, used)


@pytest.mark.parametrize("board", ["host", "mps2-an386"])
@pytest.mark.parametrize("form", FORMS)
def test_low_rank_weights_take_no_more_than_their_factors(form: str, board: str) -> None:
    """1 MB before: the product of the factors was stored."""
    project = rx.compile(low_rank(form), board=board, bounds={"n": 24}, name="low").built
    bias = 4 * WIDE * (form == "gemm")
    assert project.const_bytes <= FACTOR_BYTES + bias + 256
    assert project.plan.arena_bytes <= 4 * 24 * 2 * (WIDE + RANK)


@pytest.mark.parametrize("form", FORMS)
def test_low_rank_weights_compute_what_the_model_does(form: str) -> None:
    model = low_rank(form)
    host = rx.compile(model, bounds={"n": 24}, name="low").host()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for n in (1, 7, 24):
        shape = [
            n if d.dim_param else d.dim_value
            for d in model.graph.input[0].type.tensor_type.shape.dim
        ]
        x = np.random.default_rng(n).normal(size=shape).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(host(x=x)["y"], wanted, rtol=1e-4, atol=1e-5)


def work(module: Module) -> Dim:
    """Multiply-adds of a module's products."""
    total = Dim.of(0)
    for call in module.main.body:
        if call.op in ("matmul", "gemm"):
            a, _ = (value.type for value in call.inputs[:2])
            inner = a.shape[0] if dict(call.attrs).get("trans_a") else a.shape[-1]
            total = total + call.out.type.elements * inner
    return total


CHAINS = {
    "a small result first": ("%a: f32[n, 64], %b: f32[64, 64], %c: f32[64, 2]", 64 * 64 * 2 + 256),
    "already best": ("%a: f32[n, 64], %b: f32[64, 2], %c: f32[2, 64]", None),
    "better only for large n": ("%a: f32[n, 64], %b: f32[64, n], %c: f32[n, 4]", None),
}


def product_of_three(params: str) -> Module:
    shapes = [part.split(": ")[1] for part in params.split(", %")]
    rows, inner, columns = (s[4:-1].split(", ") for s in shapes)
    return rx.parse(f"""
        symbol n in 2..200
        func @main({params}) {{
          %p: f32[{rows[0]}, {inner[1]}] = matmul(%a, %b)
          %y: f32[{rows[0]}, {columns[1]}] = matmul(%p, %c)
          return %y
        }}""")


@pytest.mark.parametrize("name", CHAINS)
def test_other_chains_keep_their_order_by_default(name: str) -> None:
    module = product_of_three(CHAINS[name][0])
    assert reassociate.run(module) == module


@pytest.mark.parametrize("name", CHAINS)
def test_an_order_needs_fewer_multiply_adds_for_every_size(name: str) -> None:
    params, expected = CHAINS[name]
    before = product_of_three(params)
    after = reassociate.run_all(before)
    assert (after != before) == (expected is not None)
    for n in (2, 3, 77, 200):
        assert work(after).evaluate({"n": n}) <= work(before).evaluate({"n": n})
    if expected is not None:
        assert work(after).evaluate({"n": 2}) == expected


def test_the_option_reassociates_and_computes_the_same() -> None:
    params = "%a: f32[n, 64], %b: f32[64, 64], %c: f32[64, 2]"
    random = np.random.default_rng(0)
    shapes: dict[str, Any] = {"a": (5, 64), "b": (64, 64), "c": (64, 2)}
    x = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    module = product_of_three(params)
    project = rx.compile(module, reassociate=True)
    steps = [call.op for call in project.built.source_module.main.body]
    assert len(steps) == 2
    wanted = x["a"].astype(np.float64) @ x["b"] @ x["c"]
    np.testing.assert_allclose(project.host()(x)["y"], wanted, rtol=1e-4, atol=1e-4)
    assert project.built.plan.arena_bytes == 4 * 64 * 2 < rx.compile(module).built.plan.arena_bytes


def test_a_product_that_other_calls_read_is_folded() -> None:
    """W + A @ B is one constant of W's size."""
    weights: dict[str, Any] = {"w": np.eye(WIDE, dtype=np.float32), "a": A, "b": B}
    model = model_of(
        "merged (float[n, 512] x) => (float[n, 512] y)",
        "ab = MatMul(a, b)\nboth = Add(w, ab)\ny = MatMul(x, both)",
        weights,
    )
    project = rx.compile(model, bounds={"n": 4}, name="merged")
    assert 4 * WIDE * WIDE <= project.built.const_bytes <= 4 * WIDE * WIDE + 256
    assert len(transforms.run(rx.load(model, bounds={"n": 4})).main.body) == 1
    x = np.random.default_rng(0).normal(size=(3, WIDE)).astype(np.float32)
    wanted = x.astype(np.float64) @ (np.eye(WIDE) + A.astype(np.float64) @ B)
    np.testing.assert_allclose(project.host()(x=x)["y"], wanted, rtol=1e-4, atol=1e-4)


def test_quantized_low_rank_weights_are_quantized_factors() -> None:
    project = rx.compile(low_rank("right"), bounds={"n": 24}, quantize="int8w", name="low")
    assert project.built.const_bytes <= FACTOR_BYTES // 4 + 4 * (WIDE + RANK) + 512
