# SPDX-License-Identifier: Apache-2.0
"""What models do with the scores of an attention of half-precision values: factors of either sign
and masks, at the lowest, odd and highest sizes, as printed, against float64."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import relax_aot as rx
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.fusion import fuse
from relax_aot.ir.loops import Kernel, Micro, walk
from relax_aot.ir.parse import parse
from relax_aot.lowering import lower
from relax_aot.ops._op import Array
from relax_aot.scheduling.devices.attention import attention, run
from relax_aot.scheduling.devices.attention_blocks import Blocks
from relax_aot.scheduling.devices.attention_matrices import matrices
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.targets.cuda_mma import TARGET
from tests.cuda.shim import Job, Shim

TEXT = """
symbol s in 1..70
symbol n in 1..80
func @main(%q: f16[2, s, 24], %k: f16[2, n, 24], %v: f16[2, n, 16], %mask: f16[s, n],
    %c: f16[], %fill: f16[], %seen: bool[s, n]) {
  %kt: f16[2, 24, n] = transpose(%k) {perm=[0, 2, 1]}
  %sums: f16[2, s, n] = matmul(%q, %kt)
  SCORES
  %w: f16[2, s, n] = softmax(%scores) {axis=2, masked=true}
  %y: f16[2, s, 16] = matmul(%w, %v)
  return %y
}
"""
SCALED = "%scaled: f16[2, s, n] = mul(%sums, %c)\n"
FORMS = {
    "scaled": SCALED.replace("scaled", "scores"),
    "divided": SCALED.replace("scaled", "scores").replace("mul", "div"),
    "masked": "%scores: f16[2, s, n] = add(%sums, %mask)",
    "scaled and masked": SCALED + "%scores: f16[2, s, n] = add(%scaled, %mask)",
    "chosen": SCALED + "%scores: f16[2, s, n] = where(%seen, %scaled, %fill)",
    "keys chosen": SCALED
    + "%open: bool[1, n] = slice(%seen) {starts=[0], lengths=[1], axes=[0], steps=[1]}\n"
    "%scores: f16[2, s, n] = where(%open, %scaled, %fill)",
    "chosen up to 0": SCALED + "%open: f16[2, s, n] = where(%seen, %scaled, %fill)\n"
    "%scores: f16[2, s, n] = attention_mask(%open) {right=0}",
    "choices added": "%zero: f16[] = fill() {dtype=f16, shape=[], value=0.0}\n"
    "%lowest: f16[] = fill() {dtype=f16, shape=[], value=-inf}\n"
    "%shut: f16[s, n] = where(%seen, %zero, %lowest)\n"
    "%scores: f16[2, s, n] = add(%sums, %shut)",
    "divided and masked": SCALED.replace("mul", "div")
    + "%scores: f16[2, s, n] = add(%scaled, %mask)",
    **{
        f"seen up to {ahead}": f"{SCALED}%scores: f16[2, s, n] = attention_mask(%scaled)"
        f" {{shift={ahead}, right=0}}"
        for ahead in (0, 35, -9)
    },
    "positions added": SCALED + "%full: f16[s, n] = fill() {dtype=f16, shape=[s, n], value=-inf}\n"
    "%ahead: f16[s, n] = trilu(%full) {k=4, upper=true}\n"
    "%scores: f16[2, s, n] = add(%scaled, %ahead)",
    "window": SCALED + "%scores: f16[2, s, n] = attention_mask(%scaled) {left=5, right=2}",
}
SIZES = [(1, 1), (33, 37), (70, 80)]
BLOCKS = (Blocks(2, 1, 16), Blocks(2, 2, 32), Blocks(2, 1, 32, shared=True))
FACTORS = (0.3, -0.7, 0.0)


def device(form: str, blocks: Blocks) -> Kernel:
    module = fuse(lower(parse(TEXT.replace("SCORES", FORMS[form])))).module
    (plain,) = module.kernels
    made = attention(plain, module.bounds, Context(TARGET), [partial(matrices, sizes=[blocks])])
    assert made is not None, form
    return made


def feeds(s: int, n: int, factor: float, fill: float) -> dict[str, Array]:
    rng = np.random.default_rng(s * 100 + n)
    shapes = {"q": (2, s, 24), "k": (2, n, 24), "v": (2, n, 16), "mask": (s, n)}
    given: dict[str, Array] = {
        name: rng.normal(size=shape).astype(np.float16) for name, shape in shapes.items()
    }
    given["mask"][rng.random((s, n)) < 0.3] = -np.inf
    seen = rng.random((s, n)) < 0.6
    seen[-1] = s == 1  # a row of shut keys alone
    return given | {
        "c": np.array(factor, np.float16), "fill": np.array(fill, np.float16), "seen": seen,
    }  # fmt: skip


def exact(form: str, given: dict[str, Array]) -> tuple[Array, Array]:
    """Results, and the sums of the magnitudes of what is added up."""
    q, k, v, mask, c, fill = (given[n].astype(float) for n in ("q", "k", "v", "mask", "c", "fill"))
    sums = q @ k.transpose(0, 2, 1)
    rows, keys = sums.shape[1:]
    ahead = np.arange(keys)[None, :] - np.arange(rows)[:, None]
    chosen = np.where(given["seen"], sums * c, fill)
    if form.startswith("seen up to"):
        scores = np.where(ahead <= int(form.split()[-1]), sums * c, -np.inf)
    else:
        scores = {
            "scaled": sums * c, "masked": sums + mask, "scaled and masked": sums * c + mask,
            "divided": sums / (c or 1.0), "divided and masked": sums / (c or 1.0) + mask,
            "chosen": chosen, "chosen up to 0": np.where(ahead <= 0, chosen, -np.inf),
            "choices added": np.where(given["seen"], sums, -np.inf),
            "keys chosen": np.where(given["seen"][:1], sums * c, fill),
            "positions added": np.where(ahead < 4, sums * c, -np.inf),
            "window": np.where((ahead >= -5) & (ahead <= 2), sums * c, -np.inf),
        }[form]  # fmt: skip
    peak = scores.max(axis=2, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(peak), 0.0, peak))
    total = weights.sum(axis=2, keepdims=True)
    weights /= np.where(total == 0, 1.0, total)
    return weights @ v, weights @ np.abs(v)


CHEAP, SLOW = ("chosen", BLOCKS[1]), ("seen up to 0", BLOCKS[0])
CASES = [
    pytest.param(
        *case, marks=[] if case == CHEAP else pytest.mark.slow if case == SLOW else pytest.mark.long
    )
    for case in product(FORMS, BLOCKS)
]


@pytest.mark.parametrize(("form", "blocks"), CASES)
def test_scores_are_those_of_the_model(form: str, blocks: Blocks, tmp_path: Path) -> None:
    kernel = device(form, blocks)
    cases = [
        feeds(s, n, factor, fill)
        for s, n in SIZES
        for factor in (FACTORS[:2] if "divided" in form else FACTORS)
        for fill in ((-np.inf, -1e4) if "chosen" in form else (0.0,))
    ]
    jobs = [
        Job(
            kernel.name, tuple(given[buffer.name] for buffer in kernel.inputs),
            {"s": given["mask"].shape[0], "n": given["mask"].shape[1]}, seed=seed,
        )
        for seed, given in enumerate(cases)
    ]  # fmt: skip
    bounds = parse(TEXT.replace("SCORES", FORMS[form])).bounds
    answers = Shim([kernel], bounds, tmp_path).run(jobs)
    for given, answer in zip(cases, answers, strict=True):
        wanted, magnitude = exact(form, given)
        error = np.abs(answer.outputs[0].astype(float) - wanted)
        assert np.all(error <= 2.5 * 2.0**-11 * magnitude + 1e-6)


@pytest.mark.long
def test_blocks_of_keys_before_a_window_are_left_out() -> None:
    """An infinite value among them would make results undefined."""
    kernel, given = device("window", Blocks(1, 1, 16)), feeds(33, 33, 0.3, 0.0)
    given["v"][:, 3] = np.inf
    data = [given[buffer.name] for buffer in kernel.inputs]
    (found,) = run_kernel(kernel, data, {"s": 33, "n": 33})
    with np.errstate(all="ignore"):
        given["v"][:, 3] = 0.0
        wanted, magnitude = exact("window", given)
    error = np.abs(found.astype(float) - wanted)[:, 32]
    assert np.all(error <= 2.5 * 2.0**-11 * magnitude[:, 32] + 1e-6)


FLOATS = """
symbol s in 1..70
symbol n in 1..80
const %c: f32[] = [0.3]
func @main(%q: f16[2, 3, s, 24], %k: f16[2, n, 24], %v: f16[2, n, 16]) {
  %wide_q: f32[2, 3, s, 24] = cast(%q) {to=f32}
  %scaled: f32[2, 3, s, 24] = mul(%wide_q, %c)
  %turned: f16[2, 24, n] = transpose(%k) {perm=[0, 2, 1]}
  %apart: f16[2, 1, 24, n] = reshape(%turned) {shape=[2, 1, 24, n]}
  %wide_k: f32[2, 1, 24, n] = cast(%apart) {to=f32}
  %sums: f32[2, 3, s, n] = matmul(%scaled, %wide_k)
  %scores: f32[2, 3, s, n] = attention_mask(%sums) {right=0}
  %w: f32[2, 3, s, n] = softmax(%scores) {axis=3, masked=true}
  %own: f16[2, 1, n, 16] = reshape(%v) {shape=[2, 1, n, 16]}
  %wide_v: f32[2, 1, n, 16] = cast(%own) {to=f32}
  %made: f32[2, 3, s, 16] = matmul(%w, %wide_v)
  %y: f16[2, 3, s, 16] = cast(%made) {to=f16}
  return %y
}
"""


@pytest.mark.parametrize("left", [None, 9])
@pytest.mark.long
def test_attention_of_floats_from_halves_uses_matrix_units(
    left: int | None, tmp_path: Path
) -> None:
    """Heads share keys, queries are multiplied before, and a query sees no later key, or none that
    is more than `left` before it. Weights are not rounded to half precision: results are off by
    their own rounding."""
    ends = "right=0" if left is None else f"left={left}, right=0"
    module = lower(parse(FLOATS.replace("right=0", ends)))
    joined = run(fuse(module).module, TARGET)
    (kernel,) = [one for one in joined.kernels if one.parallel]
    calls = [stmt for stmt in walk(kernel.body) if isinstance(stmt, Micro)]
    assert any(call.name.startswith("raot_mma") for call in calls)
    jobs, wanted = [], []
    for seed, (s, n) in enumerate(((1, 1), (33, 37), (70, 80), (70, 1))):
        rng = np.random.default_rng(seed)
        shapes = {"q": (2, 3, s, 24), "k": (2, n, 24), "v": (2, n, 16)}
        given = {name: rng.normal(size=shape).astype(np.float16) for name, shape in shapes.items()}
        q, k, v = (given[name].astype(float) for name in "qkv")
        scores = q @ k.transpose(0, 2, 1)[:, None] * np.float32(0.3)
        behind = np.arange(s)[:, None] - np.arange(n)
        seen = (behind >= 0) & (behind <= (s if left is None else left))
        weights = np.where(seen, np.exp(scores), 0.0)
        total = weights.sum(axis=3, keepdims=True)
        wanted.append(weights / np.where(total == 0, 1.0, total) @ v[:, None])
        given |= {"own": given["v"][:, None], "c": np.array(0.3, np.float32)}
        feeds_ = tuple(given[buffer.name] for buffer in kernel.inputs)
        jobs.append(Job(kernel.name, feeds_, {"s": s, "n": n}, seed=seed))
    answers = Shim([kernel], joined.bounds, tmp_path).run(jobs)
    for value, answer in zip(wanted, answers, strict=True):
        error = np.abs(answer.outputs[0].reshape(value.shape).astype(float) - value)
        assert np.all(error <= 2.0**-11 * np.abs(value) * 1.01 + 1e-6)


LONG = """
symbol b in 1..4
symbol n in 1..4096
func @main(%q: f16[b, 2, n, 32], %k: f16[b, 2, 32, n], %v: f16[b, 2, n, 32], %seen: bool[b, 1, n, n]) {
  %fill: f16[] = fill() {dtype=f16, shape=[], value=-inf}
  %sums: f16[b, 2, n, n] = matmul(%q, %k)
  %scores: f16[b, 2, n, n] = where(%seen, %sums, %fill)
  %w: f16[b, 2, n, n] = softmax(%scores) {axis=3}
  %y: f16[b, 2, n, 32] = matmul(%w, %v)
  return %y
}
"""  # noqa: E501


@pytest.mark.long
def test_indices_of_long_masks_fit() -> None:
    project = rx.compile(rx.parse(LONG), board="jetson-orin-nano", emit="cuda-source", name="long")
    assert "bits" in project.built.files["long.cu"].decode()


ROUNDED = """
symbol s in 1..70
symbol n in 1..300
func @main(%q: f16[2, 3, s, 24], %k: f16[2, 1, n, 24], %v: f16[2, 1, n, 16], %mask: f32[s, n]) {
  %c: f16[] = fill() {dtype=f16, shape=[], value=0.25}
  %turned: f16[2, 1, 24, n] = transpose(%k) {perm=[0, 1, 3, 2]}
  %sums: f16[2, 3, s, n] = matmul(%q, %turned)
  %scaled: f16[2, 3, s, n] = mul(%sums, %c)
  %wide: f32[2, 3, s, n] = cast(%scaled) {to=f32}
  %scores: f32[2, 3, s, n] = add(%wide, %mask)
  %powers: f32[2, 3, s, n] = softmax(%scores) {axis=3}
  %w: f16[2, 3, s, n] = cast(%powers) {to=f16}
  %y: f16[2, 3, s, 16] = matmul(%w, %v)
  return %y
}
"""
LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.long
def test_a_softmax_of_floats_between_products_of_halves_uses_matrix_units(tmp_path: Path) -> None:
    """As models compute it that cast scores for their softmax, with masks of floats: the lowest one
    for all keys of a row, which are of one weight then, or -1e9 and twice that."""
    module = lower(parse(ROUNDED))
    joined = run(fuse(module).module, TARGET)
    (kernel,) = [one for one in joined.kernels if one.parallel]
    calls = [stmt for stmt in walk(kernel.body) if isinstance(stmt, Micro)]
    assert any(call.name.startswith("raot_mma") for call in calls)
    jobs, wanted = [], []
    for seed, (s, n) in enumerate(((1, 1), (15, 300), (33, 37), (70, 300), (70, 1))):
        rng = np.random.default_rng(seed)
        shapes = {"q": (2, 3, s, 24), "k": (2, 1, n, 24), "v": (2, 1, n, 16)}
        given = {name: rng.normal(size=shape).astype(np.float16) for name, shape in shapes.items()}
        mask = np.where(rng.random((s, n)) < 0.3, LOWEST, rng.normal(size=(s, n)))
        mask[-1], mask[s // 2] = LOWEST, np.where(np.arange(n) % 3 == 0, -1e9, -2e9)
        given["mask"] = mask.astype(np.float32)
        q, k, v = (given[name].astype(float) for name in "qkv")
        scores = (q @ k.transpose(0, 1, 3, 2) * 0.25).astype(np.float32) + given["mask"]
        weights = np.exp(scores.astype(float) - scores.max(axis=3, keepdims=True))
        weights /= weights.sum(axis=3, keepdims=True)
        rows = np.arange(s) != s // 2  # where scores are rounded to 64, weights are of one size
        even = np.where(np.arange(n) % 3 == 0, 1.0, 0.0) / np.sum(np.arange(n) % 3 == 0)
        weights = np.where(rows[:, None], weights, even)
        wanted.append((weights @ v, weights @ np.abs(v)))
        given["c"] = np.array(0.25, np.float16)
        feeds_ = tuple(given[buffer.name] for buffer in kernel.inputs)
        jobs.append(Job(kernel.name, feeds_, {"s": s, "n": n}, seed=seed))
    answers = Shim([kernel], joined.bounds, tmp_path).run(jobs)
    for (value, magnitude), answer in zip(wanted, answers, strict=True):
        error = np.abs(answer.outputs[0].reshape(value.shape).astype(float) - value)
        assert np.all(error <= 2.5 * 2.0**-11 * magnitude + 1e-6)


FAR = """
symbol s in 1..70
symbol n in 1..80
func @main(%q: bf16[2, s, 24], %k: bf16[2, n, 24], %v: bf16[2, n, 16], %mask: bf16[s, n]) {
  %kt: bf16[2, 24, n] = transpose(%k) {perm=[0, 2, 1]}
  %sums: bf16[2, s, n] = matmul(%q, %kt)
  %scores: bf16[2, s, n] = add(%sums, %mask)
  %w: bf16[2, s, n] = softmax(%scores) {axis=2}
  %y: bf16[2, s, 16] = matmul(%w, %v)
  return %y
}
"""


def test_keys_that_are_shut_by_finite_numbers(tmp_path: Path) -> None:
    """The lowest numbers of bfloat16, and others that are rounded by more than an exponent: for the
    first keys of all rows, and for all keys of one row, which are of one weight then."""
    module = fuse(lower(parse(FAR))).module
    (plain,) = module.kernels
    kernel = attention(
        plain, module.bounds, Context(TARGET), [partial(matrices, sizes=[BLOCKS[0]])]
    )
    assert kernel is not None
    jobs, wanted, bf16 = [], [], ml_dtypes.bfloat16
    lowest = float(np.array(0xFF7F, np.uint16).view(bf16))  # of finite numbers
    for seed, fill in enumerate((lowest, -1e30, -1.1e10)):
        rng = np.random.default_rng(seed)
        shapes = (2, 33, 24), (2, 37, 24), (2, 37, 16)
        q, k, v = (rng.normal(size=shape).astype(bf16) for shape in shapes)
        mask = np.zeros((33, 37), bf16)
        mask[:, :20] = mask[5] = fill
        sums = np.where(mask == 0, q.astype(float) @ k.astype(float).transpose(0, 2, 1), fill)
        weights = np.exp(sums - sums.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        wanted.append((weights @ v.astype(float), weights @ np.abs(v.astype(float))))
        given = {"q": q, "k": k, "v": v, "mask": mask}
        feeds_ = tuple(given[buffer.name] for buffer in kernel.inputs)
        jobs.append(Job(kernel.name, feeds_, {"s": 33, "n": 37}, seed=seed))
    answers = Shim([kernel], parse(FAR).bounds, tmp_path).run(jobs)
    for (value, magnitude), answer in zip(wanted, answers, strict=True):
        error = np.abs(answer.outputs[0].astype(float) - value)
        assert np.all(error <= 2.5 * 2.0**-8 * magnitude + 1e-6)
