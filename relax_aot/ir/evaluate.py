# SPDX-License-Identifier: Apache-2.0
"""Sizes for many values of the symbols at once, and how large what arises on the way can be."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.dim_expr import Dim, FloorDiv, Max, Min, Mod, atom_parts, evaluated


def evaluate_all(dim: Dim, values: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """`Dim.evaluate` for many values of the symbols at once."""
    least, most = np.minimum, np.maximum
    functions: dict[type, Any] = {Min: lambda *a: reduce(least, a), Max: lambda *a: reduce(most, a)}
    return np.asarray(evaluated(dim, values, functions), np.int64)


def magnitude(dim: Dim, greatest: Mapping[str, int]) -> int:
    """No value that arises while `dim` is computed is further from 0, for symbols that are
    no further from it than `greatest` says."""
    total = 1
    for coefficient, factors in dim.terms:
        term = abs(coefficient)
        for atom, power in factors:
            parts = [magnitude(part, greatest) for part in atom_parts(atom)]
            if isinstance(atom, str):
                most = greatest[atom]
            else:
                most = 2 * sum(parts) if isinstance(atom, FloorDiv | Mod) else max(parts)
            term *= max(most, 1) ** power
        total += term
    return total
