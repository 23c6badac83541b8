# SPDX-License-Identifier: Apache-2.0
"""Operands in a small form, such as quantized weights and caches, which each use may decode."""

from __future__ import annotations

from math import inf, prod

from relax_aot.fusion.nest import Definition, cost
from relax_aot.fusion.piece import Piece
from relax_aot.ir.dims import ZERO, Bounds, interval, prove_le
from relax_aot.ir.loops import Load, parts
from relax_aot.ir.types import TensorType

DECODING = 8
"""So many additions may be spent again and again to read an operand in its small form."""


def decodes(definition: Definition, producer: Piece, bounds: Bounds) -> bool:
    """A cheap function of one operand that takes fewer bytes than its result, or of operands that
    together take at most half of them: packed values and their scales."""
    if cost(definition.value) > DECODING:
        return False
    each = definition.value.dtype.bytes
    if not definition.fetched and _bytes_read(definition, bounds) <= each / 2:
        return True
    whole = TensorType(definition.value.dtype, definition.shape)
    big = [v for v in producer.reads if v.type.rank > 0 and v.type.elements == whole.elements]
    if len(big) == 1 and big[0].type.dtype.bytes < each:
        return True
    read = sum((v.type.bytes for v in producer.reads), start=ZERO)
    return bool(producer.reads) and prove_le(2 * read, whole.bytes, bounds)


def _bytes_read(definition: Definition, bounds: Bounds) -> float:
    """The bytes that are read for one element, at most: also of a buffer with room for more rows.
    Those that elements along some axes share, such as a scale, are divided among them."""
    extents = {name: definition.shape[axis] for name, axis in definition.variables.items()}
    total = 0.0
    for load in (part for part in parts(definition.value) if isinstance(part, Load)):
        used = {name for dim in load.index for name in dim.symbols}
        free = (extent for name, extent in extents.items() if name not in used)
        shared = prod(max(interval(extent, bounds)[0], 1) for extent in free)
        total += load.buffer.dtype.bytes / shared
    return total or inf
