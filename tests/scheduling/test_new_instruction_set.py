# SPDX-License-Identifier: Apache-2.0
"""An instruction set is one file: tests/scheduling/toy.py, which nothing else knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from relax_aot import driver, fusion, lowering, planning, project, scheduling, transforms
from relax_aot.externs import read_externs
from relax_aot.ir.loops import Micro, walk
from relax_aot.planning import order
from relax_aot.project.board import load_board
from relax_aot.scheduling.targets import Target, find
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import host_model
from tests.microkernels.calls import differences, in_process
from tests.microkernels.samples import sample
from tests.scheduling import toy

ROWS, DEPTH = 9, 64
BOARD = "mps2-an385"


def model(channels: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    values = ", ".join(map(str, rng.integers(-127, 128, DEPTH * channels)))
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 13]>
        agraph (int8[n, {DEPTH}] x) => (int32[n, {channels}] y)
        <int8[{DEPTH}, {channels}] w = {{{values}}}>
        {{ y = MatMulInteger (x, w) }}
    """)


def built(target: Target, board: str, channels: int) -> project.Project:
    options = driver.Options(bounds={"n": (1, ROWS)})
    original = driver.load(model(channels), options)
    module = fusion.fuse(lowering.lower(transforms.run(original))).module
    module = scheduling.schedule(module, target)
    plan = planning.plan(order.run(module))
    return project.assemble(original, plan, "m", load_board(board), read_externs([], []))


def calls(made: project.Project) -> list[Micro]:
    statements = (stmt for kernel in made.plan.kernels for stmt in walk(kernel.body))
    return [stmt for stmt in statements if isinstance(stmt, Micro)]


def inputs(n: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(n).integers(-128, 128, (n, DEPTH)).astype(np.int8)}


def test_its_micro_kernel_computes_its_meaning() -> None:
    rng = np.random.default_rng(0)
    samples = [sample(toy.ROWS, rng) for _ in range(20)]
    assert not differences(toy.ROWS, samples, in_process((toy.ROWS,), ()))


@pytest.mark.parametrize("channels", [5, 22, 24])
def test_a_matrix_product_uses_it(channels: int) -> None:
    made = built(toy.TARGET, "host", channels)
    assert [call.kernel for call in calls(made)] == [toy.ROWS]
    assert made.files["raot/toy.h"] == toy.HEADER.encode()
    run = host_model(made)
    session = onnxruntime.InferenceSession(model(channels).SerializeToString())
    for n in (1, 4, ROWS):
        (expected,) = session.run(None, inputs(n))
        assert np.array_equal(run(inputs(n))["y"], expected)


@pytest.mark.qemu
def test_a_matrix_product_gets_faster() -> None:
    """Than loops, by the instructions that the emulator counts, although the toy instruction is
    C."""
    board = load_board(BOARD)
    session = onnxruntime.InferenceSession(model(24).SerializeToString())
    (expected,) = session.run(None, inputs(ROWS))
    counts = []
    loops = replace(find(board.family, board.features), strategies=())
    for target in (loops, toy.TARGET):
        (run,) = emulate(built(target, BOARD, 24), [inputs(ROWS)])
        assert np.array_equal(run.outputs["y"], expected)
        assert run.instructions is not None
        counts.append(run.instructions)
    assert counts[1] < 0.9 * counts[0], counts
