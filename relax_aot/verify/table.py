# SPDX-License-Identifier: Apache-2.0
"""What verification and set-up look like on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from relax_aot.emulation import unicorn
from relax_aot.plugins import GROUPS, plugin_names
from relax_aot.project.board import Board, all_boards, load_board, same_core
from relax_aot.toolchain import doctor, tools
from relax_aot.verify.job import Result, Run, Target
from relax_aot.verify.profile import KernelProfile, Profile
from relax_aot.verify.samples import sizes_text

RUN_COLUMNS = ("sizes", "status", "worst difference", "of allowed", "wrong", "instructions")
"""What `run_cells` shows of a run."""


def print_result(result: Result) -> None:
    console = Console(markup=False, highlight=False, soft_wrap=True)
    for target in result.targets:
        memory = target.memory
        table = Table(title=_title(result, target), title_justify="left")
        for column in RUN_COLUMNS:
            table.add_column(column, justify="left" if column == "sizes" else "right")
        for run in target.runs:
            table.add_row(*run_cells(run))
        console.print(table)
        console.print(
            f"arena {memory.arena_bytes}  state {memory.state_bytes}  constants"
            f" {memory.const_bytes}  code {shown(memory.code_bytes)}  stack"
            f" {shown(memory.stack_bytes)} bytes; {'equal' if target.ok else 'NOT EQUAL'}"
        )
        _print_quality(console, target)
        for run in target.runs:
            for difference in run.compared:
                if not difference.ok:
                    console.print(
                        f"  {difference.name} at {sizes_text(run.dims)}: {difference.mismatches}"
                        f" elements differ, most at {difference.worst} {difference.note}".rstrip(),
                        style="red",
                    )


def _title(result: Result, target: Target) -> str:
    emulated = ", emulated on the CPU" if target.emulated else ""
    return f"{result.model} on {target.board}{emulated}"


def _print_quality(console: Console, target: Target) -> None:
    """What quantization costs, and how often the classes are right."""
    if target.against_float:
        table = Table(title=f"against the float model, on {target.board}", title_justify="left")
        for column in ("output", "SNR dB", "worst difference", "at", "same top class"):
            table.add_column(column, justify="left" if column == "output" else "right")
        for row in target.against_float:
            ratio = "no noise" if row.snr_db is None else f"{row.snr_db:.1f}"
            at = f"call {row.call}: {row.worst}"
            table.add_row(
                row.name, ratio, f"{row.max_abs:.3g}", at, _percent(row.top_class_agreement)
            )
        console.print(table)
    right = target.accuracy
    if right is not None:
        shares = f"quantized {_percent(right.reference)}, {target.board} {_percent(right.board)}"
        if right.float_model is None:
            shares = (
                f"reference {_percent(right.reference)}, {target.board} {_percent(right.board)}"
            )
        else:
            shares = f"float {_percent(right.float_model)}, {shares}"
        console.print(f"accuracy of {right.output} on {right.samples} samples: {shares}")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def run_cells(run: Run) -> tuple[str, ...]:
    sizes = ", ".join(f"{name}={size}" for name, size in run.dims.items()) or "fixed"
    sizes = f"{run.entry}: {sizes}" if run.entry else sizes
    worst = max((d.max_abs for d in run.compared), default=0.0)
    share = max((d.of_allowed for d in run.compared), default=0.0)
    wrong = sum(d.mismatches for d in run.compared)
    count = shown(run.instructions)
    return sizes, str(run.status), f"{worst:.3g}", f"{share:.2f}", str(wrong), count


def profile_lines(found: Profile, measured: Mapping[str, float] | None = None) -> list[str]:
    """What costs most comes first. `measured` are cycles of kernels on a board."""
    sizes = ", ".join(f"{name}={size}" for name, size in found.dims.items()) or "fixed sizes"
    lines = [
        (
            f"{found.model} on {found.board} at {sizes}: {found.instructions:,} instructions"
            f" ({found.as_shipped:,} if the compiler may inline kernels)"
        )
    ]
    if found.cycles_estimated is None:
        return lines + [
            f"{row.instructions:>14,}  {100 * row.share:5.1f} %  {_of_kernel(row)}"
            for row in found.kernels
        ]
    lines.append(
        f"an estimate: {found.cycles_estimated:,} cycles ({found.cycles_as_shipped:,} if the"
        " compiler may inline kernels)"
    )
    head = f"{'instructions':>14}  {'est. cycles':>14}  {'share':>7}"
    beside = f"  {'with callees':>14}  {'measured':>14}  {'ratio':>5}"
    lines.append(head + (beside if measured is not None else ""))
    for row in found.kernels:
        estimate = row.cycles_estimated or 0
        share = 100 * estimate / max(found.cycles_estimated, 1)
        text = f"{row.instructions:>14,}  {estimate:>14,}  {share:5.1f} %"
        if measured is not None:
            text += _measured_cells(measured.get(row.function), row.with_callees)
        lines.append(f"{text}  {_of_kernel(row)}")
    return lines


def _of_kernel(row: KernelProfile) -> str:
    return row.function + (f"  ({row.origin})" if row.origin else "")


def _measured_cells(cycles: float | None, estimate: int | None) -> str:
    """The estimate with callees, measured cycles, and how many times the estimate they are."""
    known = cycles is not None and estimate
    ratio = f"{cycles / estimate:5.2f}" if cycles is not None and estimate else f"{'-':>5}"
    measured = f"{cycles:,.0f}" if known else "-"
    return f"  {shown(estimate):>14}  {measured:>14}  {ratio}"


def shown(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def board_figures(name: str | None) -> object:
    """For programs: all boards, or what the file of one says."""
    if name is None:
        return [{"name": b.name, "title": b.title} for b in all_boards()]
    return asdict(load_board(name))


def board_lines(name: str | None) -> list[str]:
    if name is None:
        boards = all_boards()
        return [f"{b.name:20} {_sizes(b):>14}  {b.title}" for b in boards]
    board = load_board(name)
    lines = [f"{board.name}: {board.title}"]
    if board.aliases:
        lines.append(f"also called {', '.join(board.aliases)}")
    lines += [f"cpu {board.cpu}", f"flags {' '.join(board.flags)}"]
    lines += [f"{m.name}: {m.size} bytes at {m.origin:#x}, {m.kind}" for m in board.memories]
    lines += [f"region {r.name}: {r.bytes} bytes for models" for r in board.regions]
    lines += [f"stack: {board.stack_bytes} bytes", f"figures from: {board.source}"]
    if board.notes:
        lines.append(f"notes: {' '.join(board.notes.split())}")
    return lines + _emulation(board)


def _emulation(board: Board) -> list[str]:
    if board.emulator:
        emulated = board.emulator.machine or board.emulator.cpu
        return [f"emulated by {board.emulator.program} as {emulated}"]
    if board.cuda:
        cuda = board.cuda
        by = " and ".join(map(str, cuda.toolkits)) or "none; --emit cuda-source is for your nvcc"
        size = f"{cuda.multiprocessors} multiprocessors at {cuda.clock_mhz} MHz"
        return [
            f"GPU: sm_{cuda.sm}, {size}, {cuda.bandwidth_gbs:g} GB/s",
            f"machine code for the drivers of CUDA: {by}",
            "the GPU and its driver are emulated on the CPU of this machine",
        ]
    if board.family != "cortex_m":
        return []
    others = ", ".join(same_core(board)) or "none"
    if unicorn.can_emulate(board):
        get = "" if tools.has_wheel("unicorn") else f" ({tools.EXTRA.format('emulator')})"
        return [
            f"core and memories emulated by unicorn{get}; by QEMU, with the same core: {others}"
        ]
    return [f"not emulated; with the same core: {others}"]


def _sizes(board: Board) -> str:
    """Flash and RAM in all."""
    sums = [sum(m.size for m in board.memories if m.kind == k) for k in ("flash", "ram")]
    return "/".join(_short(size) for size in sums if size) or "-"


def _short(size: int) -> str:
    for unit, power in (("G", 30), ("M", 20), ("K", 10)):
        if size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)


def doctor_lines() -> list[str]:
    lines = doctor.lines()
    for group in GROUPS:
        lines += [f"{'plug-in: ' + group:28} {name}" for name in plugin_names(group)]
    return lines
