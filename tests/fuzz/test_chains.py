# SPDX-License-Identifier: Apache-2.0
"""Random chains of text kernels compute the same before and after every stage.

At length: `python -m tests.fuzz.chains --seeds 0:100000 --jobs 2`.
"""

from __future__ import annotations

import pytest

from relax_aot import parse
from relax_aot.ir import check
from relax_aot.ops import deduce
from tests.fuzz.chain_modules import random_chain
from tests.fuzz.chains import faults

GATE, IN_C, LONG, BLOCK = 12, 2, 20_000, 500


@pytest.mark.slow
def test_stages_keep_what_chains_compute() -> None:
    found = list(faults(range(GATE), IN_C))
    assert not found, "\n".join(map(str, found))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("start", range(GATE, LONG, BLOCK))
def test_stages_keep_what_chains_compute_at_length(start: int) -> None:
    found = list(faults(range(start, min(start + BLOCK, LONG)), 100))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_chains_are_sound_and_have_a_text(seed: int) -> None:
    chain = random_chain(seed)
    check.check(chain.module, deduce)
    constants = {c.name: c.data for c in chain.module.constants}
    again = parse(str(chain.module), constants=constants)
    assert [v.type for v in again.main.results] == [v.type for v in chain.module.main.results]
