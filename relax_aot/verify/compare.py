"""How far two results are apart, and whether that is too far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Floats agree where |actual - expected| <= atol + rtol * |expected|; all else is exact."""

    rtol: float = 1e-4
    atol: float = 1e-5


@dataclass(frozen=True, slots=True)
class Difference:
    """One output compared. `worst` is the index of the element furthest off."""

    name: str
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    mismatches: int
    worst: tuple[int, ...] | None
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.mismatches == 0 and not self.note


def compare(name: str, actual: Array, expected: Array, tolerance: Tolerance) -> Difference:
    """NaN equals NaN and infinities equal themselves; shapes and types must be the same."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        note = (
            f"expected {expected.dtype}{list(expected.shape)}, "
            f"got {actual.dtype}{list(actual.shape)}"
        )
        return Difference(name, actual.shape, float("inf"), float("inf"), actual.size, None, note)
    if actual.size == 0:
        return Difference(name, actual.shape, 0.0, 0.0, 0, None)
    exact = actual.dtype.kind in "biu"
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (a == e) | (np.isnan(a) & np.isnan(e))
        if exact:
            same = actual == expected
        apart = np.where(same, 0.0, np.abs(a - e))
        apart = np.where(np.isnan(apart), np.inf, apart)
        relative = np.where(apart == 0, 0.0, apart / np.maximum(np.abs(e), 1e-30))
        allowed = 0.0 if exact else tolerance.atol + tolerance.rtol * np.abs(e)
        wrong = ~same & ~(apart <= allowed)
    worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return Difference(
        name,
        actual.shape,
        float(apart.max()),
        float(np.nanmax(relative)),
        int(wrong.sum()),
        tuple(int(i) for i in worst),
    )
