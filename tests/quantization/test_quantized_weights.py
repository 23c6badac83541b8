# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions of floats by weights that the model file has quantized, compared with
NumPy in double precision. Products keep the bytes: `matmul_groups` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import onnx
import pytest
from ml_dtypes import int4, uint4
from numpy.typing import NDArray

from relax_aot import driver
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import host_model
from tests.models.onnx_text import model_of

MOST = 9
Array = NDArray[Any]


@dataclass(frozen=True)
class Form:
    """Weights of `depth` rows and `columns`. `zeros`: the limits of zero points, one for each
    column if `each`."""

    depth: int
    columns: int
    kind: Any
    zeros: tuple[int, int] = (0, 0)
    each: bool = True
    gemm: bool = False
    block: int = 0
    bits: int = 8

    @property
    def groups(self) -> int:
        return ceil(self.depth / self.block) if self.block else 1


FORMS = {
    "symmetric": Form(171, 61, np.int8),
    "unsigned, small": Form(171, 61, np.uint8, bits=7),
    "unsigned, small blocks": Form(160, 61, np.uint8, bits=7, block=32),
    "one scale": Form(40, 33, np.int8, each=False),
    "unsigned": Form(171, 61, np.uint8, (128, 128)),
    "more than 8 bits": Form(171, 61, np.uint8, (100, 150)),
    "signed, more than 8 bits": Form(64, 61, np.int8, (-9, 9), gemm=True),
    "gemm": Form(171, 61, np.int8, gemm=True),
    "deep": Form(5000, 34, np.int8),
    "deep, more than 8 bits": Form(5000, 34, np.uint8, (100, 150)),
    "blocks": Form(160, 61, np.int8, block=32),
    "blocks, more than 8 bits": Form(160, 61, np.uint8, (100, 150), block=32),
    "blocks and a rest": Form(171, 61, np.int8, block=32),
    "blocks, a rest, more than 8 bits": Form(171, 61, np.uint8, (100, 150), block=32),
    "blocks, transposed": Form(160, 61, np.int8, block=16, gemm=True),
    "4 bits": Form(160, 61, np.int8, bits=4, block=32),
    "4 bits, unsigned": Form(160, 61, np.uint8, (8, 8), bits=4, block=32, gemm=True),
    "4 bits, more than 4 bits": Form(160, 61, np.uint8, (0, 15), bits=4, block=32, gemm=True),
    "4 bits, a rest": Form(171, 61, np.uint8, (0, 15), bits=4, block=32),
    "4 bits, one scale for each column": Form(171, 61, np.int8, bits=4),
}


def model(form: Form) -> tuple[Any, Array, Array]:
    """The model, its weights in doubles, and its bias."""
    rng = np.random.default_rng(3)
    dtype = form.kind if form.bits > 4 else {np.int8: int4, np.uint8: uint4}[form.kind]
    low = -(2 ** (form.bits - 1)) if form.kind is np.int8 else 0
    count = (form.groups, form.columns if form.each else 1)
    codes = rng.integers(low, low + 2**form.bits, (form.depth, form.columns))
    scale = rng.uniform(0.001, 0.02, count).astype(np.float32)
    zero = rng.integers(form.zeros[0], form.zeros[1] + 1, count)
    bias = rng.normal(size=form.columns).astype(np.float32)
    each = np.repeat(zero, form.block or form.depth, axis=0)[: form.depth]
    by = np.repeat(scale.astype(np.float64), form.block or form.depth, axis=0)[: form.depth]
    parts = {"w": codes.astype(dtype), "s": scale, "z": zero.astype(dtype)}
    axis = 0 if form.block else 1
    if form.gemm:
        parts, axis = {name: part.T for name, part in parts.items()}, 1 - axis
    if not form.block:
        shape = (-1,) if form.each else ()
        parts |= {name: parts[name].reshape(shape) for name in "sz"}
    block = f", block_size = {form.block}" if form.block else ""
    product = "y = Gemm <transB = 1> (x, v, b)" if form.gemm else "p = MatMul(x, v) y = Add(p, b)"
    made = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        m (float[n, {form.depth}] x) => (float[n, {form.columns}] y) {{
            v = DequantizeLinear <axis = {axis}{block}> (w, s, z)
            {product}
        }}""")
    arrays = {**parts, "b": bias}
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        for name, array in arrays.items()
    )
    return made, (codes - each) * by, bias


def close(form: Form, x: Array, y: Array, values: Array, bias: Array) -> None:
    wide = x.astype(np.float64)
    # What is missing from weights without their zero points is at most twice the usual weight.
    most = np.abs(wide) @ (3 * np.abs(values)) + np.abs(bias)
    assert (np.abs(y - (wide @ values + bias)) <= most * 2.0**-20).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_bytes_are_kept_and_results_are_right(name: str) -> None:
    form = FORMS[name]
    made, values, bias = model(form)
    rng = np.random.default_rng(4)
    project = driver.compile_model(made, "host", driver.Options(bounds={"n": (1, MOST)}))
    bits = 4 if form.bits == 4 and form.depth % (form.block or 1) == 0 else 8
    groups = max(form.groups, ceil(form.depth / 128))  # of hosts
    assert project.const_bytes < 64 * (form.depth * bits / 8 + 8 * groups) + 1500
    net = host_model(project)
    for n in (1, 2, 5, MOST):
        x = rng.standard_normal((n, form.depth)).astype(np.float32)
        close(form, x, net(x=x)["y"], values, bias)


@pytest.mark.slow
@pytest.mark.parametrize("outlier", [60, 1])
def test_weights_close_to_far_zero_points_are_as_exact(outlier: int) -> None:
    """A part of zero points that multiplied sums of rows would cancel nearly all of the result."""
    rng = np.random.default_rng(7)
    weights = rng.laplace(0, 1, (256, 64))
    weights[7] = outlier * 8
    low, high = np.minimum(weights.min(axis=0), 0), weights.max(axis=0)
    scale = ((high - low) / 255).astype(np.float32)
    zero = np.rint(-low / scale).astype(np.uint8)
    stored = np.clip(np.rint(weights / scale) + zero, 0, 255).astype(np.uint8)
    text = """
        v = DequantizeLinear <axis = 1> (w, s, z)
        y = MatMul(x, v)
    """
    arrays = {"w": stored, "s": scale, "z": zero}
    made = model_of("m (float[n, 256] x) => (float[n, 64] y)", text, arrays)
    net = host_model(driver.compile_model(made, "host", driver.Options(bounds={"n": (1, 5)})))
    values = (stored.astype(np.float64) - zero) * scale
    x = rng.standard_normal((5, 256)).astype(np.float32)
    x[:, 7] *= 0.001
    most = np.abs(x.astype(np.float64)) @ np.abs(values)
    assert (np.abs(net(x=x)["y"] - x.astype(np.float64) @ values) <= most * 2.0**-20).all()


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize(("board", "most"), [("mps2-an386", 3.5), ("mps3-an547", 1.1)])
@pytest.mark.parametrize("name", ["symmetric", "more than 8 bits"])
def test_products_have_the_kernels_of_groups(board: str, most: float, name: str) -> None:
    """A loop that decodes each weight takes six instructions and more for each multiply-add."""
    form = FORMS[name]
    made, values, bias = model(form)
    project = driver.compile_model(made, board, driver.Options(bounds={"n": (1, MOST)}))
    x = np.random.default_rng(5).standard_normal((5, form.depth)).astype(np.float32)
    (run,) = emulate(project, [{"x": x}])
    close(form, x, run.outputs["y"], values, bias)
    assert run.instructions is not None
    assert run.instructions < most * 5 * form.depth * form.columns


@pytest.mark.slow
def test_hosts_decode_weights_of_convolutions_once() -> None:
    rng = np.random.default_rng(6)
    codes = rng.integers(-127, 128, (24, 8, 3, 3)).astype(np.int8)
    scale = rng.uniform(0.01, 0.02, 24).astype(np.float32)
    text = """
        v = DequantizeLinear <axis = 0> (w, s)
        y = Conv <pads = [1, 1, 1, 1]> (x, v)
    """
    made = model_of(
        "m (float[n, 8, 7, 7] x) => (float[n, 24, 7, 7] y)", text, {"w": codes, "s": scale}
    )
    project = driver.compile_model(made, "host", driver.Options(bounds={"n": (1, 3)}))
    small = driver.compile_model(made, "mps2-an386", driver.Options(bounds={"n": (1, 3)}))
    assert small.const_bytes < codes.size + 300 < 4 * codes.size <= project.const_bytes
    values = codes.astype(np.float64) * scale[:, None, None, None]
    net = host_model(project)
    for n in (1, 3):
        x = rng.standard_normal((n, 8, 7, 7)).astype(np.float32)
        padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        expected = np.einsum("nchwij,ocij->nohw", windows, values)
        assert np.abs(net(x=x)["y"] - expected).max() < 1e-3
