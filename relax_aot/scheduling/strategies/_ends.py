# SPDX-License-Identifier: Apache-2.0
"""What follows a sum of floats where micro-kernels store the results: a row and another array are
added, and numbers clip it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.ir.loops import Apply, Binary, Lit, Load, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Contraction


@dataclass(frozen=True, slots=True)
class End:
    """`row` and then `other` are added to a sum, which is then clipped and stored."""

    store: Store
    other: Load | None
    low: float = -np.inf
    high: float = np.inf
    row: Load | None = None


def end_of(found: Contraction) -> End | None:
    """None where anything else follows, or limits have bits that a micro-kernel does not take."""
    if len(found.after) != 1 or not isinstance(found.after[0], Store):
        return None
    store = found.after[0]
    value, low, high = store.value, -np.inf, np.inf
    for _ in range(2):
        match value:
            case Apply("max", (inner, Lit(limit)) | (Lit(limit), inner)) if low == -np.inf:
                value, low = inner, float(limit)
            case Apply("min", (inner, Lit(limit)) | (Lit(limit), inner)) if high == np.inf:
                value, high = inner, float(limit)
    if not low <= high or None in (upper_half(low), upper_half(high)):
        return None
    added: list[Load] = []
    while value != found.sum:
        match value:
            case Binary("+", Load() as load, rest) | Binary("+", rest, Load() as load):
                value, added = rest, [load, *added]
            case _:
                return None
    kinds = {store.buffer.dtype, *(load.dtype for load in added)}
    if len(added) > 2 or (added and kinds != {DType.F32}):
        return None
    other = added[-1] if added else None
    return End(store, other, low, high, added[0] if len(added) > 1 else None)


def upper_half(value: float) -> int | None:
    """That of a float32, where its lower half is zero."""
    bits = int(np.float32(value).view(np.int32))
    return bits >> 16 if float(np.float32(value)) == value and bits & 0xFFFF == 0 else None
