# SPDX-License-Identifier: Apache-2.0
"""What a GPU runs: each launch with the figures of its machine code and a roofline estimate.

The estimate is the greater of two times, as in Williams, Waterman and Patterson, "Roofline" (2009):
that of the arithmetic at the rate of the threads that are launched, and that of the memory, each
buffer moved once. It leaves out latency, the start of launches, and all that a cache misses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from relax_aot.binaries.cubin import Cubin, read_cubin
from relax_aot.binaries.occupancy import occupancy
from relax_aot.binaries.sass import DeviceCode, DeviceLoop
from relax_aot.emit.cuda_module import DeviceLaunch
from relax_aot.ir.loops import Kernel
from relax_aot.planning import inner_sizes
from relax_aot.planning.steps import Step, walk_steps
from relax_aot.project import Project
from relax_aot.project.cuda_board import Cuda
from relax_aot.report.cost import Cost, cost_of
from relax_aot.scheduling.devices.launches import launches
from relax_aot.toolchain.nvdisasm import disassembled, installed_disassembler
from relax_aot.toolchain.nvrtc import cubin, installed_compiler

Sizes = Mapping[str, int]

LAUNCH_COLUMNS = (
    "launch", "blocks", "threads", "registers", "local", "shared", "occupancy", "hot loop",
    "time", "limit",
)  # fmt: skip
TIMES = (
    "Times are roofline estimates: arithmetic at the rate of the threads that are launched, or each"
    " buffer moved once at the bandwidth of the data sheet, whichever takes longer. No launch was"
    " measured."
)
_SHOWN = 3
"""Instructions of a hot loop that a table names."""
_MATRIX = ("HMMA", "IMMA")
"""Instructions of matrix units."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A launch at given sizes. `limit`: arithmetic or memory, whichever takes longer."""

    sizes: dict[str, int]
    blocks: int
    bytes: int
    microseconds: float
    limit: str


@dataclass(frozen=True, slots=True)
class _Machine:
    """The machine code of a project by one toolkit."""

    toolkit: int
    cubin: Cubin
    instructions: Mapping[str, DeviceCode]


def device_figures(project: Project, chosen: Sequence[Sizes]) -> dict[str, Any] | None:
    """None for boards without a GPU. The machine code is that of the first toolkit that is here;
    without one, its figures are None."""
    cuda = project.board.cuda
    if cuda is None:
        return None
    machine = _machine(project, cuda)
    rows = [_row(step, n, one, machine, cuda) for step, n, one in _launches(project)]
    for row, (step, number, one) in zip(rows, _launches(project), strict=True):
        row["at"] = [
            asdict(_estimate(project, step, number, one, sizes, row["matrix"], cuda))
            for sizes in chosen
        ]
    return {
        "compute_capability": cuda.capability,
        "toolkit": machine.toolkit if machine else None,
        "launches": rows,
    }


def _launches(project: Project) -> Iterator[tuple[Step, int, DeviceLaunch]]:
    """In the order of the run: the step, and the number of the launch within its kernel."""
    for node in walk_steps(project.plan.program.nodes):
        if isinstance(node, Step):
            for number, one in enumerate(project.launches.get(node.callee.name, ())):
                yield node, number, one


def _machine(project: Project, cuda: Cuda) -> _Machine | None:
    toolkit = next((major for major in cuda.toolkits if installed_compiler(major)), None)
    if toolkit is None:
        return None
    text = project.files[f"{project.name}.cu"].decode()
    data = cubin(text, project.name, cuda.sm, toolkit)
    # The disassembler reads no code of GPUs before compute capability 7.5.
    reads = installed_disassembler() is not None and cuda.sm >= 75
    return _Machine(toolkit, read_cubin(data), disassembled(data) if reads else {})


def _row(
    step: Step, number: int, launch: DeviceLaunch, machine: _Machine | None, cuda: Cuda
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "function": launch.c_name,
        "kernel": step.callee.name,
        "number": number,
        "threads": launch.threads,
        **dict.fromkeys(
            ("registers", "local_bytes", "shared_bytes", "occupancy", "loop", "matrix")
        ),
    }
    if machine is not None:
        own = machine.cubin.function(launch.c_name)
        shared = own.shared_bytes + launch.dynamic_bytes
        part = occupancy(cuda.sm, launch.threads, own.registers, shared)
        row |= {
            "registers": own.registers,
            "local_bytes": own.local_bytes,
            "shared_bytes": shared,
            "occupancy": round(part, 3),
        }
        code = machine.instructions.get(launch.c_name)
        if code is not None:
            hot = max(code.loops, key=_heat, default=None)
            row["matrix"] = any(one.base in _MATRIX for one in code.instructions)
            row["loop"] = hot and {
                "instructions": len(hot.instructions),
                "mix": dict(sorted(hot.mix.items(), key=lambda pair: (-pair[1], pair[0]))),
            }
    return row


def _heat(loop: DeviceLoop) -> tuple[int, int, int]:
    """The loop that runs most: that with most multiply-adds, of several the one with the fewest
    other instructions, as others have conditions; else the deepest, then the longest."""
    products = loop.mix["FFMA"] + 256 * sum(loop.mix[name] for name in _MATRIX)
    length = len(loop.instructions) if loop.innermost else 0
    return products, loop.depth, -length if products else length


def _estimate(
    project: Project,
    step: Step,
    number: int,
    launch: DeviceLaunch,
    sizes: Sizes,
    matrix: bool | None,
    cuda: Cuda,
) -> Estimate:
    plan = project.plan
    most = inner_sizes(plan.program, plan.module.bounds)
    known = {**sizes, **{n: max(d.evaluate(sizes), 0) for n, d in most.items()}}
    blocks = max(launch.grid.evaluate(known), 0)
    if blocks == 0:
        return Estimate(dict(sizes), 0, 0, 0.0, "")
    assert isinstance(step.callee, Kernel)
    own = launches(step.callee)[number].kernel
    cost = cost_of(own, known)
    moved = min(_bytes(own, known), cost.loaded_bytes + cost.stored_bytes)
    arithmetic = _operations(cost) / _rate(cuda, blocks, launch.threads, bool(matrix))
    memory = moved / (cuda.bandwidth_gbs * 1e3)
    limit = "arithmetic" if arithmetic > memory else "memory"
    return Estimate(dict(sizes), blocks, moved, round(max(arithmetic, memory), 3), limit)


def _bytes(kernel: Kernel, sizes: Sizes) -> int:
    buffers = (buffer.type.bytes for buffer in kernel.buffers)
    return sum(max(size.evaluate(sizes), 0) for size in buffers)


def _operations(cost: Cost) -> int:
    return cost.multiply_adds + cost.operations + cost.functions


def _rate(cuda: Cuda, blocks: int, threads: int, matrix: bool) -> float:
    """Multiply-adds in a microsecond by the multiprocessors and threads that have work."""
    lanes = cuda.matrix_lanes if matrix and cuda.matrix_lanes else cuda.lanes
    busy = min(blocks, cuda.multiprocessors) * lanes
    return float(min(busy, blocks * threads * (lanes // cuda.lanes)) * cuda.clock_mhz)


def launch_cells(figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The launches at the last of the sizes as rows with LAUNCH_COLUMNS."""
    rows = []
    for row in figures["launches"]:
        at = row["at"][-1]
        time = f"{at['microseconds']:,.1f} us" if at["blocks"] else "not launched"
        rows.append(
            (
                row["function"], f"{at['blocks']:,}", str(row["threads"]),
                *(_or_unknown(row[key]) for key in ("registers", "local_bytes", "shared_bytes")),
                "?" if row["occupancy"] is None else f"{row['occupancy']:.0%}",
                _hot(row["loop"]), time, at["limit"],
            )
        )  # fmt: skip
    return rows


def _or_unknown(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _hot(loop: Mapping[str, Any] | None) -> str:
    if loop is None:
        return ""
    parts = [f"{name} {count}" for name, count in list(loop["mix"].items())[:_SHOWN]]
    return f"{loop['instructions']}: {', '.join(parts)}"
