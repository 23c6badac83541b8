# SPDX-License-Identifier: Apache-2.0
"""Sources + Board -> a folder that builds alone."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relax_aot.emit import emit
from relax_aot.emit.cuda_module import DeviceLaunch
from relax_aot.emit.header import LICENSE
from relax_aot.emit.interface import Interface
from relax_aot.emit.render import render
from relax_aot.emit.sources import Sources
from relax_aot.emit.view import ModelView
from relax_aot.externs import ExternTable
from relax_aot.files import Files
from relax_aot.fusion.summary import Summary
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Micro, walk
from relax_aot.planning import Plan
from relax_aot.project.board import Board
from relax_aot.project.crowded import Crowded
from relax_aot.project.fit import (
    Need,
    Room,
    needs_of,
    require_wide_addresses,
    rooms_of,
    state_bytes,
)
from relax_aot.project.folder import OutputError, write_folder
from relax_aot.project.packaging import MARKER, PACKAGE_VERSION, package
from relax_aot.project.processors import Architecture, architecture_of, processor_files
from relax_aot.quantization.summary import Quantized
from relax_aot.resources import data_dir
from relax_aot.transforms.integers.meanings import meanings
from relax_aot.version import VERSION


@dataclass(frozen=True)
class Project:
    """A generated C project. `files` maps relative paths to contents."""

    name: str
    files: Files
    source_module: Module
    """The module as the frontend made it: what the C must compute."""
    plan: Plan
    interface: Interface
    board: Board
    const_bytes: int
    units: tuple[str, ...]
    """The C files that a program compiles: the model's, then those of externs."""
    view: ModelView
    foreign: frozenset[str] = frozenset()
    """Files that came from a user, kept as they are."""
    fusion: Summary | None = None
    """What fusion did, where the project was compiled from a model."""
    floats: tuple[str, ...] = ()
    """What of a quantized model stays in floats, and why."""
    quantized: Quantized | None = None
    """What quantization did, where it was asked for."""
    launches: Mapping[str, tuple[DeviceLaunch, ...]] = field(default_factory=dict)
    """Of a GPU: those of each kernel."""
    crowded: Crowded = field(default_factory=dict)

    @property
    def arena_bytes(self) -> int:
        """Of all regions."""
        return self.plan.arena_bytes

    @property
    def needs(self) -> tuple[Need, ...]:
        """What has to lie in the memories of the board."""
        return needs_of(self.board, [(self.plan, self.interface)], self.const_bytes)

    @property
    def rooms(self) -> tuple[Room, ...]:
        """The memories of the board, with what was placed there."""
        return rooms_of(self.board, self.needs, weights_apart=self.interface.weights_apart)

    @property
    def state_bytes(self) -> int:
        """The state block at the declared bounds."""
        return state_bytes(self.plan, self.interface)

    def packaged(self, kind: str) -> Files:
        """The files in one of packaging.NAMES."""
        return package(kind, self.files, self.units, self.view)

    def write(self, folder: str | os.PathLike[str], kind: str = "flat") -> Path:
        """Write the project: the whole folder, or nothing. An older project is replaced."""
        return write_folder(self.packaged(kind), Path(folder))


def assemble(
    module: Module,
    plan: Plan,
    name: str,
    board: Board,
    externs: ExternTable | None = None,
    weights: str = "auto",
    optimize: str = "speed",
    *,
    stepwise: bool = False,
    annotate: bool = False,
    ordered: bool = False,
    also: Sequence[str] = (),
    threads: int = 1,
    functions: str = "auto",
) -> Project:
    externs = externs or ExternTable()
    sharing = sharing_of(board, optimize)
    sources = emit(
        plan, name, externs, weights, meanings(module), sharing, stepwise=stepwise,
        options=options_text(board, optimize, weights, also, stepwise=stepwise), annotate=annotate,
        threads=threads, ordered=ordered, thumb1=may_be_thumb1(board), functions=functions,
    )  # fmt: skip
    require_wide_addresses(board, sources.view.weights)
    needs = needs_of(board, [(plan, sources.interface)], sources.const_bytes)
    bytes_ = {need.what: need.bytes for need in needs} | {
        "arena lower bound": plan.lower_bound_bytes
    }
    said = figures(board, sources, bytes_, {"": sources.interface})
    prefix = sources.interface.name
    return Project(
        prefix,
        files_of(board, sources, [plan], externs, needs, said, "project/README.md.j2"),
        module,
        plan,
        sources.interface,
        board,
        sources.const_bytes,
        units_of(sources.view, externs, threads),
        sources.view,
        frozenset(externs.files),
    )


def units_of(view: ModelView, externs: ExternTable, threads: int) -> tuple[str, ...]:
    """The C files of a program: the model's, then those of externs."""
    prefix = view.name
    stored = (f"{prefix}_weights.c",) if view.weights.linked else ()
    threaded = (f"{prefix}_threads.c",) if threads > 1 else ()
    return (f"{prefix}.c", *stored, *threaded, *externs.units)


def files_of(
    board: Board,
    sources: Sources,
    plans: Sequence[Plan],
    externs: ExternTable,
    needs: tuple[Need, ...],
    figures: Mapping[str, object],
    readme: str,
) -> Files:
    """All files of a project; `figures` are for programs: they mark the folder, and let two
    builds be compared."""
    files = {path: text.encode() for path, text in sources.files.items()}
    headers = micro_kernel_headers(plans)
    headers |= runtime_headers(files | externs.files | headers)
    architecture = architecture_of(board, headers)
    shown = board_view(board, sources.view, sources.files, needs, architecture)
    for path, template in (
        ("CMakeLists.txt", "project/CMakeLists.txt.j2"),
        ("main.c", "main.c.j2"),
        ("README.md", readme),
    ):
        text = render(
            template, model=sources.view, entries=sources.entries, header=sources.header,
            board=shown,
        )  # fmt: skip
        files[path] = text.encode()
    if architecture:
        files |= processor_files(architecture, sources.view)
    files[MARKER] = (json.dumps(figures, indent=1) + "\n").encode()
    files |= headers
    files |= extern_files({*files, *sources.blocks}, externs)
    return Files(files, sources.blocks)


def figures(
    board: Board,
    sources: Sources,
    bytes_: Mapping[str, int],
    interfaces: Mapping[str, Interface],
) -> dict[str, object]:
    """What a project is. Ports of several entries have the entry's name before theirs."""
    first = next(iter(interfaces.values()))
    bounded = first.bounded
    inputs, outputs = (
        {
            f"{entry}: {port.source}" if entry else port.source: str(port.type)
            for entry, interface in interfaces.items()
            for port in getattr(interface, side)
        }
        for side in ("inputs", "outputs")
    )
    return {
        "license": LICENSE,
        "generator": "relax_aot",
        "version": VERSION,
        "model": sources.view.name,
        "board": board.name,
        "weights": weights_form(sources.view),
        "numerics": sources.view.numerics,
        "bytes": bytes_,
        "bounds": {f.source: [f.symbol.low, f.symbol.high] for f in bounded},
        **({"capacities": first.capacities} if first.capacities else {}),
        "inputs": inputs,
        "outputs": outputs,
        "kernels": kernel_marks(sources.view),
    }


def extern_files(files: Collection[str], externs: ExternTable) -> dict[str, bytes]:
    """The files of externs, none of which may be called as a generated one is."""
    clashes = sorted({path.lower() for path in files} & {path.lower() for path in externs.files})
    if clashes:
        raise OutputError(
            f"a file of an extern is called {clashes[0]}, as a generated one is; rename it, or"
            " the model with --name"
        )
    return externs.files


@dataclass(frozen=True, slots=True)
class BoardView:
    """What the templates of a project see of a board."""

    name: str
    title: str
    flags: str
    needs: tuple[Need, ...]
    fit: str
    package_version: str
    headers: str
    """The headers of the model, to install."""
    options: str
    """What optimizes the model's C, in its own build file."""
    architecture: Architecture | None
    """What its code is compiled for several times."""


def board_view(
    board: Board,
    model: ModelView,
    files: Mapping[str, object],
    needs: tuple[Need, ...],
    architecture: Architecture | None,
) -> BoardView:
    memories = ", ".join(f"{m.name} {m.size}" for m in board.memories)
    headers = [f"{model.name}{end}.h" for end in ("", "_config", "_layout", "_threads")]
    return BoardView(
        board.name,
        board.title,
        " ".join(board.flags),
        needs,
        f" The board has (bytes): {memories}." if memories else "",
        PACKAGE_VERSION,
        " ".join(header for header in headers if header in files),
        " ".join(_optimization(board, model)),
        architecture,
    )


_SEMANTICS = ("-ffp-contract=off", "-fno-strict-aliasing")
_VECTORS = ("-DRAOT_CONTRACTION_OFF", "-fno-trapping-math")
"""Loops become vectors: products and sums are fused where the C says so, and nothing traps."""


def _optimization(board: Board, model: ModelView) -> tuple[str, ...]:
    """The flags that figures are measured with."""
    if model.small or board.family not in ("host", "linux"):
        return (model.level, *_SEMANTICS)
    return ("-O3", *_SEMANTICS, *_VECTORS)


def kernel_marks(view: ModelView) -> dict[str, dict[str, Any]]:
    """Where each function came from, and a mark of its text."""
    return {
        kernel.c_name: {
            "from": kernel.origin,
            "layers": dict(kernel.layers),
            "code": hashlib.sha256((kernel.parameters + kernel.body).encode()).hexdigest()[:16],
        }
        for kernel in view.kernels
    }


def options_text(
    board: Board, optimize: str, weights: str, also: Sequence[str], *, stepwise: bool
) -> str:
    """What a header says of how it was compiled; `also` are further options."""
    chosen = [f"--board {board.name}"]
    chosen += [f"--optimize {optimize}"] if optimize != "speed" else []
    chosen += [f"--weights {weights}"] if weights != "auto" else []
    return " ".join([*chosen, *(["--stepwise"] if stepwise else []), *also])


def sharing_of(board: Board, optimize: str) -> str:
    """Code is scarce on microcontrollers."""
    if optimize == "size":
        return "all"
    return "calls" if board.family == "cortex_m" else "same"


def may_be_thumb1(board: Board) -> bool:
    """Cores with more than Thumb-1 and without DSP extension are among them, such as Cortex-M3."""
    return board.family == "cortex_m" and "dsp" not in board.features


def weights_form(view: ModelView) -> str:
    if view.interface.weights_apart:
        return "blob"
    return "asm" if view.weights.in_block else "c"


def micro_kernel_headers(plans: Iterable[Plan]) -> dict[str, bytes]:
    """The headers of micro-kernels that the runtime does not have."""
    statements = (stmt for plan in plans for kernel in plan.kernels for stmt in walk(kernel.body))
    used = {stmt.kernel for stmt in statements if isinstance(stmt, Micro)}
    return {f"raot/{one.header}": one.source.encode() for one in used if one.source}


def runtime_headers(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The headers of ours that the generated files include, and those that these include."""
    folder = data_dir("runtime_c") / "include" / "raot"
    found: dict[str, bytes] = {}
    sources = (files[path] for path in files if path.endswith((".c", ".h")))
    wanted = {name for text in sources for name in re.findall(rb'#include "raot/(\w+\.h)"', text)}
    while wanted:
        name = wanted.pop().decode()
        path = folder / name
        if not path.is_file():
            continue  # a header of a user's, in a folder that is called as ours
        found[f"raot/{name}"] = text = path.read_bytes()
        inside = set(re.findall(rb'^#include "(\w+\.h)"', text, re.M))
        wanted |= {other for other in inside if f"raot/{other.decode()}" not in found}
    return found


__all__ = ["OutputError", "Project", "Sources", "assemble", "write_folder"]
