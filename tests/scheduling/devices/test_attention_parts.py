# SPDX-License-Identifier: Apache-2.0
"""Attention of few queries in parts of keys: the results of the plain loops, and of half precision
as exact as that; at each size, one of the forms has blocks."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.fusion import fuse
from relax_aot.ir.loops import Kernel
from relax_aot.ir.parse import parse
from relax_aot.lowering import lower
from relax_aot.scheduling.devices import attention as schedule
from relax_aot.scheduling.devices import attention_parts
from relax_aot.scheduling.devices.launches import launches
from relax_aot.scheduling.targets import Context, cuda, cuda_mma
from tests.scheduling.devices import test_attention_matrices as halves
from tests.scheduling.devices.test_attention import arguments
from tests.scheduling.test_online_softmax import ATTENTION, fused, plain

PART = 8
CASES = [(1, 0, "numbers"), (1, 50, "shut keys"), (15, 23, "special"), (2, 16, "shut blocks")]


@cache
def device(kind: str) -> Kernel:
    module = fused(True) if kind == "f32" else halves.module("odd sizes")
    target = cuda.TARGET if kind == "f32" else cuda_mma.TARGET
    with patch.object(schedule, "PART", PART), patch.object(attention_parts, "PART", PART):
        made = schedule.attention(module.kernels[0], module.bounds, Context(target))
    assert made is not None
    return made


@pytest.mark.parametrize(("s", "n", "kind"), CASES)
def test_parts_have_the_results_of_rows(s: int, n: int, kind: str) -> None:
    kernel, sizes = device("f32"), {"s": s, "n": n}
    data = arguments(kernel, s, n, kind)
    (expected,) = run_kernel(plain(True), data, sizes)
    (found,) = run_kernel(kernel, data, sizes, seed=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("s", "n", "kind"), [(1, 33, "shut keys"), (3, 24, "special")])
def test_parts_are_as_exact_as_half_precision(s: int, n: int, kind: str) -> None:
    kernel, given = device("f16"), halves.feeds("odd sizes", s, n, kind)
    data = halves.arguments("odd sizes", kernel, given)
    (found,) = run_kernel(kernel, data, {"s": s, "n": n}, seed=1)
    # Scores of at most 10 are rounded too.
    halves.assert_close("odd sizes", found, given, roundings=10)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_few_queries_take_parts_and_many_take_blocks(kind: str) -> None:
    made = launches(device(kind))
    assert len(made) == 3
    for s, used in (
        (1, [False, True, True]),
        (15, [False, True, True]),
        (16, [True, False, False]),
    ):
        grids = [launch.grid.evaluate({"s": s, "n": 40}) for launch in made]
        assert [grid > 0 for grid in grids] == used


def test_each_part_of_a_row_is_a_warp() -> None:
    text = ATTENTION.replace("MASKED", "false").replace("symbol n in 0..50", "symbol n in 0..5000")
    module = fuse(lower(parse(text))).module
    (kernel,) = module.kernels
    made = schedule.attention(kernel, module.bounds, Context(cuda.TARGET))
    assert made is not None
    _, parts, combined = launches(made)
    sizes = {"s": 2, "n": 4096}
    assert parts.grid.evaluate(sizes) * parts.threads == 2 * 2 * 32 * 32
    assert combined.grid.evaluate(sizes) > 0


def test_more_heads_than_a_block_of_queries() -> None:
    """Only loops over queries are short."""
    text = ATTENTION.replace("MASKED", "false").replace("f32[2,", "f32[17,")
    module = fuse(lower(parse(text.replace("symbol s in 1..50", "symbol s in 1..2")))).module
    (kernel,) = module.kernels
    with patch.object(schedule, "PART", PART), patch.object(attention_parts, "PART", PART):
        made = schedule.attention(kernel, module.bounds, Context(cuda.TARGET))
    assert made is not None
    rng = np.random.default_rng(3)
    sizes = {"s": 1, "n": 9}
    shapes = [[size.evaluate(sizes) for size in buffer.shape] for buffer in kernel.inputs]
    data = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    (expected,) = run_kernel(kernel, data, sizes)
    (found,) = run_kernel(made, data, sizes, seed=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
