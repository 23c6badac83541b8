# SPDX-License-Identifier: Apache-2.0
"""Commands on several entries of one model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relax_aot import driver
from relax_aot.cli.options import UsageError, options_of
from relax_aot.ir.entries import Entries
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.project.entries import EntriesProject
from relax_aot.project.folder import kept_edits


def load(sources: Mapping[str, str] | Path, options: driver.Options) -> Entries:
    """Load entries from files by name, or from one text."""
    if isinstance(sources, Path):
        return driver.read_entries(sources, options)
    return driver.load_entries(sources, options)


def compile_several(
    sources: Mapping[str, str] | Path,
    output: str,
    board: str,
    package: str,
    chosen: dict[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """Write one project of all entries; return its figures and the lines to print."""
    dump = chosen.pop("dump", None)
    options = options_of(**chosen)
    project = driver.compile_entries(load(sources, options), load_board(board), options, dump)
    return write_several(project, output, package)


def write_several(
    project: EntriesProject, output: str, package: str
) -> tuple[dict[str, Any], list[str]]:
    """Write a project of several entries; return its figures and the lines to print."""
    folder = project.write(output, package)
    first = next(iter(project.entries.values())).interface
    figures = {
        "model": project.name,
        "folder": str(folder),
        "board": project.board.name,
        "numerics": project.view.numerics,
        "memory": {
            "arena_bytes": project.arena_bytes,
            "state_bytes": project.state_bytes,
            "const_bytes": project.const_bytes,
            **({"generate_arena_bytes": generate} if (generate := project.generate_bytes) else {}),
        },
        "entries": {
            name: {
                "arena_bytes": one.plan.arena_bytes,
                "lower_bound_bytes": one.plan.lower_bound_bytes,
            }
            for name, one in project.entries.items()
        },
        "symbols": {f.source: [f.symbol.low, f.symbol.high] for f in first.bounded},
        "capacities": first.capacities,
    }
    lines = [f"{folder}: {len(project.packaged(package))} files for {project.board.name}"]
    lines += [
        f"{folder}/{name}: your edit is kept; delete the file to generate it again"
        for name in kept_edits(project.packaged(package), folder)
    ]
    for name, one in project.entries.items():
        plan = one.plan
        lines.append(
            f"{name}: arena {plan.arena_bytes} bytes (lower bound {plan.lower_bound_bytes})"
        )
        if one.quantized is not None:
            lines += [f"{name}: {line}" for line in one.quantized.lines()]
        lines += [f"{name}: stays float: {line}" for line in one.floats]
    lines.append(
        f"project: arena {project.arena_bytes} bytes, state {project.state_bytes} bytes,"
        f" constants {project.const_bytes} bytes"
    )
    if project.generate_bytes:
        lines.append(f"generate: arena {project.generate_bytes} bytes, with that of the entries")
    return figures, lines


def entry_project(
    sources: Mapping[str, str] | Path,
    entry: str | None,
    board: str,
    options: driver.Options,
    dump: str | None,
) -> Project:
    """Return the project of one entry."""
    entries = load(sources, options)
    if entry not in entries.names:
        problem = "--entry is missing" if entry is None else f"unknown entry {entry!r}"
        raise UsageError(f"{problem}; entries are {', '.join(entries.names)}")
    return driver.compile_entries(entries, load_board(board), options, dump).entries[entry]
