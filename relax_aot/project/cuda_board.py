# SPDX-License-Identifier: Apache-2.0
"""The table `[cuda]` of a board file: the GPU, and what its kernels are compiled by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.errors import RelaxAotError
from relax_aot.project.board_table import Table

TOOLKITS = (11, 12, 13)
"""Major versions of CUDA whose run-time compiler (NVRTC) makes machine code of the kernels."""
CAPABILITIES = {
    53: (), 62: (), 72: (11, 12), 75: (11, 12, 13), 80: (11, 12, 13), 86: (11, 12, 13),
    87: (11, 12, 13), 89: (12, 13), 90: (12, 13), 100: (13,), 103: (13,), 110: (13,),
    120: (13,), 121: (13,),
}  # fmt: skip
"""The toolkits that are used for each compute capability, as ten times its number."""
FEATURES = {
    "dp4a": 62, "mma_f16": 80, "mma_bf16": 80, "mma_i8": 80, "mma_tf32": 80, "cp_async": 80,
}  # fmt: skip
"""The lowest compute capability with a group of instructions that schedules use."""


@dataclass(frozen=True, slots=True)
class Cuda:
    """The GPU of a board. Figures are those of its data sheet."""

    sm: int
    """Ten times the compute capability."""
    toolkits: tuple[int, ...]
    """A cubin is made by each. A driver loads those of its own major version of CUDA and of
    earlier ones, so the oldest driver decides about the first. None: the user's nvcc compiles."""
    multiprocessors: int
    clock_mhz: int
    bandwidth_gbs: float
    """Of the memory, in 10^9 bytes a second."""
    lanes: int
    """Multiply-adds of floats that one multiprocessor begins in a cycle."""
    matrix_lanes: int
    """The same of half floats by matrix units; 0 where schedules do not use these."""
    threads: int
    """Threads that one multiprocessor holds at a time."""

    @property
    def features(self) -> tuple[str, ...]:
        """The groups of instructions that the GPU has."""
        return tuple(name for name, least in FEATURES.items() if self.sm >= least)

    @property
    def capability(self) -> str:
        """The compute capability, such as 8.7."""
        return f"{self.sm // 10}.{self.sm % 10}"

    @property
    def source_only(self) -> bool:
        """No cubin is made: the project holds the source of the kernels for the user's nvcc."""
        return not self.toolkits


def read_cuda(top: Table, family: str) -> Cuda | None:
    """The table `[cuda]`, which boards of the family `cuda` have."""
    if family != "cuda":
        if "cuda" in top.data:
            raise top.fail("cuda", "no such table: it is for boards of family cuda")
        return None
    table = top.table("cuda")
    table.only(
        "sm", "toolkits", "multiprocessors", "clock_mhz", "bandwidth_gbs", "lanes",
        "matrix_lanes", "threads",
    )  # fmt: skip
    sm = table.count("sm")
    if sm not in CAPABILITIES:
        raise table.fail("sm", f"one of {', '.join(map(str, CAPABILITIES))}")
    toolkits = table.counts("toolkits")
    known = CAPABILITIES[sm]
    if not set(toolkits) <= set(known) or list(toolkits) != sorted(set(toolkits)):
        some = ", ".join(map(str, known)) or "none: no toolkit that is used here compiles for it"
        raise table.fail("toolkits", f"major versions of CUDA in ascending order, of {some}")
    return Cuda(
        sm,
        toolkits,
        table.count("multiprocessors"),
        table.count("clock_mhz"),
        table.positive("bandwidth_gbs"),
        table.count("lanes"),
        table.count("matrix_lanes") if "matrix_lanes" in table.data else 0,
        table.count("threads"),
    )


class DeviceError(RelaxAotError):
    """An option that a GPU does not have."""


EMIT = ("auto", "cuda-source", "cubin")
"""What a project for a GPU holds of its kernels; auto: cubins where the board names toolkits."""


def require_device(
    name: str, cuda: Cuda | None, emit: str, refused: Mapping[str, bool], wanted: Mapping[str, bool]
) -> None:
    """Refuse what kernels on the GPU of the board `name` cannot do, and what only they can.

    `refused` and `wanted` are options as the command line has them, and whether they were given:
    those for a CPU and those for a GPU.
    """
    if emit not in EMIT:
        raise DeviceError(f"emit is one of {', '.join(EMIT)}, not {emit!r}")
    if cuda is None:
        if emit != "auto":
            raise DeviceError(f"--emit {emit} is for boards with a GPU; {name} has none")
        for option, given in wanted.items():
            if given:
                raise DeviceError(f"{option} is for boards with a GPU; {name} has none")
        return
    if cuda.source_only and emit != "cuda-source":
        raise DeviceError(
            f"no compiler that relax-aot uses makes machine code for {name} (sm_{cuda.sm}): use"
            " --emit cuda-source, and the nvcc of the board compiles the kernels"
        )
    for option, given in refused.items():
        if given:
            raise DeviceError(
                f"{option} is for programs on a CPU: the kernels of {name} run on its GPU"
            )
