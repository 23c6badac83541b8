# SPDX-License-Identifier: Apache-2.0
"""References are array programs: verification evaluates each up to 25 times at every size."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from relax_aot.ops import all_ops
from relax_aot.ops._op import Op, Sample
from tests.conftest import ROOT

MOST_LINES = 8
"""For each element of operands and results."""
FIXED_LINES = 1000
"""Lines that do not depend on the number of elements."""


def lines_of(op: Op, sample: Sample) -> tuple[int, int]:
    """Lines that the reference of an op runs, without those of NumPy, and the elements that it
    works on."""
    lines, ours = 0, str(ROOT / "relax_aot")

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace if frame.f_code.co_filename.startswith(ours) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        results = op.reference(*sample.args, **sample.attrs)
    finally:
        sys.settrace(before)
    arrays = (*sample.args, *(results if isinstance(results, tuple) else (results,)))
    return lines, sum(np.size(array) for array in arrays if array is not None)


@pytest.mark.parametrize("name", sorted(all_ops()))
def test_a_reference_has_no_loop_over_elements(name: str) -> None:
    op = all_ops()[name]
    with np.errstate(all="ignore"):
        for sample in op.samples(np.random.default_rng(0)):
            lines, elements = lines_of(op, sample)
            assert lines <= FIXED_LINES + MOST_LINES * elements, (lines, elements)
