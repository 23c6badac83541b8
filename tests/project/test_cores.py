# SPDX-License-Identifier: Apache-2.0
"""A board file whose core, flags or emulator do not belong together is refused with the way out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relax_aot.project.board import read_board
from relax_aot.project.board_table import BoardError
from tests.conftest import ROOT

M4, LINUX = "mps2-an386", "raspberry-pi-4b"
WRONG = {
    "no such core": (M4, 'cpu = "cortex-m4"', 'cpu = "cortex-m44"', "cpu: .*such as 'cortex-m4'"),
    "no core of linux": (LINUX, 'cpu = "cortex-a72"', 'cpu = "cortex-m4"', "cpu: .*family linux"),
    "flag of another core": (
        M4, "-mcpu=cortex-m4", "-mcpu=cortex-m7", "flags: expected -mcpu=cortex-m4, the value",
    ),
    "core of another flag": (
        LINUX, "-mcpu=cortex-a72", "-mcpu=cortex-a53", "flags: expected -mcpu=cortex-a72",
    ),
    "no core in the flags": (M4, '"-mcpu=cortex-m4"', '"-g1"', "flags: expected -mcpu=cortex-m4, "),
    "contraction": (M4, '"-ffp-contract=off"', '"-g1"', "expected -ffp-contract=off, since"),
    "aliasing": (M4, '"-fno-strict-aliasing"', '"-g1"', "expected -fno-strict-aliasing, since"),
    "no unit for floats": (
        M4, "-mfloat-abi=hard", "-mfloat-abi=soft", "expected -mfloat-abi=hard, since the features",
    ),
    "feature of another core": (M4, '"dsp"', '"mve"', "features: .* which has no mve"),
    "machine of another core": (
        M4, 'machine = "mps2-an386"', 'machine = "microbit"',
        r"machine: .*one of .*mps2-an386.*this machine has a cortex-m0",
    ),
    "emulator of another core": (
        LINUX, 'qemu-aarch64"\ncpu = "cortex-a72"', 'qemu-aarch64"\ncpu = "cortex-a53"',
        "cpu: expected cortex-a72, the value",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("board", "old", "new", "said"), WRONG.values(), ids=WRONG)
def test_what_does_not_belong_together_is_refused(
    board: str, old: str, new: str, said: str, tmp_path: Path
) -> None:
    text = (ROOT / "boards" / f"{board}.toml").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BoardError, match=said) as caught:
        read_board(path)
    assert re.match(rf"{re.escape(str(path))}: ", str(caught.value))


def test_machines_of_newer_emulators_and_cores_that_stand_in_are_accepted(tmp_path: Path) -> None:
    text = (ROOT / "boards" / f"{M4}.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('machine = "mps2-an386"', 'machine = "mps9"'))
    assert read_board(path).emulator
    path.write_text((ROOT / "boards" / "jetson-orin-nano-cpu.toml").read_text())
    assert read_board(path).cpu == "cortex-a78ae"
