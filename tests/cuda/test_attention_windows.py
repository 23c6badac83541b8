# SPDX-License-Identifier: Apache-2.0
"""Attention over windows of keys on matrix units, as printed, against float64: windows that are
shorter and longer than the blocks of keys, so that queries choose among the first and the last
ones, and all of them see those between; rows of one head, and of heads that share keys."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from relax_aot.fusion import fuse
from relax_aot.ir.loops import For, Kernel, walk
from relax_aot.ir.parse import parse
from relax_aot.lowering import lower
from relax_aot.ops._op import Array
from relax_aot.scheduling.devices import attention_matrices
from relax_aot.scheduling.devices.attention import attention
from relax_aot.scheduling.devices.attention_blocks import Blocks
from relax_aot.scheduling.devices.attention_matrices import matrices
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.targets.cuda_mma import TARGET
from tests.cuda.shim import Job, Shim

TEXT = """
symbol s in 1..100
symbol n in 1..120
func @main(%q: f16[2, HEADS, s, 16], %r: f16[2, 1, n, 16], %v: f16[2, 1, n, 16], %m: f16[s, n]) {
  %k: f16[2, 1, 16, n] = transpose(%r) {perm=[0, 1, 3, 2]}
  %sums: f16[2, HEADS, s, n] = matmul(%q, %k)
  MASK
  %scores: f16[2, HEADS, s, n] = attention_mask(%sums) {ENDS}
  %w: f16[2, HEADS, s, n] = softmax(%scores) {axis=3, masked=true}
  %y: f16[2, HEADS, s, 16] = matmul(%w, %v)
  return %y
}
"""
ADDED = "%all: f16[2, HEADS, s, n] = add(%sums, %m)"
SIZES = ((1, 1), (37, 41), (100, 120), (100, 7), (5, 120))
ENDS = ((5, 2), (33, 0), (70, 3), (90, None), (None, 0))
"""How many keys before its own position a query sees, and behind it."""
BLOCKS = (Blocks(1, 1, 16), Blocks(2, 2, 32))


def module_text(heads: int, ends: tuple[int | None, int | None], *, masked: bool) -> str:
    named = zip(("left", "right"), ends, strict=True)
    given = ", ".join(f"{name}={value}" for name, value in named if value is not None)
    text = TEXT.replace("MASK", ADDED if masked else "").replace("ENDS", given)
    return (text.replace("mask(%sums)", "mask(%all)") if masked else text).replace(
        "HEADS", str(heads)
    )


def exact(
    given: dict[str, Array], ends: tuple[int | None, int | None], *, masked: bool
) -> tuple[Array, Array]:
    """Results, and the sums of the magnitudes of what is added up."""
    q, k, v, mask = (given[name].astype(float) for name in ("q", "r", "v", "m"))
    scores = q @ k.transpose(0, 1, 3, 2) + (mask if masked else 0.0)
    ahead = np.arange(mask.shape[1])[None, :] - np.arange(mask.shape[0])[:, None]
    left, right = (10**6 if end is None else end for end in ends)
    scores = np.where((ahead >= -left) & (ahead <= right), scores, -np.inf)
    peak = scores.max(axis=3, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(peak), 0.0, peak))
    total = weights.sum(axis=3, keepdims=True)
    weights /= np.where(total == 0, 1.0, total)
    return weights @ v, weights @ np.abs(v)


def device(text: str, blocks: Blocks) -> Kernel:
    module = fuse(lower(parse(text))).module
    (plain,) = module.kernels
    made = attention(plain, module.bounds, Context(TARGET), [partial(matrices, sizes=[blocks])])
    assert made is not None
    return made


FEW = (1, (70, 3), BLOCKS[0], False), (3, (33, 0), BLOCKS[0], False), (3, (70, 3), BLOCKS[0], True)
CASES = [
    pytest.param(*case, marks=pytest.mark.slow if case in FEW else pytest.mark.long)
    for case in (
        (heads, ends, blocks, masked)
        for heads in (1, 3) for ends in ENDS for blocks in BLOCKS for masked in (False, True)
    )
]  # fmt: skip


def compare(
    heads: int, ends: tuple[int | None, int | None], blocks: Blocks, folder: Path, *, masked: bool
) -> None:
    text = module_text(heads, ends, masked=masked)
    kernel, cases = device(text, blocks), list[dict[str, Array]]()
    for s, n in SIZES:
        rng = np.random.default_rng(s * 1000 + n)
        shapes = {"q": (2, heads, s, 16), "r": (2, 1, n, 16), "v": (2, 1, n, 16), "m": (s, n)}
        cases.append({k: rng.normal(size=size).astype(np.float16) for k, size in shapes.items()})
    jobs = [
        Job(
            kernel.name, tuple(given[buffer.name] for buffer in kernel.inputs), {"s": s, "n": n},
            seed=s,
        )
        for (s, n), given in zip(SIZES, cases, strict=True)
    ]  # fmt: skip
    answers = Shim([kernel], parse(text).bounds, folder).run(jobs)
    for given, answer in zip(cases, answers, strict=True):
        wanted, magnitude = exact(given, ends, masked=masked)
        error = np.abs(answer.outputs[0].reshape(wanted.shape).astype(float) - wanted)
        assert np.all(error <= 2.5 * 2.0**-11 * magnitude + 1e-6)


@pytest.mark.parametrize(("heads", "ends", "blocks", "masked"), CASES)
def test_queries_see_the_keys_of_their_windows(
    heads: int, ends: tuple[int | None, int | None], blocks: Blocks, tmp_path: Path, *,
    masked: bool,
) -> None:  # fmt: skip
    compare(heads, ends, blocks, tmp_path, masked=masked)


@pytest.mark.slow
def test_rows_of_groups_compare_positions_where_registers_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_matrices, "COUNTS", 1000)
    compare(3, (70, 3), BLOCKS[0], tmp_path, masked=False)


@pytest.mark.parametrize(("ends", "loops"), [((5, 2), 1), ((70, 3), 3), ((None, 0), 2)])
def test_long_windows_have_blocks_that_no_query_chooses_in(
    ends: tuple[int | None, int | None], loops: int
) -> None:
    """The loops over blocks of keys: where queries choose the first keys and the last ones, and
    between both."""
    kernel = device(module_text(1, ends, masked=False), BLOCKS[0])
    found = {
        s.variable for s in walk(kernel.body) if isinstance(s, For) and s.variable[:4] == "part"
    }
    assert len(found) == loops
