# SPDX-License-Identifier: Apache-2.0
"""Which compilers and emulators are here, and how to get those that are not.

Installed tools come first; where one is missing, a wheel of the extra `emulator` takes its
place: `ziglang` compiles, `unicorn` emulates.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from relax_aot.errors import RelaxAotError

CHOICE = "RELAX_AOT_TOOLS"
"""Environment: `system` leaves wheels alone, `wheels` leaves installed programs alone."""
CHOICES = ("auto", "system", "wheels")
EXTRA = "pip install 'relax-aot[{}]'"


class ToolMissing(RelaxAotError):
    """A program that is not installed."""

    tool_missing = True


class ToolChoiceError(RelaxAotError):
    """A choice of tools that does not exist."""


@dataclass(frozen=True, slots=True)
class Tool:
    """`packages` are Debian's. `probe`: a file that the compiler must find, such as a C library.
    `wheel` is what may take its place."""

    name: str
    packages: tuple[str, ...]
    enables: str
    probe: str | None = None
    wheel: str | None = None


@dataclass(frozen=True, slots=True)
class Wheel:
    """A Python package that brings a tool or a capability, and our extra that installs it.
    `package` is its name in the package index where the module has another."""

    name: str
    extra: str
    enables: str
    package: str | None = None


ARM_NONE_EABI = ("gcc-arm-none-eabi", "libnewlib-arm-none-eabi")
AARCH64 = ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross")
ARMHF = ("gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross")
TOOLS = (
    Tool(
        "gcc",
        ("gcc", "libc6-dev"),
        "running models on this machine, counting instructions",
        wheel="ziglang",
    ),
    Tool(
        "arm-none-eabi-gcc",
        ARM_NONE_EABI,
        "building for Cortex-M",
        probe="nano.specs",
        wheel="ziglang",
    ),
    Tool("qemu-system-arm", ("qemu-system-arm",), "running Cortex-M boards", wheel="unicorn"),
    Tool("aarch64-linux-gnu-gcc", AARCH64, "building for 64-bit Arm Linux", probe="libc.a"),
    Tool("qemu-aarch64", ("qemu-user",), "running 64-bit Arm Linux programs"),
    Tool("arm-linux-gnueabihf-gcc", ARMHF, "building for 32-bit Arm Linux", probe="libc.a"),
    Tool("qemu-arm", ("qemu-user",), "running 32-bit Arm Linux programs"),
    Tool("cmake", ("cmake",), "building generated projects with CMake"),
    Tool("clang", ("clang",), "checking generated C with a second compiler"),
    Tool("frama-c", ("frama-c-base",), "proofs of defined behavior (relax-aot prove)"),
)
_OTHER_TOOLS_OF_PACKAGE = {
    "arm-none-eabi-": ("binutils-arm-none-eabi",),
    "aarch64-linux-gnu-": ("binutils-aarch64-linux-gnu",),
    "arm-linux-gnueabihf-": ("binutils-arm-linux-gnueabihf",),
    "qemu-": ("qemu-user",),
}


def find(name: str) -> Path:
    """The tool's path. Where it is not there, the error says which package brings it."""
    found = installed(name)
    if found is None:
        raise missing(name)
    return found


def missing(name: str) -> ToolMissing:
    instead = f"; or without root: {EXTRA.format('emulator')}" if _wheel_for(name) else ""
    return ToolMissing(
        f"{name} is not installed; install it with: {install_command(name)}{instead}"
    )


def installed(name: str) -> Path | None:
    """The program in PATH, unless wheels alone are to be used."""
    found = None if choice() == "wheels" else shutil.which(name)
    return Path(found) if found else None


def has_wheel(name: str) -> bool:
    """Whether a wheel is here and may be used."""
    return choice() != "system" and importlib.util.find_spec(name) is not None


def choice() -> str:
    """What RELAX_AOT_TOOLS says; `auto` prefers installed programs."""
    chosen = os.environ.get(CHOICE) or CHOICES[0]
    if chosen not in CHOICES:
        raise ToolChoiceError(f"{CHOICE} is {chosen!r}; it may be {', '.join(CHOICES)}")
    return chosen


def _wheel_for(name: str) -> str | None:
    return next((tool.wheel for tool in TOOLS if tool.name == name), None)


def install_command(name: str) -> str:
    """The exact command for Debian and its relatives."""
    for tool in TOOLS:
        if tool.name == name:
            return f"apt-get install {' '.join(tool.packages)}"
    for prefix, packages in _OTHER_TOOLS_OF_PACKAGE.items():
        if name.startswith(prefix):
            return f"apt-get install {' '.join(packages)}"
    return f"apt-get install {name}"


def require_library(compiler: str) -> None:
    """A cross compiler without its C library is no use: say so before it says it by errors."""
    for tool in TOOLS:
        if tool.name == compiler and tool.probe and not _has(find(compiler), tool.probe):
            raise ToolMissing(
                f"{compiler} is installed, but its C library is not ({tool.probe} not found); "
                f"install it with: {install_command(compiler)}"
            )


def is_complete(tool: Tool) -> bool:
    """It is here, with the files that it needs."""
    found = installed(tool.name)
    return found is not None and (tool.probe is None or _has(found, tool.probe))


@cache
def version_of(tool: Path) -> str:
    """The first line that the tool says about itself, shortened to what tells versions apart."""
    first = first_line(tool)
    match = re.search(r"\d+(?:\.\d+)+", first)
    return match[0] if match else first


@cache
def first_line(tool: Path) -> str:
    text = _output(tool, "--version")
    return text.splitlines()[0] if text.strip() else "unknown version"


@cache
def _has(compiler: Path, file: str) -> bool:
    """A compiler answers with a path where it has the file, else with the bare name."""
    return Path(_output(compiler, f"-print-file-name={file}").strip()).is_absolute()


def _output(tool: Path, argument: str) -> str:
    try:
        return subprocess.run(
            [tool, argument], capture_output=True, text=True, check=False, timeout=30
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
