# SPDX-License-Identifier: Apache-2.0
"""Instruction counts of a model's calls, by a QEMU plugin that is compiled when first needed.

Counting starts at the entry of `<name>_run` and ends when control is back in its caller, so
neither harness nor adapter is counted, and library calls of the adapter are not either.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relax_aot.binaries.elf import Function, ModelTable, Program
from relax_aot.cache import cached_folder, digest_of
from relax_aot.emulation.harness import FunctionCost
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


def plugin_arguments(interface: int, window: Window, functions: bool) -> list[str]:
    settings = {
        "out": COUNTS_FILE,
        "start": f"{window.start:#x}",
        "stop": f"{window.stop.start:#x}-{window.stop.end:#x}",
        "blocks": "1" if functions else "0",
    }
    path = str(plugin(interface)).replace(",", ",,")
    return ["-plugin", ",".join([path, *(f"{key}={value}" for key, value in settings.items())])]


def read_counts(program: Program, text: str) -> list[tuple[int, tuple[FunctionCost, ...]]]:
    """One entry per call; functions by cost, the dearest first."""
    counts = []
    costs: dict[str, int] = {}
    for line in text.splitlines():
        match line.split():
            case ["block", address, instructions]:
                function = program.function_at(int(address, 16))
                name = function.name if function is not None else "?"
                costs[name] = costs.get(name, 0) + int(instructions)
            case ["call", total]:
                counts.append((int(total), _sorted(costs)))
                costs = {}
    return counts


def _sorted(costs: dict[str, int]) -> tuple[FunctionCost, ...]:
    pairs: Sequence[tuple[str, int]] = sorted(costs.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(FunctionCost(name, cost) for name, cost in pairs)
