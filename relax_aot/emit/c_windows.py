# SPDX-License-Identifier: Apache-2.0
"""Loops that are printed as one call: a row of what windows hold, zeros where an image ends.

`for i in 0..count { to[i] = first <= i && i < last ? from[offset + i * step] : 0 }` is
`raot_window_f32`, which has vectors where the target has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from relax_aot.ir.dims import Bounds, Dim, assume, dim_max, dim_min, prove_le
from relax_aot.ir.loops import DIMS, Binary, For, Index, Lit, Load, Select, Store, mapped
from relax_aot.ir.types import DType


@dataclass(frozen=True, slots=True)
class Window:
    """`to` and `source` are the elements that iteration 0 writes and reads."""

    to: Load
    count: Dim
    first: Dim
    last: Dim
    source: Load
    step: Dim


def window_of(loop: For) -> Window | None:
    """None where the loop is none of these."""
    match loop.body:
        case (Store(buffer, index, Select(condition, Load() as load, Lit(0.0, DType.F32))),) if (
            loop.start == 0
        ):
            inside = _between(loop.variable, condition, loop.stop)
            step = _step(load, loop.variable)
            if inside is None or step is None or load.buffer == buffer:
                return None
            if _step(Load(buffer, index), loop.variable) != 1:
                return None
            start = {loop.variable: Dim.of(0)}
            to, source = (
                mapped(place, DIMS, lambda dim: dim.substitute(start))
                for place in (Load(buffer, index), load)
            )
            return Window(to, loop.stop, *inside, source, step)
        case _:
            return None


def clamped(window: Window, bounds: Bounds, values: Mapping[str, Dim]) -> Window:
    """The same window with 0 <= first <= last <= count, as `raot_window_f32` asks for, where
    count is not negative; else nothing is written. `values`: what named indices stand for."""
    bounds = assume(bounds, [("<=", Dim.of(0), window.count)])

    def proven(left: Dim, right: Dim) -> bool:
        """With the names as they are, or with what they stand for, one after the other."""
        if prove_le(left, right, bounds):
            return True
        for name, value in values.items():
            if name in left.symbols | right.symbols:
                inner = {name: value}
                if proven(left.substitute(inner), right.substitute(inner)):
                    return True
        return False

    zero, count = Dim.of(0), window.count
    first, last = window.first, window.last
    if not proven(last, count):
        last = dim_min(last, count)
    if not proven(zero, last):
        last = dim_max(last, zero)
    if not proven(zero, first):
        first = dim_max(first, zero)
    if not proven(first, last):
        first = dim_min(first, last)
    return replace(window, first=first, last=last)


def _between(name: str, condition: object, count: Dim) -> tuple[Dim, Dim] | None:
    """first and last of `first <= name && name < last`, of which one may be left out."""
    here = Dim.of(name)
    match condition:
        case Binary("&&", Binary("<=") as from_, Binary("<") as to):
            lower, upper = _between(name, from_, count), _between(name, to, count)
            return None if lower is None or upper is None else (lower[0], upper[1])
        case Binary("<=", Index(first), Index(low)) if low == here and name not in first.symbols:
            return first, count
        case Binary("<", Index(high), Index(last)) if high == here and name not in last.symbols:
            return Dim.of(0), last
        case _:
            return None


def _step(load: Load, name: str) -> Dim | None:
    """The distance in memory of a load between two iterations, if it is constant."""
    total = Dim.of(0)
    for position, dim in enumerate(load.index):
        step = dim.substitute({name: Dim.of(name) + 1}) - dim
        total += step * prod(load.buffer.shape[position + 1 :], start=Dim.of(1))
    return None if name in total.symbols else total
