# SPDX-License-Identifier: Apache-2.0
"""The C files of a table, as files of the generated project.

Each keeps its place relative to the table, so that its includes mean what they mean there.
A source in a subfolder gets a file next to the model's that includes it: the project stays
one that `cc *.c` builds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relax_aot.externs._error import ExternError
from relax_aot.externs.preprocess import without_comments

_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


@dataclass(frozen=True)
class CFiles:
    """Paths in the project -> contents; `units` are compiled."""

    files: dict[str, bytes]
    units: tuple[str, ...]


def read_files(table: Path, header: str, sources: Sequence[str]) -> CFiles:
    """The header, the sources, and whatever of the same folder they include."""
    files: dict[str, bytes] = {}
    units = []
    for name in (header, *sources):
        _add(table, name, files)
    for name in sources:
        if "/" not in name:
            units.append(name)
            continue
        unit = name.replace("/", "_")
        if unit in files:
            raise ExternError(f"{table}: sources: {name} and {unit} get the same name")
        files[unit] = f'/* {unit} - compiles {name}. */\n#include "{name}"\n'.encode()
        units.append(unit)
    return CFiles(files, tuple(units))


def inside(table: Path, name: str) -> bool:
    """Whether `name` is a plain relative path below the table's folder."""
    return bool(_PATH.fullmatch(name)) and ".." not in name.split("/")


def _add(table: Path, name: str, files: dict[str, bytes]) -> None:
    if name in files:
        return
    path = table.parent / name
    try:
        files[name] = path.read_bytes()
    except OSError as error:
        raise ExternError(f"{table}: cannot read {name}: {error.strerror}") from None
    text = without_comments(files[name].decode("utf-8", errors="replace"))
    folder = name.rpartition("/")[0]
    for included in _INCLUDE.findall(text):
        if not (path.parent / included).is_file():
            continue  # One of ours, or a header that the target's tool chain brings.
        below = _joined(folder, included)
        if below is None or not inside(table, below):
            raise ExternError(
                f'{table}: {name} includes "{included}", which lies outside the folder of the'
                " table; move the table up, or the file below it"
            )
        _add(table, below, files)


def _joined(folder: str, included: str) -> str | None:
    parts = folder.split("/") if folder else []
    for part in included.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
