# SPDX-License-Identifier: Apache-2.0
"""Several entries + Board -> one folder: shared weights, state and arena, one header."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relax_aot.emit import Sources
from relax_aot.emit.entries import Part, emit_entries
from relax_aot.emit.header import LICENSE
from relax_aot.emit.interface import DimField, Interface
from relax_aot.emit.render import render
from relax_aot.emit.view import ModelView
from relax_aot.externs import ExternTable
from relax_aot.fusion.summary import Summary
from relax_aot.ir.graph import Module
from relax_aot.planning import Plan
from relax_aot.planning.regions import Region
from relax_aot.project import (
    Project,
    board_view,
    extern_files,
    kernel_marks,
    micro_kernel_headers,
    options_text,
    runtime_headers,
    sharing_of,
    weights_form,
)
from relax_aot.project.board import Board
from relax_aot.project.fit import Need, entries_needs, require_entries_fit
from relax_aot.project.folder import write_folder
from relax_aot.project.packaging import MARKER, PackageError, package
from relax_aot.project.processors import processor_files
from relax_aot.quantization.summary import Quantized
from relax_aot.transforms.integers.meanings import meanings
from relax_aot.version import VERSION


@dataclass(frozen=True, slots=True)
class Compiled:
    """One entry after all stages before C."""

    name: str
    original: Module
    plan: Plan
    table: ExternTable
    fusion: Summary
    floats: tuple[str, ...]
    quantized: Quantized | None = None


@dataclass(frozen=True)
class EntriesProject:
    """A generated C project with several entries. Each of `entries` is the project as that
    entry sees it: its plan and interface, and the files of all."""

    name: str
    files: dict[str, bytes]
    entries: dict[str, Project]
    shared: Interface
    """The memory of all entries, and the sizes that init is given."""
    view: ModelView
    board: Board
    const_bytes: int
    units: tuple[str, ...]
    foreign: frozenset[str]

    @property
    def bounded(self) -> tuple[DimField, ...]:
        """The sizes of all entries."""
        return next(iter(self.entries.values())).interface.bounded

    @property
    def arena_bytes(self) -> int:
        """Of all regions, in each of which the greatest need counts."""
        needs = _arenas([(project.plan, project.interface) for project in self.entries.values()])
        return sum(needs.values())

    @property
    def state_bytes(self) -> int:
        return next(iter(self.entries.values())).state_bytes

    def packaged(self, kind: str) -> dict[str, bytes]:
        """The files in one of packaging.NAMES but arduino, whose sketch is of one entry."""
        if kind == "arduino":
            raise PackageError(
                "an Arduino library shows one run of one model; with several entries take"
                " --package flat, or compile each by itself"
            )
        return package(kind, self.files, self.units, self.view)

    def write(self, folder: str | os.PathLike[str], kind: str = "flat") -> Path:
        """Write the project: the whole folder, or nothing. An older project is replaced."""
        return write_folder(self.packaged(kind), Path(folder))


def _arenas(plans: Sequence[tuple[Plan, Interface]]) -> dict[str, int]:
    greatest: dict[str, int] = {}
    for plan, interface in plans:
        for arena, port in zip(plan.arenas, interface.arenas, strict=True):
            greatest[port.member] = max(greatest.get(port.member, 0), arena.bytes)
    return greatest


def assemble_entries(
    parts: Sequence[Compiled],
    name: str,
    board: Board,
    weights: str,
    optimize: str,
    regions: Sequence[Region],
    *,
    stepwise: bool = False,
) -> EntriesProject:
    externs = _union([part.table for part in parts])
    emitted = [Part(part.name, part.plan, meanings(part.original)) for part in parts]
    sharing = sharing_of(board, optimize)
    sources = emit_entries(
        emitted, name, externs, weights, sharing, regions, stepwise=stepwise,
        options=options_text(board, optimize, weights, stepwise=stepwise),
    )  # fmt: skip
    interfaces = [view.interface for view in sources.entries]
    prefix = sources.view.name
    plans = [part.plan for part in parts]
    needs = entries_needs(board, plans, interfaces, sources.const_bytes)
    require_entries_fit(board, needs, weights_apart=sources.view.weights_apart)
    files = {path: text.encode() for path, text in sources.files.items()} | sources.blocks
    shown = board_view(board, sources.view, sources.files, needs)
    for path, template in (
        ("CMakeLists.txt", "project/CMakeLists.txt.j2"),
        ("main.c", "main.c.j2"),
        ("README.md", "entries/README.md.j2"),
    ):
        text = render(
            template, model=sources.view, entries=sources.entries, header=sources.header,
            board=shown,
        )  # fmt: skip
        files[path] = text.encode()
    files |= processor_files(board, sources.view)
    files[MARKER] = _figures(board, parts, sources, needs)
    files |= micro_kernel_headers(plans)
    files |= runtime_headers(files | externs.files)
    files |= extern_files(files, externs)
    files = dict(sorted(files.items()))
    units = (f"{prefix}.c", f"{prefix}_weights.c", *externs.units)
    foreign = frozenset(externs.files)
    entries = {
        part.name: Project(
            interface.name, files, part.original, part.plan, interface, board,
            sources.const_bytes, units, view, foreign, part.fusion, part.floats,
            part.quantized,
        )
        for part, interface, view in zip(parts, interfaces, sources.entries, strict=True)
    }  # fmt: skip
    return EntriesProject(
        prefix, files, entries, sources.interface, sources.view, board, sources.const_bytes,
        units, foreign,
    )  # fmt: skip


def _union(tables: Sequence[ExternTable]) -> ExternTable:
    """Every table that an entry uses, once."""
    return ExternTable(
        tuple({table.path: table for each in tables for table in each.tables}.values())
    )


def _figures(
    board: Board, parts: Sequence[Compiled], sources: Sources, needs: tuple[Need, ...]
) -> bytes:
    """What a project is, for programs: marks the folder, and lets two builds be compared."""
    interfaces = [view.interface for view in sources.entries]
    bounds = interfaces[0].bounded
    said = {
        "license": LICENSE,
        "generator": "relax_aot",
        "version": VERSION,
        "model": sources.view.name,
        "board": board.name,
        "weights": weights_form(sources.view),
        "bytes": {need.what: need.bytes for need in needs}
        | {f"arena of {part.name}": part.plan.arena_bytes for part in parts},
        "bounds": {f.source: [f.symbol.low, f.symbol.high] for f in bounds},
        "inputs": {
            f"{part.name}: {port.source}": str(port.type)
            for part, interface in zip(parts, interfaces, strict=True)
            for port in interface.inputs
        },
        "outputs": {
            f"{part.name}: {port.source}": str(port.type)
            for part, interface in zip(parts, interfaces, strict=True)
            for port in interface.outputs
        },
        "kernels": kernel_marks(sources.view),
    }
    return (json.dumps(said, indent=1) + "\n").encode()
