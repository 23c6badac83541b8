# SPDX-License-Identifier: Apache-2.0
"""Many models on the emulated GPU: one library of host parts, one fake driver of all kernels."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from relax_aot.project import Project
from relax_aot.resources import data_dir
from relax_aot.verify.adapter import adapter_files
from relax_aot.verify.cuda import driver_of, host_files, kernel_names, kernel_text
from relax_aot.verify.host import build_shared
from relax_aot.verify.library import Library, RawResult
from relax_aot.verify.program import outputs_of, to_bytes
from tests.planning.batch import Ran, Run, Stopped

LEVEL = "-O0"
"""Compiling takes longer than running here."""
Call = tuple[str, list[int], list[bytes]]
"""The table of a model, sizes and inputs."""


def run_each_on_gpu(runs: Sequence[Run], strict: Sequence[str] = ()) -> list[Ran | Stopped]:
    """Each model at its sizes. What stops one run does not keep the others from theirs."""
    projects = {run.project.name: run.project for run in runs}
    gpu = runs[0].project.board.cuda
    assert gpu is not None
    driver = driver_of(_device_files(projects.values()), gpu, flags=(LEVEL,))
    flags = (*strict, LEVEL, f'-DRAOT_CUDA_LIBRARY="{driver}"', "-ldl")
    library = build_shared(_host_files(projects.values()), flags)
    done: list[Ran | Stopped] = []
    while len(done) < len(runs):
        rest = runs[len(done) :]
        replies, said = _replies(library, [_call(run) for run in rest])
        done += [_ran(run, reply) for run, reply in zip(rest, replies, strict=False)]
        if len(replies) < len(rest):
            run = rest[len(replies)]
            done.append(Stopped(f"{run.project.name} at {dict(run.sizes)}:\n{said}"))
    return done


def _device_files(projects: Iterable[Project]) -> dict[str, bytes]:
    """One unit of compilation per model, whose kernels get names of their own."""
    files = {}
    for project in projects:
        name = f"{project.name}.cu"
        files[name] = project.files[name]
        text = kernel_text(files[name].decode(), name, _prefix(project))
        files[f"{project.name}.cpp"] = text.encode()
    return files


def _host_files(projects: Iterable[Project]) -> dict[str, bytes]:
    common = data_dir("boards") / "families" / "common"
    files = {"raot_model.h": (common / "raot_model.h").read_bytes()}
    for project in projects:
        name = project.name
        parts = host_files(project, project.files)
        parts["adapter.c"] = adapter_files(project.interface)["adapter.c"].encode()
        for kernel in kernel_names(parts[f"{name}.cu"].decode()):
            own = f'"{_prefix(project)}{kernel}",'.encode()
            parts[f"{name}.c"] = parts[f"{name}.c"].replace(f'"{kernel}",'.encode(), own)
        parts.pop("main.c")
        units = [part for part in parts if part.endswith(".c")]
        code = [f"#define raot_model {_table(name)}".encode(), *(parts[unit] for unit in units)]
        files[f"unit_{name}.c"] = b"\n".join(code)
        files |= {path: text for path, text in parts.items() if path.endswith((".h", ".bin"))}
    return files


def _prefix(project: Project) -> str:
    return f"{project.name}_"


def _table(name: str) -> str:
    return f"table_{name}"


def _call(run: Run) -> Call:
    interface = run.project.interface
    dims = [run.sizes[f.symbol.name] for f in interface.dims]
    inputs = [to_bytes(run.inputs[port.name]).tobytes() for port in interface.inputs]
    return _table(run.project.name), dims, inputs


def _ran(run: Run, reply: RawResult) -> Ran | Stopped:
    interface = run.project.interface
    if reply.status:
        return Ran(reply.status, {}, 0)
    if not reply.guards_ok:
        return Stopped(f"{run.project.name} at {dict(run.sizes)} wrote outside its memory")
    found = outputs_of(interface, run.sizes, reply)
    names = {port.source: port.name for port in interface.outputs}
    return Ran(0, {names[source]: array for source, array in found.items()}, 0)


def _replies(library: Path, calls: Sequence[Call]) -> tuple[list[RawResult], str]:
    """Of a child of its own: as many replies as it came to, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.emulated_gpu", str(library)],
        input=pickle.dumps(list(calls)),
        capture_output=True,
        check=False,
    )
    replies, stream = [], io.BytesIO(done.stdout)
    while stream.tell() < len(done.stdout):
        try:
            replies.append(pickle.load(stream))
        except (EOFError, pickle.UnpicklingError):
            break
    return replies, done.stderr.decode(errors="replace")[-3000:]


def main(path: str) -> None:
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for table, dims, inputs in pickle.load(sys.stdin.buffer):
        library = Library(Path(path), table)
        status = library.init(dims)
        given = [np.frombuffer(data, np.uint8) for data in inputs]
        reply = library.run(dims, given) if status == 0 else RawResult(status, (), (), True, True)
        pickle.dump(reply, results)
        results.flush()


if __name__ == "__main__":
    main(sys.argv[1])
