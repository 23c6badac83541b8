# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ -> cubin, by NVRTC or nvcc. Neither needs a GPU.

A driver loads no cubin of a later CUDA major than its own, so each major has its compiler: the
wheels `nvidia-cuda-nvrtc-cu11`, `-cu12` and `nvidia-cuda-nvrtc` (13) of the extra `cuda`, the
NVRTC of `$CUDA_HOME`, or an `nvcc` in PATH. NVRTC is a C library (docs.nvidia.com/cuda/nvrtc); it
is called by ctypes (nvrtc_worker.py).
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from relax_aot.cache import cached_folder, digest_of
from relax_aot.errors import RelaxAotError
from relax_aot.toolchain.tools import EXTRA, ToolMissing, choice, installed

MAJORS = (11, 12, 13)
OPTIONS = ("--fmad=false", "--std=c++14")
"""What is fused is written so; sums and products that are apart stay apart."""
_WORKER = str(Path(__file__).with_name("nvrtc_worker.py"))
_NAMES = {11: "libnvrtc.so.11.*", 12: "libnvrtc.so.12", 13: "libnvrtc.so.13"}
_WHEEL_FOLDERS = {11: "cuda_nvrtc/lib", 12: "cuda_nvrtc/lib", 13: "cu13/lib"}
_LEAST_SM = {11: 35, 12: 50, 13: 75}
"""The oldest GPU of each major (release notes: 12.0 drops sm_35 and 37, 13.0 sm_50 to 72)."""


class CudaCompileError(RelaxAotError):
    """A compiler refused CUDA C++, or warned of it."""


@dataclass(frozen=True, slots=True)
class CudaCompiler:
    """`version` is major.minor; `path` the library of NVRTC, or the program nvcc."""

    version: tuple[int, int]
    path: Path

    @property
    def is_library(self) -> bool:
        return self.path.name != "nvcc"

    @property
    def name(self) -> str:
        return f"{'NVRTC' if self.is_library else 'nvcc'} {self.version[0]}.{self.version[1]}"


def compiler(major: int) -> CudaCompiler:
    """The compiler of a CUDA major."""
    found = installed_compiler(major)
    if found is None:
        raise ToolMissing(
            f"no CUDA {major} compiler is installed; install it with: {EXTRA.format('cuda')}"
        )
    return found


def installed_compiler(major: int) -> CudaCompiler | None:
    """None where no compiler of the major is here."""
    for path in _libraries(major):
        version = _version(str(path))
        if version[0] == major:
            return CudaCompiler(version, path)
    nvcc = installed("nvcc")
    if nvcc is not None:
        version = _nvcc_version(nvcc)
        if version[0] == major:
            return CudaCompiler(version, nvcc)
    return None


def cubin(text: str, name: str, sm: int, major: int) -> bytes:
    """The machine code of `text` for GPUs of compute capability `sm` (87: 8.7), kept by the digest
    of what it is made from. Warnings are errors."""
    made_by = compiler(major)
    if sm < _LEAST_SM[major]:
        raise CudaCompileError(f"CUDA {major} has no sm_{sm}; use --emit cuda-source")
    options = (f"--gpu-architecture=sm_{sm}", *OPTIONS)
    how = Path(_WORKER).read_bytes() if made_by.is_library else b""
    digest = digest_of((text, name, *options, made_by.name, how))

    def make(folder: Path) -> None:
        compiled = _by_library if made_by.is_library else _by_nvcc
        (folder / "cubin").write_bytes(compiled(made_by, text, f"{name}.cu", options))

    return (cached_folder("cubin", digest, make) / "cubin").read_bytes()


def _libraries(major: int) -> list[Path]:
    """Where the NVRTC of a major may be, wheels first."""
    found: list[Path] = []
    spec = importlib.util.find_spec("nvidia") if choice() != "system" else None
    for folder in (spec and spec.submodule_search_locations) or ():
        found += sorted((Path(folder) / _WHEEL_FOLDERS[major]).glob(_NAMES[major]))
    home = os.environ.get("CUDA_HOME") if choice() != "wheels" else None
    for part in ("lib64", "lib") if home else ():
        found += sorted((Path(str(home)) / part).glob(_NAMES[major]))
    return found


@cache
def _version(path: str) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@cache
def _nvcc_version(path: Path) -> tuple[int, int]:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _by_library(made_by: CudaCompiler, text: str, file: str, options: tuple[str, ...]) -> bytes:
    """In a process of its own, whose bytes depend on nothing but the text."""
    version = ".".join(map(str, made_by.version))
    builtins = made_by.path.parent.glob(f"libnvrtc-builtins.so.{version}")
    given = (str(made_by.path), str(next(builtins, "")), file, *options)
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-I", "-S", _WORKER, *given], input=text.encode(), capture_output=True,
        env=kept | {"LC_ALL": "C", "PYTHONHASHSEED": "0"}, check=False,
    )  # fmt: skip
    log = done.stderr.decode(errors="replace").strip()
    if done.returncode != 0 or log:
        raise CudaCompileError(f"{made_by.name} refuses {file}:\n{log}")
    return done.stdout


def _by_nvcc(made_by: CudaCompiler, text: str, file: str, options: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / file, Path(folder) / "cubin"
        source.write_text(text)
        done = subprocess.run(
            [made_by.path, "--cubin", *options, "-Werror", "all-warnings", source, "-o", result],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise CudaCompileError(f"{made_by.name} refuses {file}:\n{done.stderr.strip()}")
        return result.read_bytes()
