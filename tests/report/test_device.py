# SPDX-License-Identifier: Apache-2.0
"""The report of a project for a GPU: figures of its machine code, and estimates."""

from __future__ import annotations

import json
from typing import Any

import pytest

import relax_aot as rx
from relax_aot.binaries.cubin import read_cubin
from relax_aot.binaries.occupancy import occupancy
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.report import device, report_text
from relax_aot.toolchain.nvrtc import cubin
from tests.cuda.toolkits import needs_compilers, needs_disassembler

BOARD = "jetson-orin-nano"
TEXT = """
symbol n in 1..4096
const %w: f32[256, 256] = splat 0.5
func @main(%x: f32[n, 256]) {
  %y: f32[n, 256] = matmul(%x, %w)
  %z: f32[n, 256] = exp(%x)
  return %y, %z
}"""
SIZES = [{"n": 1}, {"n": 4096}]


def made(board: str = BOARD) -> Project:
    return rx.compile(rx.parse(TEXT), board=board, name="model").built


def figures(project: Project) -> Any:
    return json.loads(report_text(project, SIZES, "json"))["device"]


def test_other_boards_have_none() -> None:
    assert figures(made("host")) is None


@pytest.mark.slow
@needs_compilers
@needs_disassembler
def test_figures_are_those_of_the_machine_code() -> None:
    project = made()
    found = figures(project)
    assert (found["compute_capability"], found["toolkit"]) == ("8.7", 11)
    code = read_cubin(cubin(project.files["model.cu"].decode(), "model", 87, 11))
    functions = {f.name for f in code.functions}
    assert {row["function"] for row in found["launches"]} == functions - {"report"}
    for row in found["launches"]:
        own = code.function(row["function"])
        assert row["registers"] == own.registers and row["local_bytes"] == 0
    product = max(found["launches"], key=lambda row: row["at"][1]["microseconds"])
    assert product["loop"]["mix"]["FFMA"] >= 0.75 * product["loop"]["instructions"]
    assert product["at"][0]["blocks"] == 0, "the form for large sizes"


@pytest.mark.slow
@needs_compilers
@needs_disassembler
def test_estimates_are_those_of_the_roofline() -> None:
    """1024 lanes at 625 MHz, and 68 GB/s."""
    rows = figures(made())["launches"]
    product = max(rows, key=lambda row: row["at"][1]["microseconds"])["at"][1]
    assert product["limit"] == "arithmetic"
    # The loops also count the bias and what they test.
    assert product["microseconds"] == pytest.approx(4096 * 256 * 256 / (1024 * 625), rel=0.1)
    (moved,) = [row["at"][1] for row in rows if row["at"][1]["limit"] == "memory"]
    assert moved["bytes"] == 2 * 4 * 4096 * 256
    assert moved["microseconds"] == pytest.approx(moved["bytes"] / 68e3, rel=1e-3)


def test_without_a_compiler_the_estimates_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    project = rx.compile(rx.parse(TEXT), board=BOARD, name="model", emit="cuda-source").built
    monkeypatch.setattr(device, "installed_compiler", lambda major: None)
    found = figures(project)
    assert found["toolkit"] is None
    assert all(row["registers"] is None and row["at"][1]["blocks"] for row in found["launches"][:1])
    assert "?" in report_text(project, SIZES, "txt")


@pytest.mark.slow
@needs_compilers
def test_tables_name_each_launch() -> None:
    project = made()
    for form in ("txt", "html"):
        text = report_text(project, SIZES, form)
        assert all(row["function"] in text for row in figures(project)["launches"])
        assert "roofline" in text


@pytest.mark.parametrize(
    ("sm", "threads", "registers", "shared", "expected"),
    [
        (87, 256, 128, 16896, 16 / 48),
        (90, 256, 128, 16896, 16 / 64),
        (87, 32, 16, 0, 16 / 48),  # by the number of blocks
        (80, 1024, 32, 0, 1.0),
        (75, 128, 64, 40960, 4 / 32),  # by shared memory
        (87, 1024, 65, 0, 0.0),  # too many registers for a block
    ],
)
def test_occupancy_is_that_of_the_calculator(
    sm: int, threads: int, registers: int, shared: int, expected: float
) -> None:
    assert occupancy(sm, threads, registers, shared) == pytest.approx(expected)


def test_boards_say_the_rate_of_their_matrix_units() -> None:
    """10^12 operations a second of half floats, of the data sheets."""
    said = {"jetson-agx-orin": 42.5, "cuda-host": 312, "cuda-sm90": 1070}
    for name, teraflops in said.items():
        cuda = load_board(name).cuda
        assert cuda is not None
        rate = 2 * cuda.multiprocessors * cuda.matrix_lanes * cuda.clock_mhz / 1e6
        assert rate == pytest.approx(teraflops, rel=0.02)
