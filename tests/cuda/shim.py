# SPDX-License-Identifier: Apache-2.0
"""Runs kernels in the device form as their CUDA C++ says, on a CPU: built with the shim of
boards/families/cuda under the address and undefined-behavior sanitizers."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.cache import cached_folder, digest_of
from relax_aot.emit.cuda_module import DeviceLaunch, DeviceSource, Frame, Given, device_source
from relax_aot.ir.axes import CORE
from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Buffer, Kernel
from relax_aot.resources import data_dir
from relax_aot.verify.cuda import kernel_text

Array = NDArray[Any]
FLAGS = (
    "-std=c++17", "-O1", "-g1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror",
    "-Wno-unknown-pragmas", "-fsanitize=address,undefined", "-fsanitize-sections=raot_shared",
    "-fno-sanitize-recover=all",
)  # fmt: skip
# Undefined behavior ends the program without a message: messages take a third of a build. Where it
# happens, the program is built again with them.
SILENT = ("-fsanitize-undefined-trap-on-error",)
SOURCES = ("raot_shim.cpp", "raot_shim_jobs.cpp")
# The scheduler takes most of the time and is not what is tested. Copies of kernels are checked
# where the sanitizer intercepts the functions.
SCHEDULER = (
    "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-builtin-memcpy",
    "-fno-builtin-memset",
)  # fmt: skip
SHIM = data_dir("boards") / "families" / "cuda"


class ShimError(Exception):
    """What the shim or a sanitizer found."""


@dataclass(frozen=True, slots=True)
class Job:
    """One call of a kernel. `sizes`: of every symbol that it uses."""

    kernel: str
    inputs: tuple[Array, ...]
    sizes: Mapping[str, int]
    seed: int = 0
    variant: str = ""
    """What the names of other functions with the same parameters end with."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """By the name of an output: the input whose memory it takes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outputs of a job, and the status word."""

    outputs: list[Array]
    status: int


class Shim:
    """A program of kernels. `variants`: by the end of their names, texts of further functions.
    With `exchanges`, products of matrices are those of chips without matrix units."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        bounds: Bounds,
        folder: Path,
        variants: Mapping[str, str] | None = None,
        *,
        exchanges: bool = False,
    ) -> None:
        self._kernels = {kernel.name: kernel for kernel in kernels}
        frame = Frame(fallible=any(kernel.fallible for kernel in kernels))
        self.source = device_source("model", kernels, bounds, frame)
        self._folder = folder
        self._build = partial(build, self.source, folder, variants or {}, exchanges=exchanges)
        self._program = self._build(silent=True)

    def run(self, jobs: Sequence[Job]) -> list[Answer]:
        """All in one process."""
        lines: list[str] = []
        data: list[bytes] = []
        for job in jobs:
            lines += self._lines(job, data)
        names = [self._folder / name for name in ("jobs.txt", "data.bin", "results.bin")]
        names[0].write_text("\n".join(lines) + "\n")
        names[1].write_bytes(b"".join(data))
        done = self._run(names)
        if done.returncode in (-signal.SIGILL, -signal.SIGTRAP):
            self._program = self._build(silent=False)
            done = self._run(names)
        if done.returncode != 0:
            raise ShimError(done.stderr[:4000])
        left = memoryview(names[2].read_bytes())
        answers = []
        for job in jobs:
            kernel, outputs = self._kernels[job.kernel], []
            for buffer in kernel.outputs:
                size = _bytes(buffer, job.sizes)
                outputs.append(_array(left[:size], buffer, job.sizes))
                left = left[size:]
            answers.append(Answer(outputs, int(np.frombuffer(left[:4], np.int32)[0])))
            left = left[4:]
        return answers

    def _run(self, names: Sequence[Path]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *names], env={"ASAN_OPTIONS": "detect_leaks=0"},
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    def _lines(self, job: Job, data: list[bytes]) -> Iterator[str]:
        kernel = self._kernels[job.kernel]
        place: dict[str, int] = {}
        yield "forget"
        for buffer, array in zip(kernel.inputs, job.inputs, strict=True):
            place[buffer.name] = len(place)
            data.append(np.ascontiguousarray(array).tobytes())
            yield f"buffer {array.nbytes}"
        grids = [one.grid.evaluate(job.sizes) for one in self.source.launches[job.kernel]]
        for buffer in kernel.outputs + kernel.scratch:
            if buffer.name in job.shared:
                continue
            place[buffer.name] = len(place)
            copies = max(grids) if buffer.scope == CORE else 1
            yield f"empty {copies * _bytes(buffer, job.sizes)}"
        place["$frame"] = len(place)
        place |= {name: place[source] for name, source in job.shared.items()}
        data.append(bytes(4))
        yield "buffer 4"
        for number, launch in enumerate(self.source.launches[job.kernel]):
            yield from _launch(launch, job, place, job.seed + 1000 * number)
        for buffer in kernel.outputs:
            yield f"result {place[buffer.name]}"
        yield f"result {place['$frame']}"


def _launch(launch: DeviceLaunch, job: Job, place: Mapping[str, int], seed: int) -> Iterator[str]:
    grid = launch.grid.evaluate(job.sizes)
    if grid == 0:
        return
    words = []
    for one in launch.parameters:
        if one.given is Given.SIZE:
            words.append(f"i{job.sizes[one.name]}")
        else:
            words.append(f"b{place['$frame' if one.given is Given.FRAME else one.name]}")
    yield f"launch {launch.c_name}{job.variant} {grid} {launch.threads} {seed} {' '.join(words)}"


def _bytes(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    return buffer.type.elements.evaluate(sizes) * buffer.dtype.bytes


def _array(data: memoryview, buffer: Buffer, sizes: Mapping[str, int]) -> Array:
    shape = tuple(size.evaluate(sizes) for size in buffer.shape)
    return np.frombuffer(data, buffer.dtype.numpy).reshape(shape)


def build(
    source: DeviceSource,
    folder: Path,
    variants: Mapping[str, str],
    *,
    exchanges: bool,
    silent: bool,
) -> Path:
    """The program that runs jobs (boards/families/cuda/raot_shim_jobs.cpp)."""
    text = source.text + "\n".join(variants.values())
    (folder / "model.cu").write_text(text)
    (folder / "kernels.cpp").write_text(kernel_text(text, "model.cu"))
    program = folder / "jobs"
    options = [*(SILENT if silent else ()), *(["-DRAOT_EXCHANGES"] if exchanges else ())]
    _compiled([f"-I{folder}", *options, folder / "kernels.cpp", *_objects(), "-o", program])
    return program


def _objects() -> list[Path]:
    """What all programs have in common, which takes longer than most kernels."""
    parts = [file.read_bytes() for file in sorted(SHIM.glob("raot_shim*"))]

    def make(folder: Path) -> None:
        for name in SOURCES:
            _compiled(["-c", SHIM / name, "-o", folder / f"{name}.o"], SCHEDULER)

    folder = cached_folder("shim", digest_of([repr(SCHEDULER), *parts]), make)
    return [folder / f"{name}.o" for name in SOURCES]


def _compiled(arguments: Sequence[str | Path], flags: Sequence[str] = FLAGS) -> None:
    done = subprocess.run(
        ["g++", *flags, f"-I{SHIM}", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]
