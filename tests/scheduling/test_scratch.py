# SPDX-License-Identifier: Apache-2.0
"""No scratch memory is larger than what a kernel keeps in it at the highest sizes.

Kernels are interpreted, and what they write is counted. Micro-kernels may be given a few elements
behind the last one, since they read and write whole vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax_aot.evaluation import interpret
from relax_aot.evaluation.interpret import IndexFault, run_kernel
from relax_aot.evaluation.kernel_values import Memory
from relax_aot.ir.loops import Buffer, Kernel
from tests.models.onnx_text import Array
from tests.trust.build_matrix import project

BEHIND = 24
"""The columns of a tile and a vector of eight: C writes and reads whole ones, of which the
meaning of a micro-kernel writes the results alone."""
DEEP = 4
"""Steps of a depth that a tile of bytes takes at once: some of the last ones are padding."""
MODELS = ("dense", "sums", "lite", "channel")
TARGETS = ("M4", "M55", "host")


def allowed(buffer: Buffer, sizes: dict[str, int]) -> int:
    """Of a panel of interleaved columns, those that a tile does not need in its last steps: as
    many as it takes at once, however many lie together."""
    *_, deep, wide, group = (1, 1, 1, *(dim.evaluate(sizes) for dim in buffer.shape))
    return max(BEHIND, wide * max(group, min(DEEP, deep * group))) if buffer.rank > 2 else BEHIND


def arrays(kernel: Kernel, sizes: dict[str, int]) -> list[Array]:
    rng = np.random.default_rng(0)
    made: list[Array] = []
    for buffer in kernel.inputs:
        shape = tuple(dim.evaluate(sizes) for dim in buffer.shape)
        kind = np.dtype(buffer.dtype.numpy)
        value = rng.normal(size=shape) if kind.kind == "f" else rng.integers(0, 2, shape)
        made.append(value.astype(kind))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_scratch_is_used_to_its_end(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    plain = Memory

    def recorded(*given: Any) -> Any:
        made.append(plain(*given))
        return made[-1]

    monkeypatch.setattr(interpret, "Memory", recorded)
    found = 0
    for model in MODELS:
        plan = project(model, target).plan
        sizes = {name: plan.module.bounds.range(name)[1] for name in plan.module.bounds}
        for kernel in (kernel for kernel in plan.kernels if kernel.scratch):
            made.clear()
            try:
                run_kernel(kernel, arrays(kernel, sizes), sizes)
            except IndexFault:
                continue
            first = len(kernel.inputs) + len(kernel.outputs)
            for buffer, memory in zip(kernel.scratch, made[first:], strict=True):
                written = [at for at, value in enumerate(memory.data) if value is not None]
                behind = len(memory.data) - written[-1] - 1
                assert behind <= allowed(buffer, sizes), (model, kernel.name, buffer, behind)
                found += 1
    assert found >= 5
