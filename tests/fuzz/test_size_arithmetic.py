# SPDX-License-Identifier: Apache-2.0
"""Random arithmetic of sizes: imported models give at every size what ONNX Runtime gives."""

from __future__ import annotations

import pytest

from tests.fuzz.size_arithmetic import fault

GATE, LONG, PART = 100, 5000, 100


def verify(seeds: range) -> None:
    found = [text for seed in seeds if (text := fault(seed))]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_what_sizes_make_of_sizes() -> None:
    verify(range(GATE))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("start", range(GATE, LONG, PART))
def test_what_sizes_make_of_sizes_at_length(start: int) -> None:
    verify(range(start, start + PART))
