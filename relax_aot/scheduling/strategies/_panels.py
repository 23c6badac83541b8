# SPDX-License-Identifier: Apache-2.0
"""Panels of operands that are expressions, in scratch memory, and the spans of loops that tiles
and panels cover."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.loops import Bind, Buffer, Cast, Expr, For, Load, Store
from relax_aot.ir.names import defined_name, renamed
from relax_aot.ir.rewrite import map_index_dims
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Computed, Contraction
from relax_aot.scheduling.writer import Ends, Writer

ABSENT = For("", ZERO, ONE, ())
"""The loop over rows or lines of a nest without one."""


class Rows(Protocol):
    """A copy of a left operand."""

    @property
    def row(self) -> Dim:
        """Elements from one row to the next."""

    def rows_at(self, origin: Sequence[Dim]) -> tuple[Load, Sequence[Dim]]:
        """Its element where reductions begin at `origin`, and how far each of them moves."""


Operand = Callable[[Sequence[Dim]], tuple[Load, Sequence[Dim]]]
"""A copy of an operand: its element where reductions begin, and how far each moves it."""


@dataclass(frozen=True, slots=True)
class Span:
    """`count` iterations of a loop from `first` on. `name`: of the loop over them in a tile."""

    variable: str
    first: Dim
    count: Dim
    name: str

    def at(self, offset: Dim) -> dict[str, Dim]:
        return {self.variable: self.first + offset}


@contextmanager
def spans(
    w: Writer, loop: For, names: tuple[str, str, str], size: int, ends: Ends | None = None
) -> Iterator[Span]:
    """A loop, or the part of it between `ends`, in spans of at most `size` iterations."""
    start, stop = ends or (loop.start, loop.stop)
    name, counter, length = names
    with w.tiles((f"{loop.variable}_{counter}", length), stop - start, size) as (first, count):
        yield Span(loop.variable, start + first, count, name)


def panels_of_columns(
    w: Writer, loop: For, names: tuple[str, str, str], size: int, ends: Ends | None = None,
    *, apart: bool,
) -> Iterator[Span]:  # fmt: skip
    """The same for the columns of tiles. `apart`: a shorter span at a known end is behind the loop
    over the others, so that compilers know the lengths of both."""
    start, stop = ends or (loop.start, loop.stop)
    extent = stop - start
    some = apart and extent.is_constant and extent.constant > size
    last = stop - (extent.constant % size if some else 0)
    for part in ((start, last), (last, stop))[: 1 if last == stop else 2]:
        with spans(w, loop, names, size, part) as span:
            yield span


def even(extent: Dim, most: int) -> int:
    """The size of as few tiles of at most `most` as there may be, about equal where it is known."""
    if not extent.is_constant or extent.constant <= most:
        return most
    return -(-extent.constant // -(-extent.constant // most))


@dataclass(frozen=True, slots=True)
class Copied:
    """A panel: one axis for each reduction and one for columns, or for rows before them."""

    panel: Buffer

    def at(self, _: Sequence[Dim]) -> tuple[Load, Sequence[Dim]]:
        """Its first element, and how far each reduction moves."""
        shape = self.panel.shape
        steps = [prod(shape[n + 1 :], start=ONE) for n in range(len(shape) - 1)]
        return self.panel[(ZERO,) * len(shape)], steps

    @property
    def row(self) -> Dim:
        """Elements of a row of a left operand."""
        return prod(self.panel.shape[1:], start=ONE)

    def rows_at(self, _: Sequence[Dim]) -> tuple[Load, Sequence[Dim]]:
        """Its first element, and how far each reduction moves a left operand."""
        shape = self.panel.shape
        steps = [prod(shape[n + 2 :], start=ONE) for n in range(len(shape) - 1)]
        return self.panel[(ZERO,) * len(shape)], steps


def as_stored(found: Contraction) -> Contraction:
    """With an operand of half precision as it is stored, where it is only widened: the right one if
    both are."""
    for name, operand in (("right", found.right), ("left", found.left)):
        one = found.computed_at(operand)
        match one and one.value:
            case Cast(Load() as load, DType.F32) if load.dtype.is_half and one and not one.fetched:
                others = tuple(other for other in found.computed if other is not one)
                if name == "right":
                    return replace(found, right=load, computed=others)
                return replace(found, left=load, computed=others)
    return found


def compute_columns(
    found: Contraction, w: Writer, panel: Buffer, pixels: Span, reductions: Sequence[For]
) -> Copied:
    """The right operand for some columns and iterations of the reductions."""
    computed = found.computed_at(found.right)
    assert computed is not None
    taps = [For(w.fresh(loop.variable), ZERO, loop.extent, ()) for loop in reductions]
    names = [Dim.of(tap.variable) for tap in taps]
    at = {lp.variable: lp.start + name for lp, name in zip(reductions, names, strict=True)}
    if computed.fetched:  # the index of a column is read once
        with w.range("column", pixels.count) as column:
            value = _fetch(computed, w, pixels.at(column))
            with w.nest(taps):
                w.add(Store(panel, (*names, column), substitute_in(value, at)))
        return Copied(panel)
    with w.nest(taps), w.range("column", pixels.count) as column:
        value = substitute_in(computed.value, {**pixels.at(column), **at})
        w.add(Store(panel, (*names, column), value))
    return Copied(panel)


def compute_rows(
    found: Contraction, w: Writer, panel: Buffer, tile: Span, reductions: Sequence[For]
) -> Copied:
    """The left operand for the rows of a tile and iterations of the reductions."""
    computed = found.computed_at(found.left)
    assert computed is not None
    taps = [For(w.fresh(loop.variable), ZERO, loop.extent, ()) for loop in reductions]
    names = [Dim.of(tap.variable) for tap in taps]
    at = {lp.variable: lp.start + name for lp, name in zip(reductions, names, strict=True)}
    with w.range(tile.name, tile.count) as r:
        value = _fetch(computed, w, tile.at(r))
        with w.nest(taps):
            w.add(Store(panel, (r, *names), substitute_in(value, at)))
    return Copied(panel)


def _fetch(computed: Computed, w: Writer, at: Mapping[str, Dim]) -> Expr:
    """The value at some iterations of output loops, behind the indices from data that it needs."""
    names = {defined_name(stmt): w.fresh(defined_name(stmt)) for stmt in computed.fetched}
    moved = map_index_dims(computed.fetched, lambda dim: dim.substitute(at))
    for stmt in renamed(moved, names):
        w.add(stmt)
        if isinstance(stmt, Bind):
            w.bounds = w.bounds.with_value(stmt.name, stmt.low, stmt.high)
    dims = {old: Dim.of(new) for old, new in names.items()}
    return substitute_in(computed.value, {**at, **dims})
