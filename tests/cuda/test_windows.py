# SPDX-License-Identifier: Apache-2.0
"""Windows on the emulated GPU: rows slide through a slack, and come back after a failed run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.toolchain.nvrtc import cubin
from relax_aot.verify.host import build_library
from relax_aot.verify.library import Library
from tests.cuda.emulated import Emulated
from tests.cuda.test_entries import CHOOSE
from tests.cuda.test_host import GROWING, INDEX, OK
from tests.cuda.toolkits import needs_compilers
from tests.end_to_end.growing_models import PROGRAMS, STAGED, STATE, WIDTH, attention, tokens
from tests.end_to_end.test_windows import LastRows, close, compiled, follow, slid

pytestmark = pytest.mark.slow
GPU: Any = {"board": "jetson-orin-nano", "emit": "cuda-source"}
TABLE = np.arange(1, 13, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(("window", "most", "heads"), [(11, 9, 4), (5, 16, 32)])
def test_calls_of_several_rows(window: int, most: int, heads: int) -> None:
    """Rows of 64 and of 8 bytes: those move in every call, since addresses are multiples of 16."""
    host = compiled(window, "s", most, heads, **GPU).host()
    wanted, rng = LastRows(window, heads), np.random.default_rng(window)
    for call in range(40):
        if call % 9 == 8:
            kept = int(rng.integers(0, wanted.length + 1))
            host.truncate(m=kept)
            wanted.truncate(kept)
        rows = most if call % 7 == 3 else int(rng.integers(1, most + 1))
        x = tokens(rng, rows)
        close(host(x=x)["y"], wanted(x))
        assert host.length("m") == wanted.length


@pytest.mark.parametrize(
    "name",
    [
        name if name == "rows that change" else pytest.param(name, marks=pytest.mark.long)
        for name in PROGRAMS
    ],
)
def test_programs_in_text_form(name: str) -> None:
    project = slid(name, **GPU)
    assert bool(project.plan.commits) == (name in STAGED)
    follow(project, library=Library(build_library(project)))


@pytest.mark.long
def test_entries_share_a_window() -> None:
    score = """symbol m in 0..6
func @main(%past_k: f32[1, 1, m, 64], %q: f32[1, 1, 1, 64]) {
  %y: f32[1, 1, m, 64] = mul(%past_k, %q)
  return %y
}"""
    sources = {"prefill": attention("s"), "decode": attention(1), "score": rx.parse(score)}
    project = rx.compile(sources, name="llm", bounds={"s": 16}, state=STATE, window={"m": 6}, **GPU)
    host, wanted, rng = project.host(), LastRows(6), np.random.default_rng(6)
    ones = np.ones((1, 1, 1, WIDTH), np.float32)
    for rows in (7, 1, 1, 16, 1, 1, 3, 1, 16, 5):
        x = tokens(rng, rows)
        close(host["decode" if rows == 1 else "prefill"](x=x)["y"], wanted(x))
        close(host.score(q=ones)["y"], wanted.past["past_k"])
        assert host.length("m") == wanted.length


@pytest.mark.parametrize("other", [False, True])
def test_a_failed_run_brings_the_rows_back(*, other: bool) -> None:
    """The runs behind it are started with the rows that it would have left, and do nothing; the
    one that fails may be of an entry without the window."""
    entries = {"append": GROWING, "choose": CHOOSE}
    project = rx.compile(
        entries, bounds={"n": (1, 9)}, state={"past": "present"}, window={"m": 9}, name="grow",
        **GPU,
    )  # fmt: skip
    model = Emulated(project.built)
    assert model.init() == OK
    at, y = np.zeros(1, np.int64), np.zeros(4, np.float32)
    chosen = [model.alloc((1,), np.int64) for _ in range(3)]
    sums, held, found = (model.alloc(shape, np.float32) for shape in ((4,), (3, 4), (1, 4)))
    rows: list[int] = []  # those that the last run saw; it keeps nine of them
    for call in range(30):
        at[0] = call * call % 3
        rows = [*rows[-9:], int(at[0])]
        assert model.run([at], [y], entry="append") == OK, model.message
        np.testing.assert_array_equal(y, TABLE[rows].sum(0))
        chosen[0][0], chosen[1][0], chosen[2][0] = 1, 7, 2
        rows = [*rows[-9:], 1]
        assert model.run([chosen[0]], [sums], stream=1, entry="append") == OK
        inputs, outputs = ([held, chosen[1]], [found]) if other else ([chosen[1]], [sums])
        entry, sizes = ("choose", {"n": 3}) if other else ("append", {})
        assert model.run(inputs, outputs, stream=1, entry=entry, **sizes) == OK
        for _ in range(call % 4):
            assert model.run([chosen[2]], [sums], stream=1, entry="append") == OK
        assert model.wait(1, entry="append") == INDEX
        assert model.length("m") == min(len(rows), 9)
        np.testing.assert_array_equal(sums, TABLE[rows].sum(0))
    model.close()
    assert model.live == 0


@needs_compilers
@pytest.mark.parametrize(("sm", "major"), [(87, 11), (87, 12), (90, 13)])
@pytest.mark.long
def test_the_kernel_that_moves_rows_compiles(sm: int, major: int) -> None:
    project = compiled(5, "s", 3, **GPU)
    text = project.files["att.cu"].decode()
    assert " slide(" in text
    assert cubin(text, "att", sm, major)
