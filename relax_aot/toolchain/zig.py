# SPDX-License-Identifier: Apache-2.0
"""Zig's Clang from the wheel `ziglang`, for machines without an installed C compiler.

It brings its own headers, C library stubs and compiler run-time, so nothing else is needed;
these are built when a target is first used and kept in our cache. For a bare core there is no
C library: the few declarations that generated code needs are in boards/families/freestanding.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from relax_aot.cache import cache_dir
from relax_aot.project.board import Board
from relax_aot.resources import data_dir
from relax_aot.toolchain.tools import ToolMissing, missing

CORES = {
    "cortex-m0": "cortex_m0",
    "cortex-m0plus": "cortex_m0plus",
    "cortex-m3": "cortex_m3",
    "cortex-m4": "cortex_m4",
    "cortex-m7": "cortex_m7",
    "cortex-m33": "cortex_m33+dsp",
    "cortex-m33+nodsp": "cortex_m33",
    "cortex-m55": "cortex_m55+mve_fp",
}
"""GCC's -mcpu -> Zig's, with what GCC's names imply and Zig's do not."""
FLOAT_UNITS = {
    "fpv4-sp-d16": "+vfp4d16sp",
    "fpv5-sp-d16": "+fp_armv8d16sp",
    "fpv5-d16": "+fp_armv8d16",
}
"""Zig's cores come without floating-point unit, and then say nothing and call the library."""

# Where errno might be set, fmaf and sqrtf are calls even if the core has the instruction.
COMMON_FLAGS = ("-fno-math-errno", "-fno-sanitize=undefined")
HOST_FLAGS = COMMON_FLAGS
LINK_FLAGS = (
    "-nostdlib", "-rtlib=compiler-rt", "-Wl,--gc-sections", "-Wl,--entry=raot_reset",
)  # fmt: skip
_OF_TARGET = ("-mcpu=", "-mfpu=", "-mfloat-abi=", "-mthumb")


def program() -> Path:
    """The program in the wheel; starting it costs less than `python -m ziglang`."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise missing("gcc")
    return Path(spec.origin).parent / "zig"


def version() -> str:
    return importlib.metadata.version("ziglang")


def environment() -> tuple[tuple[str, str], ...]:
    """Its builds for a target are cached next to those of relax_aot."""
    folder = str(cache_dir() / "zig")
    return (("ZIG_GLOBAL_CACHE_DIR", folder), ("ZIG_LOCAL_CACHE_DIR", folder))


def target_flags(board: Board) -> tuple[str, ...]:
    """Core, floating-point unit and calling convention of a Cortex-M board."""
    chosen = {
        key: next((f[len(key) :] for f in board.flags if f.startswith(key)), "")
        for key in ("-mcpu=", "-mfpu=", "-mfloat-abi=")
    }
    core, unit = chosen["-mcpu="], chosen["-mfpu="]
    hard = chosen["-mfloat-abi="] == "hard"
    good_unit = unit in FLOAT_UNITS or (not unit and (not hard or core == "cortex-m55"))
    if core not in CORES or not good_unit or chosen["-mfloat-abi="] not in ("hard", "soft", ""):
        raise ToolMissing(
            f"the flags of {board.name} ({' '.join(f for f in board.flags if f.startswith('-m'))})"
            f" are not known for ziglang; {missing(f'{board.prefix}gcc')}"
        )
    abi = "eabihf" if hard else "eabi"
    cpu = CORES[core] + (FLOAT_UNITS.get(unit, "") if hard else "")
    return ("-target", f"thumb-freestanding-{abi}", f"-mcpu={cpu}")


def other_flags(board: Board) -> tuple[str, ...]:
    """The board's other flags, and what Clang needs to make the same of them."""
    kept = tuple(flag for flag in board.flags if not flag.startswith(_OF_TARGET))
    headers = data_dir("boards") / "families" / "freestanding"
    return (
        *kept, *COMMON_FLAGS, "-fno-unwind-tables", "-fno-exceptions", f"-isystem{headers}",
    )  # fmt: skip
