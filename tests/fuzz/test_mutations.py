# SPDX-License-Identifier: Apache-2.0
"""Model files that are damaged or hostile: one clear error or a project, nothing else.

No traceback, no hang, nothing written outside the folder that was asked for; and no trick
makes the compiler read a file outside the folder of the model.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest

from tests.conformance.cases import all_cases
from tests.conftest import ROOT
from tests.fuzz.graphs import random_graph
from tests.fuzz.mutations import changed_fields, mutated, structured
from tests.models.catalog import CATALOGUE

SECONDS = 10.0
"""Of processor time for one file."""
PATIENCE = 120.0
"""Seconds until a process that does not answer, on a machine that is busy, counts as stuck."""
BYTES = 2 * 2**30
"""Of memory, the compiler itself included."""
GATE, LONG = 40, 2000
NODE_LONG = 18_000
BOARD_GATE, BOARD_LONG = 60, 30_000
COMPILED_EVERY = 12
"""Of damaged boards, how many are more than read."""
SMALL_BYTES = 2048
Bounds = dict[str, tuple[int, int]]


class Stuck(AssertionError):
    """The compiler did not come back in time, or died."""


class Compiler:
    """The compiler in a process that answers, or is ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slowest = 0.0
        for name in ("in", "out"):
            (folder / name).mkdir()
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, data: bytes, bounds: Bounds) -> tuple[str, str, list[str]]:
        model = self.folder / "in" / "model.onnx"
        model.write_bytes(data)
        return self.compile(model, bounds)

    def compile(
        self, model: Path | None, bounds: Bounds, board: str = "host"
    ) -> tuple[str, str, list[str]]:
        """Without a model the board is read alone."""
        return self._ask(self._running(), model, bounds, board)

    def _ask(
        self,
        process: subprocess.Popen[str],
        model: Path | None,
        bounds: Bounds,
        board: str = "host",
    ) -> tuple[str, str, list[str]]:
        assert process.stdin is not None and process.stdout is not None
        request: dict[str, object] = {
            "model": None if model is None else str(model),
            "board": board,
        }
        request |= {"output": str(self.folder / "out" / "p"), "bounds": bounds}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(PATIENCE):
                self.close()
                raise Stuck(f"no answer after {PATIENCE} s")
        answer = process.stdout.readline()
        if not answer:
            self.close()
            raise Stuck(f"it died with {process.returncode}")
        ended, said, outside, took, peak = json.loads(answer)
        self.slowest = max(self.slowest, took)
        if took > SECONDS:
            ended, said = "slow", f"{took} s"
        if peak > BYTES:
            ended, said = "large", f"{peak} bytes"
            self.close()
        return str(ended), str(said), list(outside)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.mutations"],
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            # What it needs to start is not the first model's time.
            self._ask(self._process, self.folder / "none.onnx", {})
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    made = Compiler(tmp_path)
    yield made
    made.close()


def bases() -> list[tuple[bytes, Bounds]]:
    """Small models of every kind: networks, branches, loops, data-dependent sizes."""
    found = [(e.make().SerializeToString(), e.bounds) for e in CATALOGUE.values()]
    for seed in range(24):
        made = random_graph(seed)
        found.append((made.model.SerializeToString(), made.bounds))
    return found


@cache
def single_nodes() -> list[tuple[bytes, Bounds]]:
    """A model of each operator, from ONNX's own tests."""
    files = [case.model.SerializeToString() for case in all_cases().values()]
    small = [data for data in files if len(data) < SMALL_BYTES]
    assert len(small) > 500
    return [(data, {}) for data in small]


def survive(
    compiler: Compiler, numbers: range, models: list[tuple[bytes, Bounds]]
) -> dict[str, int]:
    """How many ended how; whatever else happens is in the failure."""
    ends: dict[str, int] = {}
    bad: list[str] = []
    for number in numbers:
        random = Random(number)
        (data, bounds), (other, _) = random.choice(models), random.choice(models)
        change = random.choice((mutated, structured, changed_fields))
        try:
            ended, said, outside = compiler(change(data, other, random), bounds)
        except Stuck as stuck:
            ended, said, outside = "stuck", str(stuck), []
        ends[ended] = ends.get(ended, 0) + 1
        if ended not in ("compiled", "refused") or outside:
            bad.append(f"{number}: {ended} {outside}\n{said}")
    assert not bad, f"{len(bad)} of {len(numbers)}:\n" + "\n".join(bad[:20])
    return ends


@pytest.mark.slow
def test_damaged_files_end_with_one_error(compiler: Compiler) -> None:
    ends = survive(compiler, range(GATE), bases())
    assert ends["compiled"] and ends["refused"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("start", range(GATE, LONG, 140))
def test_damaged_files_end_with_one_error_at_length(compiler: Compiler, start: int) -> None:
    ends = survive(compiler, range(start, min(start + 140, LONG)), bases())
    assert ends["compiled"] and ends["refused"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("start", range(0, NODE_LONG, 1000))
def test_damaged_single_nodes_end_with_one_error_at_length(compiler: Compiler, start: int) -> None:
    ends = survive(compiler, range(start, min(start + 1000, NODE_LONG)), single_nodes())
    assert ends["compiled"] and ends["refused"]


SMALL = """symbol n in 1..8

func @main(%x: f32[n, 4]) {
  %y: f32[n, 4] = softmax(%x) {axis=-1}
  return %y
}
"""
WORDS = (
    "", "0", "-1", "1K", "64K", "1e9", "true", "[]", "{}", '"x"', "nan", "2**40", "0xffffffffffff",
    '"../x"', '"$(id)"', '"a\\nb"', "flash", "[[memory]]", "[emulator]", "size = 0",
)  # fmt: skip


def damaged_board(text: str, other: str, random: Random) -> bytes:
    """With lines lost, doubled, swapped, brought from another board, or with other values."""
    if random.random() < 0.2:
        return mutated(text.encode(), other.encode(), random)
    lines = text.splitlines()
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(lines))
        match random.randrange(5):
            case 0:
                lines[at] = ""
            case 1:
                lines.insert(at, random.choice(lines))
            case 2:
                lines[at] = random.choice(other.splitlines())
            case 3:
                lines[at] = f"{lines[at].partition('=')[0]}= {random.choice(WORDS)}"
            case _:
                lines.insert(at, random.choice(WORDS))
    return "\n".join(lines).encode()


def survive_boards(compiler: Compiler, numbers: range) -> None:
    texts = [path.read_text() for path in sorted((ROOT / "boards").glob("*.toml"))]
    model, board = compiler.folder / "in" / "small.raot", compiler.folder / "in" / "b.toml"
    model.write_text(SMALL)
    ends: dict[str, int] = {}
    bad: list[str] = []
    for number in numbers:
        random = Random(number)
        board.write_bytes(damaged_board(random.choice(texts), random.choice(texts), random))
        try:
            read_alone = number % COMPILED_EVERY and number >= BOARD_GATE
            ended, said, outside = compiler.compile(None if read_alone else model, {}, str(board))
        except Stuck as stuck:
            ended, said, outside = "stuck", str(stuck), []
        ends[ended] = ends.get(ended, 0) + 1
        if ended not in ("compiled", "refused") or outside:
            bad.append(f"{number}: {ended} {outside}\n{said}")
    assert not bad, f"{len(bad)} of {len(numbers)}:\n" + "\n".join(bad[:20])
    assert ends["compiled"] and ends["refused"]


@pytest.mark.slow
def test_damaged_board_files_end_with_one_error(compiler: Compiler) -> None:
    survive_boards(compiler, range(BOARD_GATE))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("start", range(BOARD_GATE, BOARD_LONG, 2000))
def test_damaged_board_files_end_with_one_error_at_length(compiler: Compiler, start: int) -> None:
    survive_boards(compiler, range(start, min(start + 2000, BOARD_LONG)))
