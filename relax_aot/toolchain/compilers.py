# SPDX-License-Identifier: Apache-2.0
"""Which C compiler builds for this machine and for a board, and with which flags.

GCC's spelling of a board's flags is the common one: a board file is written for it. Where the
compiler is Zig's Clang they are translated (toolchain/zig.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from relax_aot.progress import detail
from relax_aot.project.board import Board
from relax_aot.toolchain import tools, zig
from relax_aot.toolchain.tools import ToolMissing

MAP_NAME = "image.map"
GCC_STACK_FLAGS = ("-fstack-usage", "-fcallgraph-info=su")
CLANG_STACK_FLAGS = ("-fstack-size-section", "-ffunction-sections")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A command to which flags and sources are appended. `environment` is added to ours;
    `identity` tells one version from another."""

    command: tuple[str, ...]
    kind: str
    identity: str
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return " ".join((Path(self.command[0]).name, *self.command[1:]))

    @property
    def stack_flags(self) -> tuple[str, ...]:
        """What makes objects tell their frames, for binaries/stack.py."""
        return GCC_STACK_FLAGS if self.kind == "gcc" else CLANG_STACK_FLAGS


@dataclass(frozen=True, slots=True)
class CrossCompiler:
    """A compiler with the flags that build for one board. `harness_flags` keep it from calling
    the C library where the source does not. A link writes its map to MAP_NAME, or says it on
    standard output; `libraries` come last."""

    compiler: Compiler
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    harness_flags: tuple[str, ...]
    libraries: tuple[str, ...]


# The harness leaves the C library alone, so that what the library adds is the model's doing.
GCC_HARNESS_FLAGS = (
    "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-fno-tree-vectorize",
)  # fmt: skip
CLANG_HARNESS_FLAGS = (
    "-fno-builtin", "-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops",
)  # fmt: skip


def run(
    compiler: Compiler, arguments: Sequence[str | Path], folder: Path
) -> subprocess.CompletedProcess[str]:
    """One call in `folder`; how it ended is the caller's matter."""
    detail(f"{compiler.name} {' '.join(map(str, arguments))}")
    command = [*compiler.command, *(str(argument) for argument in arguments)]
    environment = os.environ | dict(compiler.environment)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def host_compiler() -> Compiler:
    """$CC, else the first of cc, gcc, clang, else Zig's."""
    if tools.choice() != "wheels":
        for name in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
            found = shutil.which(name)
            if found:
                return _installed(Path(found))
    if tools.has_wheel("ziglang"):
        return _zig()
    raise ToolMissing(
        "no C compiler found; install one with: apt-get install gcc libc6-dev; or without root:"
        f" {tools.EXTRA.format('emulator')}"
    )


def host_flags(compiler: Compiler) -> tuple[str, ...]:
    """What every build for this machine needs besides its own flags."""
    return zig.HOST_FLAGS if compiler.kind == "zig" else ()


def cross_compiler(board: Board) -> CrossCompiler:
    """GCC with its C library where it is installed, else Zig for Cortex-M."""
    name = f"{board.prefix}gcc"
    tool = next((tool for tool in tools.TOOLS if tool.name == name), None)
    found = tools.installed(name)
    usable = found is not None and (tool is None or tools.is_complete(tool))
    if not usable and board.family == "cortex_m" and tools.has_wheel("ziglang"):
        target = zig.target_flags(board)
        return CrossCompiler(
            compiler=_zig(),
            flags=(*target, *zig.other_flags(board)),
            link_flags=(*target, *zig.LINK_FLAGS, "-Wl,--print-map"),
            harness_flags=CLANG_HARNESS_FLAGS,
            libraries=(),
        )
    path = tools.find(name)
    tools.require_library(name)
    quiet = ("-Wl,--no-warn-rwx-segments",) if board.family == "cortex_m" else ()
    return CrossCompiler(
        compiler=_installed(path),
        flags=board.flags,
        link_flags=(*board.flags, *board.link_flags, *quiet, f"-Wl,-Map={MAP_NAME}"),
        harness_flags=GCC_HARNESS_FLAGS,
        libraries=("-lm",),
    )


@cache
def _installed(path: Path) -> Compiler:
    said = tools.first_line(path)
    kind = "clang" if "clang" in said else "gcc"
    return Compiler((str(path),), kind, f"{path} {said}")


def _zig() -> Compiler:
    return Compiler((str(zig.program()), "cc"), "zig", f"zig {zig.version()}", zig.environment())
