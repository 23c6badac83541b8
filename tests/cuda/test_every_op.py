# SPDX-License-Identifier: Apache-2.0
"""The samples of every op as CUDA C++: on the shim they have the results of their references, and
each compiler of CUDA makes machine code of them without a warning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from relax_aot.binaries.cubin import read_cubin
from relax_aot.emit.cuda_module import DeviceSource, Frame, device_source
from relax_aot.ir.dims import Bounds
from relax_aot.ops import all_ops
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.targets import find
from relax_aot.toolchain.nvrtc import cubin
from relax_aot.verify.compare import Tolerance, compare
from relax_aot.verify.op_cases import Case, cases_of
from tests.cuda.shim import Job, Shim
from tests.cuda.toolkits import TARGETS, needs_compilers
from tests.scheduling.devices.test_every_op import REORDERED, module_of, on_device

CASES = tuple(case for case in cases_of(all_ops().values()) if not case.op.view)
GROUP = 147
ALL = {f"from {first}": CASES[first : first + GROUP] for first in range(0, len(CASES), GROUP)}
SOME = "some"
GROUPS = {SOME: CASES[::53], **ALL}


def bounds_of(cases: Sequence[Case]) -> Bounds:
    return Bounds.of({name: (1, 2 * n) for case in cases for name, n in case.sizes.items()})


def compute_what_the_references_do(cases: Sequence[Case], folder: Path) -> None:
    """With blocks so small that the samples need several."""
    shim = Shim([on_device(case) for case in cases], bounds_of(cases), folder)
    jobs = [Job(case.name, case.inputs, case.sizes, seed=case.number) for case in cases]
    wrong = []
    for case, answer in zip(cases, shim.run(jobs), strict=True):
        tolerance = Tolerance(REORDERED * case.sample.rtol, REORDERED * case.sample.atol)
        for ours, expected in zip(answer.outputs, case.expected, strict=True):
            difference = compare("y", ours, expected, tolerance)
            if answer.status != 0 or not difference.ok:
                wrong.append((case.name, answer.status, difference))
    assert not wrong, wrong


@cache
def printed(group: str) -> DeviceSource:
    """With blocks as large as those of a GPU."""
    cases, target = GROUPS[group], find("cuda", ())
    kernels = [schedule_device(module_of(case), target).kernels[0] for case in cases]
    return device_source("ops", kernels, bounds_of(cases), Frame(fallible=True))


def compile_without_a_warning(group: str, sm: int, major: int) -> None:
    source = printed(group)
    made = {one.c_name for found in source.launches.values() for one in found}
    functions = read_cubin(cubin(source.text, "ops", sm, major)).functions
    assert {function.name for function in functions} == made
    assert all(function.shared_bytes <= 48 * 1024 for function in functions)


@pytest.mark.slow
def test_some_samples_compute_what_the_references_do(tmp_path: Path) -> None:
    compute_what_the_references_do(GROUPS[SOME], tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("group", ALL)
def test_all_samples_compute_what_the_references_do(group: str, tmp_path: Path) -> None:
    compute_what_the_references_do(GROUPS[group], tmp_path)


@pytest.mark.slow
@needs_compilers
@pytest.mark.parametrize(("sm", "major"), TARGETS)
def test_some_samples_compile_without_a_warning(sm: int, major: int) -> None:
    compile_without_a_warning(SOME, sm, major)


@needs_compilers
@pytest.mark.long
@pytest.mark.parametrize(("sm", "major"), TARGETS)
@pytest.mark.parametrize("group", ALL)
def test_all_samples_compile_without_a_warning(group: str, sm: int, major: int) -> None:
    compile_without_a_warning(group, sm, major)
