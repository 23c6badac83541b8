# SPDX-License-Identifier: Apache-2.0
"""A growing state whose rows have no elements is a length: it counts, and ends calls."""

from __future__ import annotations

import numpy as np
import pytest

import relax_aot as rx

TEXT = """
symbol p in 0..14
symbol m in 0..5
symbol s in 1..4
state %count = %count_next
state %past = %present

func @add(%count: f32[p, 0], %past: f32[m, 2], %x: f32[s, 2]) {
  %none: f32[s, 0] = slice(%x) {starts=[0], lengths=[0], axes=[1], steps=[1]}
  %count_next: f32[p + s, 0] = concat(%count, %none) {axis=0}
  %present: f32[m + s, 2] = concat(%past, %x) {axis=0}
  %at: i32[s] = range() {start=p, step=1, length=s, dtype=i32}
  %sum: f32[2] = reduce(%present) {axes=[0], keepdims=false, kind="sum"}
  return %at, %sum, %count_next, %present
}
"""


@pytest.mark.parametrize("stepwise", [False, True])
def test_places_go_on_behind_a_window(stepwise: bool) -> None:
    module = rx.parse(TEXT, window={"m": 5})
    host = rx.compile(module, name="counted", stepwise=stepwise).host()
    rows = np.zeros((0, 2), np.float32)
    for s in (3, 1, 4, 4, 2):
        x = np.random.default_rng(s).integers(-9, 9, (s, 2)).astype(np.float32)
        found = host(x=x)
        assert found["at"].tolist() == list(range(len(rows), len(rows) + s))
        seen = np.concatenate([rows[max(len(rows) - 5, 0) :], x])
        assert found["sum"].tolist() == seen.sum(0).tolist()
        rows = np.concatenate([rows, x])
        assert (host.length("p"), host.length("m")) == (len(rows), min(len(rows), 5))
    with pytest.raises(rx.RelaxAotError, match="ended with RAOT_ERR_CAPACITY"):
        host(x=np.ones((1, 2), np.float32))
    assert (host.length("p"), host.length("m")) == (14, 5)
