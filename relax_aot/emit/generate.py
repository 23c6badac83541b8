# SPDX-License-Identifier: Apache-2.0
"""The function `<name>_generate` of a language model: prompt, entries and sampler as one loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.emit.interface import Interface
from relax_aot.emit.render import render
from relax_aot.version import VERSION

CHAT = "chat/main.c"


@dataclass(frozen=True, slots=True)
class GenerateView:
    """What the templates llm/generate* see."""

    name: str
    prefix: str
    version: str
    arena: str
    """The member of the memory struct."""
    arena_bytes: str
    """Those of the entries."""
    length: str
    """The length of the caches, as a part of names."""
    capacity: str
    chunk: str
    rows: str
    """The member of the sizes of prefill."""
    has_dims: bool
    end_count: int
    ends: str


@dataclass(frozen=True, slots=True)
class GenerateSources:
    files: dict[str, str]
    unit: str
    header: str
    readme: str
    chat: dict[str, str]
    """A program for systems with standard input and output."""
    chat_cmake: str


def emit_generate(shared: Interface, prefill: Interface, ends: Sequence[int]) -> GenerateSources:
    """The C of a loop over the entries `prefill` and `decode`, which share `lengths` of one state.
    Tokens in `ends` end a text."""
    name, prefix = shared.name, shared.prefix
    (length,) = shared.lengths
    arena = shared.arenas[0]
    has_dims = bool(prefill.dims)
    view = GenerateView(
        name, prefix, VERSION, arena.member,
        f"{arena.macro}_BYTES",
        length.c_name, length.macro, prefill.dims[0].macro if has_dims else "1",
        prefill.dims[0].c_name if has_dims else "", has_dims, len(ends),
        ", ".join(map(str, [*ends, -1])),
    )  # fmt: skip
    files = {
        f"{name}_generate{end}": render(f"llm/generate{end}.j2", generate=view)
        for end in (".h", ".c")
    }
    readme = render("llm/generate.md.j2", generate=view)
    chat = {CHAT: render("llm/chat.c.j2", generate=view)}
    cmake = render("llm/chat.cmake.j2", generate=view)
    return GenerateSources(
        files, f"{name}_generate.c", f"{name}_generate.h", readme, chat, cmake
    )  # fmt: skip
