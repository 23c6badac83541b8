# SPDX-License-Identifier: Apache-2.0
"""Instruction counts of a model's calls, by a QEMU plugin that is compiled when first needed.

Counting starts at the entry of `<name>_run` and ends when control is back in its caller, so
neither harness nor adapter is counted, and library calls of the adapter are not either.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relax_aot.binaries.elf import Function, ModelTable, Program
from relax_aot.cache import cached_folder, digest_of
from relax_aot.emulation.cycles import BlockRuns, Estimator
from relax_aot.emulation.harness import Count, FunctionCost
from relax_aot.project.board import Board
from relax_aot.resources import data_dir
from relax_aot.toolchain import tools

COUNTS_FILE = "counts.txt"
INTERFACES = (1, 2, 3, 4)
"""Versions of QEMU's plugin interface that the plugin's few entry points are the same in."""
PLUGIN_NAME = "instruction_counter.so"
CALLER = "raot_call"


class PluginError(Exception):
    """The plugin cannot be made here; counts are then not available."""


@dataclass(frozen=True, slots=True)
class Window:
    """Count from the block at `start` to the first block inside `stop`."""

    start: int
    stop: Function


def window_of(program: Program, model: ModelTable) -> Window:
    """`<name>_run` as called by the adapter; else what the table calls `run`."""
    adapter = program.function_at(model.run_address)
    caller = program.function(CALLER)
    assert adapter is not None and caller is not None, "the image has no harness"
    run = program.function_beginning(f"{model.name}_run")
    if run is not None and run.start != adapter.start:
        return Window(run.start, adapter)
    return Window(adapter.start, caller)


def plugin(interface: int) -> Path:
    """The plugin for this version of the interface, compiled by this machine's compiler."""
    source = data_dir("boards") / "families" / "common" / "instruction_counter.c"
    try:
        compiler = tools.find("gcc")
    except tools.ToolMissing as error:
        raise PluginError(str(error)) from error
    command = [str(compiler), "-std=c11", "-O2", "-fPIC", "-shared", "-Wl,-z,lazy"]
    command.append(f"-DPLUGIN_INTERFACE={interface}")

    def make(folder: Path) -> None:
        done = subprocess.run(
            [*command, str(source), "-o", str(folder / PLUGIN_NAME)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PluginError(done.stderr)

    digest = digest_of([source.read_bytes(), repr(command), tools.version_of(compiler)])
    return cached_folder("counter", digest, make) / PLUGIN_NAME


def plugin_arguments(
    interface: int,
    window: Window,
    functions: bool,
    flash: Board | None = None,
    marks: Sequence[int] = (),
) -> list[str]:
    """`flash`: the board whose reads of flash are counted by block, too. `marks`: addresses of
    functions whose blocks are counted together with those that they call."""
    settings = [
        ("out", COUNTS_FILE),
        ("start", f"{window.start:#x}"),
        ("stop", f"{window.stop.start:#x}-{window.stop.end:#x}"),
        ("blocks", "1" if functions else "0"),
        *(("mark", f"{address:#x}") for address in marks),
    ]
    if flash is not None and flash.timing is not None and flash.timing.flash_wait_states:
        memory, timing = flash.first_memory("flash"), flash.timing
        settings += [
            ("flash", f"{memory.origin:#x}-{memory.end:#x}"),
            ("line", str(timing.line_bytes)),
            ("fetches", str(timing.instruction_lines)),
            ("reads", str(timing.data_lines)),
        ]
    path = str(plugin(interface)).replace(",", ",,")
    return ["-plugin", ",".join([path, *(f"{key}={value}" for key, value in settings)])]


@dataclass
class _Call:
    """What is known of a call so far: blocks, and the function that was marked last."""

    blocks: list[tuple[int, int]] = field(default_factory=list)
    details: list[BlockRuns] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)
    """By block: the marked function that it belongs to."""
    mark: str = ""


def read_counts(program: Program, text: str, estimator: Estimator | None = None) -> list[Count]:
    """One entry per call; functions by cost, the dearest first."""
    counts = []
    call = _Call()
    for line in text.splitlines():
        match line.split():
            case ["block", address, instructions, *detail]:
                call.blocks.append((int(address, 16), int(instructions)))
                call.marked.append(call.mark)
                if detail:
                    call.details.append(BlockRuns(*call.blocks[-1], *map(int, detail)))
            case ["mark", address]:
                call.mark = _name(program, int(address, 16))
            case ["call", total]:
                counts.append(_count(program, int(total), call, estimator))
                call = _Call()
    return counts


def _count(program: Program, total: int, call: _Call, estimator: Estimator | None) -> Count:
    complete = estimator is not None and len(call.details) == len(call.blocks)
    cycles = estimator.cycles(call.details) if estimator and complete else None
    names = [_name(program, address) for address, _ in call.blocks]
    whole = None if cycles is None else round(sum(cycles))
    functions = _by_name(names, call.blocks, cycles)
    marked = [cost for cost in _by_name(call.marked, call.blocks, cycles) if cost.name]
    return Count(total, functions, whole, tuple(marked))


def _name(program: Program, address: int) -> str:
    function = program.function_at(address)
    return function.name if function is not None else "?"


def _by_name(
    names: Sequence[str], blocks: Sequence[tuple[int, int]], cycles: Sequence[float] | None
) -> tuple[FunctionCost, ...]:
    instructions: dict[str, int] = {}
    estimates: dict[str, float] = {}
    for number, (name, (_, count)) in enumerate(zip(names, blocks, strict=True)):
        instructions[name] = instructions.get(name, 0) + count
        if cycles is not None:
            estimates[name] = estimates.get(name, 0) + cycles[number]
    pairs = sorted(instructions.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(
        FunctionCost(name, cost, None if cycles is None else round(estimates[name]))
        for name, cost in pairs
    )
