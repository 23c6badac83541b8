# SPDX-License-Identifier: Apache-2.0
"""A table of embeddings that is also the weights of a product is stored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from relax_aot import driver
from relax_aot.project import Project
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import host_model
from tests.models.onnx_text import model_of, random_weights

Array = np.ndarray[Any, Any]
WIDTH = 24
BODY = """
    h = Gather(table, ids)
    a = Tanh(h)
    t = Transpose<perm=[1, 0]>(table)
    y = MatMul(a, t)
"""
FURTHER = {
    "fixed": "",
    "two embeddings": "k = Gather(table, others)\n extra = Tanh(k)",
    "rows of it": "extra = Gather(table, others)",
}


def table(rows: int, width: int = WIDTH) -> dict[str, Array]:
    return random_weights(np.random.default_rng(rows), table=(rows, width))


def model(rows: int, body: str = BODY, more: str = "") -> onnx.ModelProto:
    inputs = "int64[n] ids" + (", int64[n] others" if more else "")
    outputs = f"float[n, {rows}] y" + (f", float[n, {WIDTH}] extra" if more else "")
    return model_of(f"net ({inputs}) => ({outputs})", body + more, table(rows))


def indices(rows: int) -> list[dict[str, Array]]:
    """For n = 1, 3, 8: the first and the last row are among them, and rows from the end."""
    feeds = []
    for n in (1, 3, 8):
        ids = np.random.default_rng(n).integers(-rows, rows, n)
        ids[:3] = [0, rows - 1, -rows][:n]
        feeds.append({"ids": ids, "others": ids[::-1].copy()})
    return feeds


def compiled(source: onnx.ModelProto, board: str = "host", weights: str = "auto") -> Project:
    options = driver.Options(bounds={"n": (1, 8)}, name="net", weights=weights)
    return driver.compile_model(source, board, options)


def compare(project: Project, source: onnx.ModelProto, feeds: Sequence[dict[str, Array]]) -> None:
    """With ONNX Runtime, on the project's board."""
    session = ort.InferenceSession(source.SerializeToString())
    names = {one.name for one in source.graph.input}
    calls = [{name: x for name, x in feed.items() if name in names} for feed in feeds]
    if project.board.name == "host":
        host = host_model(project, sanitize=True)
        found = [host(**call) for call in calls]
    else:
        found = [run.outputs for run in emulate(project, calls)]
    for call, results in zip(calls, found, strict=True):
        for name, wanted in zip(results, session.run(list(results), call), strict=True):
            np.testing.assert_allclose(results[name], wanted, rtol=1e-4, atol=1e-5)


def table_bytes(rows: int) -> int:
    return 4 * rows * WIDTH


@pytest.mark.slow
@pytest.mark.parametrize("rows", [32, 100])
def test_a_tied_table_is_stored_once(rows: int) -> None:
    """In panels whose last one is narrower, too."""
    source = model(rows)
    project = compiled(source)
    assert project.const_bytes == table_bytes(rows)
    compare(project, source, indices(rows))


@pytest.mark.slow
@pytest.mark.parametrize("more", FURTHER.values(), ids=FURTHER.keys())
def test_all_readers_share_it(more: str) -> None:
    source = model(100, BODY, more)
    project = compiled(source)
    assert project.const_bytes == table_bytes(100)
    compare(project, source, indices(100))


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an385", "mps2-an386", "mps3-an547"])
def test_on_boards(board: str) -> None:
    source = model(100)
    project = compiled(source, board=board)
    assert sum(c.data.nbytes for c in project.plan.module.constants) == table_bytes(100)
    compare(project, source, indices(100))


@pytest.mark.slow
def test_weights_used_in_their_own_order() -> None:
    """The rows that are gathered are those of the product: no transposition."""
    body = "w = Gather(table, ids)\n y = MatMul(x, table)\n extra = Tanh(w)"
    signature = "net (int64[n] ids, float[n, 100] x) => (float[n, 24] y, float[n, 24] extra)"
    source = model_of(signature, body, table(100))
    project = compiled(source)
    assert project.const_bytes == table_bytes(100)
    rng = np.random.default_rng(1)
    feeds = indices(100)
    for feed in feeds:
        feed["x"] = rng.normal(size=(len(feed["ids"]), 100)).astype(np.float32)
    compare(project, source, feeds)


def test_bytes_are_shared_on_64_bit_arm() -> None:
    rng = np.random.default_rng(0)
    weights: dict[str, Array] = {
        "table": rng.integers(-127, 127, (100, WIDTH)).astype(np.int8),
        "s": np.array(1 / 64, np.float32), "z": np.array(0, np.int8),
    }  # fmt: skip
    body = """
        e = Gather(table, ids)
        h = DequantizeLinear(e, s, z)
        g = Tanh(h)
        gq = QuantizeLinear(g, s, z)
        gd = DequantizeLinear(gq, s, z)
        td = DequantizeLinear(table, s, z)
        t = Transpose<perm=[1, 0]>(td)
        p = MatMul(gd, t)
        y = QuantizeLinear(p, s, z)
    """
    source = model_of("net (int64[n] ids) => (int8[n, 100] y)", body, weights)
    project = compiled(source, board="aarch64-linux")
    sizes = [c.data.size for c in project.plan.module.constants]
    assert sizes.count(112 * WIDTH) == 1 and 100 * WIDTH not in sizes


def test_other_tables_stay() -> None:
    """Tables with other values, one whose reads would be most of the work, and weights that may
    be replaced."""
    other = table(100) | {"other": 1 + table(100)["table"]}
    body = BODY.replace("Gather(table", "Gather(other")
    source = model_of("net (int64[n] ids) => (float[n, 100] y)", body, other)
    assert compiled(source).const_bytes == 2 * table_bytes(100)
    body = "h = Gather(table, ids)\n a = ReduceSum<keepdims=0>(h, axes)\n"
    body += "t = Transpose<perm=[1, 0]>(table)\n y = MatMul(x, t)"
    constants = {**table(100), "axes": np.array([0, 1])}
    signature = (
        f"net (int64[n, 900] ids, float[1, {WIDTH}] x) => (float[{WIDTH}] a, float[1, 100] y)"
    )
    source = model_of(signature, body, constants)
    project = compiled(source)
    assert project.const_bytes == 2 * table_bytes(100)
    project = compiled(model(100), weights="blob")
    assert project.const_bytes == 2 * table_bytes(100)
