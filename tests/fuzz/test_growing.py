# SPDX-License-Identifier: Apache-2.0
"""Random programs whose states grow compute the same before and after every stage, and in C.

At length: `python -m tests.fuzz.growing --seeds 0:10000`.
"""

from __future__ import annotations

import pytest

from tests.fuzz.growing import faults

GATE, IN_C, LONG, BLOCK = 6, 5, 400, 50


@pytest.mark.slow
def test_stages_keep_what_growing_states_hold() -> None:
    found = list(faults(range(GATE), IN_C))
    assert not found, "\n".join(found)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("start", range(GATE, LONG, BLOCK))
def test_stages_keep_what_growing_states_hold_at_length(start: int) -> None:
    found = list(faults(range(start, min(start + BLOCK, LONG)), 10))
    assert not found, "\n".join(found)
