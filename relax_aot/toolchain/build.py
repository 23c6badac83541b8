# SPDX-License-Identifier: Apache-2.0
"""Cross builds: a model, the harness and start-up code become one image for a board.

Whole builds are kept by content, so building the same thing again costs nothing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elftools.elf.elffile import ELFFile

from relax_aot.binaries import link_map
from relax_aot.binaries.elf import Program, Section
from relax_aot.binaries.link_map import ObjectUsage, usage_of
from relax_aot.cache import cached_folder, digest_of
from relax_aot.errors import RelaxAotError
from relax_aot.progress import step
from relax_aot.project.board import Board
from relax_aot.project.fit import DoesNotFit
from relax_aot.resources import data_dir
from relax_aot.toolchain import linker
from relax_aot.toolchain.compilers import MAP_NAME, CrossCompiler, cross_compiler, run
from relax_aot.toolchain.linker import InputSection, linker_script

HARNESS_SOURCES = {
    "cortex_m": (
        "common/raot_harness.c",
        "cortex_m/startup.c",
        "cortex_m/protection.c",
        "cortex_m/fault.c",
        "cortex_m/files.c",
    ),
    "linux": ("common/raot_harness.c", "linux/platform.c"),
}
_OF_MODEL = "raot_harness.c"
"""Reads the sizes of the model. The other sources of a harness know no model."""
FILES, SERIAL = "files", "serial"
"""How an image reaches those who gave it work: files of an emulator, or a serial line."""
ELF_NAME = "image.elf"
MESSAGE_LINES = 12

_OVERFLOW = re.compile(r"region [`'](\w+)':? overflowed by (\d+) bytes")


class BuildError(RelaxAotError):
    """The compiler or the linker did not accept the sources."""


@dataclass(frozen=True, slots=True)
class Image:
    """A linked program. `stack_bytes` is the size of its stack, not what it uses."""

    board: Board
    folder: Path
    sections: tuple[Section, ...]
    usage: tuple[ObjectUsage, ...]
    stack_bytes: int

    @property
    def elf(self) -> Path:
        return self.folder / ELF_NAME

    @property
    def stack_files(self) -> tuple[Path, ...]:
        """What binaries/stack.py reads: call graphs, or objects where the compiler writes none."""
        graphs = tuple(sorted(self.folder.glob("*.ci")))
        return graphs or tuple(sorted(self.folder.glob("*.o")))

    @property
    def flash_bytes(self) -> int:
        """What is loaded: code, constants, and the first values of data."""
        return sum(section.size for section in self.sections if section.filled)

    @property
    def code_bytes(self) -> int:
        """Code that the model adds, with what it takes from the C library."""
        return sum(usage.code for usage in self._model)

    @property
    def const_bytes(self) -> int:
        """Constants that the model adds, with what it takes from the C library."""
        return sum(usage.constants + usage.data for usage in self._model)

    @property
    def _model(self) -> list[ObjectUsage]:
        return [usage for usage in self.usage if usage.owner in ("model", "library")]


def build_target(
    board: Board,
    sources: Sequence[Path],
    include_dirs: Sequence[Path],
    out_dir: Path,
    extra_flags: Sequence[str] = (),
    *,
    support: Sequence[Path] = (),
    stack_bytes: int | None = None,
    outside: str = FILES,
) -> Image:
    """Build the image into `out_dir`.

    `sources` are the model; `support` is built the same way but not counted as the model's
    (the adapter). Blocks that assembly includes are looked for in the folders of the sources.
    """
    if board.family == "component":
        raise BuildError(
            f"{board.name} is built only by its vendor's tools: compile for it, add the project to "
            "your build, and verify the model on an emulated board"
        )
    if outside == SERIAL and board.uart is None:
        raise BuildError(f"the board file of {board.name} names no [serial] for a runner")
    if board.family not in HARNESS_SOURCES:
        raise BuildError(f"board {board.name} is this machine and has no cross build")
    tools = cross_compiler(board)
    stack = stack_bytes or board.stack_bytes
    folders = list(dict.fromkeys([*include_dirs, *(source.parent for source in sources)]))
    folders = [*folders, *(source.parent for source in support if source.parent not in folders)]
    job = _Job(
        board,
        tools,
        tuple(sources),
        tuple(support),
        tuple(folders),
        tuple(extra_flags),
        stack,
        outside,
    )
    built = cached_folder("image", _digest(job), lambda folder: _build(job, folder))
    out_dir.mkdir(parents=True, exist_ok=True)
    shutil.copytree(built, out_dir, dirs_exist_ok=True)
    return _image(board, out_dir, stack)


@dataclass(frozen=True, slots=True)
class _Job:
    board: Board
    tools: CrossCompiler
    sources: tuple[Path, ...]
    support: tuple[Path, ...]
    folders: tuple[Path, ...]
    extra_flags: tuple[str, ...]
    stack_bytes: int
    outside: str


def _families() -> Path:
    return data_dir("boards") / "families"


def _runtime() -> Path:
    return data_dir("runtime_c") / "include"


def _digest(job: _Job) -> str:
    """Everything that a build can depend on."""
    parts: list[bytes | str] = [repr(job.board), repr(job.tools)]
    parts += [repr(job.extra_flags), str(job.stack_bytes), job.outside]
    parts += [
        Path(module).read_bytes() for module in (__file__, linker.__file__, link_map.__file__)
    ]
    for source in (*job.sources, None, *job.support):
        parts += ["-"] if source is None else [source.name, source.read_bytes()]
    for folder in job.folders:
        files = sorted(folder.rglob("*"))
        parts += _contents(folder, [f for f in files if f.suffix in (".h", ".inc", ".bin")])
    return digest_of([*parts, *_contents(_families(), sorted(_families().rglob("*")))])


def _contents(folder: Path, paths: Sequence[Path]) -> list[bytes | str]:
    return [
        part
        for path in paths
        for part in (str(path.relative_to(folder)), path.read_bytes() if path.is_file() else "")
    ]


def _build(job: _Job, folder: Path) -> None:
    """Compile and link in `folder`; object files are `<owner><number>_<source>.o`."""
    harness = [_families() / name for name in _harness(job)]
    objects = []
    for owner, sources in (("model", job.sources), ("support", job.support), ("harness", harness)):
        for number, source in enumerate(sources):
            name = f"{owner}{number}_{source.stem}"
            step(f"building for {job.board.name}: {source.name}")
            if owner != "harness":
                _compile(job, folder, source, name)
            elif source.name == _OF_MODEL:
                _compile(job, folder, source, name, job.tools.harness_flags)
            else:
                _shared(job, folder, source, name)
            objects.append(name + ".o")
    _link(job, folder, objects)


def _shared(job: _Job, folder: Path, source: Path, name: str) -> None:
    """An object that all images of a board have."""
    alone = replace(job, sources=(), support=(), folders=())
    status = (_runtime() / "raot" / "status.h").read_bytes()  # all that raot_model.h includes
    built = cached_folder(
        "harness", digest_of([_digest(alone), name, status]),
        lambda made: _compile(alone, made, source, name, job.tools.harness_flags),
    )  # fmt: skip
    shutil.copytree(built, folder, dirs_exist_ok=True)


def _harness(job: _Job) -> tuple[str, ...]:
    names = HARNESS_SOURCES[job.board.family]
    if job.outside == FILES or job.board.uart is None:
        return names
    others = tuple(name for name in names if name != "cortex_m/files.c")
    return (*others, "common/serial.c", f"cortex_m/uart_{job.board.uart.driver}.c")


def _compile(job: _Job, folder: Path, source: Path, name: str, flags: Sequence[str] = ()) -> None:
    families = _families()
    search = [*job.folders, families / "common", families / job.board.family]
    search.append(_runtime())
    includes = [f"-I{path.resolve()}" for path in search]
    includes += [f"-Wa,-I{path.resolve()}" for path in job.folders]
    # Names in messages and debugging information must not depend on where the build ran.
    renames = [f"-ffile-prefix-map={path.resolve()}=." for path in (*search, folder)]
    compiler = job.tools.compiler
    command = [*job.tools.flags, *flags, *job.extra_flags, *compiler.stack_flags]
    if job.board.family == "linux":
        command.append(f"-DRAOT_STACK_BYTES={job.stack_bytes}ul")
    if job.board.uart is not None:
        command.append(f"-DRAOT_UART_BASE={job.board.uart.base:#x}u")
    command += [*includes, *renames, "-c", str(source.resolve()), "-o", name + ".o"]
    done = run(compiler, command, folder)
    if done.returncode:
        raise BuildError(
            f"{source.name} does not compile for {job.board.name}"
            f" ({compiler.name}):\n{_first_lines(done.stderr)}"
        )


def _link(job: _Job, folder: Path, objects: Sequence[str]) -> None:
    board = job.board
    tools = job.tools
    command = [*tools.link_flags, *job.extra_flags]
    sections: list[InputSection] = []
    if board.family == "cortex_m":
        sections = [section for name in objects for section in _input_sections(folder / name)]
        script = linker_script(board, sections, job.stack_bytes)
        (folder / "image.ld").write_text(script, encoding="utf-8")
        command += ["-Wl,-T,image.ld"]
    done = run(tools.compiler, [*command, *objects, "-o", ELF_NAME, *tools.libraries], folder)
    if not (folder / MAP_NAME).exists():
        (folder / MAP_NAME).write_text(done.stdout, encoding="utf-8")
    if done.returncode:
        raise _link_error(board, done.stderr, sections, job.stack_bytes)


def _link_error(
    board: Board, text: str, sections: Sequence[InputSection], stack_bytes: int
) -> BuildError | DoesNotFit:
    overflows = _OVERFLOW.findall(text)
    if not overflows:
        return BuildError(f"linking for {board.name} failed:\n{_first_lines(text)}")
    name, over = max(((name, int(over)) for name, over in overflows), key=lambda pair: pair[1])
    memory = next(memory for memory in board.memories if memory.name == name)
    users = [
        (section.size, section.name.rpartition(".")[2])
        for section in sections
        if (section.in_ram if memory.kind == "ram" else section.in_flash)
    ]
    users += [(stack_bytes, "stack")] if memory.kind == "ram" else []
    largest = ", ".join(f"{user} {size}" for size, user in sorted(users, reverse=True)[:4])
    return DoesNotFit(
        f"the image does not fit {board.name}: {name} has {memory.size} bytes,"
        f" {over} too few; the largest parts are (bytes): {largest}",
        name,
        over,
    )


def _first_lines(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    telling = [i for i, line in enumerate(lines) if "error" in line or "undefined" in line]
    first = max(telling[0] - 1, 0) if telling else 0
    return "\n".join(lines[first : first + MESSAGE_LINES])


def _input_sections(path: Path) -> Iterator[InputSection]:
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if section["sh_size"] and section["sh_flags"]:
                yield InputSection(path.name, section.name, section["sh_size"])


# What is in an image


def _image(board: Board, folder: Path, stack_bytes: int) -> Image:
    text = (folder / MAP_NAME).read_text(encoding="utf-8", errors="replace")
    sections = Program(folder / ELF_NAME).sections
    return Image(board, folder, sections, usage_of(text, board.family), stack_bytes)
