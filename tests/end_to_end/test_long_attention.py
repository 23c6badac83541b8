# SPDX-License-Identifier: Apache-2.0
"""Attention to caches whose row of scores is too long to be kept: blocks of keys."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from tests.end_to_end.growing_models import STATE, ByHand, attention, tokens

pytest.importorskip("onnxruntime")
CAPACITY, BLOCK = 2100, 256
"""More than the 2048 keys of which a row of scores is kept."""


@cache
def compiled(rows: int | str, heads: int, capacity: int = CAPACITY, **options: Any) -> Any:
    bounds = {"m": capacity} | ({"s": 700} if rows == "s" else {})
    model = attention(rows, heads)
    return rx.compile(model, bounds=bounds, state=STATE, name="att", **options)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 4])
def test_prefill_and_decode_by_hand_and_by_bits(heads: int) -> None:
    """At lengths around a block, and up to the capacity. A decode step has the bits of a prefill
    of one row."""
    prefill, decode = compiled("s", heads).host(), compiled(1, heads).host()
    wanted, rng = ByHand(heads), np.random.default_rng(heads)
    for rows in (1, BLOCK - 2, 1, 1, 7, 700, 1, 700, 434, 1):
        x = tokens(rng, rows)
        decode.runner._state.data[:] = prefill.runner._state.data
        y = prefill(x=x)["y"]
        np.testing.assert_allclose(y, wanted(x), rtol=1e-4, atol=1e-5)
        if rows == 1:
            assert decode(x=x)["y"].tobytes() == y.tobytes()
            assert decode.length("m") == prefill.length("m")
    assert prefill.length("m") == wanted.length == CAPACITY
    with pytest.raises(rx.StatusError, match="RAOT_ERR_CAPACITY"):
        prefill(x=tokens(rng, 1))


@pytest.mark.slow
def test_the_arena_does_not_grow_with_the_capacity() -> None:
    for heads in (1, 4):
        sizes = {compiled(1, heads, c).built.plan.arena_bytes for c in (CAPACITY, 1 << 15)}
        assert len(sizes) == 1 and max(sizes) <= 4096, heads
    assert compiled(1, 1, 2048).built.plan.arena_bytes >= 4 * 2048, "a shorter row is kept"
