# SPDX-License-Identifier: Apache-2.0
"""Kernels of random chains as CUDA C++: on the shim, under sanitizers, they compute what their
loops do, for threads in random order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from relax_aot import fusion, lowering, scheduling, transforms
from relax_aot.evaluation.interpret import IndexFault, run_kernel
from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Kernel
from relax_aot.ops._op import Array
from tests.cuda.shim import Answer, Job, Shim
from tests.fuzz.chain_modules import random_chain
from tests.fuzz.chains import _Runner, same
from tests.fuzz.test_devices import SMALL, different, policy_of

GATE, LONG, BLOCK = 8, 400, 40


@dataclass
class _Calls(_Runner):
    """Notes each kernel that is run, with what it gave; nothing where an index was refused."""

    sizes: Mapping[str, int]
    inputs: Mapping[str, Array]
    jobs: list[tuple[Kernel, Job, list[Array]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(dict(self.sizes), self.inputs)

    def _kernel(
        self, kernel: Kernel, arguments: list[Array], shared: Mapping[str, str]
    ) -> list[Array]:
        sizes = {name: self.sizes[name] for name in kernel.free_symbols}
        job = Job(kernel.name, tuple(arguments), sizes, len(self.jobs), shared=shared)
        try:
            results = run_kernel(kernel, arguments, dict(self.sizes), shared)
        except IndexFault:
            self.jobs.append((kernel, job, []))
            raise
        self.jobs.append((kernel, job, results))
        return results


def calls_of(seed: int) -> list[tuple[Kernel, Job, list[Array]]]:
    """Of all runs of a chain; names of kernels begin with the seed."""
    chain = random_chain(seed)
    lowered = lowering.check_then_trust(lowering.lower(transforms.run(chain.module)))
    fused = fusion.fuse(lowered, policy_of(seed), lenient=True).module
    made = scheduling.schedule(fused, SMALL, "speed", "blocked")
    found: list[tuple[Kernel, Job, list[Array]]] = []
    for sizes, inputs in chain.runs:
        for in_place in (False, True):
            calls = _Calls(sizes, inputs)
            calls.run(made, in_place=in_place)
            found += calls.jobs
    named = {kernel.name: replace(kernel, name=f"s{seed}_{kernel.name}") for kernel, _, _ in found}
    return [(named[k.name], replace(job, kernel=named[k.name].name), y) for k, job, y in found]


def differences(seeds: Sequence[int], folder: Path) -> list[str]:
    calls = [call for seed in seeds for call in calls_of(seed)]
    kernels = {kernel.name: kernel for kernel, _, _ in calls}
    ranges: dict[str, tuple[int, int]] = {}
    for _, job, _ in calls:
        for name, size in job.sizes.items():
            low, high = ranges.get(name, (size, size))
            ranges[name] = min(low, size), max(high, size)
    shim = Shim([*kernels.values()], Bounds.of(ranges), folder)
    answers = shim.run([job for _, job, _ in calls])
    return [
        f"{job.kernel} at {job.sizes}: {said}"
        for (kernel, job, wanted), answer in zip(calls, answers, strict=True)
        if (said := wrong(kernel, wanted, answer)) is not None
    ]


def wrong(kernel: Kernel, wanted: list[Array], answer: Answer) -> str | None:
    if (answer.status != 0) != (not wanted):
        return f"status {answer.status}"
    names = [buffer.name for buffer in kernel.outputs]
    if not wanted:
        return None
    ours = dict(zip(names, answer.outputs, strict=True))
    theirs = dict(zip(names, wanted, strict=True))
    exact = all(array.dtype.kind in "iub" for array in wanted)
    if exact:
        return same(theirs, ours)
    return different(theirs, ours, exact=False)


@pytest.mark.slow
def test_text_of_devices_computes_what_loops_do(tmp_path: Path) -> None:
    assert not differences(range(GATE), tmp_path)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("start", range(GATE, LONG, BLOCK))
def test_text_of_devices_computes_what_loops_do_at_length(start: int, tmp_path: Path) -> None:
    assert not differences(range(start, min(start + BLOCK, LONG)), tmp_path)
