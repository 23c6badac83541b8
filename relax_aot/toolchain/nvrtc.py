# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ -> cubin, by NVRTC or nvcc. Neither needs a GPU.

A driver loads no cubin of a later CUDA major than its own, so each major has its compiler: the
wheels `nvidia-cuda-nvrtc-cu11`, `-cu12` and `nvidia-cuda-nvrtc` (13) of the extra `cuda`, the
NVRTC of `$CUDA_HOME`, or an `nvcc` in PATH. NVRTC is a C library (docs.nvidia.com/cuda/nvrtc); it
is called in this process by ctypes.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from relax_aot.cache import cached_folder, digest_of
from relax_aot.errors import RelaxAotError
from relax_aot.toolchain.tools import EXTRA, ToolMissing, choice, installed

MAJORS = (11, 12, 13)
OPTIONS = ("--fmad=false", "--std=c++14")
"""What is fused is written so; sums and products that are apart stay apart."""
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
    digest = digest_of((text, name, *options, made_by.name))

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
def _library(path: str) -> ctypes.CDLL:
    """NVRTC finds its built-in functions by name alone, so they are loaded before it is used."""
    own = ctypes.CDLL(path)
    major, minor = ctypes.c_int(), ctypes.c_int()
    own.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    for builtins in Path(path).parent.glob(f"libnvrtc-builtins.so.{major.value}.{minor.value}"):
        ctypes.CDLL(str(builtins))
    own.nvrtcGetErrorString.restype = ctypes.c_char_p
    return own


def _version(path: str) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _library(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@cache
def _nvcc_version(path: Path) -> tuple[int, int]:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@contextmanager
def _own_locale() -> Iterator[None]:
    """NVRTC leaves the thread in the locale "C", in which Python decodes other programs' output
    as ASCII (uselocale, POSIX.1-2008)."""
    uselocale = ctypes.CDLL(None).uselocale
    uselocale.restype, uselocale.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    before = uselocale(None)
    try:
        yield
    finally:
        uselocale(before)


def _by_library(made_by: CudaCompiler, text: str, file: str, options: tuple[str, ...]) -> bytes:
    library = _library(str(made_by.path))
    program = ctypes.c_void_p()

    def checked(status: int, what: str) -> None:
        if status != 0:
            raise CudaCompileError(f"{made_by.name}: {what}")

    def contents(what: str) -> bytes:
        """The log or the cubin."""
        size = ctypes.c_size_t()
        checked(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
        data = ctypes.create_string_buffer(size.value)
        checked(getattr(library, f"nvrtcGet{what}")(program, data), what)
        return data.raw

    created = library.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), file.encode(), 0, None, None
    )
    checked(created, "no program can be created")
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        with _own_locale():
            status = library.nvrtcCompileProgram(program, len(options), given)
        log = contents("ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if status != 0 or log:
            said = log or library.nvrtcGetErrorString(status).decode()
            raise CudaCompileError(f"{made_by.name} refuses {file}:\n{said}")
        return contents("CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


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
