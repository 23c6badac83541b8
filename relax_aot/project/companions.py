# SPDX-License-Identifier: Apache-2.0
"""Further C files of a project that call its entries, or go with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.render import render
from relax_aot.project import runtime_headers
from relax_aot.project.entries import EntriesProject

_BUILD = b"## Build it\n"


@dataclass(frozen=True, slots=True)
class Companion:
    """A C file, its header, and the block that it includes, if there is one."""

    unit: str
    header: str
    files: dict[str, bytes]
    readme: str
    """A section of the README."""
    block: str = ""
    block_macro: str = ""
    """The macro that says where the block is."""
    cmake: str = ""
    """Further lines of CMakeLists.txt."""


def with_sections(readme: bytes, sections: Sequence[str]) -> bytes:
    """A README.md with further sections, in front of how to build it."""
    text, marker, build = readme.partition(_BUILD)
    more = "".join(f"{section.strip()}\n\n" for section in sections)
    return text.rstrip() + b"\n\n" + more.encode() + marker + build


def with_companions(project: EntriesProject, companions: Sequence[Companion]) -> EntriesProject:
    """The project with these files, which its build files compile too."""
    if not companions:
        return project
    files = dict(project.files.short)
    for companion in companions:
        files |= companion.files
    files |= runtime_headers(files)
    cmake = render("llm/parts.cmake.j2", name=project.name, companions=companions)
    cmake += "".join(f"\n{companion.cmake}" for companion in companions if companion.cmake)
    files["CMakeLists.txt"] += b"\n" + cmake.encode()
    files["README.md"] = with_sections(files["README.md"], [one.readme for one in companions])
    units = tuple(companion.unit for companion in companions)
    return replace(project, files=project.files | files, units=(*project.units, *units))
