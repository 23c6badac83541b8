# SPDX-License-Identifier: Apache-2.0
"""The worst case of the stack, from the compiler's own figures.

GCC writes, with `-fcallgraph-info=su`, the frame of each function and whom it calls
(`.ci` files). Clang writes, with `-fstack-size-section`, frames into the object; whom a
function calls is then what its section's relocations name. The deepest path from a root is the
bound. Functions of the C and compiler libraries come without figures, and naked functions with 0:
theirs are read from the linked image where it is Thumb code (binaries/thumb_stack.py), else each
library function counts `LIBRARY_BYTES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Section, Symbol, SymbolTableSection

from relax_aot.binaries.thumb_stack import library_depths
from relax_aot.errors import RelaxAotError

LIBRARY_BYTES = 64
SHF_EXECINSTR = SH_FLAGS.SHF_EXECINSTR
_NODE = re.compile(r'^node: \{ title: "([^"]*)" label: "([^"]*)"', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"', re.MULTILINE)
_BYTES = re.compile(r"(\d+) bytes \((static|dynamic|dynamic,bounded)\)")


class StackError(RelaxAotError):
    """There is no bound: a function is missing, recursive, or has a frame of any size."""


@dataclass(frozen=True, slots=True)
class StackBound:
    """`path` leads from the root to the deepest frame. `exact` is False where a library
    function without figures lies on it."""

    bytes: int
    path: tuple[str, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class CallGraph:
    """Frames by function, and whom each calls. A title may name the file: `file.c:name`."""

    frames: dict[str, int]
    calls: dict[str, list[str]]


def worst_stack(files: Sequence[Path], root: str, image: Path | None = None) -> StackBound:
    """The deepest path from the function `root`. `files` are GCC's `.ci` files, or objects of
    Clang's; `image` is what they are linked to."""
    graph = call_graph(files)
    if image is not None:
        frames = {_plain(title): title for title in graph.frames}
        for name, depth in library_depths(image).items():
            title = frames.get(name, name)
            # Compilers report 0 bytes for a naked function, whose assembly pushes registers.
            if name not in frames or (graph.frames[title] == 0 and not graph.calls.get(title)):
                graph.frames[title] = depth
    return deepest_path(graph, root)


def call_graph(files: Sequence[Path]) -> CallGraph:
    """Stack figures that the compiler wrote next to its objects, else those of the machine code."""
    texts = [path for path in sorted(files) if path.suffix == ".ci"]
    return _of_texts(texts) if texts else _of_objects(sorted(files))


def frame_of(files: Sequence[Path], function: str) -> int:
    """Bytes of the function's own frame, what it hands on by the stack included."""
    titles = call_graph(files).frames.items()
    return next((size for title, size in titles if _plain(title) == function), 0)


def _of_texts(ci_files: Sequence[Path]) -> CallGraph:
    frames: dict[str, int] = {}
    calls: dict[str, list[str]] = {}
    for path in ci_files:
        text = path.read_text()
        for title, label in _NODE.findall(text):
            found = _BYTES.search(label)
            if found is None:
                continue
            if found.group(2) == "dynamic":
                raise StackError(f"{_plain(title)} has a frame of dynamic size")
            frames[title] = int(found.group(1))
        for source, target in _EDGE.findall(text):
            calls.setdefault(source, []).append(target)
    return CallGraph(frames, calls)


def _of_objects(objects: Sequence[Path]) -> CallGraph:
    """Each function has a section of its own, so a relocation in it is a use by it. Clang leaves
    out a function with a frame of dynamic size: it is found missing."""
    frames: dict[str, int] = {}
    calls: dict[str, list[str]] = {}
    data: set[str] = set()
    for path in objects:
        with path.open("rb") as file:
            elf = ELFFile(file)
            data.update(_data(elf))
            for section in elf.iter_sections():
                if not isinstance(section, RelocationSection):
                    continue
                place = elf.get_section(section["sh_info"])
                symbols = elf.get_section(section["sh_link"])
                assert isinstance(symbols, SymbolTableSection)
                if place.name == ".stack_sizes":
                    frames.update(_frames(elf, place, section, symbols))
                elif place.name.startswith(".text."):
                    caller = place.name.removeprefix(".text.")
                    calls.setdefault(caller, []).extend(_used(elf, section, symbols))
    return CallGraph(frames, {k: [u for u in used if u not in data] for k, used in calls.items()})


def _frames(
    elf: ELFFile, place: Section, relocations: RelocationSection, symbols: SymbolTableSection
) -> Iterator[tuple[str, int]]:
    """Entries of an address, which a relocation fills in, and a number of seven-bit groups."""
    data = place.data()
    for relocation in relocations.iter_relocations():
        symbol = symbols.get_symbol(relocation["r_info_sym"])
        at = relocation["r_offset"] + elf.elfclass // 8
        number, shift = 0, 0
        while True:
            number |= (data[at] & 0x7F) << shift
            shift += 7
            if not data[at] & 0x80:
                break
            at += 1
        yield _function_of(elf, symbol), number


def _function_of(elf: ELFFile, symbol: Symbol) -> str:
    """A local function may be named by its section."""
    if symbol["st_info"]["type"] == "STT_SECTION":
        return str(elf.get_section(symbol["st_shndx"]).name).removeprefix(".text.")
    return str(symbol.name)


def _used(
    elf: ELFFile, relocations: RelocationSection, symbols: SymbolTableSection
) -> Iterator[str]:
    """Functions that the section names, and what is defined elsewhere."""
    for relocation in relocations.iter_relocations():
        symbol = symbols.get_symbol(relocation["r_info_sym"])
        kind, place = symbol["st_info"]["type"], symbol["st_shndx"]
        code = isinstance(place, int) and elf.get_section(place).name.startswith(".text.")
        if (code and kind in ("STT_FUNC", "STT_SECTION")) or place == "SHN_UNDEF":
            yield _function_of(elf, symbol)


def _data(elf: ELFFile) -> Iterator[str]:
    """Names of what is no code: a use of them is no call."""
    table = elf.get_section_by_name(".symtab")
    for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
        place = symbol["st_shndx"]
        if isinstance(place, int) and not elf.get_section(place)["sh_flags"] & SHF_EXECINSTR:
            yield str(symbol.name)


def deepest_path(graph: CallGraph, root: str) -> StackBound:
    """The path with the largest sum of frames."""
    frames, calls = graph.frames, graph.calls
    titles = {_plain(title): title for title in frames}
    if root not in titles:
        raise StackError(
            f"no stack figures for {root}: it was not compiled for them, or has a frame of dynamic "
            "size"
        )
    active: list[str] = []

    @cache
    def deepest(title: str) -> tuple[int, tuple[str, ...], bool]:
        if title in active:
            raise StackError(f"{_plain(title)} calls itself")
        known = titles.get(_plain(title), title)
        if known not in frames:
            return LIBRARY_BYTES, (_plain(title),), False
        active.append(title)
        below = max((deepest(callee) for callee in calls.get(known, ())), default=(0, (), True))
        active.pop()
        return frames[known] + below[0], (_plain(title), *below[1]), below[2]

    total, path_, exact = deepest(titles[root])
    return StackBound(total, path_, exact)


def _plain(title: str) -> str:
    """`file.c:name` -> `name`."""
    return title.rpartition(":")[2]
