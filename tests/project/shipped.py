# SPDX-License-Identifier: Apache-2.0
"""The library that a project's own CMakeLists.txt builds, as users get it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from relax_aot.project import Project
from relax_aot.verify.host import library_files


def shipped_library(project: Project, folder: Path, arguments: Sequence[str] = ()) -> Path:
    """A shared library with the table that `verify.library.Library` reads."""
    source, build, library = folder / "project", folder / "build", folder / "library.so"
    project.write(source)
    adapter = {n: c for n, c in library_files(project).items() if n not in project.files}
    for name, content in adapter.items():
        (source / name).write_bytes(content)
    flags = ("-DCMAKE_POSITION_INDEPENDENT_CODE=ON", *arguments)
    _run("cmake", "-S", str(source), "-B", str(build), *flags)
    _run("cmake", "--build", str(build))
    units = [str(source / name) for name in adapter if name.endswith(".c")]
    (archive,) = build.glob("lib*.a")
    whole = ("-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive")
    _run("cc", "-std=c11", "-shared", "-fPIC", f"-I{source}", *units, *whole, "-o", str(library))
    return library


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
