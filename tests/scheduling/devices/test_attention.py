# SPDX-License-Identifier: Apache-2.0
"""Attention in blocks of queries and keys: the results of the plain loops within rounding, NaN and
zeros where these have them, and planted faults that are found."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.fusion import fuse
from relax_aot.ir.check import check
from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Kernel
from relax_aot.ir.parse import parse
from relax_aot.lowering import lower
from relax_aot.ops import deduce
from relax_aot.ops._op import Array
from relax_aot.scheduling import schedule
from relax_aot.scheduling.devices.attention import attention
from relax_aot.scheduling.devices.attention_tiles import BLOCKS as SIZES
from relax_aot.scheduling.devices.attention_tiles import Blocks, tiles
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.targets.cuda import TARGET
from tests.scheduling.devices.kernels import without_barriers, without_conditions
from tests.scheduling.test_online_softmax import ATTENTION, feeds, fused, plain

BLOCKS = Blocks(32, 16)
"""One warp, for 32 queries and 16 keys at a time."""
CASES = [
    (1, 0, "numbers"), (33, 23, "numbers"), (32, 16, "shut keys"), (5, 40, "shut blocks"),
    (9, 17, "special"), (3, 50, "steep"),
]  # fmt: skip
ROOMS = (10200, 10800)
"""Bytes of shared memory for some steps of large heads, and for some of the values of a block."""
FOUND = {
    64: Blocks(64, 32, 64, 32),
    100: Blocks(64, 32, 25, 32),
    202: Blocks(64, 64, 32, 16),
    512: Blocks(32, 128, 32, 8),
    800: None,
}
"""For heads of these sizes."""


@cache
def device(*, masked: bool) -> Kernel:
    forms = [partial(tiles, sizes=[BLOCKS])]
    made = attention(plain(masked), fused(masked).bounds, Context(TARGET), forms)
    assert made is not None and made.scratch == ()
    return made


def arguments(kernel: Kernel, s: int, n: int, kind: str) -> list[Array]:
    named = dict(zip(("q", "k", "v", "mask"), feeds(s, n, kind), strict=True))
    return [named[buffer.name] for buffer in kernel.inputs]


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("s", "n", "kind"), CASES)
def test_blocks_have_the_results_of_rows(s: int, n: int, kind: str, *, masked: bool) -> None:
    """Within the rounding of sums in another order, and of powers below another maximum."""
    kernel, sizes = plain(masked), {"s": s, "n": n}
    data = arguments(kernel, s, n, kind)
    (expected,) = run_kernel(kernel, data, sizes)
    (found,) = run_kernel(device(masked=masked), data, sizes, seed=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def large_heads(room: int) -> tuple[Kernel, Kernel, Bounds]:
    """Of 35 steps and 40 columns, with so many bytes of shared memory."""
    text = ATTENTION.replace("MASKED", "true").replace(", 4", ", 35").replace(", 3]", ", 40]")
    text = text.replace("[2, 4, n]", "[2, 35, n]")
    module = fuse(lower(parse(text))).module
    (kernel,) = module.kernels
    forms = [partial(tiles, sizes=[BLOCKS])]
    made = attention(kernel, module.bounds, Context(replace(TARGET, shared=room)), forms)
    assert made is not None and made.scratch == ()
    check(with_kernels(module, {kernel.name: made}), deduce)
    return kernel, made, module.bounds


def heads_of(s: int, n: int, kind: str) -> dict[str, Array]:
    rng = np.random.default_rng(s * 100 + n)
    q, k, v = (rng.normal(size=shape) for shape in ((2, s, 35), (2, n, 35), (2, n, 40)))
    named = {"q": q / 4, "k": k, "v": v, "mask": feeds(s, n, kind)[3]}
    return {name: value.astype(np.float32) for name, value in named.items()}


@pytest.mark.slow
def test_large_heads_are_in_shared_memory_by_parts() -> None:
    kernel, made, _ = large_heads(ROOMS[0])
    named, sizes = heads_of(5, 17, "shut keys"), {"s": 5, "n": 17}
    data = [named[buffer.name] for buffer in kernel.inputs]
    (expected,) = run_kernel(kernel, data, sizes)
    (found,) = run_kernel(made, data, sizes, seed=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("head", "blocks"), FOUND.items())
def test_blocks_fit_in_registers_and_shared_memory(head: int, blocks: Blocks | None) -> None:
    found = (size.for_heads(head, head, TARGET.shared) for size in SIZES)
    assert next((size for size in found if size is not None), None) == blocks


def test_schedules_of_devices_keep_no_row_of_scores() -> None:
    module = schedule(fused(masked=False), TARGET)
    check(module, deduce)
    (kernel,) = module.kernels
    assert kernel.parallel and kernel.scratch == ()
    (ordered,) = schedule(fused(masked=False), TARGET, numerics="ordered").kernels
    assert not any("key_block" in str(stmt) for stmt in ordered.body)


def test_one_query_is_a_row_of_its_own() -> None:
    text = ATTENTION.replace("MASKED", "false").replace("symbol s in 1..50", "symbol s in 1..4")
    module = fuse(lower(parse(text))).module
    (kernel,) = module.kernels
    assert attention(kernel, module.bounds, Context(TARGET)) is None


def test_planted_faults_are_found() -> None:
    """As a race, a read of what is not written yet, or an access outside of a buffer."""
    kernel = device(masked=False)
    data = arguments(kernel, 33, 23, "numbers")
    for broken in (without_barriers(kernel), without_conditions(kernel, "key_block")):
        with pytest.raises(AssertionError):
            run_kernel(broken, data, {"s": 33, "n": 23})
