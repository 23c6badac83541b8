# SPDX-License-Identifier: Apache-2.0
"""Rows are appended in place where no row that the state holds is written."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Module
from relax_aot.planning import Home, Plan, appends, check
from relax_aot.project.board import load_board
from tests.end_to_end.growing_models import STATE, attention

HEAD = "symbol m in 0..24\nsymbol s in 1..8\nstate %past = %present\n"
BODY = "func @main(%past: f32[2, m, 4], %x: f32[2, s, 4]) {{\n{}  return %y, %present\n}}\n"
READ_LATE = """  %e: f32[2, m + s, 4] = exp(%present)
  %f: f32[2, m, 4] = slice(%e) {starts=[s], lengths=[m], axes=[1], steps=[1]}
  %y: f32[2, m, 4] = mul(%past, %f)
"""
APPENDED = "  %present: f32[2, m + s, 4] = concat(%past, %x) {axis=1}\n"
CHANGED = """  %d: f32[2, m, 4] = tanh(%past)
  %present: f32[2, m + s, 4] = concat(%d, %x) {axis=1}
"""


def planned(text: str, board: str = "host", **options: bool) -> Plan:
    module = rx.parse(HEAD + BODY.format(text))
    chosen = driver.Options(**options)  # type: ignore[arg-type]  # flags only
    return driver.compile_module(module, load_board(board), chosen).plan


@pytest.mark.parametrize(
    ("board", "stepwise"),
    [
        *product(("host", "mps2-an386", "mps3-an547", "aarch64-linux"), (False, True)),
        ("jetson-orin-nano", False),
    ],
)
def test_old_rows_may_be_read_after_new_ones_are_written(board: str, stepwise: bool) -> None:
    plan = planned(APPENDED + READ_LATE, board, stepwise=stepwise)
    assert plan.program.root("present") == "past" and plan.homes["past"] is Home.STATE
    assert not plan.commits


def test_rows_that_change_are_staged_where_old_ones_are_read_later() -> None:
    (commit,) = planned(CHANGED + READ_LATE).commits
    assert (commit.source, commit.target) == ("present", "past")


def test_the_checker_finds_rows_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "appends", lambda *_: True)
    with pytest.raises(check.PlanError, match="is written over past, read later"):
        planned(CHANGED + READ_LATE)


@pytest.mark.parametrize(
    ("row", "proven"),
    [("m", True), ("m + i", True), ("i", False), ("m - 1", False), ("2*m + i - 1", False)],
)
def test_only_rows_behind_the_length_are_an_append(row: str, proven: bool) -> None:
    stop = "1" if row in ("m", "m - 1") else "s"
    module: Module = rx.parse(f"""symbol m in 0..24
symbol s in 1..8
func @main(%x: f32[s]) {{
  %y: f32[64] = call_kernel(%x) {{kernel=@k}}
  return %y
}}
kernel @k(%x: f32[s]) -> (%y: f32[64]) {{
  for j in 0..64 {{
    %y[j] = 0.0:f32
  }}
  for i in 0..{stop} {{
    %y[max({row}, 0)] = %x[i]
  }}
}}""")
    (kernel,) = module.kernels
    *_, writes = kernel.body
    only = replace(kernel, body=(writes,))
    assert appends.appends(only, "y", 0, Dim.of("m"), module.bounds) is proven


@pytest.mark.parametrize("heads", [1, 4])
def test_the_arena_is_that_of_a_cache_that_the_caller_copies(heads: int) -> None:
    arenas = []
    for bounds, state in (({"m": 512}, STATE), ({"m": (0, 511)}, {})):
        project = rx.compile(attention(1, heads), bounds=bounds, state=state, name="att")
        arenas.append(project.built.plan.arena_bytes)
    grown, copied = arenas
    assert grown <= copied
