# SPDX-License-Identifier: Apache-2.0
"""Boards with a GPU: what their files say, and what cannot be compiled for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project.board import all_boards, load_board, read_board
from relax_aot.project.board_table import BoardError
from relax_aot.project.cuda_board import CAPABILITIES, DeviceError
from relax_aot.verify.table import board_lines
from tests.conftest import ROOT

GPUS = {board.name: board.cuda for board in all_boards() if board.cuda}
ORIN = "jetson-orin-nano"


def test_every_jetson_of_the_last_ten_years_has_a_board() -> None:
    sms = {name: cuda.sm for name, cuda in GPUS.items()}
    assert sms == {
        "jetson-nano": 53, "jetson-tx2": 62, "jetson-xavier": 72, ORIN: 87,
        "jetson-agx-orin": 87, "jetson-thor": 110, "cuda-host": 80, "cuda-sm90": 90,
    }  # fmt: skip


def test_an_orin_has_machine_code_for_both_of_its_drivers() -> None:
    """A driver loads no cubin of a later major version of CUDA: JetPack 5 has 11, JetPack 6 12."""
    assert GPUS[ORIN].toolkits == (11, 12)
    assert GPUS["jetson-xavier"].toolkits == (11,) and GPUS["jetson-thor"].toolkits == (13,)
    assert GPUS["jetson-nano"].source_only and GPUS["jetson-tx2"].source_only


def test_figures_are_those_of_the_data_sheets() -> None:
    """The fp32 rate that NVIDIA states, in 10^9 multiply-adds and adds a second."""
    said = {ORIN: 1280, "jetson-agx-orin": 5320, "jetson-xavier": 1410, "cuda-sm90": 67000}
    for name, gflops in said.items():
        cuda = GPUS[name]
        rate = 2 * cuda.multiprocessors * cuda.lanes * cuda.clock_mhz / 1000
        assert rate == pytest.approx(gflops, rel=0.01)


def test_a_board_s_page_names_its_gpu() -> None:
    lines = board_lines(ORIN)
    assert "machine code for the drivers of CUDA: 11 and 12" in lines
    assert any(line.startswith("GPU: sm_87, 8 multiprocessors at 625 MHz") for line in lines)


WRONG = {
    "an unknown chip": ("sm = 87", "sm = 88", "sm: expected one of 53, 62"),
    "a toolkit that cannot": ("[11, 12]", "[10]", "toolkits: expected major versions"),
    "newest first": ("[11, 12]", "[12, 11]", "in ascending order"),
    "no figure": ("clock_mhz = 625", "", "clock_mhz: expected a whole number"),
    "a rate below zero": ("= 68.0", "= -1.0", "bandwidth_gbs: expected a number above 0"),
    "another key": ("lanes = 128", "lane = 128", "lane: unknown key; did you mean 'lanes'"),
    "no GPU": ('family = "cuda"', 'family = "linux"', "cuda: expected no such table"),
}


@pytest.mark.parametrize(("old", "new", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_board_file_is_refused(old: str, new: str, said: str, tmp_path: Any) -> None:
    text = (ROOT / "boards" / f"{ORIN}.toml").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BoardError, match=said):
        read_board(path)


def test_no_toolkit_is_older_than_its_chip() -> None:
    assert all(cuda.toolkits == () or cuda.sm in CAPABILITIES for cuda in GPUS.values())
    assert CAPABILITIES[72] == (11, 12) and CAPABILITIES[110] == (13,)


REFUSED: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "threads": (ORIN, {"threads": 2}, "--threads 2 is for programs on a CPU"),
    "stepwise": (ORIN, {"stepwise": True}, "--stepwise is for programs on a CPU"),
    "offsets": (ORIN, {"offsets": "dynamic"}, "--offsets dynamic is for programs on a CPU"),
    "no toolkit": ("jetson-nano", {}, r"machine code for jetson-nano \(sm_53\): use --emit cuda-s"),
    "no GPU": ("host", {"emit": "cubin"}, "is for boards with a GPU; host has none"),
    "unknown": (ORIN, {"emit": "ptx"}, "emit is one of auto, cuda-source, cubin, not 'ptx'"),
}


@pytest.mark.parametrize(("board", "options", "said"), REFUSED.values(), ids=REFUSED)
def test_options_that_a_gpu_has_not_are_refused(
    board: str, options: Mapping[str, Any], said: str
) -> None:
    given = Options(bounds={"n": (1, 64)}, **options)
    with pytest.raises(DeviceError, match=said):
        driver.compile_model(ROOT / "examples" / "gesture" / "gesture.onnx", board, given)


def test_the_cpu_of_a_jetson_has_a_board_of_its_own() -> None:
    board = load_board(f"{ORIN}-cpu")
    assert board.cuda is None and board.emulator is not None
