# SPDX-License-Identifier: Apache-2.0
"""The one place that starts an emulator: QEMU where it is installed, else Unicorn.

Every run has its own folder, its own process group and a time limit, and leaves nothing
behind. What the program did wrong comes back as an error that says where.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from relax_aot.binaries.elf import Function, Program, Section
from relax_aot.emulation import unicorn
from relax_aot.emulation.counter import (
    COUNTS_FILE,
    INTERFACES,
    PluginError,
    Window,
    plugin_arguments,
    read_counts,
    window_of,
)
from relax_aot.emulation.cycles import Estimator
from relax_aot.emulation.faults import fault_of_lockup, fault_of_record
from relax_aot.emulation.harness import (
    FAULT_FILE,
    REQUEST_FILE,
    RESPONSE_FILE,
    HarnessCall,
    HarnessResult,
    decode_response,
    encode_request,
    with_counts,
)
from relax_aot.errors import RelaxAotError
from relax_aot.progress import finished, step
from relax_aot.project.board import Board, Emulator, Memory, same_core
from relax_aot.toolchain import tools
from relax_aot.toolchain.build import Image

TIMEOUT_SECONDS = 120.0
EXIT_FILES, EXIT_REQUEST, EXIT_LIBRARY = 96, 97, 98


class EmulatorError(RelaxAotError):
    """The emulator, or the program in it, ended in a way that is not a fault of the model."""


class EmulatorTimeout(EmulatorError):
    """The program did not end in time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended, and the files that it left. `code` is None where time ran out."""

    code: int | None
    messages: str
    files: dict[str, bytes]


def run_image(
    image: Image,
    board: Board,
    calls: Sequence[HarnessCall],
    timeout: float = TIMEOUT_SECONDS,
    *,
    functions: bool = False,
    cycles: bool = False,
    marked: Collection[str] = (),
) -> list[HarnessResult]:
    """Run the calls in order, in one program. One result per call.

    `functions` also gives the instructions of each function, `cycles` estimates of cycles, and
    `marked` those of functions with what they call. Where the emulator cannot count, `instructions`
    and `cycles` are None.
    """
    estimator = Estimator(image.elf, board) if cycles else None
    program = _program(image.elf, image.elf.stat().st_mtime_ns)
    emulator = _emulator_with_memories(board, program)
    model = program.model_table()
    window = window_of(program, model)
    files = {REQUEST_FILE: encode_request(model, calls)}
    if emulator is None:
        command = unicorn.command()
        files |= unicorn.machine_files(board, program, window, functions, cycles)
    else:
        command = _command(emulator, image.elf)
        interface = plugin_interface(command[0])
        if interface is not None:
            flash = board if cycles else None
            marks = [f.start for f in program.functions if f.name.partition(".")[0] in marked]
            arguments = plugin_arguments(interface, window, functions or cycles, flash, marks)
            command[1:1] = arguments
    step(f"running on {board.name}: {len(calls)} calls")
    ended = run_command(command, files, timeout)
    finished()
    results = decode_response(model, ended.files.get(RESPONSE_FILE, b""))
    lines = ended.files.get(COUNTS_FILE, b"").decode("ascii")
    results = with_counts(results, read_counts(program, lines, estimator))
    if ended.code is None:
        raise EmulatorTimeout(
            f"{board.name}: {len(results)} of {len(calls)} calls finished in {timeout:g}"
            " seconds; an endless loop, or too much work: give fewer calls or a longer time limit"
        )
    if ended.code != 0 or len(results) != len(calls):
        raise _failure(board, program, ended, results)
    return results


def require_emulator(board: Board) -> Emulator | None:
    """Said before anything is built: the installed program that emulates the board, or None
    where Unicorn does."""
    emulator = board.emulator
    if emulator is not None and tools.installed(emulator.program) is not None:
        return emulator
    if unicorn.can_emulate(board) and tools.has_wheel("unicorn"):
        return None
    if emulator is not None:
        raise tools.missing(emulator.program)
    others = ", ".join(same_core(board)) or "none; `relax-aot boards` lists all boards"
    text = (
        f"{board.name} is not emulated, so a model cannot be run on it here; emulated boards"
        f" with the same core ({board.cpu}): {others}"
    )
    if unicorn.can_emulate(board):
        text += f"; unicorn can run this board: {tools.EXTRA.format('emulator')}"
    raise EmulatorError(text)


def _emulator_with_memories(board: Board, program: Program) -> Emulator | None:
    """As `require_emulator`; Unicorn emulates the memories of the board that a machine has not."""
    emulator = require_emulator(board)
    if emulator is None or emulator.memories is None:
        return emulator
    for memory in board.memories:
        has = emulator.memories.get(memory.name, 0)
        end = max(
            (s.address + s.size for s in program.sections if s.size and _in(s, memory)), default=0
        )
        if end > memory.origin + has:
            break
    else:
        return emulator
    if unicorn.can_emulate(board) and tools.has_wheel("unicorn"):
        return None
    raise EmulatorError(
        f"{board.name}: the program takes {end - memory.origin} bytes of the memory"
        f" {memory.name!r}, of which the machine {emulator.machine} of {emulator.program} has"
        f" {has}; lower the upper bounds, or use unicorn: {tools.EXTRA.format('emulator')}"
    )


def _in(section: Section, memory: Memory) -> bool:
    return memory.origin <= section.address < memory.end


@lru_cache(maxsize=8)
def _program(elf: Path, _changed: int) -> Program:
    return Program(elf)


def _command(emulator: Emulator, elf: Path) -> list[str]:
    program = str(tools.find(emulator.program))
    if emulator.machine is not None:
        return [
            program, "-M", emulator.machine, "-display", "none", "-monitor", "none",
            "-serial", "none", "-semihosting-config", "enable=on,target=native",
            "-kernel", str(elf.resolve()),
        ]  # fmt: skip
    assert emulator.cpu is not None
    return [program, "-cpu", emulator.cpu, str(elf.resolve())]


@lru_cache
def plugin_interface(emulator: str) -> int | None:
    """The version in which this emulator takes the counter; None where it takes no plugins.

    Plugins are loaded before the program, so one that is not there will do.
    """
    nothing = ["/nonexistent"]
    if "system" in Path(emulator).name:
        nothing = ["-M", "none", "-display", "none", "-kernel", *nothing]
    for interface in INTERFACES:
        try:
            plugin = plugin_arguments(interface, Window(0, Function("", 0, 0)), functions=False)
        except PluginError:
            return None
        if COUNTS_FILE in run_command([emulator, *plugin, *nothing], {}, 20.0).files:
            return interface
    return None


def run_command(command: Sequence[str], files: dict[str, bytes], timeout: float) -> Ended:
    """Run in a scratch folder that holds `files`, without core dumps, for `timeout` seconds."""
    with tempfile.TemporaryDirectory(prefix="relax_aot-run-") as scratch:
        folder = Path(scratch)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        with (folder / ".messages").open("wb") as messages:
            process = subprocess.Popen(
                ["/bin/sh", "-c", 'ulimit -c 0; exec "$@"', "sh", *command],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                start_new_session=True,
            )
        code: int | None = None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end_group(process)
        left = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    text = left.pop(".messages").decode(errors="replace")
    return Ended(code, text, {name: data for name, data in left.items() if name not in files})


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _failure(
    board: Board, program: Program, ended: Ended, results: list[HarnessResult]
) -> RelaxAotError:
    record = ended.files.get(FAULT_FILE)
    if record:
        return fault_of_record(board.name, program, record, tuple(results))
    if "Lockup" in ended.messages:
        return fault_of_lockup(board.name, program, ended.messages, tuple(results))
    reason = exit_reason(ended.code or 0)
    messages = ended.messages.strip()
    text = f"{board.name}: {reason} in call {len(results)}"
    return EmulatorError(f"{text}\n{messages[:2000]}" if messages else text)


def exit_reason(code: int) -> str:
    """What an exit code of the harness says, other than a fault."""
    reasons = {
        EXIT_FILES: "the harness could not read or write its files",
        EXIT_REQUEST: "the request does not fit the model (is the arena larger than its room?)",
        EXIT_LIBRARY: "the C library ended the program (exit or abort was called)",
    }
    return reasons.get(code, f"it ended with code {code}")
