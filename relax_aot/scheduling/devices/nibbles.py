# SPDX-License-Identifier: Apache-2.0
"""Constant weights of 4 bits, packed for registers of a device.

Eight neighbors along the steps of a product are one word, in the order in which a mask gives two of
them in the lowest bits of two half-precision numbers (decode.cuh): elements 0, 2, 4, 6, 1, 3, 5, 7.
Signed values are stored with 8 added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relax_aot.ir.dim_expr import evaluated
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import (
    Binary,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Lit,
    Load,
    Local,
    parts,
)
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.devices.operands import Product
from relax_aot.scheduling.packing import Arrays, Packed, elements
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

EIGHT = 8
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The elements of a word, from its lowest bits on."""
MASK = 15
LIFT = 8
"""What makes signed values unsigned."""


def nibble(buffer: Buffer, line: Sequence[Dim], step: Dim) -> Expr:
    """An element of a line of packed weights."""
    byte = 4 * (step // EIGHT) + 2 * (step % 2) + step % EIGHT // 4
    shift = Cast(Index(4 * (step // 2 % 2)), DType.U8)
    return Binary("&", Binary(">>", buffer[(*line, byte)], shift), Lit(MASK, DType.U8))


def nibble_of(expr: Expr, step: str) -> Load | None:
    """The load of an array with one element for each, if it is an element of packed weights."""
    found = _shifted(expr)
    if found is None:
        return None
    buffer, line = found[0].buffer, found[0].index[:-1]
    if expr != nibble(buffer, line, Dim.of(step)):
        return None
    shape = (*buffer.shape[:-1], 2 * buffer.shape[-1])
    return Load(Buffer(buffer.name, DType.U4, shape), (*line, Dim.of(step)))


def word_at(load: Load) -> Load:
    """The first byte of the word of an element of packed weights."""
    shape, step = (*load.buffer.shape[:-1], load.buffer.shape[-1] // 2), load.index[-1]
    word = step // EIGHT * (EIGHT // 2)
    return Load(Buffer(load.buffer.name, DType.U8, shape), (*load.index[:-1], word))


def with_packed_weights(w: Writer, product: Product, context: Context) -> Product:
    """The product whose constant weights of 4 bits are packed along its steps."""
    found = product.found
    computed = found.computed_at(found.right)
    if computed is None or computed.fetched or len(product.steps) != 1:
        return product
    (steps,) = product.steps
    weights = [
        one
        for expr in parts(computed.value)
        if (one := _weight(expr, product, steps)) and one.load.buffer.name in context.constants
    ]
    if len(set(weights)) != 1 or not _whole(steps):
        return product
    (weight,) = set(weights)
    shape = tuple(loop.extent for loop in weight.loops)
    name, last = weight.load.buffer.name, steps.extent // 2
    buffer = Buffer(w.fresh(f"{name}_packed"), DType.U8, (*shape, last))
    w.constant(Packed(buffer, weight.packed, origin=name))
    line = [Dim.of(loop.variable) for loop in weight.loops]
    own: Expr = nibble(buffer, line, Dim.of(steps.variable))
    if weight.signed:
        own = Binary("-", Cast(own, DType.I32), Lit(LIFT, DType.I32))

    def rule(expr: Expr) -> Expr:
        if isinstance(expr, Cast) and expr.value == weight.expr and weight.signed:
            return own if expr.dtype is DType.I32 else Cast(own, expr.dtype)
        return own if expr == weight.expr and not weight.signed else expr

    (made,) = map_exprs((Declare(Local("_", computed.value.dtype), computed.value),), rule)
    assert isinstance(made, Declare)
    others = tuple(one for one in found.computed if one is not computed)
    return replace(
        product,
        found=replace(found, computed=(*others, replace(computed, value=made.value))),
    )


@dataclass(frozen=True, slots=True)
class _Weight:
    """`expr`: an element, of what `load` reads. `loops`: those of its lines."""

    expr: Expr
    load: Load
    shift: Dim | None
    loops: tuple[For, ...]
    steps: For

    @property
    def signed(self) -> bool:
        return self.load.dtype is DType.I4

    def packed(self, arrays: Arrays) -> Array:
        every = (*self.loops, self.steps)
        names, extents = [lp.variable for lp in every], [lp.extent.constant for lp in every]
        data = elements(self.load, arrays[self.load.buffer.name], names, extents)
        values = data.astype(np.int32) + (LIFT if self.signed else 0)
        if self.shift is not None:
            grid = np.indices(extents, sparse=True)
            values = values >> evaluated(self.shift, dict(zip(names, grid, strict=True)))
        eight = (values & MASK).reshape(*extents[:-1], -1, EIGHT)[..., ORDER]
        pairs = eight[..., 0::2] | eight[..., 1::2] << 4
        return np.asarray(pairs.reshape(*extents[:-1], -1))


def _weight(expr: Expr, product: Product, steps: For) -> _Weight | None:
    """An element of 4 bits for each line and step, if it is one in memory."""
    shift, load = None, expr
    if (found := _shifted(expr)) is not None:
        load, shift = found
    elif not isinstance(expr, Load) or expr.dtype not in (DType.I4, DType.U4):
        return None
    assert isinstance(load, Load)
    used = indexed_by(expr)
    loops = tuple(lp for lp in product.found.nest.loops if lp.variable in used)
    known = {steps.variable, *(loop.variable for loop in loops)}
    if steps.variable not in used or not used <= known or not all(map(_from_zero, loops)):
        return None
    if load.buffer.type.elements.constant * (1 if shift is None else 2) < _count(loops, steps):
        return None
    return _Weight(expr, load, shift, loops, steps)


def _count(loops: Sequence[For], steps: For) -> int:
    count = steps.extent.constant
    for loop in loops:
        count *= loop.extent.constant
    return count


def _shifted(expr: Expr) -> tuple[Load, Dim] | None:
    match expr:
        case Binary("&", Binary(">>", Load() as load, Cast(Index() as shift)), Lit(value)) if (
            load.dtype is DType.U8 and value == MASK
        ):
            return load, shift.dim
        case _:
            return None


def _from_zero(loop: For) -> bool:
    return loop.start == 0 and loop.stop.is_constant


def _whole(steps: For) -> bool:
    return _from_zero(steps) and steps.extent.constant % EIGHT == 0
