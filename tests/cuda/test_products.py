# SPDX-License-Identifier: Apache-2.0
"""Products on devices as the CUDA C++ says, on a CPU with sanitizers: the values of the plain
loops."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Kernel
from relax_aot.scheduling.devices import matrix_units, products
from relax_aot.scheduling.devices.launches import launches
from relax_aot.scheduling.targets import Target, cuda, cuda_mma
from tests.cuda.shim import Job, Shim
from tests.scheduling.devices import (
    test_attention,
    test_attention_matrices,
    test_few_rows,
    test_matrix_units,
    test_products,
)
from tests.scheduling.devices.kernels import Strategy, device_form, inputs
from tests.scheduling.test_online_softmax import plain

EDGES = ("rows below, at and above a tile",)
KINDS = (
    "rows below, at and above a tile", "vectors of two", "odd sizes", "sums that begin with a bias",
    "a batch of dynamic depth", "rows of several axes", "windows of bytes", "aligned bytes",
    "weights of four bits",
)  # fmt: skip
FORMS: dict[str, tuple[ModuleType, Strategy, tuple[str, ...]]] = {
    "small_tiles": (test_products, partial(products.product, tiles=test_products.TILES), ()),
    "tiles": (test_products, products.product, EDGES),
    "kinds_of_small_matrices": (
        test_matrix_units,
        partial(matrix_units.matrix_product, tiles=test_matrix_units.TILES),
        KINDS,
    ),
    "small_matrices": (
        test_matrix_units,
        partial(matrix_units.matrix_product, tiles=test_matrix_units.TILES),
        (),
    ),
    "matrices": (test_matrix_units, matrix_units.matrix_product, EDGES),
}
"""The cases of a file by a strategy: those that are named, or all."""

FEW_ROWS = [*test_few_rows.CASES]


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        "kinds_of_small_matrices",
        pytest.param("small_matrices", marks=pytest.mark.long),
        pytest.param("small_tiles", marks=pytest.mark.long),
        pytest.param("tiles", marks=pytest.mark.long),
        pytest.param("matrices", marks=pytest.mark.long),
    ],
)
def test_printed_kernels_have_the_values_of_the_plain_loops(form: str, tmp_path: Path) -> None:
    kernels: dict[str, Kernel] = {}
    device: dict[str, Kernel] = {}
    jobs: list[Job] = []

    file, strategy, names = FORMS[form]
    for number, case in enumerate(names or file.CASES):
        text, sizes = file.CASES[case]
        kernel, made, _ = device_form(text, strategy, f"{form}_{number}")
        assert made is not None
        kernels[made.name], device[made.name] = kernel, made
        one = sizes[-1]
        given = inputs(kernel, one)
        if file is test_matrix_units:  # whose sums have another order
            given = [*map(test_matrix_units.whole, given)]
        jobs.append(Job(made.name, tuple(given), one, seed=1))
    bounds = Bounds.of({"b": (0, 2), "n": (0, 70), "k": (0, 40), "m": (0, 70), "h": (0, 70)})
    answers = Shim([*device.values()], bounds, tmp_path).run(jobs)
    for job, answer in zip(jobs, answers, strict=True):
        (expected,) = run_kernel(kernels[job.kernel], job.inputs, job.sizes)
        (found,) = answer.outputs
        wide = [np.asarray(one, np.float32) for one in (found, expected)]
        np.testing.assert_array_equal(wide[0], wide[1], job.kernel)


POINTS = """
    symbol n in 1..2
    symbol p in 1..259
    kernel @conv_C(%x: f32[n, C, p], %w: f32[13, C], %b: f32[13]) -> (%y: f32[n, 13, p]) {
      for b in 0..n {
        for c in 0..13 {
          for i in 0..p {
            local sum: f32 = %b[c]
            for d in 0..C {
              sum = fma(%x[b, d, i], %w[c, d], sum)
            }
            %y[b, c, i] = sum
          }
        }
      }
    }"""


@pytest.mark.slow
@pytest.mark.parametrize("target", [cuda.TARGET, cuda_mma.TARGET], ids=["awaited", "unawaited"])
def test_printed_sums_of_two_parts_have_the_values_of_the_plain_loops(
    target: Target, tmp_path: Path
) -> None:
    """Of thin tiles of points, and of small ones."""
    kernels: dict[str, Kernel] = {}
    device: list[Kernel] = []
    jobs: list[Job] = []
    for channels in (5, 8, 16):
        text = POINTS.replace("C", str(channels))
        strategy = partial(products.product, tiles=products.Tiles(enough=2))
        kernel, made, bounds = device_form(text, strategy, target=target)
        assert made is not None and len(launches(made)) == 2
        kernels[kernel.name] = kernel
        device.append(made)
        for sizes in ({"n": 1, "p": 1}, {"n": 1, "p": 67}, {"n": 2, "p": 259}):
            jobs.append(Job(kernel.name, tuple(inputs(kernel, sizes)), sizes, seed=1))
    for job, answer in zip(jobs, Shim(device, bounds, tmp_path).run(jobs), strict=True):
        (expected,) = run_kernel(kernels[job.kernel], job.inputs, job.sizes)
        np.testing.assert_array_equal(answer.outputs[0], expected, job.kernel)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases",
    [FEW_ROWS[::4], pytest.param(FEW_ROWS, marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_printed_few_rows_have_the_values_of_the_plain_loops(
    cases: list[str], tmp_path: Path
) -> None:
    both = {case: test_few_rows.both(case) for case in cases}
    bounds = Bounds.of({"n": (0, 70), "k": (0, 40)})
    jobs = []
    for case, (kernel, device) in both.items():
        sizes = {"n": 1 if case == "one row" else 3, "k": 5}
        jobs.append(Job(device.name, tuple(test_few_rows.integers(kernel, sizes)), sizes, seed=1))
    answers = Shim([device for _, device in both.values()], bounds, tmp_path).run(jobs)
    for (kernel, _), job, answer in zip(both.values(), jobs, answers, strict=True):
        (expected,) = run_kernel(kernel, job.inputs, job.sizes)
        found = answer.outputs[0].astype(np.float32)
        np.testing.assert_array_equal(found, expected.astype(np.float32), job.kernel)


@pytest.mark.slow
def test_printed_attention_has_the_results_of_rows(tmp_path: Path) -> None:
    kernel = test_attention.device(masked=True)
    bounds = Bounds.of({"s": (1, 50), "n": (0, 50)})
    jobs = [
        Job(kernel.name, tuple(test_attention.arguments(kernel, s, n, kind)), {"s": s, "n": n}, n)
        for s, n, kind in test_attention.CASES
    ]
    rows = plain(True)
    for job, answer in zip(jobs, Shim([kernel], bounds, tmp_path).run(jobs), strict=True):
        (expected,) = run_kernel(rows, job.inputs, job.sizes)
        np.testing.assert_allclose(answer.outputs[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("room", test_attention.ROOMS)
def test_printed_attention_of_large_heads_has_the_results_of_rows(
    room: int, tmp_path: Path
) -> None:
    rows, kernel, bounds = test_attention.large_heads(room)
    jobs = []
    for s, n, kind in test_attention.CASES:
        named = test_attention.heads_of(s, n, kind)
        data = tuple(named[buffer.name] for buffer in kernel.inputs)
        jobs.append(Job(kernel.name, data, {"s": s, "n": n}, n))
    for job, answer in zip(jobs, Shim([kernel], bounds, tmp_path).run(jobs), strict=True):
        (expected,) = run_kernel(rows, job.inputs, job.sizes)
        np.testing.assert_allclose(answer.outputs[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_printed_attention_of_half_precision_is_as_exact_as_that(tmp_path: Path) -> None:
    form, bounds = "neighbors", Bounds.of({"s": (1, 50), "n": (0, 80)})
    kernel = test_attention_matrices.device(form)
    given = [test_attention_matrices.feeds(form, *case) for case in test_attention_matrices.CASES]
    jobs = [
        Job(
            kernel.name,
            tuple(test_attention_matrices.arguments(form, kernel, one)),
            {"s": s, "n": n},
            seed=n,
        )
        for one, (s, n, _) in zip(given, test_attention_matrices.CASES, strict=True)
    ]
    for one, answer in zip(given, Shim([kernel], bounds, tmp_path).run(jobs), strict=True):
        test_attention_matrices.assert_close(form, answer.outputs[0], one)
