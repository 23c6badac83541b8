# SPDX-License-Identifier: Apache-2.0
"""The part of a firmware that `verify --serial` talks to: the harness with one model in it.

The same harness as under emulation, over a serial line. Where the board's file names a UART that
we have a driver for, the finished image comes too; else `line.c` is what the user fills in.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from relax_aot.project import Project
from relax_aot.resources import data_dir
from relax_aot.toolchain.build import SERIAL
from relax_aot.verify.adapter import adapter_files
from relax_aot.verify.emulate import build_image
from relax_aot.verify.program import require_linked

IMAGE = "runner.elf"
SOURCES = (
    "raot_harness.c", "raot_model.h", "raot_outside.h", "raot_platform.h", "serial.c", "serial.h",
)  # fmt: skip
LINE = "line.c"


def write_runner(project: Project, folder: Path) -> list[str]:
    """Writes the whole folder, or nothing. What to do next, as lines for people."""
    require_linked(project, "the firmware")
    common = data_dir("boards") / "families" / "common"
    extra = {name: (common / name).read_bytes() for name in SOURCES}
    extra |= {n: t.encode() for n, t in adapter_files(project.interface).items()}
    extra[LINE] = (common / "serial_line.c").read_bytes()
    image = _image(project)
    if image is not None:
        extra[IMAGE] = image
    written = replace(project, files=project.files | extra).write(folder)
    if image is not None:
        return [
            f"{written / IMAGE}: flash it to {project.board.name}, then run verify with --serial"
        ]
    sources = ", ".join([*project.units, "adapter.c", "raot_harness.c", "serial.c", LINE])
    return [
        f"{written}: add {sources} to your firmware",
        f"implement {LINE}, call raot_runner() at the end of main, then run verify with --serial",
    ]


def _image(project: Project) -> bytes | None:
    if project.board.uart is None:
        return None
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        return build_image(project, Path(scratch), SERIAL).elf.read_bytes()
