# SPDX-License-Identifier: Apache-2.0
"""Attention in blocks of keys: the C has the bits of the interpreted schedule, which is as close to
exact results as the plain loops, and gives NaN, infinities and zeros where these do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.fusion import fuse
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Apply, Binary, Expr, Kernel, Lit
from relax_aot.ir.parse import parse
from relax_aot.ir.rewrite import map_exprs
from relax_aot.lowering import lower
from relax_aot.ops._op import Array
from relax_aot.scheduling import schedule
from relax_aot.scheduling.targets import all_targets
from tests.ops.c_executor import Call, c_kernels

BLOCK, HEADS, DEPTH, WIDTH = 8, 2, 4, 3
ATTENTION = """
symbol s in 1..50
symbol n in 0..50
func @main(%q: f32[2, s, 4], %k: f32[2, n, 4], %v: f32[2, n, 3], %mask: f32[s, n]) {
  %t: f32[2, 4, n] = transpose(%k) {perm=[0, 2, 1]}
  %scores: f32[2, s, n] = matmul(%q, %t)
  %shut: f32[2, s, n] = add(%scores, %mask)
  %w: f32[2, s, n] = softmax(%shut) {axis=2, masked=MASKED}
  %y: f32[2, s, 3] = matmul(%w, %v)
  return %y
}
"""
TARGETS = [
    replace(target, score_row=0, score_block=BLOCK)
    for target in all_targets()
    if target.name in ("host", "fpu", "scalar")
]
LENGTHS = (0, 1, 7, 8, 9, 16, 23, 50)


@cache
def fused(masked: bool) -> Module:
    return fuse(lower(parse(ATTENTION.replace("MASKED", str(masked).lower())))).module


@cache
def plain(masked: bool) -> Kernel:
    (kernel,) = fused(masked).kernels
    return kernel


@cache
def blocked(target: str, masked: bool) -> Kernel:
    (one,) = (one for one in TARGETS if one.name == target)
    (kernel,) = schedule(fused(masked), one).kernels
    assert not any("n" in buffer.type.symbols for buffer in kernel.scratch)
    return kernel


def feeds(s: int, n: int, kind: str = "numbers") -> list[Array]:
    rng = np.random.default_rng(s * 100 + n)
    shapes = ((HEADS, s, DEPTH), (HEADS, n, DEPTH), (HEADS, n, WIDTH), (s, n))
    q, k, v, mask = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    mask *= 30 * (kind == "steep")
    if kind == "shut keys":
        mask[rng.random(mask.shape) < 0.5] = -np.inf
    elif kind == "shut blocks":  # the first ones, the last ones, all of them
        for row in range(s):
            mask[row, : BLOCK * row] = -np.inf
            mask[row, BLOCK * (row + 2) :] = -np.inf
        mask[-1] = -np.inf
    elif kind == "special":
        chosen = rng.choice([0, -np.inf, np.inf, np.nan], mask.shape, p=[0.85, 0.05, 0.05, 0.05])
        mask[1::2] = chosen[1::2]
        v[rng.random(v.shape) < 0.02] = np.inf
    return [q, k, v, mask.astype(np.float32)]


KINDS = ("numbers", "steep", "shut keys", "shut blocks", "special")


def exact(arrays: list[Array], masked: bool) -> tuple[Array, Array]:
    """The result in double precision, and the sums of the absolute values of its terms."""
    q, k, v, mask = (array.astype(np.float64) for array in arrays)
    scores = q @ k.transpose(0, 2, 1) + mask
    peak = scores.max(-1, keepdims=True, initial=-np.inf)
    peak = np.where(peak == -np.inf, 0, peak) if masked else peak
    powers = np.exp(scores - peak)
    total = powers.sum(-1, keepdims=True)
    weights = powers / (np.where(total == 0, 1, total) if masked else total)
    return weights @ v, weights @ np.abs(v)


def run(kernel: Kernel, arrays: list[Array]) -> Array:
    s, n = arrays[3].shape
    names = ("q", "k", "v", "mask")
    given = dict(zip(names, arrays, strict=True))
    with np.errstate(all="ignore"):
        return run_kernel(kernel, [given[b.name] for b in kernel.inputs], {"s": s, "n": n})[0]


def with_quotients(kernel: Kernel) -> Kernel:
    """With 1 / (1 + b - a) for exp(a - b), whose last bit differs between C and the interpreter."""

    def rule(expr: Expr) -> Expr:
        match expr:
            case Apply("exp_below", (a, b)):
                return Binary("/", Lit(1.0, a.dtype), Lit(1.0, a.dtype) + (b - a))
            case Apply("exp", (x,)):
                return Binary("/", Lit(1.0, x.dtype), Lit(1.0, x.dtype) - x)
        return expr

    return replace(kernel, body=map_exprs(kernel.body, rule))


@pytest.fixture(scope="module")
def compiled() -> Call:
    cases = [(target.name, masked) for target in TARGETS for masked in (False, True)]
    kernels = {
        f"{name}_{masked:d}": with_quotients(blocked(name, masked)) for name, masked in cases
    }
    return c_kernels(kernels, ("-O3", "-march=native", "-fno-trapping-math"))


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("target", [target.name for target in TARGETS])
def test_c_has_the_bits_of_the_interpreted_schedule(
    target: str, masked: bool, compiled: Call
) -> None:
    kernel = with_quotients(blocked(target, masked))
    for n in LENGTHS:
        for kind in KINDS:
            arrays = feeds(5, n, kind)
            given = dict(zip(("q", "k", "v", "mask"), arrays, strict=True))
            ordered = [given[buffer.name] for buffer in kernel.inputs]
            (found,) = compiled(f"{target}_{masked:d}", ordered, {"s": 5, "n": n})
            np.testing.assert_array_equal(found, run(kernel, arrays), err_msg=f"{n} {kind}")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("target", [target.name for target in TARGETS])
def test_blocks_are_as_close_to_exact_as_the_plain_loops(target: str, masked: bool) -> None:
    """Within the bound of any order: for each key, the roundings of its score, of its power, of one
    factor for each block, and of the sums. NaN and infinities are where the plain loops have
    them."""
    for n in LENGTHS:
        for kind in KINDS:
            arrays = feeds(5, n, kind)
            found, before = run(blocked(target, masked), arrays), run(plain(masked), arrays)
            with np.errstate(all="ignore"):
                wanted, magnitude = exact(arrays, masked)
            numbers = np.isfinite(before)
            np.testing.assert_array_equal(found[~numbers], before[~numbers], err_msg=f"{n} {kind}")
            scores = 30.0 * 8 if kind == "steep" else 8.0  # |score| * DEPTH roundings
            bound = (n + 4 * -(-n // BLOCK) + 8 + 4 * scores) * 2.0**-24
            error = np.abs(found[numbers] - wanted[numbers])
            assert np.all(error <= bound * magnitude[numbers] + 1e-37), (n, kind)


@pytest.mark.parametrize("target", [target.name for target in TARGETS])
def test_a_row_has_its_bits_whatever_is_computed_with_it(target: str) -> None:
    """Alone or among others, and with masked keys behind it: prefill and decode agree."""
    for masked in (False, True):
        kernel = blocked(target, masked)
        for n in (1, 8, 13):
            q, k, v, mask = feeds(30, n)
            whole = run(kernel, [q, k, v, mask])
            for row in (0, 4, 29):
                one = [np.ascontiguousarray(q[:, row : row + 1]), k, v, mask[row : row + 1]]
                assert run(kernel, one).tobytes() == whole[:, row : row + 1].tobytes()
            for more in (1, 3, 8, 21):
                wide = [np.pad(array, ((0, 0), (0, more), (0, 0))) for array in (k, v)]
                shut = np.pad(mask, ((0, 0), (0, more)), constant_values=-np.inf)
                assert run(kernel, [q, *wide, shut]).tobytes() == whole.tobytes(), (n, more)


def test_blocks_are_for_rows_that_are_too_long_and_for_blocked_numerics() -> None:
    (host,) = (target for target in TARGETS if target.name == "host")
    for target, numerics in ((replace(host, score_row=4 * 50), "blocked"), (host, "ordered")):
        (kernel,) = schedule(fused(False), target, numerics=numerics).kernels
        assert any("n" in buffer.type.symbols for buffer in kernel.scratch)
    (kernel,) = schedule(fused(False), replace(host, score_row=4 * 50 - 1)).kernels
    assert not any("n" in buffer.type.symbols for buffer in kernel.scratch)
