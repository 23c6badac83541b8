# SPDX-License-Identifier: Apache-2.0
"""A project for a GPU on this machine: its kernels as C++ behind a fake CUDA driver.

The host part runs as it is. The library that it loads as libcuda.so.1 is
boards/families/cuda/fake_driver.cpp, linked with the kernels and the emulation of the GPU.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from relax_aot.cache import cached_folder, digest_of, write_files
from relax_aot.errors import RelaxAotError
from relax_aot.progress import detail
from relax_aot.project import Project
from relax_aot.project.entries import EntriesProject
from relax_aot.resources import data_dir
from relax_aot.toolchain import tools
from relax_aot.toolchain.tools import ToolMissing

DRIVER = "libcuda.so.1"
SOURCES = ("raot_shim.cpp", "fake_driver.cpp", "fake_memory.cpp", "fake_state.cpp")
HEADERS = (
    "raot_shim.h", "raot_shim_fiber.h", "raot_shim_host.h", "fake_memory.h", "fake_state.h",
)  # fmt: skip
FLAGS = (
    "-std=c++17", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-Wall", "-Wextra",
    "-Werror", "-Wno-unknown-pragmas", "-Wl,-z,nodelete",
)  # fmt: skip
_KERNEL = re.compile(r"__launch_bounds__\(\s*(\d+)[\s,\d]*\)\s+(\w+)\(")


class DriverBuildError(RelaxAotError):
    """The C++ compiler did not accept the kernels."""


def kernel_text(source: str, file: str) -> str:
    """C++ that registers each kernel of the CUDA C++ `source`, which is `file`."""
    lines = ['#include "raot_shim.h"', f'#include "{file}"']
    lines += [f"RAOT_SHIM_KERNEL({name}, {count})" for count, name in _KERNEL.findall(source)]
    return "\n".join(lines) + "\n"


def fake_driver(
    project: Project | EntriesProject, command: Sequence[str] = (), flags: Sequence[str] = ()
) -> Path:
    """The shared library; built with `command`, or the C++ compiler of this machine."""
    name = f"{project.name}.cu"
    family = data_dir("boards") / "families" / "cuda"
    files = {file: (family / file).read_bytes() for file in (*SOURCES, *HEADERS)}
    files[name] = project.files[name]
    files["kernels.cpp"] = kernel_text(project.files[name].decode(), name).encode()
    compiler = list(command or (str(_cpp()),))
    options = [*FLAGS, *flags]

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
            write_files(Path(scratch), files)
            units = [file for file in files if file.endswith(".cpp")]
            arguments = ["-shared", "-I.", *units, "-o", str(folder / DRIVER)]
            line = [*compiler, *options, *arguments]
            detail(" ".join(line))
            done = subprocess.run(line, cwd=scratch, capture_output=True, text=True, check=False)
            if done.returncode:
                raise DriverBuildError(f"{compiler[0]} failed:\n{done.stderr[:4000]}")

    contents = (part for file in sorted(files) for part in (file, files[file]))
    digest = digest_of([repr((compiler, options)), *contents])
    return cached_folder("cuda-driver", digest, make) / DRIVER


def _cpp() -> Path:
    found = tools.installed("g++") or tools.installed("clang++")
    if found is None:
        raise ToolMissing("no C++ compiler found; install one with: apt-get install g++")
    return found


def host_files(project: Project | EntriesProject, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of the host part for the fake driver, which wants no machine code."""
    changed = dict(files)
    labels = re.findall(
        rb"extern const unsigned char (\w+_cubin_\d+)\[\];", files[f"{project.name}.c"]
    )
    lines = [b'const unsigned char %s[] = "\\177ELF";' % label for label in labels]
    externs = [b"extern const unsigned char %s[];" % label for label in labels]
    changed[f"{project.name}_cubin.c"] = b"\n".join([*externs, *lines]) + b"\n"
    return changed
