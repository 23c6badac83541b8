# SPDX-License-Identifier: Apache-2.0
"""Differences between two generated projects, from the figures in their folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relax_aot.errors import RelaxAotError
from relax_aot.project.packaging import MARKER


class NotAProject(RelaxAotError):
    """A folder without the figures of a project."""


def changes(old: Path, new: Path) -> list[str]:
    """Return one line per difference."""
    before, after = _figures(old), _figures(new)
    lines: list[str] = []
    for key in ("version", "model", "board", "weights"):
        if before.get(key) != after.get(key):
            lines.append(f"{key}: {before.get(key)} -> {after.get(key)}")
    lines += _numbers("", before["bytes"], after["bytes"], " bytes")
    lines += _named("input", before["inputs"], after["inputs"])
    lines += _named("output", before["outputs"], after["outputs"])
    lines += _named("bound", before["bounds"], after["bounds"])
    lines += _kernels(before["kernels"], after["kernels"])
    return lines


def _figures(folder: Path) -> dict[str, Any]:
    path = folder / MARKER if folder.is_dir() else folder
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(read, dict) and {"bytes", "inputs", "outputs", "bounds", "kernels"} <= set(
            read
        ):
            return read
    except (OSError, ValueError):
        pass
    raise NotAProject(
        f"{folder} is not a project of this version of relax_aot: {path} has no figures; compile"
        " the model again"
    )


def _numbers(
    title: str, before: Mapping[str, int], after: Mapping[str, int], unit: str
) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, 0), after.get(name, 0)
        if old != new:
            yield f"{title}{name}: {old} -> {new}{unit} ({new - old:+d})"


def _named(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            yield f"{what} {name}: removed (was {before[name]})"
        elif name not in before:
            yield f"{what} {name}: new, {after[name]}"
        elif before[name] != after[name]:
            yield f"{what} {name}: {before[name]} -> {after[name]}"


def _kernels(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    other = [n for n in before if n in after and before[n]["code"] != after[n]["code"]]
    if len(before) != len(after):
        yield f"kernels: {len(before)} -> {len(after)}"
    for sign, names, table in (("-", gone, before), ("+", new, after), ("~", other, after)):
        for name in names:
            yield f"kernel {sign} {name}, from {table[name]['from']}"
