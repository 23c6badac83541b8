# SPDX-License-Identifier: Apache-2.0
"""What a schedule must not lose."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import relax_aot as rx
from relax_aot import transforms
from relax_aot.driver import Options, load
from relax_aot.evaluation.interpret import IndexFault, run_kernel
from relax_aot.evaluation.reference import evaluate
from relax_aot.fusion import fuse
from relax_aot.fusion.check import FusionError
from relax_aot.fusion.checking.dependences import unproven_pairs
from relax_aot.ir.dims import ZERO
from relax_aot.ir.loops import Kernel, Micro, walk
from relax_aot.ir.rewrite import map_statements
from relax_aot.lowering import lower
from relax_aot.project.board import load_board
from relax_aot.scheduling import schedule
from relax_aot.scheduling.strategies import dot_positions
from relax_aot.scheduling.targets import find
from tests.fusion.mutants import kernel_inputs, mutants
from tests.models.encoder import encoder
from tests.scheduling.test_integer import SUBJECTS, TARGETS, scheduled
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
    assert project.built.plan.arena_bytes <= 20 * most + 8192
    host, coded = project.host(), transforms.run(module)
    for n in (1, 15, 17, 256, 300, most):
        sizes = [n if size == "n" else int(size) for size in shape]
        inputs = {"x0": q.rng.integers(-128, 128, sizes).astype(np.int8)}
        (expected,) = evaluate(coded, inputs, {"n": n}).values()
        (result,) = host(inputs).values()
        np.testing.assert_array_equal(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_wrong_permissions_of_schedules_are_refused(target: str) -> None:
    """Each pair of one type, in kernels and mutants of them: where shared memory changes a
    result, the pair is not proven."""
    wrong, random = 0, Random(0)
    for name in ("padded", "odd pointwise", "several tiles", "wide depthwise"):
        subject = SUBJECTS[name]
        square = replace(subject, w=(int(subject.x[1]), *subject.w[1:]))
        if name == "wide depthwise":
            square = replace(square, attributes="<group = 2, pads = [1, 1, 1, 1]>")
        module = scheduled(square.model(), target, "speed")
        for kernel in module.kernels:
            changes = [m.kernel for m in mutants(kernel)]
            some = random.sample(changes, min(20, len(changes)))
            for changed in (kernel, *_moved(kernel), *some):
                for pair in _pairs(changed):
                    one = replace(changed, in_place=(pair,))
                    if any(_differs(one, {"n": n}) for n in (1, 9)):
                        assert unproven_pairs(one, module.bounds), one
                        wrong += 1
    assert wrong >= 2, wrong


def _moved(kernel: Kernel) -> Iterator[Kernel]:
    """With one operand of a micro-kernel at the first position of an axis."""
    for call in [stmt for stmt in walk(kernel.body) if isinstance(stmt, Micro)]:
        for number, operand in enumerate(call.operands):
            for axis, at in enumerate(operand.index):
                if at == 0:
                    continue
                index = (*operand.index[:axis], ZERO, *operand.index[axis + 1 :])
                moved = replace(operand, index=index)
                operands = (*call.operands[:number], moved, *call.operands[number + 1 :])
                yield _with_call(kernel, call, replace(call, operands=operands))


def _with_call(kernel: Kernel, call: Micro, other: Micro) -> Kernel:
    body = map_statements(kernel.body, lambda stmt: other if stmt == call else stmt)
    return replace(kernel, body=body)


def _pairs(kernel: Kernel) -> Iterator[tuple[str, str]]:
    for target in kernel.outputs:
        for source in kernel.inputs:
            if source.type == target.type:
                yield source.name, target.name


def _differs(kernel: Kernel, sizes: dict[str, int]) -> bool:
    ((read, written),) = kernel.in_place
    inputs = kernel_inputs(kernel, sizes, 0)
    try:
        apart = run_kernel(kernel, inputs, sizes)
        shared = run_kernel(kernel, inputs, sizes, {written: read})
    except (IndexFault, AssertionError, KeyError, IndexError):
        return False  # a mutant that does not run
    return any(a.tobytes() != b.tobytes() for a, b in zip(apart, shared, strict=True))


def test_a_wrong_permission_of_a_schedule_is_an_error_or_withdrawn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A window reads the row above, which the result has overwritten."""
    model = SUBJECTS["padded"].model()
    fused = fuse(lower(transforms.run(load(model, Options(bounds={"n": (1, 40)}))))).module
    monkeypatch.setattr(
        dot_positions,
        "_in_place",
        lambda p, _: ((p.found.x.buffer.name, p.found.store.buffer.name),),
    )
    with pytest.raises(FusionError, match="is not proven to fit the memory of"):
        schedule(fused, TARGETS["host"])
    with caplog.at_level(logging.WARNING, "relax_aot"):
        after = schedule(fused, TARGETS["host"], lenient=True)
    assert "needs more memory" in caplog.text
    assert not any(kernel.in_place for kernel in after.kernels)
