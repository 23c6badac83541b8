# SPDX-License-Identifier: Apache-2.0
"""The figures of a compiled model: memory from the plan, code and stack from the compiler."""

from __future__ import annotations

import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from relax_aot.binaries.cubin import read_cubin
from relax_aot.binaries.stack import worst_stack
from relax_aot.files import write_files
from relax_aot.toolchain.compilers import host_compiler, host_flags, run
from relax_aot.verify.emulate import build_image
from relax_aot.verify.host import OPTIMISE_FLAGS, HostBuildError
from relax_aot.verify.program import Built, parts_of


@dataclass(frozen=True, slots=True)
class Memory:
    """Sizes in bytes, at the upper bounds of all symbols."""

    arena_bytes: int
    """Working memory."""
    state_bytes: int
    """Memory that keeps its contents between calls."""
    const_bytes: int
    """Constants that the model adds to flash."""
    code_bytes: int | None
    """Code that the model adds to flash; of a GPU the machine code of all kernels, and None where
    your compiler makes it."""
    stack_bytes: int | None
    """The static bound of the stack of `<name>_run`; None on a GPU, whose driver has functions of
    its own."""
    lower_bound_bytes: int
    """No plan with this order of steps has a smaller arena."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def memory_of(project: Built) -> Memory:
    """Of several entries: the largest arena and the deepest stack, since one runs at a time."""
    parts = parts_of(project).values()
    if project.board.cuda is not None:
        return _on_gpu(project)
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        folder = Path(scratch)
        linked = None
        if project.board.family == "host":
            code, files = _host_objects(project, folder)
            constants = project.const_bytes
        else:
            image = build_image(project, folder)
            code, constants, files = image.code_bytes, image.const_bytes, list(image.stack_files)
            linked = image.elf
        roots = [part.interface.linked_run for part in parts]
        stack = max(worst_stack(files, root, linked).bytes for root in roots)
    return Memory(
        project.arena_bytes,
        project.state_bytes,
        constants,
        code,
        stack,
        max(part.plan.lower_bound_bytes for part in parts),
    )


def _on_gpu(project: Built) -> Memory:
    bound = max(part.plan.lower_bound_bytes for part in parts_of(project).values())
    text = project.files[f"{project.name}_cubin.c"].decode()
    arrays = re.findall(r"_cubin_\d+\[\] = \{\n(.*?)\n\};", text, re.DOTALL)
    cubins = [read_cubin(bytes(map(int, re.findall(r"\d+", array)))) for array in arrays]
    code = max((sum(one.code_bytes for one in cubin.functions) for cubin in cubins), default=None)
    return Memory(project.arena_bytes, project.state_bytes, project.const_bytes, code, None, bound)


def _host_objects(project: Built, folder: Path) -> tuple[int, list[Path]]:
    """Code bytes of the model on this machine, and what its stack is told by."""
    write_files(folder, project.files)
    compiler = host_compiler()
    flags = [*host_flags(compiler), *OPTIMISE_FLAGS, *compiler.stack_flags]
    for unit in project.units:
        done = run(compiler, ["-std=c11", *flags, "-I.", "-c", unit, "-o", _object(unit)], folder)
        if done.returncode:
            raise HostBuildError(f"the host compiler failed:\n{done.stderr[:2000]}")
    code = sum(_code_bytes(folder / _object(unit)) for unit in project.units)
    return code, sorted(folder.glob("*.ci")) or sorted(folder.glob("*.o"))


def _object(unit: str) -> str:
    return str(Path(unit).with_suffix(".o"))


def _code_bytes(path: Path) -> int:
    with path.open("rb") as file:
        return sum(
            section["sh_size"]
            for section in ELFFile(file).iter_sections()
            if section.name.startswith(".text")
        )
