# SPDX-License-Identifier: Apache-2.0
"""What a schedule must not lose."""

from __future__ import annotations

import numpy as np
import pytest

import relax_aot as rx
from relax_aot import transforms
from relax_aot.driver import Options, load
from relax_aot.evaluation.reference import evaluate
from relax_aot.fusion import fuse
from relax_aot.lowering import lower
from relax_aot.project.board import load_board
from relax_aot.scheduling import schedule
from relax_aot.scheduling.targets import find
from tests.models.encoder import encoder
from tests.transforms.qdq import Qdq


def test_schedules_keep_what_may_be_in_place() -> None:
    """Fusion says it of the plain loops; the planner asks the scheduled ones."""
    model = encoder(width=16, heads=2, layers=1, hidden=24)
    module = fuse(
        lower(transforms.run(load(model, Options(bounds={"batch": (1, 2), "n": (1, 9)}))))
    )
    before = {kernel.name: kernel.in_place for kernel in module.module.kernels}
    assert any(before.values())
    for name in ("host", "mps2-an386"):
        board = load_board(name)
        after = schedule(module.module, find(board.family, board.features))
        assert {kernel.name: kernel.in_place for kernel in after.kernels} == before


@pytest.mark.slow
@pytest.mark.parametrize("channels_last", [False, True])
def test_products_with_whole_places_take_their_memory(channels_last: bool) -> None:
    """However many places: less than a block, several, and the last one short."""
    q, most = Qdq(np.random.default_rng(3), np.int8), 700
    step = 0.05
    shape: list[int | str] = ["n", 20] if channels_last else [1, 20, "n"]
    x = q.requantized(q.node("Relu", q.input(shape, step)), step)
    for _ in range(2):
        w, scales = q.weights(20, 20, *([] if channels_last else [1]), axis=0)
        bias = q.bias(20, np.float32(step) * scales)
        attributes = {"transB": 1} if channels_last else {}
        x = q.node("Gemm" if channels_last else "Conv", x, w, bias, **attributes)
        step = 0.2
        x = q.requantized(x, step)
    model = q.model(q.node("Relu", x), step)
    module = rx.load(model, bounds={"n": (1, most)})
    project = rx.compile(module)
    assert project.memory.arena_bytes <= 20 * most + 8192
    host, coded = project.host(), transforms.run(module)
    for n in (1, 15, 17, 256, 300, most):
        sizes = [n if size == "n" else int(size) for size in shape]
        inputs = {"x0": q.rng.integers(-128, 128, sizes).astype(np.int8)}
        (expected,) = evaluate(coded, inputs, {"n": n}).values()
        (result,) = host(inputs).values()
        np.testing.assert_array_equal(result, expected)
