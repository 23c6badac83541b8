# SPDX-License-Identifier: Apache-2.0
"""Machine code of GPUs as text, by NVIDIA's disassembler: that of the extra `cuda`, or one in
PATH. It reads cubins of earlier CUDA majors too, with a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from relax_aot.binaries.sass import DeviceCode, read_sass
from relax_aot.errors import RelaxAotError
from relax_aot.toolchain.tools import EXTRA, ToolMissing, choice, installed


class DisassemblyError(RelaxAotError):
    """nvdisasm does not read a cubin."""


def disassembled(cubin: bytes) -> Mapping[str, DeviceCode]:
    """By the names of kernels."""
    found = installed_disassembler()
    if found is None:
        raise ToolMissing(f"nvdisasm is not installed; install it with: {EXTRA.format('cuda')}")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([found, "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DisassemblyError(f"nvdisasm: {done.stderr.strip()}")
    return read_sass(done.stdout)


def disassembler_version() -> str | None:
    """None where the program is not here."""
    found = installed_disassembler()
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"V([\d.]+)", said)
    return version[1] if version else "unknown version"


def installed_disassembler() -> Path | None:
    """The program; None where it is not here."""
    spec = importlib.util.find_spec("nvidia") if choice() != "system" else None
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder).glob("*/bin/nvdisasm")):
            return path
    return installed("nvdisasm")
