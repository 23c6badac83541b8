# SPDX-License-Identifier: Apache-2.0
"""Judges results: by the tolerance that the user gave, else by the error model.

The error model costs several evaluations of the module. It is asked only where a float is more
than one unit in the last place away from the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.verify.compare import Difference, Tolerance, compare, compare_bounded
from relax_aot.verify.error_model import ErrorModel

Array = NDArray[Any]

FALLBACK = Tolerance()
"""Where the module cannot be evaluated."""
FOREIGN = Tolerance()
"""How far a reference with float arithmetic of its own may be from the exact value."""


@dataclass(frozen=True, slots=True)
class Judge:
    """`foreign`: the reference is a program with float arithmetic of its own."""

    tolerance: Tolerance | None
    model: ErrorModel
    foreign: bool = False

    def __call__(self, number: int, name: str, actual: Array, expected: Array) -> Difference:
        """Compare an output (or state) of the call with this number."""
        if self.tolerance is not None:
            return compare(name, actual, expected, self.tolerance)
        found = compare_bounded(name, actual, expected)
        if found.ok or found.note:
            return found
        try:
            bound = self.model.bounds(number).get(name)
        except RelaxAotError:
            return compare(name, actual, expected, FALLBACK)
        if bound is not None and self.foreign:
            bound = replace(bound, reference=FOREIGN)
        return compare_bounded(name, actual, expected, bound)
