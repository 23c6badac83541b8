# SPDX-License-Identifier: Apache-2.0
"""How far two results are apart, and whether that is too far.

Two rules: a tolerance that the user gives, or the error model's bound of each element
(error_model.py). Integers and booleans are compared exactly under both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.types import DType
from relax_aot.verify.ulp import unit_in_last_place

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Floats agree where |actual - expected| <= atol + rtol * |expected|; all else is exact."""

    rtol: float = 1e-4
    atol: float = 1e-5

    def allowed(self, expected: Array) -> Array:
        return np.asarray(self.atol + self.rtol * np.abs(expected))


@dataclass(frozen=True, slots=True)
class Bound:
    """The exact value of each element of an output, and the error that it may have.

    `reference` is how far the reference may be from the exact value, where that is more: a
    program with float arithmetic of its own.
    """

    exact: Array
    allowed: Array
    reference: Tolerance | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One output compared. `worst` is the index of the element that exceeds its allowed error
    the most, or is furthest off."""

    name: str
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    mismatches: int
    worst: tuple[int, ...] | None
    note: str = ""
    of_allowed: float = 0.0
    """The largest distance as a share of the allowed one: above 1 is wrong."""

    @property
    def ok(self) -> bool:
        return self.mismatches == 0 and not self.note


def compare(name: str, actual: Array, expected: Array, tolerance: Tolerance) -> Difference:
    """NaN equals NaN and infinities equal themselves; shapes and types must be the same."""
    note = _unlike(actual, expected)
    if note or actual.size == 0:
        return _without_elements(name, actual, note)
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        return _difference(name, actual, expected, _share(a, e, tolerance.allowed(e)))


def compare_bounded(
    name: str, actual: Array, expected: Array, bound: Bound | None = None
) -> Difference:
    """The same, each element within its allowed error of the reference, or of the exact value
    where the reference is close to that. Without a bound within one unit in the last place."""
    note = _unlike(actual, expected)
    if note or actual.size == 0:
        return _without_elements(name, actual, note)
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        dtype = DType.of(actual.dtype)
        if bound is None or not dtype.is_float:
            unit = unit_in_last_place(e, dtype) if dtype.is_float else np.zeros(e.shape)
            return _difference(name, actual, expected, _share(a, e, unit))
        share = _share(a, e, bound.allowed)
        close = bound.allowed
        if bound.reference is not None:
            close = np.maximum(4 * close, bound.reference.allowed(e))
        anchored = np.abs(e - bound.exact) <= close
        exact_share = np.where(anchored, _share(a, bound.exact, bound.allowed), np.inf)
        return _difference(name, actual, expected, np.minimum(share, exact_share))


def _unlike(actual: Array, expected: Array) -> str:
    """Says how types differ. ONNX Runtime calls every dynamic size of the rows of no iteration 0:
    where there are no elements, its zeros say nothing."""
    same = actual.ndim == expected.ndim and all(
        e == a or (e == 0 and actual.size == 0)
        for a, e in zip(actual.shape, expected.shape, strict=True)
    )
    if same and actual.dtype == expected.dtype:
        return ""
    return (
        f"expected {expected.dtype}{list(expected.shape)}, got {actual.dtype}{list(actual.shape)}"
    )


def _without_elements(name: str, actual: Array, note: str) -> Difference:
    if note:
        infinite = float("inf")
        return Difference(name, actual.shape, infinite, infinite, actual.size, None, note, infinite)
    return Difference(name, actual.shape, 0.0, 0.0, 0, None)


def _share(actual: Array, expected: Array, allowed: Array) -> Array:
    """Distances as shares of the allowed ones."""
    apart = np.abs(actual - expected)
    share = np.where(apart == 0, 0.0, apart / allowed)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return np.where(same, 0.0, np.where(np.isnan(share), np.inf, share))


def _difference(name: str, actual: Array, expected: Array, share: Array) -> Difference:
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    same = (a == e) | (np.isnan(a) & np.isnan(e))
    if actual.dtype.kind in "biu":
        same = np.asarray(actual == expected)
        share = np.where(same, 0.0, np.inf)
    apart = np.where(same, 0.0, np.abs(a - e))
    apart = np.where(np.isnan(apart), np.inf, apart)
    relative = np.where(apart == 0, 0.0, apart / np.maximum(np.abs(e), 1e-30))
    wrong = share > 1
    most = share if wrong.any() else apart
    worst = np.unravel_index(int(np.argmax(most)), most.shape)
    return Difference(
        name,
        actual.shape,
        float(apart.max()),
        float(np.nanmax(relative)),
        int(wrong.sum()),
        tuple(int(i) for i in worst),
        "",
        float(share.max()),
    )
