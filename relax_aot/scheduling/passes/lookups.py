# SPDX-License-Identifier: Apache-2.0
"""Functions of bytes by tables, a row at a time, on targets that load several entries by one
instruction (Helium), which compilers do not use for bytes.

The axis that is contiguous in what is read and in what is written becomes the innermost one, and
axes that are one for both become one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Bind, Buffer, Cast, Declare, Expr, For, Load, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.lookup import LOOKUPS
from relax_aot.scheduling.apply import with_nests
from relax_aot.scheduling.contraction import follow, loops_as_one, moved, step_of, stride
from relax_aot.scheduling.nest import Nest, chain_of, greatest
from relax_aot.scheduling.targets import Emit, Target
from relax_aot.scheduling.writer import Writer

LEAST = 8
"""Fewer elements of a row are looked up one by one."""
EXAMPLES = (
    Example(
        why="channels of pixels, next to those of another image",
        target="mve",
        before="""
            symbol n in 1..99
            kernel @part(%x: i8[n, 10, 16], %table: i8[256]) -> (%y: i8[n, 10, 40]) {
              for i in 0..n {
                for p in 0..10 {
                  for c in 0..16 {
                    clamped code in 0..255 = cast(cast(%x[i, p, c], u8, wrap), i64, wrap)
                    %y[i, p, c + 24] = %table[code]
                  }
                }
              }
            }""",
        after="""
            kernel @part(...) -> (%y: i8[n, 10, 40]) {
              micro raot_lookup_rows_s8(%y[0, 0, 24], %x[0, 0, 0], %table[0]) [10*n, 16, 16, 40]
            }""",
    ),
    Example(
        why="all elements are one row",
        target="mve",
        before="""
            symbol n in 1..99
            kernel @all(%x: i8[n, 10], %table: u8[256]) -> (%y: u8[n, 10]) {
              for i in 0..n {
                for p in 0..10 {
                  clamped code in 0..255 = cast(cast(%x[i, p], u8, wrap), i64, wrap)
                  %y[i, p] = %table[code]
                }
              }
            }""",
        after="""
            kernel @all(...) -> (%y: u8[n, 10]) {
              micro raot_lookup_rows_s8_u8(%y[0, 0], %x[0, 0], %table[0]) [1, 10*n, 0, 0]
            }""",
    ),
    Example(
        why="one after the other, where the second looks the result of the first up",
        target="mve",
        before="""
            symbol n in 1..99
            kernel @both(%x: i8[n, 9], %s: i8[256], %t: i8[256]) -> (%y: i8[n, 9], %z: i8[n, 9]) {
              for i in 0..n {
                for p in 0..9 {
                  clamped code in 0..255 = cast(cast(%x[i, p], u8, wrap), i64, wrap)
                  %y[i, p] = %s[code]
                  clamped next in 0..255 = cast(cast(%y[i, p], u8, wrap), i64, wrap)
                  %z[i, p] = %t[next]
                }
              }
            }""",
        after="""
            kernel @both(...) -> (%y: i8[n, 9], %z: i8[n, 9]) {
              micro raot_lookup_rows_s8(%y[0, 0], %x[0, 0], %s[0]) [1, 9*n, 0, 0]
              micro raot_lookup_rows_s8(%z[0, 0], %y[0, 0], %t[0]) [1, 9*n, 0, 0]
            }""",
    ),
    Example(
        why="rows of three elements",
        target="mve",
        before="""
            symbol n in 1..99
            kernel @short(%x: i8[n, 4], %table: i8[256]) -> (%y: i8[n, 3]) {
              for i in 0..n {
                for p in 0..3 {
                  clamped code in 0..255 = cast(cast(%x[i, p], u8, wrap), i64, wrap)
                  %y[i, p] = %table[code]
                }
              }
            }""",
    ),
    Example(
        why="columns become rows",
        target="mve",
        before="""
            symbol n in 1..99
            kernel @turned(%x: i8[16, n], %table: i8[256]) -> (%y: i8[n, 16]) {
              for i in 0..n {
                for c in 0..16 {
                  clamped code in 0..255 = cast(cast(%x[c, i], u8, wrap), i64, wrap)
                  %y[i, c] = %table[code]
                }
              }
            }""",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Rows by micro-kernels, where the target has them."""
    if not target.lookups:
        return module
    kernels = tuple(with_nests(kernel, module.bounds, _match) for kernel in module.kernels)
    return replace(module, kernels=kernels)


@dataclass(frozen=True, slots=True)
class _Lookup:
    x: Load
    table: Load
    y: Store


def _lookups_of(nest: Nest) -> list[_Lookup]:
    """What the leaf of a nest does, if it stores entries of bytes and nothing else. The byte of one
    may be the entry of another one before it."""
    found: list[_Lookup] = []
    bytes_of: dict[Dim, Load] = {}
    entries: dict[Expr, Load] = {}
    stored: dict[Expr, Load] = {}
    read: set[Buffer] = set()
    for stmt in nest.leaf:
        match stmt:
            case Bind(name, Cast(Cast(x, DType.U8), DType.I64)):
                byte = stored.get(x, x)
                if not isinstance(byte, Load):
                    return []
                bytes_of[Dim.of(name)] = byte
                read.add(byte.buffer)
            case Declare(local, Load() as entry):
                entries[local] = entry
            case Store(buffer, index, value):
                one = entries.get(value, value)
                if not isinstance(one, Load) or len(one.index) != 1 or buffer in read:
                    return []
                if one.index[0] not in bytes_of:
                    return []
                found.append(_Lookup(bytes_of[one.index[0]], one, stmt))
                stored[value] = Load(buffer, index)
            case _:
                return []
    known = len(entries) <= len(found) and all(map(_is_known, found))
    stores = {one.y.buffer: one.y.index for one in found}
    own = all(stores.get(one.x.buffer, one.x.index) == one.x.index for one in found)
    apart = all(one.table.buffer not in stores for one in found)
    return found if known and own and apart and len(stores) == len(found) else []


def _is_known(one: _Lookup) -> bool:
    """Whether there is a micro-kernel for the types, and the table has an entry for each byte."""
    types = (one.x.dtype, one.table.dtype)
    known = types in LOOKUPS and one.y.buffer.dtype is one.table.dtype
    whole = one.table.buffer.shape == (Dim.of(256),)
    return known and whole and one.x.buffer not in (one.y.buffer, one.table.buffer)


def _match(stmt: For, w: Writer) -> Emit | None:
    nest = chain_of(stmt, w.bounds)
    if nest is None or len(nest.free) < len(nest.loops) or not _lookups_of(nest):
        return None
    names = {loop.variable for loop in nest.loops}
    if any(loop.start != ZERO or loop.stop.symbols & names for loop in nest.loops):
        return None
    places = _places(nest)
    if any(stride(place, loop.variable) is None for place in places for loop in nest.loops):
        return None
    nest = _joined(nest)
    places = _places(nest)
    along = [lp for lp in nest.loops if all(step_of(place, lp.variable) == 1 for place in places)]
    if len(along) != 1 or greatest(along[0].stop, w.bounds) < LEAST:
        return None

    def emit() -> None:
        for one in _lookups_of(nest):
            _emit(nest, along[0], one, w)

    return emit


def _places(nest: Nest) -> list[Load | Store]:
    return [place for one in _lookups_of(nest) for place in (one.x, one.y)]


def _emit(nest: Nest, along: For, found: _Lookup, w: Writer) -> None:
    others = [loop for loop in nest.loops if loop != along]
    steps, rows = (ZERO, ZERO), ONE
    first = {along.variable: ZERO}
    if others and (apart := _apart(others[-1], along, found, w.bounds)) is not None:
        steps, rows = apart, others[-1].stop
        first[others.pop().variable] = ZERO
    with w.nest(others):
        w.micro(
            LOOKUPS[found.x.dtype, found.table.dtype], to=moved(found.y, first),
            x=moved(found.x, first), table=Load(found.table.buffer, (ZERO,)), rows=rows,
            count=along.stop, row_step=steps[0], to_step=steps[1],
        )  # fmt: skip


def _apart(rows: For, along: For, found: _Lookup, bounds: Bounds) -> tuple[Dim, Dim] | None:
    """The steps from row to row of what is read and written, where rows do not overlap."""
    steps = (step_of(found.x, rows.variable), step_of(found.y, rows.variable))
    return steps if all(prove_le(along.stop, step, bounds) for step in steps) else None


def _joined(nest: Nest) -> Nest:
    """The nest with axes that are one."""
    for outer, inner in pairwise(nest.loops):
        if all(follow(place, outer, inner) for place in _places(nest)):
            return _joined(loops_as_one(nest, outer, inner)[0])
    return nest
