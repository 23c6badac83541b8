# SPDX-License-Identifier: Apache-2.0
"""Random chains in the device form: the results of the plain kernels, and no races.

Kernels are lowered, fused and scheduled for a device with small blocks; inputs that results may
overwrite are overwritten. Exact chains keep their bits; sums of others are in another order.
"""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from relax_aot import fusion, lowering, scheduling, transforms
from relax_aot.fusion import Policy
from relax_aot.ir.check import check
from relax_aot.ops import deduce
from relax_aot.scheduling.devices import forms, reductions
from relax_aot.scheduling.passes import fma, fractions
from relax_aot.scheduling.targets import all_targets, find
from tests.fuzz.chain_modules import random_chain
from tests.fuzz.chains import Outcome, _Runner, same

SMALL = replace(find("cuda", ()), threads=8, team=2, shared=forms.CELLS + 64)
"""Small blocks with little room for scratch."""
FIGURES = (
    {"LONG": forms.LONG},
    {"LONG": 4, "FEW": 10**9},
    {"LONG": 4, "FEW": 10**9, "CELLS": 1 << 20, "COPIES": 2},
)
"""Of scheduling/devices/forms.py, so that rows of few elements are those of blocks."""
GATE, LONG, BLOCK, CHECKED = 20, 2000, 100, 5


def policy_of(seed: int) -> Policy:
    """That for memory, or for time."""
    return Policy(rows_over_weights=True) if seed % 3 == 0 else scheduling.fusion_policy(SMALL)


def difference(seed: int) -> str | None:
    chain = random_chain(seed)
    lowered = lowering.check_then_trust(lowering.lower(transforms.run(chain.module)))
    fused = fusion.fuse(lowered, policy_of(seed), lenient=True).module
    plain = fma.run(fractions.plain(fused), all_targets()[0])
    numerics = "ordered" if seed % 4 == 3 else "blocked"
    with patch.dict(vars(forms), FIGURES[seed % 3]), patch.object(reductions, "PART", 4):
        made = scheduling.schedule(fused, SMALL, "speed", numerics)
    if seed % CHECKED == 0:
        check(made, deduce)
    for sizes, inputs in chain.runs:
        runner = _Runner(sizes, inputs)
        wanted = runner.run(plain)
        for in_place in (False, True):
            found = runner.run(made, in_place=in_place)
            if (said := different(wanted, found, exact=chain.exact)) is not None:
                return f"seed {seed} at {sizes}: {said}\n{chain.module}\n{made}"
    return None


def different(wanted: Outcome, found: Outcome, *, exact: bool) -> str | None:
    if exact or isinstance(wanted, str) or isinstance(found, str):
        return same(wanted, found)
    for name, array in wanted.items():
        ours = found[name]
        if array.dtype.kind in "iub":
            continue  # a rounded sum may have decided
        a, b = array.astype(np.float64), ours.astype(np.float64)
        usual = np.isfinite(a) & np.isfinite(b)
        if not np.allclose(a[usual], b[usual], rtol=1e-2, atol=1e-2):
            return f"%{name} is\n{ours}\nnot\n{array}"
    return None


@pytest.mark.slow
def test_devices_compute_what_chains_compute() -> None:
    found = [said for seed in range(GATE) if (said := difference(seed)) is not None]
    assert not found, "\n".join(found)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("start", range(GATE, LONG, BLOCK))
def test_devices_compute_what_chains_compute_at_length(start: int) -> None:
    stop = min(start + BLOCK, LONG)
    found = [said for seed in range(start, stop) if (said := difference(seed)) is not None]
    assert not found, "\n".join(found)
