# SPDX-License-Identifier: Apache-2.0
"""The ways in which two kernels become one, in the order in which they are tried.

Readers go into their writers first, so that a chain of element-wise calls ends up behind the
contraction that it follows. What is left is computed where it is read. Rows come last.
"""

from __future__ import annotations

from relax_aot.fusion.mergers import epilogue, inline, rows
from relax_aot.fusion.mergers._merger import Merger

MERGERS: tuple[Merger, ...] = (epilogue, inline, rows)
