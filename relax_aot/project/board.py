# SPDX-License-Identifier: Apache-2.0
"""Boards: what a project is built for, and how it is emulated.

A board is one file, `boards/<name>.toml`. Everything in it is checked when it is loaded, so
that a mistake is reported with file and key instead of as a strange link later on.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relax_aot.planning.regions import Region
from relax_aot.plugins import (
    LOG,
    OURS,
    PluginError,
    entry_names,
    plugin_called,
    plugin_path,
    refuse_twice,
)
from relax_aot.project.board_table import BoardError, Table
from relax_aot.project.cores import Named, problems
from relax_aot.project.cuda_board import Cuda, read_cuda
from relax_aot.project.timing import Timing, read_timing
from relax_aot.resources import data_dir

FAMILIES = ("host", "cortex_m", "linux", "cuda", "component")
"""Who brings start-up code; `component` is for boards that only their maker's tools build,
`cuda` for Linux with a GPU, whose kernels a driver loads."""
SYSTEMS = ("linux", "cuda")
"""Families whose operating system gives out memory."""
UARTS = ("cmsdk",)
"""Drivers in boards/families/cortex_m."""
MEMORY_KINDS = ("flash", "ram")
HOLDS = ("values", "constants")
FEATURES = ("fpu", "fpu64", "dsp", "mve", "mve_float", "neon", "asimd", "mpu")
"""What a core has beyond its base instruction set; schedules and start-up choose by these."""

FOLDERS = "RELAX_AOT_BOARDS"
"""Environment: folders of a user's boards, separated as in PATH."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SECTION = re.compile(r"[A-Za-z0-9._]+")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Memory:
    """One range of addresses. `preloaded`: the loader fills it, so constants may lie there."""

    name: str
    origin: int
    size: int
    kind: str
    preloaded: bool = False

    @property
    def end(self) -> int:
        return self.origin + self.size


@dataclass(frozen=True, slots=True)
class Emulator:
    """`machine` where a whole board is emulated, `cpu` where a user program is. `memories`: those
    of the board that the machine has, with the bytes that it has of each; all if None."""

    program: str
    machine: str | None = None
    cpu: str | None = None
    memories: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Uart:
    """The serial line that a runner on the board may use: a driver of ours and its address."""

    driver: str
    base: int


@dataclass(frozen=True, slots=True)
class Board:
    """`flags` compile, `link_flags` link, `prefix` starts the names of the compiler's tools.

    The first memory of kind `flash` holds the code, the first of kind `ram` stack and data.
    """

    name: str
    title: str
    family: str
    cpu: str
    features: tuple[str, ...]
    prefix: str
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    memories: tuple[Memory, ...]
    regions: tuple[Region, ...]
    """Where arenas and constants may lie, preferred ones first; empty where any memory will do."""
    emulator: Emulator | None
    stack_bytes: int
    source: str
    notes: str
    aliases: tuple[str, ...] = ()
    """Short names that select this board, such as rpi5."""
    uart: Uart | None = None
    cuda: Cuda | None = None
    """The GPU of a board of the family `cuda`."""
    timing: Timing | None = None
    """Clock and flash, for estimates of cycles; None: memories without wait states."""

    @property
    def has_wide_addresses(self) -> bool:
        """Whether a program can address more than 4 GiB."""
        return self.family in ("host", "cuda") or "asimd" in self.features

    @property
    def has_flash(self) -> bool:
        """Whether constants lie in flash, which is small."""
        return any(memory.kind == "flash" for memory in self.memories)

    def first_memory(self, kind: str) -> Memory:
        return next(memory for memory in self.memories if memory.kind == kind)


def boards_dir() -> Path:
    return data_dir("boards")


def list_boards() -> tuple[str, ...]:
    """Names of all boards, sorted, the host first."""
    names = {*_board_files(), *entry_names("boards")}
    return tuple(sorted(names, key=lambda name: (name != "host", name)))


def _board_files() -> dict[str, Path]:
    """Our boards, and those in folders of the user's."""
    ours = {path.stem: path for path in boards_dir().glob("*.toml")}
    own = [path for folder in user_folders() for path in sorted(folder.glob("*.toml"))]
    refuse_twice([(name, OURS) for name in ours] + [(path.stem, str(path)) for path in own])
    return ours | {path.stem: path for path in own}


def user_folders() -> tuple[Path, ...]:
    """The folders that RELAX_AOT_BOARDS names, and `relax_aot/boards` among the user's settings."""
    named = [Path(text) for text in os.environ.get(FOLDERS, "").split(os.pathsep) if text]
    for folder in named:
        if not folder.is_dir():
            raise BoardError(f"{FOLDERS} names {folder}, which is not a folder")
    home = os.environ.get("XDG_CONFIG_HOME") or Path(os.environ.get("HOME", "/"), ".config")
    settings = Path(home) / "relax_aot" / "boards"
    folders = [*named, settings] if settings.is_dir() else named
    return tuple(dict.fromkeys(folder.resolve() for folder in folders))


def _brought(name: str) -> Board | None:
    """The board of another package (`relax_aot.boards`: the path of a board file)."""
    plugin = plugin_called("boards", name)
    if plugin is None:
        return None
    if name in _board_files():
        refuse_twice([(name, str(_board_files()[name])), (name, plugin.origin)])
    path = plugin_path(plugin)
    if path.stem != name:
        raise plugin.fail(f"the board's file is {path.name}; it must be {name}.toml")
    try:
        return read_board(path)
    except BoardError as error:
        raise plugin.fail(str(error)) from error


def _by_alias(alias: str, files: Mapping[str, Path]) -> Board | None:
    """The board that lists `alias` in its file."""
    boards = []
    for path in files.values():
        try:
            board = read_board(path)
        except BoardError as error:
            LOG.warning("ignored: %s", error)
            continue
        if alias in board.aliases:
            boards.append(board)
    if len(boards) > 1:
        named = ", ".join(sorted(board.name for board in boards))
        raise BoardError(f"{alias!r} is an alias of several boards, {named}: use their names")
    return boards[0] if boards else None


def load_board(name: str) -> Board:
    """The board with this name or alias; a name in `.toml` is the path of a user's own file."""
    if name.endswith(".toml"):
        return read_board(Path(name))
    if board := _brought(name):
        return board
    files = _board_files()
    if name in files:
        return read_board(files[name])
    if board := _by_alias(name, files):
        return board
    close = difflib.get_close_matches(name, list_boards(), n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    if Path(f"{name}.toml").is_file():
        hint = f"use --board ./{name}.toml for the file in this folder; "
    raise BoardError(
        f"unknown board {name!r}; {hint}boards are:"
        f" {', '.join(list_boards())}; `relax-aot new-board` writes a board file"
    )


def all_boards() -> tuple[Board, ...]:
    """Every board, the host first. Broken ones of plugins are skipped with a warning."""
    boards = []
    for name in list_boards():
        try:
            boards.append(load_board(name))
        except PluginError as error:
            LOG.warning("ignored: %s", error)
    return tuple(boards)


def same_core(board: Board) -> tuple[str, ...]:
    """Other boards with this core that are emulated."""
    others = (other for other in all_boards() if other.name != board.name)
    return tuple(other.name for other in others if other.emulator and other.cpu == board.cpu)


def read_board(path: Path) -> Board:
    """The board of one file. Its name is the file's name without the suffix."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BoardError(f"cannot read board file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BoardError(f"{path}: not valid TOML: {error}") from error
    if not _NAME.fullmatch(path.stem):
        raise BoardError(f"{path}: a board's name is letters, digits, '.', '_' and '-'")
    return _board(path.stem, Table(path, "", data))


def _check_regions(top: Table, memories: Sequence[Memory], regions: Sequence[Region]) -> None:
    """A region of values is part of the memory of its name, where the board has a map."""
    rams = {memory.name: memory.size for memory in memories if memory.kind == "ram"}
    for table, region in zip(top.tables("region"), regions, strict=True):
        if region.constants or not memories:
            continue
        if region.name not in rams:
            raise table.fail("name", f"the name of a memory of kind ram: {', '.join(rams)}")
        if (region.bytes or 0) > rams[region.name]:
            raise table.fail("size", f"at most {rams[region.name]}, the size of {region.name}")


def _board(name: str, top: Table) -> Board:
    top.only(
        "title", "aliases", "family", "cpu", "features", "stack", "source", "notes",
        "compiler", "memory", "region", "emulator", "serial", "cuda", "timing",
    )  # fmt: skip
    family = top.choice("family", FAMILIES)
    compiler = top.table("compiler")
    compiler.only("prefix", "flags", "link_flags")
    memories, regions = _memories(top, family), _regions(top)
    _check_regions(top, memories, regions)
    emulator, cuda = _emulator(top, family, memories), read_cuda(top, family)
    board = Board(
        name=name,
        title=top.text("title"),
        family=family,
        cpu=top.text("cpu"),
        features=cuda.features if cuda else top.texts("features", FEATURES),
        prefix=_prefix(compiler, family),
        flags=compiler.texts("flags"),
        link_flags=compiler.texts("link_flags"),
        memories=memories,
        regions=regions,
        emulator=emulator,
        stack_bytes=top.size("stack"),
        source=top.text("source"),
        notes=top.optional_text("notes"),
        aliases=top.texts("aliases"),
        uart=_uart(top, family),
        cuda=cuda,
        timing=read_timing(top, family),
    )
    _check_core(top, board)
    return board


def _prefix(compiler: Table, family: str) -> str:
    """That of the tools; the machine's own compiler has none, also for a GPU of this machine."""
    if family == "host" or (family == "cuda" and "prefix" not in compiler.data):
        return ""
    return compiler.text("prefix")


def _check_core(top: Table, board: Board) -> None:
    emulator = board.emulator or Emulator("")
    named = Named(
        board.family, board.cpu, board.features, board.flags,
        machine=emulator.machine or "", emulated_cpu=emulator.cpu or "",
    )  # fmt: skip
    for key, expected in problems(named):
        table, _, last = key.rpartition(".")
        raise (top.table(table) if table else top).fail(last, expected)


def _memories(top: Table, family: str) -> tuple[Memory, ...]:
    tables = top.tables("memory")
    memories = tuple(_memory(table, placed=family not in SYSTEMS) for table in tables)
    if family == "host":
        if memories:
            raise top.fail("memory", f"none: a board of family {family} has no memory map")
        return ()
    if family in SYSTEMS:
        return memories
    for kind in MEMORY_KINDS:
        if all(memory.kind != kind for memory in memories):
            raise top.fail("memory", f"at least one memory of kind {kind}")
    for i, memory in enumerate(memories):
        for other in memories[:i]:
            if memory.name == other.name:
                raise tables[i].fail("name", "a name that no other memory has")
            if memory.origin < other.end and other.origin < memory.end:
                raise tables[i].fail("origin", f"a range that does not overlap {other.name!r}")
    return memories


def _regions(top: Table) -> tuple[Region, ...]:
    regions: list[Region] = []
    for table in top.tables("region"):
        table.only("name", "size", "holds", "section")
        name = table.text("name")
        if not _IDENTIFIER.fullmatch(name):
            raise table.fail("name", "lower-case letters, digits and '_'")
        if any(region.name == name for region in regions):
            raise table.fail("name", "a name that no other region has")
        holds = table.choice("holds", HOLDS) if "holds" in table.data else HOLDS[0]
        if holds == "values" and "section" in table.data:
            raise table.fail("section", 'no such key without holds = "constants"')
        section = table.optional_text("section")
        if section and not _SECTION.fullmatch(section):
            raise table.fail("section", "letters, digits, '.' and '_'")
        regions.append(Region(name, table.size("size"), holds == "constants", section))
    return tuple(regions)


def _memory(table: Table, *, placed: bool) -> Memory:
    """Where an operating system gives out memory, no address is known."""
    table.only("name", "size", "kind", *(("origin", "preloaded") if placed else ()))
    memory = Memory(
        name=table.text("name"),
        origin=table.address("origin") if placed else 0,
        size=table.size("size"),
        kind=table.choice("kind", MEMORY_KINDS),
        preloaded=table.flag("preloaded"),
    )
    if not _IDENTIFIER.fullmatch(memory.name):
        raise table.fail("name", "lower-case letters, digits and '_'")
    if placed and memory.end > 1 << 32:
        raise table.fail("size", f"at most {(1 << 32) - memory.origin} from this origin")
    if memory.origin % 32 or memory.size % 32:
        raise table.fail("size", "origin and size to be multiples of 32")
    if memory.kind == "flash" and memory.preloaded:
        raise table.fail("preloaded", "it for memories of kind ram alone")
    return memory


def _emulator(top: Table, family: str, memories: Sequence[Memory]) -> Emulator | None:
    if "emulator" not in top.data:
        return None
    table = top.table("emulator")
    if family == "cortex_m":
        table.only("program", "machine", "memories")
        emulated = (
            _emulated(table.table("memories"), memories) if "memories" in table.data else None
        )
        return Emulator(table.text("program"), machine=table.text("machine"), memories=emulated)
    if family == "linux":
        table.only("program", "cpu")
        return Emulator(table.text("program"), cpu=table.text("cpu"))
    raise top.fail("emulator", f"none: a board of family {family} needs no emulator")


def _emulated(table: Table, memories: Sequence[Memory]) -> dict[str, int]:
    table.only(*(memory.name for memory in memories))
    sizes = {name: table.size(name) for name in table.data}
    for memory in memories:
        if sizes.get(memory.name, 0) > memory.size:
            raise table.fail(memory.name, f"at most the {memory.size} bytes of the board")
    return sizes


def _uart(top: Table, family: str) -> Uart | None:
    if "serial" not in top.data:
        return None
    if family != "cortex_m":
        raise top.fail("serial", "none: drivers are for boards of family cortex_m alone")
    table = top.table("serial")
    table.only("uart", "base")
    return Uart(table.choice("uart", UARTS), table.address("base"))
