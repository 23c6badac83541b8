# SPDX-License-Identifier: Apache-2.0
"""Random convolutions on emulated boards compute what ONNX Runtime does, at and near all bounds.

At length: `python -m tests.fuzz.convolutions --seeds 0:10000`.
"""

from __future__ import annotations

import pytest

from tests.fuzz.convolutions import faults

GATE = (*range(3), 166, 328, 381)
"""The last three have taps that lie in the padding at every position."""
LONG, BLOCK = 600, 50


@pytest.mark.qemu
def test_convolutions_at_their_bounds() -> None:
    found = list(faults(GATE))
    assert not found, "\n".join(found)


@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.parametrize("start", range(0, LONG, BLOCK))
def test_convolutions_at_their_bounds_at_length(start: int) -> None:
    found = list(faults(range(start, start + BLOCK)))
    assert not found, "\n".join(found)
