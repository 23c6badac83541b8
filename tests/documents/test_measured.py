# SPDX-License-Identifier: Apache-2.0
"""Figures that documents state about models of MLPerf Tiny are those of the present compiler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.microcontroller import SHARED, measured

ROOT = Path(__file__).resolve().parents[2]
README, PEERS = "README.md", "docs/explanation/peers.md"
BLOCKS, COMPILERS = "docs/how-to/separate_weights.md", "docs/reference/compilers.md"
ROWS = {"mps2-an386": "Cortex-M4, relax_aot", "mps3-an547": "Cortex-M55, relax_aot"}
ALLOWED = 0.02
"""Part of a figure by which a document may be behind: not every small change rewrites pages."""

Cell = tuple[str, str, int, str]
"""Page, first cell of the row, number of the column behind it, and key of the measured row."""


def compared(name: str, column: int) -> list[tuple[str, str, str, list[Cell]]]:
    """Cells of the pages that compare `name` with other tools, with its column there."""
    cells = []
    for board, row in ROWS.items():
        both = [
            (page, row, column + offset, key)
            for page in (README, PEERS)
            for offset, key in enumerate(("instructions", "arena_bytes"))
        ]
        cells.append((f"{name}_int8_qdq.onnx", board, "auto", both))
    return cells


def forms(model: str, row: str) -> list[tuple[str, str, str, list[Cell]]]:
    """Cells of the page about weights in a block."""
    columns = [(board, weights) for board in ROWS for weights in ("c", "blob")]
    return [
        (model, board, weights, [(BLOCKS, row, column, "instructions")])
        for column, (board, weights) in enumerate(columns)
    ]


def by_gcc(model: str, row: str) -> list[tuple[str, str, str, list[Cell]]]:
    """Cells of the page about compilers: those of GCC."""
    return [
        (model, board, "auto", [(COMPILERS, row, column, "instructions")])
        for board, column in zip(ROWS, (0, 3), strict=True)
    ]


STATED = [
    *compared("resnet8", 0),
    *compared("kws", 2),
    *forms("kws_int8_qdq.onnx", "kws, ONNX QDQ"),
    *forms("resnet8_int8_qdq.onnx", "resnet8, ONNX QDQ"),
    *forms("kws_int8.tflite", "kws, TensorFlow Lite"),
    *forms("resnet8_int8.tflite", "resnet8, TensorFlow Lite"),
    *by_gcc("resnet8_fp32.onnx", "resnet8_fp32"),
    *by_gcc("kws_fp32.onnx", "kws_fp32"),
    *by_gcc("resnet8_int8_qdq.onnx", "resnet8_int8_qdq"),
]


def stated(page: str, row: str, column: int) -> int:
    """The number of a table's cell, without what separates its digits and what follows it."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    (found,) = [line for line in lines if line.startswith(f"| {row} |")]
    number = re.match(r"\d[\d ,]*", found.strip("|").split("|")[column + 1].strip())
    assert number, f"{page}: no number in column {column} of {row}"
    return int(re.sub(r"\D", "", number[0]))


@pytest.mark.long
@pytest.mark.parametrize(("model", "board", "weights", "cells"), STATED)
def test_documents_state_what_is_measured(
    model: str, board: str, weights: str, cells: list[Cell]
) -> None:
    if not (SHARED / model).is_file():
        pytest.skip(f"{model} is not next to the project")
    row = measured(SHARED / model, board, "speed", weights)
    assert "error" not in row, row["error"]
    for page, label, column, key in cells:
        figure = stated(page, label, column)
        assert abs(figure - row[key]) <= ALLOWED * row[key], (
            f"{page}, {label}: {figure:,} {key}, and now {row[key]:,}"
        )
