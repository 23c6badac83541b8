# SPDX-License-Identifier: Apache-2.0
"""Judges results: by the tolerance that the user gave, else by the error model.

The error model costs several evaluations of the module. It is asked only where a float is more
than one unit in the last place away from the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.ir.types import DType
from relax_aot.verify.compare import Difference, Tolerance, compare, compare_bounded
from relax_aot.verify.error_model import ErrorModel
from relax_aot.verify.ulp import unit_roundoff

Array = NDArray[Any]

FALLBACK = Tolerance()
"""Where the module cannot be evaluated."""
FOREIGN = Tolerance()
"""How far a reference with float arithmetic of its own may be from the exact value."""
HALF_ROUNDINGS = 8.0
"""The same for a result of half precision, in roundings of it: such a reference may round inside
an operator too (ONNX Runtime rounds scores, weights and sums of `Attention`)."""


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
            own = _own_error(bound.exact, DType.of(actual.dtype))
            bound = replace(bound, reference=own)
        return compare_bounded(name, actual, expected, bound)


def _own_error(exact: Array, dtype: DType) -> Tolerance:
    """Of a reference with float arithmetic of its own. Terms of a half-precision sum are as large
    as the largest elements of the result, so that their roundings are relative to these."""
    if not dtype.is_float or dtype.bits != 16:
        return FOREIGN
    finite = np.abs(exact[np.isfinite(exact)])
    unit = HALF_ROUNDINGS * unit_roundoff(dtype)
    return Tolerance(unit, unit * float(finite.max(initial=0.0)))
