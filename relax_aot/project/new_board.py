# SPDX-License-Identifier: Apache-2.0
"""A commented board file to start from, for a core by name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from relax_aot.emit.render import render
from relax_aot.project.board import Board, read_board
from relax_aot.project.board_table import BoardError
from relax_aot.project.cores import MACHINES

_ARM = "arm-none-eabi-"
_HARD, _SOFT = "-mfloat-abi=hard", "-mfloat-abi=soft"


@dataclass(frozen=True, slots=True)
class Core:
    """What a board file says of a core. `options` are those of gcc that choose it."""

    family: str
    prefix: str
    features: tuple[str, ...]
    options: tuple[str, ...]


def _m(features: str, *options: str) -> Core:
    return Core("cortex_m", _ARM, tuple(features.split()), ("-mthumb", *options))


def _a(features: str, *options: str) -> Core:
    return Core("linux", "aarch64-linux-gnu-", tuple(features.split()), options)


CORES: dict[str, Core] = {
    "cortex-m0": _m("", "-mcpu=cortex-m0", _SOFT),
    "cortex-m0plus": _m("mpu", "-mcpu=cortex-m0plus", _SOFT),
    "cortex-m3": _m("mpu", "-mcpu=cortex-m3", _SOFT),
    "cortex-m4": _m("fpu dsp mpu", "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", _HARD),
    "cortex-m7": _m("fpu fpu64 dsp mpu", "-mcpu=cortex-m7", "-mfpu=fpv5-d16", _HARD),
    "cortex-m33": _m("fpu dsp mpu", "-mcpu=cortex-m33", "-mfpu=fpv5-sp-d16", _HARD),
    "cortex-m55": _m("fpu fpu64 dsp mve mve_float mpu", "-mcpu=cortex-m55", _HARD),
    "cortex-a53": _a("fpu fpu64 neon asimd", "-mcpu=cortex-a53"),
    "cortex-a72": _a("fpu fpu64 neon asimd", "-mcpu=cortex-a72"),
    "cortex-a76": _a("fpu fpu64 neon asimd", "-mcpu=cortex-a76"),
}


@dataclass(frozen=True, slots=True)
class NewBoardView:
    """What the template of a board file sees."""

    name: str
    cpu: str
    family: str
    prefix: str
    features: str
    options: tuple[str, ...]
    has_map: bool
    is_linux: bool
    machine: str
    """A QEMU machine with this core, if one is known."""


def new_board(name: str, cpu: str, folder: Path) -> Board:
    """Write `folder/name.toml`, which loads as it stands, and read it back."""
    if cpu not in CORES:
        close = difflib.get_close_matches(cpu, CORES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise BoardError(f"no core is called {cpu!r}; {hint}known are: {', '.join(CORES)}")
    path = folder / f"{name}.toml"
    if path.name != f"{name}.toml" or not name:
        raise BoardError(
            f"{name!r} is not a valid name of a board: letters, digits, '.', '_' and '-'"
        )
    core = CORES[cpu]
    view = NewBoardView(
        name,
        cpu,
        core.family,
        core.prefix,
        ", ".join(f'"{feature}"' for feature in core.features),
        core.options,
        core.family == "cortex_m",
        core.family == "linux",
        next((machine for machine, has in MACHINES.items() if has == cpu), ""),
    )
    text = render("board.toml.j2", board=view)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BoardError(f"{path} exists; choose another name or folder") from None
    except OSError as error:
        raise BoardError(f"cannot write {path}: {error.strerror}") from error
    try:
        return read_board(path)
    except BoardError:
        path.unlink()
        raise
