# SPDX-License-Identifier: Apache-2.0
"""Many generated models in one shared library, run under ASan and UBSan in a child."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.files import write_files
from relax_aot.ir.types import DType
from relax_aot.project import Project
from relax_aot.resources import data_dir
from relax_aot.toolchain.compilers import host_compiler, host_flags, run
from relax_aot.verify.adapter import adapter_files
from relax_aot.verify.host import HostBuildError, build_shared, sanitizer_runtime
from relax_aot.verify.library import CDEF

Array = NDArray[Any]

# Warnings are the plain build's matter: instrumentation changes what the compiler sees.
FLAGS = (
    "-std=c11", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
    "-ffp-contract=off",
)  # fmt: skip
DECLARATIONS = CDEF.partition("extern")[0]


class Stopped(AssertionError):
    """A sanitizer stopped the run; the message has what it said."""


@dataclass(frozen=True)
class Run:
    """One model at some sizes: arrays by parameter name."""

    project: Project
    sizes: Mapping[str, int]
    inputs: Mapping[str, Array]
    highs: tuple[tuple[str, int], ...] = ()
    """Macros of bounds that are given when the project is compiled."""


@dataclass(frozen=True)
class Ran:
    status: int
    outputs: dict[str, Array]
    arena_bytes: int


def run_all(runs: Sequence[Run], level: str = "-O0") -> list[Ran]:
    """Each model's C at each of its sizes."""
    done = run_each(runs, level=level)
    for outcome in done:
        if isinstance(outcome, Stopped):
            raise outcome
    return [outcome for outcome in done if isinstance(outcome, Ran)]


def run_each(
    runs: Sequence[Run], strict: Sequence[str] = (), level: str = "-O0"
) -> list[Ran | Stopped]:
    """The same, where a sanitizer that stops one run does not keep the others from theirs.
    With `strict` flags the text is parsed with these first, for their warnings. `level`: how
    far the compiler optimizes."""
    projects = {run.project.name: run.project for run in runs}
    highs = {run.project.name: run.highs for run in runs}
    files = _files(projects.values(), highs)
    if strict:
        _parse(files, strict)
    path = build_shared(files, (*FLAGS, level))
    tables = [_table(name) for name in projects]
    done: list[Ran | Stopped] = []
    while len(done) < len(runs):
        rest = runs[len(done) :]
        replies, said = _replies((str(path), DECLARATIONS, tables, [_call(run) for run in rest]))
        done += [_ran(run, reply) for run, reply in zip(rest, replies, strict=False)]
        if len(replies) < len(rest):
            run = rest[len(replies)]
            done.append(Stopped(f"{run.project.name} at {dict(run.sizes)}:\n{said}"))
    return done


def _parse(files: Mapping[str, bytes], flags: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        write_files(Path(scratch), files)
        units = [name for name in files if name.endswith(".c") and "/" not in name]
        compiler = host_compiler()
        arguments = [*host_flags(compiler), *flags, "-fsyntax-only", "-I.", *units]
        done = run(compiler, arguments, Path(scratch))
    if done.returncode:
        raise HostBuildError(done.stderr[:4000])


def _replies(request: object) -> tuple[list[Any], str]:
    """Of a child of its own: as many replies as it came to, and what it said."""
    environment = os.environ | {
        "LD_PRELOAD": sanitizer_runtime(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
    }
    worker = Path(__file__).with_name("sanitized_worker.py")
    done = subprocess.run(
        [sys.executable, worker],
        input=pickle.dumps(request),
        capture_output=True,
        env=environment,
        check=False,
    )
    replies, stream = [], io.BytesIO(done.stdout)
    while stream.tell() < len(done.stdout):
        try:
            replies.append(pickle.load(stream))
        except (EOFError, pickle.UnpicklingError):
            break
    return replies, done.stderr.decode(errors="replace")[:3000]


def _table(name: str) -> str:
    return f"table_{name}"


def _files(
    projects: Iterable[Project], highs: Mapping[str, tuple[tuple[str, int], ...]]
) -> dict[str, bytes]:
    """One unit of compilation per model."""
    common = data_dir("boards") / "families" / "common"
    files = {"raot_model.h": (common / "raot_model.h").read_bytes()}
    for project in projects:
        sources = [f"{project.name}.c", f"{project.name}_weights.c"]
        parts = [f"#define raot_model {_table(project.name)}\n".encode()]
        parts += [f"#define {macro} {high}".encode() for macro, high in highs[project.name]]
        parts += [project.files[source] for source in sources]
        parts += [adapter_files(project.interface)["adapter.c"].encode()]
        files[f"unit_{project.name}.c"] = b"\n".join(parts)
        files |= {p: text for p, text in project.files.items() if p.endswith((".h", ".bin"))}
    return files


def _call(run: Run) -> tuple[str, list[int], list[bytes], list[int | None]]:
    interface = run.project.interface
    dims = [run.sizes[f.symbol.name] for f in interface.dims]
    inputs = [np.ascontiguousarray(run.inputs[p.name]).tobytes() for p in interface.inputs]
    return _table(run.project.name), dims, inputs, _capacities(run)


def _capacities(run: Run) -> list[int | None]:
    """What an output needs at these sizes; None, its greatest size, where the model decides."""
    return [
        max(port.type.bytes.evaluate(run.sizes), 0)
        if port.type.symbols <= run.sizes.keys()
        else None
        for port in run.project.interface.outputs
    ]


def _ran(run: Run, reply: tuple[int, list[int], list[bytes], int]) -> Ran:
    status, computed, outputs, arena_bytes = reply
    interface = run.project.interface
    known = dict(run.sizes) | {
        f.symbol.name: size for f, size in zip(interface.results, computed, strict=True)
    }
    arrays = {}
    if status == 0:
        for port, data in zip(interface.outputs, outputs, strict=True):
            shape = interface.shape(port, known)
            dtype = np.dtype(np.uint8) if port.type.dtype is DType.BOOL else port.type.dtype.numpy
            count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            arrays[port.name] = np.frombuffer(data[:count], dtype).reshape(shape)
    return Ran(status, arrays, arena_bytes)
