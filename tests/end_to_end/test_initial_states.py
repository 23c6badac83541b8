# SPDX-License-Identifier: Apache-2.0
"""Calls that are made while compiling leave what init sets: states of every kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relax_aot as rx

TEXT = """
entry add

symbol m in 0..9
symbol s in 1..4
state %past = %present
state %sum = %sum_next

func @add(%past: f16[3, m, 2], %sum: i32[2], %x: f16[3, s, 2], %y: i32[2]) {
  %present: f16[3, m + s, 2] = concat(%past, %x) {axis=1}
  %sum_next: i32[2] = add(%sum, %y)
  %rows: f16[3, 2] = reduce(%present) {axes=[1], keepdims=false, kind="max"}
  return %rows, %present, %sum_next
}

entry count

state %count = %count_next

func @count(%count: i32[], %z: i32[]) {
  %count_next: i32[] = add(%count, %z)
  %seen: i32[] = mul(%count_next, %z)
  return %seen, %count_next
}
"""
SHAPED = """
entry add

symbol k in 1..9
state %sum = %sum_next

func @add(%sum: f32[k], %y: f32[k]) {
  %sum_next: f32[k] = add(%sum, %y)
  %z: f32[k] = mul(%sum_next, %y)
  return %z, %sum_next
}
"""
RNG = np.random.default_rng(2)


def call(rows: int) -> tuple[str, dict[str, Any]]:
    x = RNG.normal(size=(3, rows, 2)).astype(np.float16) - 3
    return "add", {"x": x, "y": RNG.integers(0, 9, 2).astype(np.int32)}


COUNT = ("count", {"z": np.array(5, np.int32)})
CALLS = [call(2), COUNT, call(4), COUNT, call(1), call(1), COUNT]


def answers(host: Any, calls: list[tuple[str, dict[str, Any]]]) -> list[dict[str, bytes]]:
    found = [host[entry](inputs) for entry, inputs in calls]
    return [{name: array.tobytes() for name, array in one.items()} for one in found]


@pytest.mark.parametrize("window", [None, 4], ids=str)
@pytest.mark.parametrize("weights", ["auto", pytest.param("blob", marks=pytest.mark.slow)])
def test_calls_go_on(window: int | None, weights: str) -> None:
    entries = rx.parse_entries(TEXT, window={"m": window} if window else None)
    whole = rx.compile(entries, weights=weights).host()
    wanted = answers(whole, CALLS)
    for made in (2, 5):
        prelude = tuple(CALLS[:made])
        host = rx.compile(replace(entries, prelude=prelude), weights=weights).host()
        rows = sum(inputs["x"].shape[1] for entry, inputs in prelude if entry == "add")
        assert host.length("m") == min(rows, window or rows)
        assert answers(host, CALLS[made:]) == wanted[made:]
        assert host.length("m") == whole.length("m")


def test_sizes_that_shape_states_are_not_known() -> None:
    prelude = (("add", {"y": np.ones(3, np.float32)}),)
    with pytest.raises(rx.RelaxAotError, match="the state has the size k"):
        rx.compile(replace(rx.parse_entries(SHAPED), prelude=prelude))
