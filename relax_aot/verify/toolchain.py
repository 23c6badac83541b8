"""Which compilers and emulators are here, and how to get those that are not."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from relax_aot.errors import RelaxAotError


class ToolMissing(RelaxAotError):
    """A program that is not installed."""

    tool_missing = True


@dataclass(frozen=True, slots=True)
class Tool:
    """`packages` are Debian's. `probe`: a file that the compiler must find, such as a C library."""

    name: str
    packages: tuple[str, ...]
    enables: str
    probe: str | None = None


ARM_NONE_EABI = ("gcc-arm-none-eabi", "libnewlib-arm-none-eabi")
AARCH64 = ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross")
ARMHF = ("gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross")
TOOLS = (
    Tool("gcc", ("gcc", "libc6-dev"), "running models on this machine, counting instructions"),
    Tool("arm-none-eabi-gcc", ARM_NONE_EABI, "building for Cortex-M", probe="nano.specs"),
    Tool("qemu-system-arm", ("qemu-system-arm",), "running Cortex-M boards"),
    Tool("aarch64-linux-gnu-gcc", AARCH64, "building for 64-bit Arm Linux", probe="libc.a"),
    Tool("qemu-aarch64", ("qemu-user",), "running 64-bit Arm Linux programs"),
    Tool("arm-linux-gnueabihf-gcc", ARMHF, "building for 32-bit Arm Linux", probe="libc.a"),
    Tool("qemu-arm", ("qemu-user",), "running 32-bit Arm Linux programs"),
    Tool("cmake", ("cmake",), "building generated projects by their CMakeLists.txt"),
    Tool("clang", ("clang",), "a second opinion on generated C"),
)
_OTHER_TOOLS_OF_PACKAGE = {
    "arm-none-eabi-": ("binutils-arm-none-eabi",),
    "aarch64-linux-gnu-": ("binutils-aarch64-linux-gnu",),
    "arm-linux-gnueabihf-": ("binutils-arm-linux-gnueabihf",),
    "qemu-": ("qemu-user",),
}


@dataclass(frozen=True, slots=True)
class Row:
    """`version` is None where the tool is missing or not complete."""

    tool: str
    version: str | None
    enables: str
    install: str


def find(name: str) -> Path:
    """The tool's path. Where it is not there, the error says which package brings it."""
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"{name} is not installed; get it by: {install_command(name)}")
    return Path(found)


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
                f"{compiler} is here but its C library is not ({tool.probe} not found); get it"
                f" by: {install_command(compiler)}"
            )


def doctor() -> list[Row]:
    return [_row(tool) for tool in TOOLS]


def _row(tool: Tool) -> Row:
    found = shutil.which(tool.name)
    version = version_of(Path(found)) if found else None
    if found and tool.probe and not _has(Path(found), tool.probe):
        version = None
    return Row(tool.name, version, tool.enables, install_command(tool.name))


@cache
def version_of(tool: Path) -> str:
    """The first line that the tool says about itself, shortened to what tells versions apart."""
    text = _output(tool, "--version")
    first = text.splitlines()[0] if text.strip() else "unknown version"
    match = re.search(r"\d+(?:\.\d+)+", first)
    return match[0] if match else first


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
