# SPDX-License-Identifier: Apache-2.0
"""The golden projects: small models that together show what the generator writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.project.entries import EntriesProject
from tests.end_to_end import test_entries
from tests.models import every_kernel
from tests.models.catalog import CATALOGUE


@dataclass(frozen=True)
class Golden:
    """One project: a model, or several as entries by name, and how it is compiled."""

    source: Callable[[], Any]
    board: str
    options: Options


IMAGE = {"batch": (1, 2), "height": (1, 7), "width": (3, 8)}
N = {"n": (1, 6)}
FRAMES = {"n": (1, 6), "batch": (1, 2)}
M4, M55 = "mps2-an386", "mps3-an547"
PROJECTS = {
    "float_m4": Golden(CATALOGUE["image_net"].make, M4, Options(bounds=IMAGE, name="image")),
    "float_m55": Golden(every_kernel.planes, M55, Options(name="planes")),
    "int8_m4": Golden(every_kernel.lite, M4, Options(name="lite")),
    "int8_m55": Golden(every_kernel.lite, M55, Options(name="lite")),
    "int8_symbolic_m4": Golden(
        every_kernel.codes_and_sums, M4, Options(bounds=N, name="sums", optimize="size")
    ),
    "int8_aarch64": Golden(
        every_kernel.codes_and_sums, "aarch64-linux", Options(bounds=N, name="sums")
    ),
    "state_m4": Golden(
        CATALOGUE["gru_tagger"].make,
        M4,
        Options(bounds=FRAMES, state={"state": "stateN"}, name="tagger"),
    ),
    "entries_m55": Golden(
        lambda: test_entries.MODELS,
        M55,
        Options(bounds=test_entries.BOUNDS, state=test_entries.STATE, name="attend"),
    ),
    "stepwise_m4": Golden(
        CATALOGUE["branch_sizes"].make, M4, Options(bounds=N, name="branch", stepwise=True)
    ),
    "weights_block_m4": Golden(
        CATALOGUE["perceptron"].make,
        M4,
        Options(bounds={"batch": (1, 9)}, name="perceptron", weights="blob"),
    ),
    "recurrent_host": Golden(
        CATALOGUE["lstm_tagger"].make, "host", Options(bounds=FRAMES, name="words")
    ),
}


@cache
def project_of(name: str) -> Project | EntriesProject:
    golden = PROJECTS[name]
    source = golden.source()
    if isinstance(source, dict):
        entries = driver.load_entries(source, golden.options)
        return driver.compile_entries(entries, load_board(golden.board), golden.options)
    return driver.compile_model(source, golden.board, golden.options)
