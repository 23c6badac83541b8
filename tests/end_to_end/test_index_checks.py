# SPDX-License-Identifier: Apache-2.0
"""Indices from data are checked before anything is written, and not where they cannot be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from relax_aot import fusion, lowering, transforms
from relax_aot.driver import Options, compile_module, load
from relax_aot.evaluation.kernel_values import IndexFault
from relax_aot.evaluation.reference import evaluate
from relax_aot.ir import check
from relax_aot.ir.graph import Module
from relax_aot.ops import deduce
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.verify.host import build_library, host_model
from relax_aot.verify.library import Library
from relax_aot.verify.program import to_bytes

FLOAT, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8
OK, ERR_INDEX = 0, -6
N, S = (1, 9), (1, 7)
SIZES = [(1, 1), (9, 7), (5, 3), (2, 7)]


@dataclass(frozen=True)
class Case:
    """`n` is the axis that is indexed, `s` how many indices there are. `indices`: its shape."""

    nodes: tuple[Any, ...]
    indices: tuple[Any, ...]
    others: Mapping[str, tuple[Any, ...]]
    results: tuple[str, ...]
    guards: int
    kernels: int
    state: Mapping[str, str] = field(default_factory=dict)
    staged: int = 0


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


CASES = {
    "rows, then arithmetic": Case(
        (node("Gather", "x at", "e", axis=0), node("Add", "e b", "f"), node("Relu", "f", "y")),
        ("s",), {"x": ("n", 4), "b": ("s", 4)}, ("y",), 1, 2,
    ),
    "columns": Case(
        (node("Gather", "x at", "y", axis=1),), ("s",), {"x": (3, "n")}, ("y",), 1, 2,
    ),
    "elements": Case(
        (node("GatherElements", "x at", "y", axis=0),), ("s", 4), {"x": ("n", 4)}, ("y",), 1, 2,
    ),
    "tuples of indices": Case(
        (node("GatherND", "x at", "y"),), ("s", 2), {"x": ("n", "n", 2)}, ("y",), 1, 2,
    ),
    "the same indices twice": Case(
        (node("Gather", "x at", "e", axis=0), node("Gather", "z at", "f", axis=0),
         node("Sub", "e f", "y")),
        ("s",), {"x": ("n", 4), "z": ("n", 4)}, ("y",), 1, 2,
    ),
    "an output is written before the indices are read": Case(
        (node("Relu", "x", "first"), node("Gather", "first at", "y", axis=0)),
        ("s",), {"x": ("n", 4)}, ("first", "y"), 1, 3,
    ),
    "into a state": Case(
        (node("ScatterND", "x at u", "y"), node("Relu", "y", "z")),
        ("s", 1), {"x": ("n", 4), "u": ("s", 4)}, ("y", "z"), 1, 3, {"x": "y"},
    ),
    "sums into a state": Case(
        (node("ScatterElements", "x at u", "y", axis=0, reduction="add"),),
        ("s", 4), {"x": ("n", 4), "u": ("s", 4)}, ("y",), 1, 2, {"x": "y"},
    ),
}  # fmt: skip


def model(case: Case) -> Any:
    info = helper.make_tensor_value_info
    inputs = [info("at", INT64, case.indices)]
    inputs += [info(name, FLOAT, shape) for name, shape in case.others.items()]
    outputs = [info(name, FLOAT, None) for name in case.results]
    graph = helper.make_graph(list(case.nodes), "indices", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def options(case: Case) -> Options:
    return Options(bounds={"n": N, "s": S}, state=dict(case.state), name="m")


@cache
def project(name: str) -> Project:
    case = CASES[name]
    return compile_module(load(model(case), options(case)), load_board("host"), options(case))


def arrays(case: Case, n: int, s: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    def size(dim: Any) -> int:
        return {"n": n, "s": s}[dim] if isinstance(dim, str) else int(dim)

    floats = {
        name: rng.normal(size=[size(d) for d in shape]).astype(np.float32)
        for name, shape in case.others.items()
    }
    shape = [size(d) for d in case.indices]
    if case.state:  # ONNX leaves the order of two updates of one element open
        at = np.argsort(rng.random((n, *shape[1:])), axis=0)[: shape[0]] - (rng.random() < 0.5) * n
    else:
        at = rng.integers(-n, n, shape)
    return {"at": at.astype(np.int64), **floats}


def steps(compiled: Project) -> list[Any]:
    return [call for call in compiled.plan.module.main.body if call.op in ("guard", "call_kernel")]


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnx_runtime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    case, rng = CASES[name], np.random.default_rng(7)
    session = onnxruntime.InferenceSession(model(case).SerializeToString())
    host = host_model(project(name))
    for n, s in SIZES:
        s = min(s, n) if case.state else s
        given = arrays(case, n, s, rng)
        if case.state:
            host.reset()
            given |= {state: np.zeros_like(given[state]) for state in case.state}
        wanted = dict(zip(case.results, session.run(None, given), strict=True))
        inputs = {key: value for key, value in given.items() if key not in case.state}
        sizes = {"n": n} if case.state else {}
        found = host.at(sizes)(**inputs) if sizes else host(**inputs)
        for result in found:
            np.testing.assert_array_equal(found[result], wanted[result])


@pytest.mark.parametrize("name", CASES)
def test_one_bad_index_ends_the_run_with_nothing_touched(name: str) -> None:
    case, rng = CASES[name], np.random.default_rng(8)
    compiled = project(name)
    library = Library(build_library(compiled))
    for n, s in SIZES:
        s = min(s, n) if case.state else s
        given = arrays(case, n, s, rng)
        dims = [{"n": n, "s": s}[f.symbol.name] for f in compiled.interface.dims]
        assert library.init(dims) == OK
        for place in {0, given["at"].size - 1, int(rng.integers(given["at"].size))}:
            for bad in (n, -n - 1, 2**40, -(2**63), 2**63 - 1):
                at = given["at"].copy()
                at.reshape(-1)[place] = bad
                inputs = [
                    to_bytes(at if port.source == "at" else given[port.source])
                    for port in compiled.interface.inputs
                ]
                result = library.run(dims, inputs, arena_bytes=library.arena_bytes)
                assert result.status == ERR_INDEX
                assert result.untouched and result.guards_ok


@pytest.mark.parametrize("name", CASES)
def test_a_check_stands_before_what_cannot_fail(name: str) -> None:
    case, compiled = CASES[name], project(name)
    found = steps(compiled)
    assert sum(call.op == "guard" for call in found) == case.guards
    assert len(found) == case.kernels
    kernels = compiled.plan.module.kernel_table
    assert not any(kernels[c.ref("kernel")].fallible for c in found if c.op == "call_kernel")
    assert len(compiled.plan.commits) == case.staged


SUMS = {
    "ScatterND": (node("ScatterND", "start target b", "y", reduction="add"),),
    "scatter_add of PyTorch": (
        node("Shape", "b", "size"), node("Expand", "target size", "at"),
        node("ScatterElements", "start at b", "y", axis=0, reduction="add"),
    ),
    "with repeat": (
        node("Tile", "target repeats", "at"),
        node("ScatterElements", "start at b", "y", axis=0, reduction="add"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_messages_along_edges_are_not_stored(name: str) -> None:
    """Source: segment sums of graph networks; an edge buffer would take 2,000 x 32 floats."""
    onnxruntime = pytest.importorskip("onnxruntime")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Gather", "x source", "a", axis=0), node("Mul", "a weight", "b"), *SUMS[name]],
        "edges",
        [info("x", FLOAT, ["n", 32]), info("source", INT64, ["e"]),
         info("target", INT64, ["e", 1]), info("weight", FLOAT, ["e", 1]),
         info("start", FLOAT, ["n", 32])],
        [info("y", FLOAT, ["n", 32])],
        [numpy_helper.from_array(np.array([1, 32]), "repeats")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    chosen = Options(bounds={"n": (1, 64), "e": (0, 2000)}, name="edges")
    compiled = compile_module(load(made, chosen), load_board("host"), chosen)
    assert compiled.plan.arena_bytes == 0
    session, host = onnxruntime.InferenceSession(made.SerializeToString()), host_model(compiled)
    rng = np.random.default_rng(10)
    for n, e in ((1, 0), (1, 5), (64, 2000), (7, 13)):
        given: dict[str, np.ndarray] = {
            "x": rng.integers(-8, 8, (n, 32)).astype(np.float32),
            "source": rng.integers(-n, n, e), "target": rng.integers(-n, n, (e, 1)),
            "weight": rng.integers(-8, 8, (e, 1)).astype(np.float32),
            "start": rng.integers(-8, 8, (n, 32)).astype(np.float32),
        }  # fmt: skip
        (wanted,) = session.run(None, given)
        np.testing.assert_array_equal(host(**given)["y"], wanted)


NEEDLESS = {
    "the place of a maximum": (
        node("ArgMax", "x", "at", axis=0, keepdims=0), node("Gather", "x at", "y", axis=0),
    ),
    "clipped": (
        node("Cast", "x", "whole", to=INT64), node("Clip", "whole zero three", "at"),
        node("Gather", "x4 at", "y", axis=0),
    ),
    "a comparison": (
        node("Less", "x zero_f", "less"), node("Cast", "less", "at", to=INT64),
        node("Gather", "x4 at", "y", axis=0),
    ),
    "from the end": (
        node("Cast", "x", "whole", to=INT64), node("Clip", "whole minus_four minus_one", "at"),
        node("Gather", "x4 at", "y", axis=0),
    ),
    "moved and joined": (
        node("ArgMax", "x", "one", axis=0, keepdims=1), node("Transpose", "one", "two"),
        node("Unsqueeze", "two axes", "a"), node("Concat", "a a", "at", axis=0),
        node("Gather", "x at", "y", axis=0),
    ),
}  # fmt: skip


def lowered(nodes: tuple[Any, ...], low: int = 1) -> Module:
    info = helper.make_tensor_value_info
    constants = [
        helper.make_tensor("zero", INT64, [], [0]), helper.make_tensor("three", INT64, [], [3]),
        helper.make_tensor("minus_four", INT64, [], [-4]),
        helper.make_tensor("minus_one", INT64, [], [-1]),
        helper.make_tensor("zero_f", FLOAT, [], [0.0]), helper.make_tensor("axes", INT64, [1], [0]),
    ]  # fmt: skip
    graph = helper.make_graph(
        list(nodes), "m", [info("x", FLOAT, ["n", 4]), info("x4", FLOAT, [4, 2])],
        [info("y", FLOAT, None)], constants,
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    module = load(made, Options(bounds={"n": (low, 9)}))
    return lowering.check_then_trust(lowering.lower(transforms.run(module)))


@pytest.mark.parametrize("name", NEEDLESS)
def test_indices_that_cannot_be_wrong_are_not_checked(name: str) -> None:
    module = lowered(NEEDLESS[name])
    assert "guard" not in {call.op for call in module.main.body}
    assert not any(kernel.fallible for kernel in module.kernels)


def wider(end: int) -> tuple[Any, ...]:
    clip = node("Clip", "whole zero three" if end == 3 else "whole minus_four three", "at")
    taken = node("Gather", "x at", "y", axis=0)
    return (node("Cast", "x", "whole", to=INT64), clip, taken)


def test_indices_that_may_be_wrong_for_some_size_are_checked() -> None:
    """0..3 is right for 4 rows or more; -4..3 as well, since negative ones count from the end."""
    for end in (3, -4):
        assert "guard" in {call.op for call in lowered(wider(end), low=3).main.body}
        assert "guard" not in {call.op for call in lowered(wider(end), low=4).main.body}


def test_the_interpreter_runs_guards() -> None:
    case = CASES["rows, then arithmetic"]
    module = load(model(case), options(case))
    before = lowering.lower(transforms.run(module))
    after = fusion.fuse(lowering.check_then_trust(before)).module
    check.check(after, deduce)
    rng = np.random.default_rng(9)
    given = arrays(case, 5, 3, rng)
    sizes = {"n": 5, "s": 3}
    np.testing.assert_equal(evaluate(before, given, sizes), evaluate(after, given, sizes))
    with pytest.raises(IndexFault):
        evaluate(after, given | {"at": given["at"] + 5}, sizes)
