# SPDX-License-Identifier: Apache-2.0
"""Printed kernels run on the shim as the interpreter runs their loops, and faults are found.

The interpreter finds races of what is printed, the shim those of the text: a barrier or a
`__syncwarp()` too few, an index out of range in global or shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relax_aot.emit.cuda_module import device_source
from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.interpret import IndexFault, run_kernel
from relax_aot.ir.parse import parse
from tests.cuda.kernels import ELEMENTS, PEAKS, PICKS, SUMS, TRANSPOSE, module
from tests.cuda.shim import Answer, Job, Shim, ShimError

MODULE = parse(module(ELEMENTS, TRANSPOSE, SUMS, PEAKS))
SHAPES = ((1, 1), (3, 17), (7, 100), (11, 299))
SEEDS = 3

# Faults of the printed text: the kernel, what is replaced, and by what.
TEXT_FAULTS = {
    "one element too many": ("elements", "if (i < m * n)", "if (i <= m * n)"),
    "no bound": ("elements", "if (i < m * n)", "if (i < m * n + 64)"),
    "blocks that overlap": ("elements", "b * 64 + t", "b * 63 + t"),
    "another element": ("elements", "y[m * r + c] =", "y[m * r + c + 1] ="),
    "no barrier before others read": ("transpose", "__syncthreads();", ";"),
    "a barrier that some threads reach": (
        "transpose", "__syncthreads();", "if (i + left < m) {\n __syncthreads();\n }",
    ),
    "a row too many": ("transpose", "i + left < m", "i + left <= m"),
    "a column without a bound": ("transpose", "&& j + left < m", ""),
    "a smaller tile": ("transpose", "tile[72]", "tile[64]"),
    "another row length": ("transpose", "tile[i * 9 + j]", "tile[i * 8 + j]"),
    "lanes without an order": ("sums", "__syncwarp();", ";"),
    "warps without a barrier": ("sums", "__syncthreads();", ";"),
    "an order that some lanes reach": (
        "sums", "__syncwarp();", "if (lane < 7) {\n __syncwarp();\n }",
    ),
    "lanes that leave before a barrier": (
        "sums", "float sum[1];", "float sum[1];\nif (lane > 20) {\n return;\n }",
    ),
    "a row that warps share": ("sums", "row[w * 32 + lane] =", "row[lane] ="),
    "one sum of all warps": ("sums", "parts[w] =", "parts[0] ="),
    "a condition without an order": (
        "peaks", "__syncwarp();\n        if (holds)", "if (holds)",
    ),
    "a step too many": ("sums", "+ 127)", "+ 255)"),
}  # fmt: skip

# Faults of the loops.
LOOP_FAULTS = {
    "a missing barrier": (TRANSPOSE, "      barrier thread\n", ""),
    "a missing barrier of warps": (SUMS, "      barrier warp\n", ""),
    "a wrong bound": (ELEMENTS, "index(i) < index(n*m)", "index(i) < index(n*m + 1)"),
    "a double write": (ELEMENTS, "let i = 64*b + t", "let i = 63*b + t"),
    "a double write of warps": (SUMS, "%row[w, l] =", "%row[0, l] ="),
    "a double write of lanes": (SUMS, "if (index(l) == 0:i64) {", "if (index(l) != 1:i64) {"),
    "a double write of sums": (SUMS, " && (index(w) == 0:i64)) {", " && (index(w) != 1:i64)) {"),
    "a barrier under a condition": (
        TRANSPOSE, "      barrier thread\n",
        "      if (index(t) < 3:i64) {\n        barrier thread\n      }\n",
    ),
}  # fmt: skip


def jobs(kernel: str, variant: str = "") -> Iterator[Job]:
    generator = np.random.default_rng(1)
    for rows, columns in SHAPES:
        x = generator.standard_normal((rows, columns)).astype(np.float32)
        for seed in range(SEEDS):
            yield Job(kernel, (x,), {"n": rows, "m": columns}, seed, variant)


def is_right(job: Job, answer: Answer) -> bool:
    wanted = run_kernel(MODULE.kernel_table[job.kernel], job.inputs, job.sizes)
    pairs = zip(wanted, answer.outputs, strict=True)
    return all(np.allclose(ours, theirs, rtol=1e-6, atol=1e-6) for theirs, ours in pairs)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    """All kernels, and each with each fault, in one program."""
    printed = device_source("model", MODULE.kernels, MODULE.bounds).text
    variants = {}
    for number, (kernel, old, new) in enumerate(TEXT_FAULTS.values()):
        found = re.search(rf'^extern "C" [^{{]* {kernel}\(.*?^}}\n', printed, re.M | re.S)
        assert found and old in found[0], (kernel, old)
        text = found[0].replace(f" {kernel}(", f" {kernel}_{number}(")
        variants[f"_{number}"] = text.replace(old, new, 1)
    return Shim(MODULE.kernels, MODULE.bounds, tmp_path_factory.mktemp("faults"), variants)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [kernel.name for kernel in MODULE.kernels])
def test_the_text_computes_what_the_loops_do(kernel: str, shim: Shim) -> None:
    all_jobs = list(jobs(kernel))
    for job, answer in zip(all_jobs, shim.run(all_jobs), strict=True):
        assert is_right(job, answer), (job.sizes, job.seed)


@pytest.mark.slow
@pytest.mark.parametrize("fault", TEXT_FAULTS)
def test_a_fault_of_the_text_is_found(fault: str, shim: Shim) -> None:
    kernel, number = TEXT_FAULTS[fault][0], list(TEXT_FAULTS).index(fault)
    for job in jobs(kernel, f"_{number}"):
        try:
            (answer,) = shim.run([job])
        except ShimError:
            return
        if not is_right(job, answer):
            return
    pytest.fail("the results are right")


@pytest.mark.slow
def test_undefined_behavior_is_told(tmp_path: Path) -> None:
    printed = device_source("model", MODULE.kernels[:1], MODULE.bounds).text
    found = re.search(r'^extern "C" [^{]* elements\(.*?^}\n', printed, re.M | re.S)
    assert found
    text = found[0].replace(" elements(", " elements_over(")
    text = text.replace("{\n", "{\n    volatile int most = 2147483647;\n    most = most + 1;\n", 1)
    shim = Shim(MODULE.kernels[:1], MODULE.bounds, tmp_path, {"_over": text})
    with pytest.raises(ShimError, match="signed integer overflow"):
        shim.run([next(jobs("elements", "_over"))])


@pytest.mark.parametrize("fault", LOOP_FAULTS)
def test_a_fault_of_the_loops_is_found(fault: str) -> None:
    text, old, new = LOOP_FAULTS[fault]
    assert old in text
    with pytest.raises((AssertionError, RelaxAotError)):
        wrong = parse(module(text.replace(old, new, 1)))
        for job in jobs(wrong.kernels[0].name):
            run_kernel(wrong.kernels[0], job.inputs, job.sizes, seed=job.seed)


@pytest.mark.long
def test_another_number_of_threads_is_refused(tmp_path: Path) -> None:
    """A kernel is compiled for its number of threads."""
    shim = Shim(MODULE.kernels[:1], MODULE.bounds, tmp_path)
    (launch,) = shim.source.launches["elements"]
    others = {"elements": (replace(launch, threads=96),)}
    shim.source = replace(shim.source, launches=others)
    with pytest.raises(ShimError, match="launched with 96 threads"):
        shim.run([next(jobs("elements"))])


def test_a_lane_that_fails_ends_the_run(tmp_path: Path) -> None:
    """Other lanes do not wait for it, and the status says that an index was refused."""
    picks = parse(module(PICKS))
    shim = Shim(picks.kernels, picks.bounds, tmp_path)
    x = np.zeros((3, 40), np.float32)
    sizes = {"n": 3, "m": 40}
    (right,) = shim.run([Job("picks", (x,), sizes)])
    assert right.status == 0
    np.testing.assert_array_equal(right.outputs, run_kernel(picks.kernels[0], (x,), sizes))
    for seed in range(4):
        x[1, 0] = 20.0
        (wrong,) = shim.run([Job("picks", (x,), sizes, seed)])
        assert wrong.status == -6
        with pytest.raises(IndexFault):
            run_kernel(picks.kernels[0], (x,), sizes, seed=seed)
