# SPDX-License-Identifier: Apache-2.0
"""Attention of half-precision values by matrix units: as close to exact results as the rounding of
weights and results to half precision allows, and planted faults that are found."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.evaluation.scalars import array_of
from relax_aot.fusion import fuse
from relax_aot.ir.check import check
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel, Micro, walk
from relax_aot.ir.parse import parse
from relax_aot.ir.types import DType
from relax_aot.lowering import lower
from relax_aot.ops import deduce
from relax_aot.ops._op import Array
from relax_aot.scheduling.devices.attention import attention
from relax_aot.scheduling.devices.attention_blocks import Blocks, with_fewer_registers
from relax_aot.scheduling.devices.attention_matrices import matrices
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.targets.cuda_mma import TARGET
from tests.scheduling.devices.kernels import without_barriers, without_conditions
from tests.scheduling.test_online_softmax import exact

BLOCKS = Blocks(2, 1, 16)
"""Two warps, for 32 queries and 16 keys at a time."""
SHARED = replace(BLOCKS, shared=True)
"""With queries in shared memory."""
TEXT = """
symbol s in 1..50
symbol n in 0..80
func @main(%q: f16[2, s, DEPTH], %k: f16[2, KEYS], %v: f16[2, VALUES], %mask: f16[s, n]) {
  %kt: f16[2, DEPTH, n] = transpose(%k) {perm=[KEY_ORDER]}
  %vt: f16[2, n, WIDTH] = transpose(%v) {perm=[VALUE_ORDER]}
  %scores: f16[2, s, n] = matmul(%q, %kt)
  %shut: f16[2, s, n] = add(%scores, %mask)
  %w: f16[2, s, n] = softmax(%shut) {axis=2, masked=true}
  %y: f16[2, s, WIDTH] = matmul(%w, %vt)
  return %y
}
"""
FORMS = {
    "neighbors": ("f16", 16, 8, False),
    "odd sizes": ("f16", 5, 3, False),
    "transposed": ("f16", 8, 16, True),
    "bfloat16": ("bf16", 16, 16, False),
}
"""Type, depth, width, and whether keys are the last axis of keys and values."""
CASES = [(33, 50, "numbers"), (3, 0, "numbers"), (17, 33, "shut keys"), (5, 32, "special")]


@cache
def module(form: str) -> Module:
    dtype, depth, width, last = FORMS[form]
    sizes = {
        "KEYS": f"{depth}, n" if last else f"n, {depth}",
        "VALUES": f"{width}, n" if last else f"n, {width}",
        "KEY_ORDER": "0, 1, 2" if last else "0, 2, 1",
        "VALUE_ORDER": "0, 2, 1" if last else "0, 1, 2",
        "DEPTH": str(depth), "WIDTH": str(width), "f16": dtype,
    }  # fmt: skip
    text = TEXT
    for name, size in sizes.items():
        text = text.replace(name, size)
    return fuse(lower(parse(text))).module


@cache
def device(form: str, blocks: Blocks = BLOCKS) -> Kernel:
    (plain,) = module(form).kernels
    made = attention(
        plain, module(form).bounds, Context(TARGET), [partial(matrices, sizes=[blocks])]
    )
    assert made is not None and made.scratch == ()
    check(with_kernels(module(form), {plain.name: made}), deduce)
    return made


def feeds(form: str, s: int, n: int, kind: str) -> dict[str, Array]:
    """Arrays of the type, by name."""
    dtype, depth, width, _ = FORMS[form]
    rng = np.random.default_rng(s * 100 + n)
    q, k, v, mask = (
        rng.normal(size=shape) for shape in ((2, s, depth), (2, n, depth), (2, n, width), (s, n))
    )
    if kind == "shut keys":
        mask[rng.random(mask.shape) < 0.5] = -np.inf
        mask[-1] = -np.inf
        mask[0, :16] = -np.inf
    elif kind == "special":
        mask[1::2] += rng.choice([0, -np.inf, np.inf, np.nan], mask[1::2].shape, p=[0.9, 0.1, 0, 0])
        mask[2], v[0, n // 2] = np.nan, np.inf
    given = {"q": q, "k": k, "v": v, "mask": mask}
    kept = DType(dtype)
    return {name: array_of(one.ravel().tolist(), kept).reshape(one.shape)
            for name, one in given.items()}  # fmt: skip


def arguments(form: str, kernel: Kernel, given: dict[str, Array]) -> list[Array]:
    last = FORMS[form][3]
    placed = {**given}
    if last:
        placed |= {name: np.ascontiguousarray(given[name].transpose(0, 2, 1)) for name in "kv"}
    return [placed[buffer.name] for buffer in kernel.inputs]


def assert_close(form: str, found: Array, given: dict[str, Array], roundings: float = 2.5) -> None:
    """Weights and results are rounded; NaN and infinities are those of exact results."""
    dtype = FORMS[form][0]
    with np.errstate(all="ignore"):
        wanted, magnitude = exact(
            [given[name].astype(np.float64) for name in ("q", "k", "v", "mask")], True
        )
    got = found.astype(np.float64)
    numbers = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~numbers], wanted[~numbers])
    rounding = 2.0 ** (-11 if dtype == "f16" else -8)
    error = np.abs(got[numbers] - wanted[numbers])
    assert np.all(error <= roundings * rounding * magnitude[numbers] + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("s", "n", "kind"), CASES)
@pytest.mark.parametrize("form", FORMS)
def test_results_are_as_exact_as_half_precision(form: str, s: int, n: int, kind: str) -> None:
    kernel, given = device(form), feeds(form, s, n, kind)
    (found,) = run_kernel(kernel, arguments(form, kernel, given), {"s": s, "n": n}, seed=n)
    assert_close(form, found, given)


@pytest.mark.slow
@pytest.mark.parametrize(("s", "n", "kind"), CASES[:2])
@pytest.mark.parametrize("form", FORMS)
def test_queries_in_shared_memory_have_the_same_results(
    form: str, s: int, n: int, kind: str
) -> None:
    kernel, given = device(form, SHARED), feeds(form, s, n, kind)
    (found,) = run_kernel(kernel, arguments(form, kernel, given), {"s": s, "n": n}, seed=n)
    (usual,) = run_kernel(
        device(form), arguments(form, device(form), given), {"s": s, "n": n}, seed=n
    )
    np.testing.assert_array_equal(found, usual)


def test_smaller_blocks_have_fewer_registers() -> None:
    """Those with as many are left out, and queries are in shared memory at last."""
    sizes = [BLOCKS, replace(BLOCKS, warps=1), replace(BLOCKS, keys=8), SHARED]
    chosen = [
        with_fewer_registers(sizes, lambda size: size.registers(64, 64, ""), times)
        for times in range(4)
    ]
    assert chosen == [BLOCKS, replace(BLOCKS, keys=8), SHARED, SHARED]


def test_wide_heads_leave_queries_in_shared_memory() -> None:
    def fits(size: Blocks, width: int) -> bool:
        return size.is_short(width, width, "", None)

    assert fits(BLOCKS, 160) and not fits(BLOCKS, 176)
    assert fits(SHARED, 192) and not fits(SHARED, 208)


@pytest.mark.parametrize(("form", "count"), [("neighbors", 2), ("odd sizes", 0), ("transposed", 0)])
def test_aligned_keys_and_values_are_copied_at_once(form: str, count: int) -> None:
    copies = [s for s in walk(device(form).body) if isinstance(s, Micro) and "copy_async" in s.name]
    assert len({copy.operands[1].buffer.name for copy in copies}) == count


@pytest.mark.slow
def test_planted_faults_are_found() -> None:
    """As a race, or an access outside of a buffer."""
    kernel, given = device("neighbors"), feeds("neighbors", 33, 40, "numbers")
    data = arguments("neighbors", kernel, given)
    for broken in (without_barriers(kernel), without_conditions(kernel, "row")):
        with pytest.raises(AssertionError):
            run_kernel(broken, data, {"s": 33, "n": 40})
