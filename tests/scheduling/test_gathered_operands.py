# SPDX-License-Identifier: Apache-2.0
"""Products with rows at indices from data, as embedding lookups or logits of selected entries of a
vocabulary. The gathered matrix is never stored: tiles read panels of it, on every target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from relax_aot.driver import Options, compile_module, load
from relax_aot.ir.loops import Micro, Multiply, walk
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import build_library, host_model
from relax_aot.verify.library import Library
from relax_aot.verify.program import to_bytes

OK, ERR_INDEX = 0, -6
VOCABULARY, DEPTH, WIDTH, DEEP = 50, 37, 45, 3000
N, S = 30, 70
SIZES = [(1, 1), (N, S), (5, 33), (7, 8), (24, 31), (25, 65)]
ROWS = {"host": 24, "mps2-an386": 4, "mps3-an547": 6}
"""Rows of a tile, for which a left operand is copied."""

PARTS = {"host": 2048, "mps2-an386": 160, "mps3-an547": 160}
"""Steps of a sum that is too long for a panel of all of it."""


@dataclass(frozen=True)
class Case:
    """`s` indices `at` into `table`. `panels`: floats of the arena at the highest sizes, for tiles
    of so many rows; a stored matrix would take `S * depth`."""

    nodes: tuple[Any, ...]
    panels: Mapping[str, int]
    rows: str = "s"
    others: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    kind: Any = np.int64
    depth: int = DEPTH
    stored: Any = np.float32


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def each(floats: int) -> dict[str, int]:
    return dict.fromkeys(ROWS, floats)


GATHER = node("Gather", "table at", "e", axis=0)
LEFT = (GATHER, node("MatMul", "e w", "y"))
TURNED = (GATHER, node("Transpose", "e", "u", perm=[1, 0]), node("MatMul", "x u", "y"))
BY_ROWS = {board: DEPTH * rows for board, rows in ROWS.items()}
CASES = {
    "rows": Case(LEFT, BY_ROWS),
    "indices of 32 bits": Case(LEFT, BY_ROWS, kind=np.int32),
    "what follows is fused": Case(
        (*LEFT[:1], node("MatMul", "e w", "a"), node("Add", "a b", "c"), node("Relu", "c", "y")),
        BY_ROWS,
    ),
    "two products of the same rows": Case(
        (*LEFT[:1], node("MatMul", "e w", "p"), node("MatMul", "e v", "q"),
         node("Mul", "p q", "y")),
        BY_ROWS,
    ),
    "columns": Case(TURNED, each(DEPTH * 32), others={"x": ("n", DEPTH)}),
    "columns for one row": Case(TURNED, each(0), others={"x": (1, DEPTH)}),
    "a sum too long for a panel": Case(
        TURNED, {**each(160 * 32), "host": DEEP * 16},
        others={"x": ("n", DEEP)}, depth=DEEP,
    ),
    "rows too long for a panel": Case(
        LEFT, {board: part * ROWS[board] for board, part in PARTS.items()}, depth=DEEP
    ),
    "both factors": Case(
        (GATHER, node("Gather", "table from", "f", axis=0),
         node("Transpose", "f", "u", perm=[1, 0]), node("MatMul", "e u", "y")),
        {board: DEPTH * (rows + 32) for board, rows in ROWS.items()},
        others={"from": ("n",)},
    ),
}  # fmt: skip


ALL = tuple(CASES)


def named(name: str, value: str) -> str:
    """A value of one of several cases in one model."""
    return f"{value}_{ALL.index(name)}"


def shape(case: Case, name: str) -> tuple[Any, ...]:
    known: dict[str, tuple[Any, ...]] = {"table": (VOCABULARY, case.depth), "b": (WIDTH,)}
    return known.get(name) or case.others.get(name) or (case.depth, WIDTH)


def constants(name: str) -> dict[str, NDArray[Any]]:
    """Small integers, so that every order of a sum gives the same bits."""
    case, rng = CASES[name], np.random.default_rng(4)
    read = {value for one in case.nodes for value in one.input}
    return {
        given: rng.integers(-4, 5, shape(case, given)).astype(np.float32)
        for given in ("table", "w", "v", "b")
        if given in read
    }


def model(names: tuple[str, ...]) -> Any:
    info, inputs, outputs, nodes, initializers = helper.make_tensor_value_info, [], [], [], []
    for name in names:
        case = CASES[name]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(case.kind))
        for given, sizes in {"at": ("s",), **case.others}.items():
            dtype = kind if given in ("at", "from") else TensorProto.FLOAT
            inputs.append(info(named(name, given), dtype, sizes))
        for given, data in constants(name).items():
            initializers.append(numpy_helper.from_array(data, named(name, given)))
        outputs.append(info(named(name, "y"), TensorProto.FLOAT, None))
        for one in case.nodes:
            values = [" ".join(named(name, v) for v in part) for part in (one.input, one.output)]
            attributes = {a.name: helper.get_attribute_value(a) for a in one.attribute}
            nodes.append(node(one.op_type, *values, **attributes))
    graph = helper.make_graph(nodes, "gathered", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@cache
def project(names: tuple[str, ...], board: str = "host") -> Project:
    bounds = {"n": (1, N), "s": (1, S)}
    free = {
        "s",
        *(size for name in names for sizes in CASES[name].others.values() for size in sizes),
    }
    options = Options(bounds={n: b for n, b in bounds.items() if n in free}, name="m", check=True)
    return compile_module(load(model(names), options), load_board(board), options)


def arrays(n: int, s: int) -> dict[str, NDArray[Any]]:
    """Inputs of all cases."""
    rng, made = np.random.default_rng(n * 100 + s), {}
    for name, case in CASES.items():
        for given, sizes in {"at": ("s",), **case.others}.items():
            extent = [{"n": n, "s": s}.get(size, size) for size in sizes]
            indices = given in ("at", "from")
            low, high = (-VOCABULARY, VOCABULARY) if indices else (-4, 5)
            data = rng.integers(low, high, extent)
            made[named(name, given)] = data.astype(case.kind if indices else np.float32)
    return made


@cache
def expected() -> list[dict[str, NDArray[Any]]]:
    session = onnxruntime.InferenceSession(model(ALL).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    runs = (session.run(None, arrays(n, s)) for n, s in SIZES)
    return [dict(zip(names, run, strict=True)) for run in runs]


@pytest.mark.parametrize("sanitize", [False, pytest.param(True, marks=pytest.mark.long)])
def test_host(sanitize: bool) -> None:
    host = host_model(project(ALL), sanitize=sanitize)
    for (n, s), wanted in zip(SIZES, expected(), strict=True):
        found = host(**arrays(n, s))
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, ALL[int(name[2:])])


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps3-an547", "mps2-an386"])
@pytest.mark.long
def test_boards(board: str) -> None:
    runs = emulate(project(ALL, board), [arrays(n, s) for n, s in SIZES])
    for run, wanted in zip(runs, expected(), strict=True):
        for name, value in wanted.items():
            np.testing.assert_array_equal(run.outputs[name], value, ALL[int(name[2:])])


@pytest.mark.parametrize("board", ROWS)
@pytest.mark.parametrize("name", CASES)
def test_the_arena_holds_panels_alone(name: str, board: str) -> None:
    """One kernel for each product, which reads the table."""
    compiled, case = project((name,), board), CASES[name]
    table = compiled.plan.module.kernel_table
    calls = [call for call in compiled.plan.module.main.body if call.op == "call_kernel"]
    kernels = [table[call.ref("kernel")] for call in calls]
    assert sum(one.op_type == "MatMul" for one in case.nodes) >= len(kernels)
    wanted = 4 * case.panels[board]
    for kernel in kernels if wanted else ():
        assert any(isinstance(stmt, Multiply | Micro) for stmt in walk(kernel.body))
    assert wanted <= compiled.plan.arena_bytes < wanted + 64


def test_a_bad_index_ends_the_run_with_nothing_touched() -> None:
    compiled = project(ALL)
    library = Library(build_library(compiled))
    names = [port.source for port in compiled.interface.inputs]
    for n, s in SIZES:
        dims = [{"n": n, "s": s}[f.symbol.name] for f in compiled.interface.dims]
        given = arrays(n, s)
        for which in (name for name in names if name.startswith(("at", "from"))):
            for place in {0, given[which].size - 1}:
                for bad in (VOCABULARY, -VOCABULARY - 1, np.iinfo(given[which].dtype).min):
                    at = given[which].copy()
                    at[place] = bad
                    inputs = [to_bytes(at if one == which else given[one]) for one in names]
                    result = library.run(dims, inputs, arena_bytes=library.arena_bytes)
                    assert result.status == ERR_INDEX
                    assert result.untouched and result.guards_ok
