# SPDX-License-Identifier: Apache-2.0
"""What people see of results."""

from __future__ import annotations

import numpy as np

from relax_aot.verify.compare import Tolerance, compare
from relax_aot.verify.job import Run
from relax_aot.verify.table import RUN_COLUMNS, run_cells


def test_every_cell_of_a_run_stands_under_its_column() -> None:
    x = np.array([1.0, 2.0], np.float32)
    y = np.array([1.0, 2.5], np.float32)
    run = Run({"n": 2}, 0, 1234, 0.1, (compare("y", y, x, Tolerance()),))
    cells = dict(zip(RUN_COLUMNS, run_cells(run), strict=True))
    assert cells["sizes"] == "n=2"
    assert cells["worst difference"] == "0.5"
    assert cells["wrong"] == "1"
    assert cells["instructions"] == "1,234"
