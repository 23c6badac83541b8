# SPDX-License-Identifier: Apache-2.0
"""Zero points of products of bytes, which matrix units do not subtract.

`sum (a - p) (b - q)` is `sum a b - q sum a - p sum b + n p q`. The sums of lines of constants whose
own zero point is 0 are constants, with which sums begin. Those of lines that several tiles read are
made before (line_sums.py). Those of others are sums of the elements in registers, which each lane
adds along with the products. Sums of 32 bits wrap around, so the result is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Binary, Buffer, Cast, Expr, For, Index, Lit, Load, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.devices.operands import Product
from relax_aot.scheduling.packing import Arrays, Packed, elements
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

NAMES = ("left", "right")
OWN = (2, 4)
"""Lines whose sums a lane has of each load: two rows, or two columns of two matrices."""


def with_known_sums(w: Writer, product: Product, context: Context) -> Product:
    """The product whose sums begin with what zero points make of the lines of constants, and whose
    factors have no such zero points then."""
    found = product.found
    zeros, start = list(found.zeros), found.start
    for at, load in enumerate((found.left, found.right)):
        own, other = found.zeros[at], found.zeros[1 - at]
        used = indexed_by(load)
        loops = tuple(loop for loop in found.nest.loops if loop.variable in used)
        known = all(loop.extent.is_constant for loop in (*loops, *product.steps))
        if own != 0 or other == 0 or not known or load.buffer.name not in context.constants:
            continue
        shape = tuple(loop.extent for loop in loops)
        sums = Buffer(w.fresh(f"{load.buffer.name}_sums"), DType.I32, shape)
        w.constant(Packed(sums, partial(_line_sums, load, loops, product.steps, -other)))
        line = sums[tuple(Dim.of(loop.variable) - loop.start for loop in loops)]
        start = line if start == Lit(0, DType.I32) else Binary("+", start, line)
        zeros[1 - at] = 0
    return replace(product, found=replace(found, zeros=(zeros[0], zeros[1]), start=start))


def _line_sums(
    load: Load, loops: tuple[For, ...], steps: tuple[For, ...], factor: int, arrays: Arrays
) -> Array:
    """The sums of the lines of a constant, multiplied."""
    every = (*loops, *steps)
    starts = {loop.variable: loop.start.constant for loop in every}
    names, extents = [*starts], [loop.extent.constant for loop in every]
    values = elements(load, arrays[load.buffer.name], names, extents, starts).astype(np.int64)
    axes = tuple(range(len(loops), len(every)))
    return np.asarray(values.sum(axis=axes) * factor)


@dataclass(frozen=True, slots=True)
class ZeroPoints:
    """`lines`: for both factors, what a lane has added of each line of its registers; None where
    the zero point of the other factor is 0."""

    w: Writer
    zeros: tuple[int, int]
    lines: tuple[Buffer | None, Buffer | None]

    def start(self, lane: Dim) -> None:
        w = self.w
        for lines in filter(None, self.lines):
            with w.range("i", lines.shape[1]) as i, w.range("n", 2) as n:
                w.add(Store(lines, (lane, i, n), Lit(0, DType.I32)))

    def add(self, name: str, n: Dim, factor: Buffer, row: int) -> None:
        """Adds the n-th registers of a factor, of which a lane has `row` elements."""
        lines = self.lines[NAMES.index(name)]
        if lines is not None:
            self.w.micro(
                f"raot_add_{name}_{factor.dtype.value}", sums=lines[(ZERO, n, ZERO)],
                lane_row=row, sums_row=lines.shape[1] * 2, **{"from": factor[(ZERO, n, ZERO)]},
            )  # fmt: skip

    def subtract(self, sums: Buffer, steps: Dim) -> None:
        """From the sums of products of so many steps."""
        w, totals = self.w, list[Buffer | None]()
        for name, lines, own in zip(NAMES, self.lines, OWN, strict=True):
            if lines is None:
                totals.append(None)
                continue
            count = lines.shape[1]
            total = w.reserve(f"{name}_totals", DType.I32, "lane", LANES, count, own)
            with w.range("n", count) as n:
                w.micro(
                    f"raot_total_{name}_i32", to=total[(ZERO, n, ZERO)], to_row=count * own,
                    from_row=count * 2, **{"from": lines[(ZERO, n, ZERO)]},
                )  # fmt: skip
            totals.append(total)
        if totals == [None, None]:
            return
        shape = sums.shape[1:]
        with (
            w.range("lane", LANES, axis="lane") as lane,
            w.range("i", shape[0]) as i, w.range("j", shape[1]) as j, w.range("n", shape[2]) as n,
        ):  # fmt: skip
            value: Expr = sums[(lane, i, j, n)]
            if totals[0] is not None:
                row = totals[0][(lane, i, n // 2)]
                value = Binary("-", value, times(row, self.zeros[1]))
            if totals[1] is not None:
                column = totals[1][(lane, j // 2, j % 2 * 2 + n % 2)]
                value = Binary("-", value, times(column, self.zeros[0]))
            if None not in totals:
                both = self.zeros[0] * self.zeros[1]
                value = Binary("+", value, times(Cast(Index(steps), DType.I32), both))
            w.add(Store(sums, (lane, i, j, n), value))


def zero_points(w: Writer, zeros: tuple[int, int], counts: tuple[int, int]) -> ZeroPoints:
    """`counts`: loads of registers of both factors."""
    left, right = (
        w.reserve(f"{name}_sums", DType.I32, "lane", LANES, count, 2) if other != 0 else None
        for name, count, other in zip(NAMES, counts, reversed(zeros), strict=True)
    )
    return ZeroPoints(w, zeros, (left, right))


def times(value: Expr, number: int) -> Expr:
    """A value of 32 bits by a number, which wraps around."""
    wrapped = (number + (1 << 31)) % (1 << 32) - (1 << 31)
    return Binary("*", value, Lit(wrapped, DType.I32))
