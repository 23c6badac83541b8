# SPDX-License-Identifier: Apache-2.0
"""What is here, what is missing, what that would enable, and the command that brings it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass

from relax_aot.toolchain.nvdisasm import disassembler_version
from relax_aot.toolchain.nvrtc import MAJORS, installed_compiler
from relax_aot.toolchain.tools import (
    EXTRA,
    TOOLS,
    Tool,
    Wheel,
    choice,
    has_wheel,
    install_command,
    installed,
    is_complete,
    version_of,
)

WHEELS = (
    Wheel("ziglang", "emulator", "compiling for this machine and Cortex-M without apt or root"),
    Wheel("unicorn", "emulator", "running Cortex-M0 to M33 boards without apt or root"),
    Wheel("serial", "serial", "verify --serial: boards at a serial line", package="pyserial"),
    Wheel("distributed", "farm", "verify --farm: runs spread over cores and machines"),
    Wheel("onnxruntime", "verify", "ONNX Runtime as the reference of verify"),
)
CUDA = {
    11: "kernels for Jetson Xavier and JetPack 5",
    12: "kernels for JetPack 6, and for servers",
    13: "kernels for Jetson Thor",
}
"""What the compiler of each CUDA major is for."""
WITHOUT = ("mps3-an547 (Cortex-M55)",)
"""Boards that only QEMU runs."""


@dataclass(frozen=True, slots=True)
class Row:
    """`version` is None where the tool is missing or not complete; `instead` is what does its
    work meanwhile."""

    tool: str
    version: str | None
    enables: str
    install: str
    instead: str | None = None


@dataclass(frozen=True, slots=True)
class Ability:
    """Something that one may want to do, and the tools that do it; none where nothing does."""

    what: str
    by: tuple[str, ...]


def rows() -> list[Row]:
    found = [_row(tool) for tool in TOOLS] + [_wheel_row(wheel) for wheel in WHEELS]
    return found + [_cuda_row(major) for major in MAJORS] + [_disassembler_row()]


def abilities() -> list[Ability]:
    """What can be verified here, in the order in which people want it."""
    host = _first("gcc", "clang") or _wheel("ziglang")
    return [
        Ability("models on this machine", host),
        Ability("Cortex-M boards", _cortex_m()),
        Ability("64-bit Arm Linux boards", _both("aarch64-linux-gnu-gcc", "qemu-aarch64")),
        Ability("32-bit Arm Linux boards", _both("arm-linux-gnueabihf-gcc", "qemu-arm")),
        Ability("CUDA kernels (no GPU)", _cuda_compilers()),
    ]


def _cortex_m() -> tuple[str, ...]:
    compiler = _complete("arm-none-eabi-gcc") or _wheel("ziglang")
    emulator = _complete("qemu-system-arm") or _wheel("unicorn")
    if not compiler or not emulator:
        return ()
    lacks = (f"without {', '.join(WITHOUT)}",) if emulator == ("unicorn",) else ()
    return (*compiler, *emulator, *lacks)


def _cuda_compilers() -> tuple[str, ...]:
    found = (installed_compiler(major) for major in MAJORS)
    return tuple(one.name for one in found if one is not None)


def _both(*names: str) -> tuple[str, ...]:
    return names if all(_complete(name) for name in names) else ()


def _first(*names: str) -> tuple[str, ...]:
    return next((found for found in map(_complete, names) if found), ())


def _complete(name: str) -> tuple[str, ...]:
    tool = next(tool for tool in TOOLS if tool.name == name)
    return (name,) if is_complete(tool) else ()


def _wheel(name: str) -> tuple[str, ...]:
    return (name,) if has_wheel(name) else ()


def _row(tool: Tool) -> Row:
    found = installed(tool.name)
    version = version_of(found) if found is not None and is_complete(tool) else None
    instead = tool.wheel if tool.wheel and version is None and has_wheel(tool.wheel) else None
    return Row(tool.name, version, tool.enables, install_command(tool.name), instead)


def _wheel_row(wheel: Wheel) -> Row:
    here = importlib.util.find_spec(wheel.name) is not None
    version = importlib.metadata.version(wheel.package or wheel.name) if here else None
    return Row(wheel.name, version, wheel.enables, EXTRA.format(wheel.extra))


def _cuda_row(major: int) -> Row:
    found = installed_compiler(major)
    version = f"{found.version[0]}.{found.version[1]}" if found else None
    return Row(f"CUDA {major} compiler", version, CUDA[major], EXTRA.format("cuda"))


def _disassembler_row() -> Row:
    figures = "figures of the machine code of GPUs"
    return Row("nvdisasm", disassembler_version(), figures, EXTRA.format("cuda"))


def lines() -> list[str]:
    """One line for each tool, one more where it is missing, then what can be done."""
    said = []
    for row in rows():
        said.append(f"{row.tool:28} {row.version or 'missing':16} {row.enables}")
        if row.version is None:
            instead = f"  ({row.instead} is used instead)" if row.instead else ""
            said.append(f"{'':28} install it with: {row.install}{instead}")
    if choice() != "auto":
        said.append(f"RELAX_AOT_TOOLS={choice()}: other tools are ignored")
    said.append("can be verified on this machine:")
    for ability in abilities():
        said.append(f"  {ability.what:26} {', '.join(ability.by) or 'no tool'}")
    return said
