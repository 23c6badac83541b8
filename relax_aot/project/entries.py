# SPDX-License-Identifier: Apache-2.0
"""Several entries + Board -> one folder: shared weights, state and arena, one header."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relax_aot.emit.entries import Part, emit_entries
from relax_aot.emit.initial import NOTHING, Initial
from relax_aot.emit.interface import DimField, Interface
from relax_aot.emit.sources import Sources
from relax_aot.emit.view import ModelView
from relax_aot.externs import ExternTable
from relax_aot.files import Files
from relax_aot.fusion.summary import Summary
from relax_aot.ir.graph import Module
from relax_aot.planning import Plan
from relax_aot.planning.regions import Region
from relax_aot.project import (
    Project,
    figures,
    files_of,
    may_be_thumb1,
    options_text,
    sharing_of,
    units_of,
)
from relax_aot.project.board import Board
from relax_aot.project.crowded import Crowded
from relax_aot.project.fit import needs_of, require_fit, require_wide_addresses
from relax_aot.project.folder import write_folder
from relax_aot.project.packaging import PackageError, package
from relax_aot.quantization.summary import Quantized
from relax_aot.transforms.integers.meanings import meanings


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
    files: Files
    entries: dict[str, Project]
    shared: Interface
    """The memory of all entries, and the sizes that init is given."""
    view: ModelView
    board: Board
    const_bytes: int
    units: tuple[str, ...]
    foreign: frozenset[str]
    generate_bytes: int = 0
    """Of the arena with which a text is generated; 0 where none is."""
    crowded: Crowded = field(default_factory=dict)

    @property
    def bounded(self) -> tuple[DimField, ...]:
        """The sizes of all entries."""
        return next(iter(self.entries.values())).interface.bounded

    @property
    def arena_bytes(self) -> int:
        """Of all regions, in each of which the greatest need counts."""
        plans = [(project.plan, project.interface) for project in self.entries.values()]
        if self.shared.device:
            return max(plan.arena_bytes for plan, _ in plans)
        return sum(_arenas(plans).values())

    @property
    def state_bytes(self) -> int:
        return next(iter(self.entries.values())).state_bytes

    def packaged(self, kind: str) -> Files:
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
    ordered: bool = False,
    also: Sequence[str] = (),
    threads: int = 1,
    functions: str = "auto",
    initial: Initial = NOTHING,
) -> EntriesProject:
    """`initial` are the contents of states that do not begin with zeros."""
    externs = _union([part.table for part in parts])
    emitted = [Part(part.name, part.plan, meanings(part.original)) for part in parts]
    sharing = sharing_of(board, optimize)
    sources = emit_entries(
        emitted, name, externs, weights, sharing, regions, stepwise=stepwise,
        options=options_text(board, optimize, weights, also, stepwise=stepwise), threads=threads,
        ordered=ordered, thumb1=may_be_thumb1(board), functions=functions, initial=initial,
    )  # fmt: skip
    interfaces = {
        part.name: view.interface for part, view in zip(parts, sources.entries, strict=True)
    }
    plans = [part.plan for part in parts]
    planned = list(zip(plans, interfaces.values(), strict=True))
    needs = needs_of(board, planned, sources.const_bytes)
    require_wide_addresses(board, sources.view.weights)
    require_fit(board, needs, weights_apart=sources.view.interface.weights_apart)
    bytes_ = {need.what: need.bytes for need in needs} | {
        f"arena of {part.name}": part.plan.arena_bytes for part in parts
    }
    said = figures(board, sources, bytes_, interfaces)
    files = files_of(board, sources, plans, externs, needs, said, "entries/README.md.j2")
    units = units_of(sources.view, externs, threads)
    return entries_project(parts, sources, files, board, units, frozenset(externs.files))


def entries_project(
    parts: Sequence[Compiled],
    sources: Sources,
    files: Files,
    board: Board,
    units: tuple[str, ...],
    foreign: frozenset[str] = frozenset(),
) -> EntriesProject:
    """The project of these files; `foreign` are those of users."""
    entries = {
        part.name: Project(
            view.interface.name, files, part.original, part.plan, view.interface, board,
            sources.const_bytes, units, view, foreign, part.fusion, part.floats,
            part.quantized,
        )
        for part, view in zip(parts, sources.entries, strict=True)
    }  # fmt: skip
    return EntriesProject(
        sources.view.name, files, entries, sources.interface, sources.view, board,
        sources.const_bytes, units, foreign,
    )  # fmt: skip


def _union(tables: Sequence[ExternTable]) -> ExternTable:
    """Every table that an entry uses, once."""
    return ExternTable(
        tuple({table.path: table for each in tables for table in each.tables}.values())
    )
