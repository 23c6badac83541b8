# SPDX-License-Identifier: Apache-2.0
"""Products of half-precision values with constant weights of 4 and 8 bits in groups, as exported
language models have them: matrix units and rows alone compute them with the dequantized weights."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.emit.cuda_module import device_source
from relax_aot.fusion import fuse
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Micro, walk
from relax_aot.ir.parse import parse
from relax_aot.lowering import lower
from relax_aot.project import Project
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.devices.matrix_tiles import Tiles
from relax_aot.scheduling.devices.matrix_units import matrix_product
from relax_aot.scheduling.targets.cuda_mma import TARGET
from tests.cuda.emulated import Emulated
from tests.cuda.shim import Job, Shim

Array = NDArray[Any]
GROUP, COLUMNS = 32, 72
NBITS = """
symbol n in 1..600
const %b: u8[{columns}, {groups}, {bytes}] = splat 0
const %s: f16[{columns}, {groups}] = splat 1.0
const %z: u8[{columns}, {zeros}] = splat 0
func @main(%x: f16[n, {depth}]) {{
  %y: f16[n, {columns}] = matmul_nbits(%x, %b, %s, {zero}) {{bits={bits}, block=32}}
  return %y
}}"""
DEQUANTIZED = """
symbol n in 1..600
const %b: {kind}[{depth}, {columns}] = splat 0
const %s: f16[{groups}, {columns}] = splat 1.0
const %z: {kind}[{groups}, {columns}] = splat 0
func @main(%x: f16[n, {depth}]) {{
  %w: f16[{depth}, {columns}] = dequantize(%b, %s, {zero}) {{axis=0, block=32, to=f16}}
  %y: f16[n, {columns}] = matmul(%x, %w)
  return %y
}}"""


def text_of(form: str, depth: int) -> str:
    """`form`: `n4`, `n8` for packed weights, `i4`, `u4` for types; `z` follows for zero points,
    `b` for bfloat16."""
    groups, bits = -(-depth // GROUP), int(form[1])
    zero, width = "%z" if "z" in form else "_", -(-groups * bits // 8)
    text = NBITS if form[0] == "n" else DEQUANTIZED
    text = text.replace("f16", "bf16") if form.endswith("b") else text
    return text.format(
        columns=COLUMNS, groups=groups, depth=depth, bits=bits, bytes=GROUP * bits // 8,
        kind=form[:2], zero=zero, zeros=width,
    )  # fmt: skip


def with_random_constants(module: Module, random: np.random.Generator) -> Module:
    def data(old: Array, name: str) -> Array:
        if name == "s":
            return random.uniform(0.001, 0.1, old.shape).astype(old.dtype)
        low, high = (-8, 8) if old.dtype.name == "int4" else (0, 16)
        low, high = (0, 256) if old.dtype == np.uint8 else (low, high)
        return random.integers(low, high, old.shape).astype(old.dtype)

    constants = tuple(replace(c, data=data(c.data, c.name)) for c in module.constants)
    return replace(module, constants=constants)


def numbers(packed: Array, bits: int) -> Array:
    """[row, ...] of packed bytes -> [row, number]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    wide = packed.reshape(len(packed), -1, 1) >> shifts & np.uint8(2**bits - 1)
    return np.asarray(wide.reshape(len(packed), -1).astype(np.int32))


def dequantized(form: str, depth: int, module: Module) -> Array:
    """Weights [k, column] of half precision."""
    data = {c.name: c.data for c in module.constants}
    scales, zeros = data["s"].astype(np.float32), np.zeros(1, np.int32)
    if form[0] == "n":
        bits = int(form[1])
        weights = numbers(data["b"], bits).T[:depth]
        zeros = np.full_like(scales.T, 2 ** (bits - 1), np.int32)
        if "z" in form:
            zeros = numbers(data["z"], bits).T[: len(zeros)]
        scales = scales.T
    else:
        weights = data["b"].astype(np.int32)
        zeros = data["z"].astype(np.int32) if "z" in form else np.zeros_like(scales)
    spread = [np.repeat(one, GROUP, axis=0)[:depth] for one in (zeros, scales)]
    return np.asarray(((weights - spread[0]) * spread[1]).astype(data["s"].dtype))


def device(form: str, depth: int) -> tuple[Module, Module]:
    """The module with constants, and its device form with tiles of all kinds."""
    module = with_random_constants(parse(text_of(form, depth)), np.random.default_rng(depth))
    strategy = partial(matrix_product, tiles=Tiles(enough=4))
    return module, schedule_device(fuse(lower(module)).module, replace(TARGET, nests=(strategy,)))


@pytest.mark.parametrize("form", ["n4", "n4z", "n8", "i4", "u4z", "n4b", "u4zb"])
def test_they_are_decoded_in_registers(form: str) -> None:
    _, made = device(form, 96)
    (kernel,) = made.kernels
    names = {one.name for one in walk(kernel.body) if isinstance(one, Micro)}
    kind = "u8" if form == "n8" else "u4"
    half = "bf16" if form.endswith("b") else "f16"
    assert {f"raot_mma_m16n8k16_{half}", f"raot_load8_{kind}", f"raot_multiply8_{half}"} <= names
    weights = [c for c in made.constants if c.name.startswith("b")]
    assert len(weights) == 1
    assert weights[0].data.nbytes == 96 * COLUMNS // (1 if form == "n8" else 2)


def test_zero_points_are_shifted_by_known_numbers_of_bits() -> None:
    """Of two in a byte."""
    _, made = device("n4z", 128)
    text = device_source("model", [*made.kernels], made.bounds).text
    assert "raot_shr_u8(z" not in text and re.search(r"\(uint8_t\)\(z\[.*\] >> ", text)


CASES = [
    ("n4z", 104),
    ("i4", 96),
    ("n8z", 96),
    ("n4", 100),
    ("u4z", 40),
    ("n8", 104),
    ("n4", 416),
    ("n4zb", 104),
    ("i4b", 96),
    ("n4z", 64),
    ("n8z", 192),
    ("i4", 256),
    ("n4b", 320),
]


@pytest.mark.parametrize("cases", [CASES[:1], CASES[1:]], ids=["one", "others"])
@pytest.mark.long
def test_results_are_those_of_dequantized_weights(
    cases: list[tuple[str, int]], tmp_path: Path
) -> None:
    """At one row, a few, and many."""
    for number, (form, depth) in enumerate(cases):
        module, made = device(form, depth)
        (kernel,), (call,) = made.kernels, made.main.body
        decoded = dequantized(form, depth, module)
        weights, kind = decoded.astype(np.float64), decoded.dtype
        unit = 2.0 ** (-9 if form.endswith("b") else -12)
        jobs, random = [], np.random.default_rng(1)
        for n in (1, 3, 5, 70, 600):
            given = {"x": random.normal(size=(n, depth)).astype(kind)}
            given |= {c.name: c.data for c in made.constants}
            inputs = tuple(given[value.name] for value in call.inputs)
            jobs.append(Job(kernel.name, inputs, {"n": n}, seed=n))
        folder = tmp_path / str(number)
        folder.mkdir()
        for job, answer in zip(jobs, Shim([kernel], made.bounds, folder).run(jobs), strict=True):
            x = job.inputs[0].astype(np.float64)
            value, size = x @ weights, np.abs(x) @ np.abs(weights)
            error = np.abs(answer.outputs[0].astype(np.float64) - value)
            limit = 2 * unit * np.abs(value) + 2.0**-19 * size + 2.0**-25
            assert (error <= limit).all(), (form, depth, job.sizes)


def large() -> tuple[Project, Array]:
    """A product with large tiles from 257 rows on, and its weights."""
    random = np.random.default_rng(4)
    w = random.integers(-128, 128, (32, 1024)).astype(np.int8)
    s = random.uniform(0.001, 0.1, 1024).astype(np.float16)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    inputs, results = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, ["n", size])]
        for name, size in (("x", 32), ("y", 1024))
    )
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(s, "s")]
    graph = helper.make_graph(nodes, "g", inputs, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = Options(bounds={"n": (1, 600)}, emit="cuda-source", name="large")
    project = driver.compile_model(model, "jetson-orin-nano", options)
    return project, (w.astype(np.float32) * s.astype(np.float32)).astype(np.float16)


@pytest.mark.slow
def test_launches_of_large_tiles_ask_for_shared_memory() -> None:
    """More than arrays of a kernel may have."""
    project, _ = large()
    table = re.findall(r'^    {"(\w+)", (\d+)},', project.files["large.c"].decode(), re.M)
    asked = {name: int(count) for name, count in table if int(count) > 0}
    (made,) = asked.values()
    assert 48 << 10 < made <= 99 << 10
    text = project.files["large.cu"].decode()
    assert re.findall(r"RAOT_DYNAMIC_SHARED\(\w+, (\d+)\);", text) == [str(made)]


@pytest.mark.long
def test_a_driver_may_refuse_shared_memory() -> None:
    project, weights = large()
    found = Emulated(project)
    found.fail("cuFuncSetAttribute")
    assert found.init(n=300) == -13
    assert "cuFuncSetAttribute" in found.message and found.live == 0
    assert found.init(n=300) == 0, found.message
    x = np.random.default_rng(1).normal(size=(300, 32)).astype(np.float16)
    y = np.zeros((300, 1024), np.float16)
    assert found.run([x], [y], n=300) == 0, found.message
    decoded, wide = weights.astype(np.float64), x.astype(np.float64)
    value, size = wide @ decoded, np.abs(wide) @ np.abs(decoded)
    assert (np.abs(y - value) <= 2.0**-11 * np.abs(value) + 2.0**-19 * size + 2.0**-25).all()
    found.close()
