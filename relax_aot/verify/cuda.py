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

from relax_aot.cache import cached_folder, digest_of
from relax_aot.errors import RelaxAotError
from relax_aot.files import write_files
from relax_aot.progress import detail
from relax_aot.project import Project
from relax_aot.project.cuda_board import Cuda
from relax_aot.project.entries import EntriesProject
from relax_aot.resources import data_dir
from relax_aot.toolchain import tools
from relax_aot.toolchain.tools import ToolMissing

DRIVER = "libcuda.so.1"
SOURCES = (
    "raot_shim.cpp", "fake_cublaslt.cpp", "fake_driver.cpp", "fake_memory.cpp", "fake_state.cpp",
)  # fmt: skip
HEADERS = (
    "raot_shim.h", "raot_shim_fiber.h", "raot_shim_host.h", "fake_memory.h", "fake_state.h",
)  # fmt: skip
FLAGS = (
    "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-Wall", "-Wextra",
    "-Werror", "-Wno-unknown-pragmas", "-Wl,-z,nodelete",
)  # fmt: skip
OPTIMIZED = ("-O2",)
"""Of kernels."""
_KERNEL = re.compile(r"__launch_bounds__\(\s*(\d+)[\s,\d]*\)\s+(\w+)\(")

_DYNAMIC = re.compile(r"\bRAOT_DYNAMIC_SHARED\(\w+, (\d+)\)")


class DriverBuildError(RelaxAotError):
    """The C++ compiler did not accept the kernels."""


def kernel_text(source: str, file: str, prefix: str = "") -> str:
    """C++ that registers each kernel of the CUDA C++ `source`, which is `file`; with a prefix by
    other names, so that one library may have the kernels of several models."""
    kernels = list(_KERNEL.finditer(source))
    lines = ['#include "raot_shim.h"']
    lines += [f"#define {kernel[2]} {prefix}{kernel[2]}" for kernel in kernels if prefix]
    lines += [f'#include "{file}"']
    ends = [kernel.start() for kernel in kernels[1:]] + [len(source)]
    for kernel, end in zip(kernels, ends, strict=True):
        shared = _DYNAMIC.search(source, kernel.end(), end)
        sizes = f"{kernel[1]}, {shared[1] if shared else 0}"
        lines.append(f"RAOT_SHIM_KERNEL({prefix}{kernel[2]}, {sizes})")
    return "\n".join(lines) + "\n"


def kernel_names(source: str) -> list[str]:
    """The kernels of the CUDA C++ `source`."""
    return [name for _, name in _KERNEL.findall(source)]


def fake_driver(
    project: Project | EntriesProject, command: Sequence[str] = (), flags: Sequence[str] = ()
) -> Path:
    """The shared library; built with `command`, or the C++ compiler of this machine."""
    name = f"{project.name}.cu"
    text = project.files[name]
    kernels = kernel_text(text.decode(), name).encode()
    gpu = project.board.cuda
    assert gpu is not None
    return driver_of({name: text, "kernels.cpp": kernels}, gpu, command, flags)


def driver_of(
    files: Mapping[str, bytes], gpu: Cuda, command: Sequence[str] = (), flags: Sequence[str] = ()
) -> Path:
    """The shared library of a GPU with the kernels that these `.cpp` files register."""
    version = 1000 * max(gpu.toolkits, default=12) + 20
    chip = f"namespace fake {{ extern const int chip = {gpu.sm}, release = {version}; }}\n"
    files = {**files, "chip.cpp": chip.encode()}
    compiler = list(command or (str(_cpp()),))
    runtime = _runtime(compiler, flags)

    def make(folder: Path) -> None:
        units = sorted(file for file in files if file.endswith(".cpp"))
        objects = [str(runtime / f"{Path(file).stem}.o") for file in SOURCES]
        arguments = ["-shared", "-I.", *units, *objects, "-o", str(folder / DRIVER)]
        _compiled({**_headers(), **files}, [*compiler, *FLAGS, *OPTIMIZED, *flags, *arguments])

    contents = (part for file in sorted(files) for part in (file, files[file]))
    digest = digest_of([str(runtime), repr((compiler, OPTIMIZED, flags)), *contents])
    return cached_folder("cuda-driver", digest, make) / DRIVER


def _runtime(compiler: Sequence[str], flags: Sequence[str]) -> Path:
    """A folder of objects: what all models have in common."""
    files = _headers() | {file: _text(file) for file in SOURCES}

    def make(folder: Path) -> None:
        for file in SOURCES:
            arguments = ["-c", "-I.", file, "-o", str(folder / f"{Path(file).stem}.o")]
            _compiled(files, [*compiler, *FLAGS, "-O2", *flags, *arguments])

    contents = (part for file in sorted(files) for part in (file, files[file]))
    digest = digest_of([repr((compiler, FLAGS, flags)), *contents])
    return cached_folder("cuda-runtime", digest, make)


def _headers() -> dict[str, bytes]:
    return {file: _text(file) for file in HEADERS}


def _text(file: str) -> bytes:
    return (data_dir("boards") / "families" / "cuda" / file).read_bytes()


def _compiled(files: Mapping[str, bytes], line: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        write_files(Path(scratch), files)
        detail(" ".join(line))
        done = subprocess.run(line, cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DriverBuildError(f"{line[0]} failed:\n{done.stderr[:4000]}")


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
