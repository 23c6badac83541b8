# SPDX-License-Identifier: Apache-2.0
"""Scheduled kernels give the bits of the plain ones, at every size, and touch nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Buffer, For, Kernel, Multiply, Stmt
from relax_aot.ir.types import DType, TensorType, shape_of
from relax_aot.ir.unused import without_unused
from relax_aot.ops import all_ops
from relax_aot.ops._op import Array
from relax_aot.scheduling.apply import apply, schedule_floats
from relax_aot.scheduling.cost import work_of
from relax_aot.scheduling.passes import fma
from relax_aot.scheduling.passes.register_blocks import block_kernel
from relax_aot.scheduling.passes.row_blocks import block_rows
from relax_aot.scheduling.targets import Context, Target, all_targets
from relax_aot.verify.op_cases import Case, cases_of
from tests.ops.c_executor import Call, c_kernels
from tests.transforms.examples import example_module

TARGETS = {target.name: target for target in all_targets()}
SAMPLED = ("fpu", "host")
"""Targets for which the ops' samples are run too."""
FEW, MANY = 2, 6
"""Samples of one op."""
SCHEDULED = (
    "affine_grid", "arg_max", "arg_min", "average_pool", "average_pool_nhwc", "causal_conv",
    "col2im", "conv", "conv_integer", "conv_nhwc", "conv_nhwc_integer", "conv_transpose",
    "conv_transpose_integer", "conv_transpose_nhwc", "conv_transpose_nhwc_integer", "cum_prod",
    "cum_sum", "depthwise_nhwc", "depthwise_nhwc_integer", "dft", "expand_sizes",
    "fixed_softmax", "gemm", "gru", "linear_attention", "lp_pool", "lstm", "matmul",
    "matmul_groups", "matmul_integer", "matmul_nbits", "matmul_scaled", "max_pool",
    "max_pool_nhwc", "ngram_counts", "one_hot", "prelu", "qaverage_pool", "qgru", "qlstm",
    "qmean", "qrnn", "reduce", "reduce_sizes", "reduce_to", "resize", "rnn", "sign",
)  # fmt: skip
"""Ops of which some sample is scheduled."""
CASES = tuple(case for case in cases_of(all_ops().values()) if not case.op.view)


@dataclass(frozen=True)
class Subject:
    """An op on symbolic shapes, and sizes to run it at: lowest, highest and between."""

    op: str
    shapes: tuple[tuple[int | str, ...], ...]
    attrs: Mapping[str, Any]
    sizes: tuple[tuple[int, ...], ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        found = {size for shape in self.shapes for size in shape if isinstance(size, str)}
        return tuple(sorted(found))

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(TensorType(DType.F32, shape_of(*shape)) for shape in self.shapes)

    @property
    def bounds(self) -> Bounds:
        ranges = zip(*self.sizes, strict=True)
        return Bounds.of(
            {name: (min(r), max(r)) for name, r in zip(self.symbols, ranges, strict=True)}
        )

    def kernel(self, name: str) -> Kernel:
        op = all_ops()[self.op]
        inputs = [Buffer(f"x{n}", t.dtype, t.shape) for n, t in enumerate(self.types)]
        results = op.result_types(self.types, self.attrs)
        outputs = [Buffer(f"y{n}", t.dtype, t.shape) for n, t in enumerate(results)]
        builder = KernelBuilder(name, inputs, outputs)
        op.lower(builder, *inputs, *outputs, **self.attrs)
        return builder.finish()

    def runs(self) -> Iterator[tuple[dict[str, int], list[Array]]]:
        rng = np.random.default_rng(0)
        for values in self.sizes:
            sizes = dict(zip(self.symbols, values, strict=True))
            shapes = [[size.evaluate(sizes) for size in t.shape] for t in self.types]
            yield sizes, [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def conv(
    shapes: tuple[tuple[int | str, ...], ...], sizes: tuple[tuple[int, ...], ...], **attrs: Any
) -> Subject:
    rank = len(shapes[0]) - 2
    usual = {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank}
    return Subject("conv", shapes, {**usual, "group": 1, **attrs}, sizes)


def fused(kernel: Kernel) -> Kernel:
    """The loops that a schedule must keep the bits of."""
    return fma.run(Module((), (kernel,)), TARGETS["fpu"]).kernels[0]


EVERY = tuple((n,) for n in range(1, 18))
PAIRS = tuple(product(range(1, 8), (1, 2, 5, 8, 13)))
WIDTHS = tuple((n,) for n in (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 39, 64, 65))
BOTH = tuple(product((1, 4), (1, 8, 21, 32, 43), (1, 5, 6, 7, 12, 13)))
FEW_IMAGES = ((1,), (2,))
SUBJECTS = {
    "rows": Subject("matmul", (("n", 9), (9, 12)), {}, EVERY),
    "all": Subject("matmul", (("a", "b"), ("b", "c")), {}, tuple(product((1, 4, 9), repeat=3))),
    "empty": Subject("matmul", (("n", 3), (3, 5)), {}, ((0,), (1,), (6,))),
    "batched": Subject("matmul", ((2, "n", 8), (2, 8, "n")), {}, EVERY),
    "turned": Subject(
        "gemm", (("n", 7), (11, 7), (11,)), {"trans_b": True, "alpha": 0.5}, EVERY
    ),
    "padded": conv(((1, 3, "h", "w"), (5, 3, 3, 3), (5,)), PAIRS, pads=(1, 1, 1, 1)),
    "strided": conv(((1, 2, "n", 9), (4, 2, 3, 3)), EVERY, pads=(1, 1, 1, 1), strides=(2, 2)),
    "wide": conv(((1, 2, "n"), (4, 2, 7)), EVERY, pads=(3, 3)),
    "dilated": conv(((1, 2, "n"), (4, 2, 3)), EVERY, pads=(4, 2), dilations=(3,), strides=(2,)),
    "depthwise": conv(((1, 4, "h", "w"), (4, 1, 3, 3)), PAIRS, pads=(1, 1, 1, 1), group=4),
    "grouped": conv(((1, 6, "n"), (8, 3, 2)), EVERY, pads=(1, 0), group=2),
    "beside": conv(((1, 3, 1, "n"), (3, 1, 1, 2), (3,)), WIDTHS[1:],
                   pads=(1, 0, 1, 0), strides=(2, 2), group=3),
    "whole row": conv(((1, 4, "n", 5), (8, 4, 3, 3), (8,)), EVERY, pads=(1, 1, 1, 1)),
    "wide rows": Subject("matmul", (("n", 5), (5, 40)), {}, EVERY),
    "wide columns": Subject("matmul", ((7, 6), (6, "m")), {}, WIDTHS),
    "both": Subject("matmul", ((2, "n", "k"), ("k", "m")), {}, BOTH),
    "vector": Subject("matmul", ((9,), (9, "m")), {}, WIDTHS),
    "image": conv(((1, 3, 4, "w"), (7, 3, 3, 3), (7,)), WIDTHS, pads=(1, 1, 1, 1)),
    "channels": conv(((1, 4, 3, "w"), (4, 1, 3, 3)), WIDTHS, pads=(1, 1, 1, 1), group=4),
    "planes": conv((("n", 3, 7, 5), (3, 1, 3, 3), (3,)), FEW_IMAGES, pads=(1, 1, 1, 1), group=3),
    "planes apart": conv((("n", 3, 9, 8), (3, 1, 3, 3), (3,)), FEW_IMAGES, pads=(0, 1, 1, 1),
                         strides=(2, 2), group=3),
    "planes dilated": conv((("n", 2, 9, 8), (2, 1, 3, 2)), FEW_IMAGES, pads=(2, 3, 2, 0),
                           strides=(1, 2), dilations=(2, 3), group=2),
    "planes in blocks": conv((("n", 2, 3, 500), (2, 1, 2, 2), (2,)), ((1,),),
                             pads=(1, 1, 0, 0), group=2),
    "pointwise": conv(((1, 8, "n", 5), (8, 8, 1, 1), (8,)), EVERY),
}  # fmt: skip
HIGH = 43
"""The greatest size that is interpreted."""
NUMBERS = {name: f"s{number}" for number, name in enumerate(SUBJECTS)}
PLAIN = {NUMBERS[n]: fused(s.kernel(NUMBERS[n])) for n, s in SUBJECTS.items()}


def schedule_kernel(
    kernel: Kernel, target: Target, bounds: Bounds, finite: frozenset[str] = frozenset()
) -> Kernel:
    """One kernel by itself; `finite`: the inputs that hold neither infinity nor NaN."""
    if target.rows:
        kernel = block_rows(kernel, bounds, target.rows)
        kernel, _ = apply(kernel, bounds, Context(target, finite=finite), schedule_floats)
    work = work_of(kernel.body, bounds)
    return without_unused(block_kernel(kernel, target, bounds, work))


@cache
def blocked(name: str, target: str) -> Kernel:
    """A subject as scheduled. Inputs are known to be finite, so that borders may be filled
    with zeros."""
    inputs = frozenset(f"x{position}" for position in range(len(SUBJECTS[name].shapes)))
    return schedule_kernel(PLAIN[NUMBERS[name]], TARGETS[target], SUBJECTS[name].bounds, inputs)


@pytest.fixture(scope="module", params=[(), ("-march=native",)], ids=["portable", "native"])
def subjects(request: pytest.FixtureRequest) -> Call:
    """Every subject, plain and scheduled; with what this machine's vectors can do, and without."""
    kernels = dict(PLAIN)
    for name in SUBJECTS:
        for target in TARGETS:
            kernels[f"{NUMBERS[name]}_{target}"] = blocked(name, target)
    return c_kernels(kernels, request.param)


def scheduled(case: Case, target: str) -> Kernel:
    return schedule_kernel(fused(case.kernel), TARGETS[target], case.bounds)


@cache
def changed(op: str, target: str) -> tuple[tuple[Case, Kernel], ...]:
    """Samples of an op that the target's schedule changes: the first few, and those that are
    scheduled in a way that none before was (number and nesting of loops and tiles)."""
    seen: set[str] = set()
    found: list[tuple[Case, Kernel]] = []
    count = 0
    for case in CASES:
        if case.op.name != op or count == MANY:
            continue
        kernel = scheduled(case, target)
        if kernel == fused(case.kernel):
            continue
        count += 1
        way = shape_of_loops(kernel.body)
        if count <= FEW or way not in seen:
            seen.add(way)
            found.append((case, kernel))
    return tuple(found)


def shape_of_loops(body: tuple[Stmt, ...]) -> str:
    """Which statements stand in which loops, without names and sizes."""
    return "".join(
        f"({shape_of_loops(stmt.body)})" if isinstance(stmt, For) else type(stmt).__name__[0]
        for stmt in body
        if isinstance(stmt, For | Multiply)
    )


@pytest.mark.long
@pytest.mark.parametrize("target", SAMPLED)
def test_every_scheduled_op_is_listed(target: str) -> None:
    names = {case.op.name for case in CASES}
    assert {name for name in names if changed(name, target)} == set(SCHEDULED)


@pytest.mark.parametrize("target", SAMPLED)
@pytest.mark.parametrize("op", SCHEDULED)
def test_samples_keep_their_bits_and_stay_inside_their_buffers(op: str, target: str) -> None:
    """The interpreter stops at an access outside a buffer, and at what stays unwritten."""
    kernels = {}
    for case, kernel in changed(op, target):
        interpreted = run_kernel(kernel, case.inputs, case.sizes)
        for ours, expected in zip(interpreted, case.expected, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4, err_msg=case.name)
        kernels[case.name] = fused(case.kernel)
        kernels[f"{case.name}_{target}"] = kernel
    assert kernels
    call = c_kernels(kernels)
    for case, _ in changed(op, target):
        wanted = call(case.name, case.inputs, case.sizes)
        found = call(f"{case.name}_{target}", case.inputs, case.sizes)
        assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted], case.name


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_size_keeps_its_bits(name: str, target: str, subjects: Call) -> None:
    for sizes, inputs in SUBJECTS[name].runs():
        wanted = subjects(NUMBERS[name], inputs, sizes)
        found = subjects(f"{NUMBERS[name]}_{target}", inputs, sizes)
        assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted], sizes


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_sizes_stay_inside_their_buffers(name: str, target: str) -> None:
    """Interpreted, at the lowest size, at one between and at a high one."""
    subject = SUBJECTS[name]
    kernel = blocked(name, target)
    runs = [run for run in subject.runs() if max(run[0].values()) <= HIGH]
    reference = all_ops()[subject.op].reference
    for sizes, inputs in (runs[0], runs[len(runs) // 2], runs[-1]):
        wanted = reference(*inputs, **subject.attrs)
        np.testing.assert_allclose(
            run_kernel(kernel, inputs, sizes)[0], wanted, rtol=1e-4, atol=1e-5
        )


TWO_LOOPS = """
    symbol n in 1..9
    kernel @conv(%x: f32[n, 20], %w: f32[12]) -> (%y: f32[n, 8]) {
      for i in 0..n {
        for j in 0..8 {
          local sum: f32 = 0.0:f32
          for k in max(-i + 1, -j + 2, 0)..min(-i + 6, -j + 9, 12) {
            sum = fma(%x[i, j + k], %w[k], sum)
          }
          %y[i, j] = sum
        }
      }
    }"""


@pytest.mark.parametrize("target", TARGETS)
def test_windows_that_two_loops_clip_keep_their_bits(target: str) -> None:
    """They have no interior along either loop."""
    module = example_module(TWO_LOOPS)
    (kernel,) = module.kernels
    ours = schedule_kernel(kernel, TARGETS[target], module.bounds, frozenset({"x", "w"}))
    for n in range(1, 10):
        rng = np.random.default_rng(n)
        inputs = [rng.normal(size=shape).astype(np.float32) for shape in ((n, 20), (12,))]
        (wanted,), (found,) = (run_kernel(k, inputs, {"n": n}) for k in (kernel, ours))
        assert found.tobytes() == wanted.tobytes(), n


OUTER_SUM = """
    symbol n in 1..9
    kernel @sums(%x: f32[n, 4]) -> (%y: f32[1]) {
      local total: f32 = 0.0:f32
      for i in 0..n {
        local row: f32 = 0.0:f32
        for j in 0..4 {
          row = (row + %x[i, j])
        }
        total = (total + row)
      }
      %y[0] = total
    }"""


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_a_sum_that_is_declared_before_them_stay(target: str) -> None:
    """Border positions of a pool are such sums, behind the vectors of all others."""
    module = example_module(OUTER_SUM)
    (kernel,) = module.kernels
    assert block_kernel(kernel, TARGETS[target], module.bounds, 1) == kernel
