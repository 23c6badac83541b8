# SPDX-License-Identifier: Apache-2.0
"""The instructions of matrix units. A warp multiplies 16 rows by 8 columns; the elements of a line
that it takes at once are of 32 bytes."""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.ir.types import DType

ROWS, COLUMNS, STEPS = 16, 8, 16
"""Of the matrices of half-precision values that a warp multiplies at once."""
LINE, FRAGMENT = 32, 16
"""Bytes of a line of a matrix, and of the matrices that a lane has after one load."""


@dataclass(frozen=True, slots=True)
class Unit:
    """`left` and `right`: the types of the factors in shared memory; `total`: that of sums."""

    left: DType
    right: DType
    total: DType

    @property
    def steps(self) -> int:
        """Of a matrix."""
        return LINE // self.left.bytes

    @property
    def width(self) -> int:
        """Elements that a lane has after one load: one matrix of the left factor, or two of the
        right one."""
        return FRAGMENT // self.left.bytes

    @property
    def product(self) -> str:
        """The name of the micro-kernel."""
        mixed = "" if self.left.is_float else f"_{self.right.value}"
        return f"raot_mma_m16n8k{self.steps}_{self.left.value}{mixed}"
