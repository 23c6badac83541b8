# SPDX-License-Identifier: Apache-2.0
"""The chat of a language model, built for this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from relax_aot.cache import cached_folder, digest_of
from relax_aot.emit.generate import CHAT
from relax_aot.errors import RelaxAotError
from relax_aot.files import write_files
from relax_aot.project.entries import EntriesProject
from relax_aot.toolchain.compilers import host_compiler, host_flags, run
from relax_aot.verify.host import OPTIMISE_FLAGS, HostBuildError, processor

PROGRAM = "chat"


def build_chat(project: EntriesProject) -> Path:
    """Build the program, or find it in the cache."""
    if CHAT not in project.files:
        raise RelaxAotError(f"{project.name} has no chat: it is not for this machine")
    compiler = host_compiler()
    flags = ["-std=c11", *host_flags(compiler), *OPTIMISE_FLAGS]
    files = {n: c for n, c in project.files.items() if n.endswith((".c", ".h", ".bin"))}

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
            write_files(Path(scratch), files)
            arguments = [*flags, "-I.", *project.units, CHAT, "-o", str(folder / PROGRAM), "-lm"]
            done = run(compiler, arguments, Path(scratch))
        if done.returncode:
            raise HostBuildError(f"{compiler.name} failed:\n{done.stderr[:4000]}")

    built_by = repr((compiler, flags, processor()))
    contents = (part for name in sorted(files) for part in (name, files[name]))
    key = digest_of([built_by, *contents])
    return cached_folder("chat", key, make) / PROGRAM
