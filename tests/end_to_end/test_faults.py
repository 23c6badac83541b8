# SPDX-License-Identifier: Apache-2.0
"""A fault on the target becomes a message: which fault, where, in which C function."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from relax_aot.emulation.faults import TargetFault
from relax_aot.project import Project
from relax_aot.verify.emulate import emulate
from tests.end_to_end.subjects import project_of

MOTION = {"motion": np.zeros((3, 6), np.float32)}


def broken(board: str, statement: str) -> Project:
    """The example with a statement at the start of its first kernel."""
    project = project_of("gesture", board)
    text = project.files["gesture.c"].decode()
    found = re.search(r"static void (\w+)\([^)]*\)\n\{\n", text)
    assert found is not None
    changed = f"{text[: found.end()]}    {statement}\n{text[found.end() :]}"
    return replace(project, files=project.files | {"gesture.c": changed.encode()})


@pytest.mark.qemu
def test_a_machine_with_other_memories_than_the_board_is_named() -> None:
    project = project_of("gesture", "mps2-an500")
    moved = [
        replace(m, origin=0x08000000) if m.kind == "flash" else m for m in project.board.memories
    ]
    project = replace(project, board=replace(project.board, memories=tuple(moved)))
    with pytest.raises(
        TargetFault, match="does the emulated machine have the memories of the board"
    ):
        emulate(project, [MOTION])


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board", ["netduinoplus2", "mps2-an500", "mps3-an547", "aarch64-linux", "armhf-linux"]
)
def test_a_wild_write_is_named(board: str) -> None:
    project = broken(board, "*(volatile int32_t *)(uintptr_t)0xe7000000u = 1;")
    with pytest.raises(TargetFault) as caught:
        emulate(project, [MOTION])
    message = str(caught.value)
    assert board in message
    assert "gesture" in message
    assert re.search(r"0x0*e7000000", message), message
