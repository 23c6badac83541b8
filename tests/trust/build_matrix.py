# SPDX-License-Identifier: Apache-2.0
"""The matrix of builds: compilers, levels of optimization, extra flags and targets.

A cell is one choice of each. `excluded` names every cell that does not exist, with the reason. A
cell builds every model of `tests/models/every_kernel.py`, and what `tests/models/programs.py` has
for its target, each with its own C files and headers, under the project's strict warnings as
errors. Builds are kept by content: compiler, flags, files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

from relax_aot import driver
from relax_aot.cache import cache_dir, digest_of
from relax_aot.project.board import Board, load_board
from relax_aot.resources import data_dir
from relax_aot.toolchain import zig
from relax_aot.toolchain.compilers import Compiler
from tests.models.every_kernel import SUBJECTS
from tests.models.programs import PROGRAMS

COMPILERS = ("gcc", "clang", "zig")
LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os", "-Og", "LTO")
EXTRAS = {
    "none": (),
    "frame pointer": ("-fno-omit-frame-pointer",),
    "fixed r9": ("-ffixed-r9",),
    "position independent": ("-fPIC",),
    "short enums": ("-fshort-enums",),
    "undefined": ("-fsanitize=undefined",),
}
BOARDS = {
    "M0": "microbit",
    "M3": "mps2-an385",
    "M4": "mps2-an386",
    "M7": "mps2-an500",
    "M33": "mps2-an505",
    "M55": "mps3-an547",
    "aarch64": "aarch64-linux",
    "armhf": "armhf-linux",
    "host": "host",
}
STRICT = (
    "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wcast-align", "-Wstrict-prototypes",
    "-Wmissing-prototypes", "-Wdouble-promotion", "-Wvla", "-Wpedantic", "-Wsign-conversion",
    "-Wcast-qual", "-Wundef", "-Wfloat-equal", "-Wredundant-decls", "-Werror",
)  # fmt: skip
_ARM_PROFILES = {
    "M0": "thumbv6m-none-eabi", "M3": "thumbv7m-none-eabi", "M4": "thumbv7em-none-eabihf",
    "M7": "thumbv7em-none-eabihf", "M33": "thumbv8m.main-none-eabihf",
    "M55": "thumbv8.1m.main-none-eabihf",
}  # fmt: skip
_ZIG_LINUX = {
    "aarch64": ("-target", "aarch64-linux-gnu.2.31"),
    "armhf": ("-target", "arm-linux-gnueabihf.2.31", "-mcpu=cortex_a7"),
    "host": (),
}
BARE = tuple(_ARM_PROFILES)


@dataclass(frozen=True, order=True)
class Cell:
    target: str
    compiler: str
    level: str
    extra: str

    def __str__(self) -> str:
        return f"{self.target} {self.compiler} {self.level} {self.extra}"


def excluded(cell: Cell) -> str:
    """Why there is no such build; empty where there is one."""
    if cell.extra == "fixed r9" and cell.target in ("aarch64", "host"):
        return "r9 is a register of 32-bit Arm"
    if cell.extra == "undefined" and cell.compiler == "zig" and cell.level == "LTO":
        return "zig cc links its own runtime of the sanitizer, which is not in bitcode"
    return ""


def runs(cell: Cell) -> str:
    """Why a build of the cell cannot be run here; empty where it can."""
    if cell.level == "LTO" and cell.compiler != "gcc":
        return "the linker of the harness does not read LLVM's bitcode"
    if cell.extra == "position independent" and cell.target in BARE:
        return "needs a loader that sets the static base"
    if cell.target == "host" and cell.extra == "short enums":
        return "Python calls the library with the enums of the machine's own convention"
    if cell.target == "M0":
        return "the micro:bit's memory is too small for the harness with every model"
    return ""


def cells() -> list[Cell]:
    every = product(BOARDS, COMPILERS, LEVELS, EXTRAS)
    return [cell for parts in every if not excluded(cell := Cell(*parts))]


def covering(among: Sequence[Cell], seed: int = 1) -> list[Cell]:
    """Cells in which every pair of values stands that stands in any of `among`: greedy, each time
    the cell with the most pairs that are not covered yet."""
    order = list(among)
    Random(seed).shuffle(order)
    wanted = {pair for cell in order for pair in _pairs(cell)}
    chosen: list[Cell] = []
    while wanted:
        best = max(order, key=lambda cell: len(_pairs(cell) & wanted))
        chosen.append(best)
        wanted -= _pairs(best)
    return sorted(chosen)


@cache
def _pairs(cell: Cell) -> frozenset[tuple[tuple[str, str], tuple[str, str]]]:
    fields = ("target", "compiler", "level", "extra")
    values = [(field, getattr(cell, field)) for field in fields]
    return frozenset(combinations(values, 2))


# How a cell is built


def available(cell: Cell) -> str:
    """What is missing here for a cell, empty where nothing is."""
    try:
        program = _program(cell)
    except ImportError:
        return "ziglang is not installed"
    return "" if shutil.which(program[0]) else f"{program[0]} is not installed"


def _program(cell: Cell) -> tuple[str, ...]:
    board = load_board(BOARDS[cell.target])
    match cell.compiler:
        case "gcc":
            return (f"{board.prefix}gcc",)
        case "clang":
            return ("clang",)
        case _:
            return (str(zig.program()), "cc")


def compiler(cell: Cell) -> Compiler:
    environment = zig.environment() if cell.compiler == "zig" else ()
    kind = "gcc" if cell.compiler == "gcc" else "clang"
    program = _program(cell)
    return Compiler(program, kind, _version(program), environment)


@cache
def _version(program: tuple[str, ...]) -> str:
    if program[0].endswith("zig"):
        return f"zig {zig.version()}"
    said = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0]


def flags(cell: Cell) -> tuple[str, ...]:
    """Everything but warnings and files."""
    board = load_board(BOARDS[cell.target])
    return (*_target_flags(cell, board), *_level_flags(cell), *_extra_flags(cell))


def _target_flags(cell: Cell, board: Board) -> tuple[str, ...]:
    kept = tuple(flag for flag in board.flags if not flag.startswith(("-O", "-g")))
    if cell.compiler == "gcc":
        return kept
    plain = tuple(flag for flag in kept if not flag.startswith(("-m",)))
    headers = data_dir("boards") / "families" / "freestanding"
    if cell.compiler == "zig":
        if cell.target in BARE:
            others = tuple(f for f in zig.other_flags(board) if not f.startswith(("-O", "-g")))
            return (*zig.target_flags(board), *others)
        return (*_ZIG_LINUX[cell.target], *plain, *zig.HOST_FLAGS)
    if cell.target in BARE:
        clang = (f"--target={_ARM_PROFILES[cell.target]}", *kept)
        return (*clang, "-fno-math-errno", f"-isystem{headers}")
    if cell.target == "host":
        return kept
    triple = board.prefix.removesuffix("-")
    return (f"--target={triple}", *kept, f"-isystem/usr/{triple}/include")


def _level_flags(cell: Cell) -> tuple[str, ...]:
    return ("-O2", "-flto") if cell.level == "LTO" else (cell.level,)


def _extra_flags(cell: Cell) -> tuple[str, ...]:
    bare = cell.target in BARE
    if cell.extra == "position independent" and bare:
        if cell.compiler == "gcc":
            return ("-fPIC", "-msingle-pic-base", "-mno-pic-data-is-text-relative")
        return ("-fropi", "-frwpi")
    if cell.extra == "undefined":
        # Without a runtime the check is a trap.
        if cell.compiler == "gcc":
            trap = ("-fsanitize-undefined-trap-on-error",)
        else:
            trap = ("-fsanitize-trap=undefined",)
        return (*EXTRAS[cell.extra], *trap)
    return EXTRAS[cell.extra]


# Builds


@dataclass(frozen=True)
class Built:
    """One model in one cell. `said` is what the compiler said, empty where it built it quietly."""

    cell: Cell
    model: str
    said: str
    cached: bool
    command: str


@cache
def source(model: str) -> Any:
    """What the driver reads; a TensorFlow Lite model is a file."""
    made = SUBJECTS[model].source()
    if not isinstance(made, bytes):
        return made
    path = Path(tempfile.mkdtemp(prefix="relax_aot-")) / f"{model}.tflite"
    path.write_bytes(made)
    return path


SHARED, THREADED = ("image", "dense"), ("host", "aarch64")
"""Models whose loops threads share, and targets that have some."""


def models_of(target: str) -> tuple[str, ...]:
    """What a cell of a target builds."""
    return (*SUBJECTS, *(name for name, (targets, _) in PROGRAMS.items() if target in targets))


@cache
def project(model: str, target: str) -> Any:
    if model in PROGRAMS:
        return PROGRAMS[model][1](BOARDS[target])
    options = SUBJECTS[model].options
    if model in SHARED and target in THREADED:
        options = replace(options, threads=2)
    return driver.compile_model(source(model), BOARDS[target], options)


def build(cell: Cell, models: Iterable[str], folder: Path) -> list[Built]:
    """Every model, unless it was built before; projects are written into `folder` once."""
    return [_build(cell, model, folder) for model in models]


@cache
def _content(model: str, target: str) -> str:
    """What is compiled, as a digest."""
    suffixes = (".c", ".h", ".bin", ".S", ".inc")
    files = sorted(project(model, target).files.items())
    kept = [(n, c) for n, c in files if n.endswith(suffixes) and n != "main.c"]
    return digest_of([part for pair in kept for part in pair])


def _build(cell: Cell, model: str, folder: Path) -> Built:
    made = project(model, cell.target)
    chosen = compiler(cell)
    arguments = [*flags(cell), *STRICT]
    content = _content(model, cell.target)
    digest = digest_of([chosen.identity, *arguments, content])
    at = folder / f"{model}-{content[:8]}"
    # The machine code for a GPU is made by its own compiler.
    units = [unit for unit in made.units if not unit.endswith("_cubin.c")]
    command = [*chosen.command, *arguments, "-I.", "-c", *units]
    shown = f"cd {at} && {' '.join(command)}"
    store = cache_dir() / "matrix"
    store.mkdir(exist_ok=True)
    kept = store / f"{digest}.txt"
    if kept.exists():
        return Built(cell, model, kept.read_text(), True, shown)
    if not at.exists():
        made.write(at)
    # Blocks that assembly includes are looked for in the folder where the compiler runs.
    done = subprocess.run(
        command, cwd=at, capture_output=True, text=True, check=False,
        env=os.environ | dict(chosen.environment),
    )  # fmt: skip
    for leftover in at.glob("*.o"):
        leftover.unlink()
    said = done.stderr if done.returncode or done.stderr else ""
    if done.returncode and not said:
        said = f"exit code {done.returncode}"
    if done.returncode >= 0:
        kept.write_text(said)
    return Built(cell, model, said, False, shown)
