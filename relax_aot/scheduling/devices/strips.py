# SPDX-License-Identifier: Apache-2.0
"""Element-wise loops of contiguous elements: a thread computes some that follow each other, and
loads and stores 16 bytes of them at once. The last thread computes what is left one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from relax_aot import microkernels
from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, row_major, simplify
from relax_aot.ir.loops import (
    LOGICAL,
    Binary,
    Buffer,
    Declare,
    Expr,
    For,
    If,
    Index,
    Let,
    Load,
    Micro,
    Reserve,
    Select,
    Stmt,
    Store,
    expressions,
    index_dims,
    parts,
)
from relax_aot.ir.rewrite import map_exprs
from relax_aot.microkernels.warp import VECTORS
from relax_aot.scheduling.contraction import stride
from relax_aot.scheduling.devices.nests import Nest
from relax_aot.scheduling.devices.proofs import accessed
from relax_aot.scheduling.nest import without_lets
from relax_aot.scheduling.writer import Writer

BYTES = 16


@dataclass(frozen=True, slots=True)
class Strips:
    """A nest whose results are contiguous, with the buffers that are loaded and stored in strips of
    `width` elements; `body` without names of sizes. `rows`: loads whose elements of a strip are
    neighbors too, such as those of a bias, since rows are whole numbers of strips."""

    nest: Nest
    body: tuple[Stmt, ...]
    loaded: tuple[Buffer, ...]
    stored: tuple[Buffer, ...]
    rows: tuple[Load, ...] = ()

    @property
    def width(self) -> int:
        return BYTES // min(buffer.dtype.bytes for buffer in (*self.loaded, *self.stored))

    def with_rows(self, loads: Sequence[Load], bounds: Bounds) -> Strips:
        """With those of the loads that are in rows."""
        rows = (load for load in loads if _is_in_row(load, self.nest, self.width, bounds))
        return replace(self, rows=tuple(rows))

    def write(self, w: Writer, at: Dim) -> None:
        """Strip `at`."""
        first = at * self.width
        whole = Binary("<=", Index(first + self.width), Index(self.nest.count))
        with w.block() as strip:
            self._whole(w, first)
        name = w.fresh("last")
        rest = (*self.nest.variables(Dim.of(name)), *self.nest.body)
        w.add(If(whole, tuple(strip), (For(name, first, self.nest.count, rest),)))

    def _whole(self, w: Writer, first: Dim) -> None:
        shape = (Dim.of(self.width),)
        own = {b.name: Buffer(w.fresh(f"{b.name}_strip"), b.dtype, shape, REGISTER)
               for b in (*self.loaded, *self.stored)}  # fmt: skip
        w.add(*map(Reserve, own.values()))
        for buffer in self.loaded:
            for at in self._steps(buffer):
                target = Load(own[buffer.name], (at,))
                w.add(_copy("load", _at(buffer, first + at), target))
        strips = self._row_strips(w, first)
        name = w.fresh("q")
        q = Dim.of(name)

        def in_strip(expr: Expr) -> Expr:
            if not isinstance(expr, Load):
                return expr
            strip = own[expr.buffer.name] if expr.buffer in self.loaded else strips.get(expr)
            return expr if strip is None else Load(strip, (q,))

        body = tuple(
            Store(own[stmt.buffer.name], (q,), stmt.value) if isinstance(stmt, Store) else stmt
            for stmt in map_exprs(self.body, in_strip)
        )
        used = {symbol for stmt in body for dim in index_dims(stmt) for symbol in dim.symbols}
        lets = (let for let in self.nest.variables(first + q) if let.name in used)
        w.add(For(name, ZERO, Dim.of(self.width), (*lets, *body)))
        for buffer in self.stored:
            for at in self._steps(buffer):
                source = Load(own[buffer.name], (at,))
                w.add(_copy("store", source, _at(buffer, first + at)))

    def _row_strips(self, w: Writer, first: Dim) -> dict[Load, Buffer]:
        """Loads the strips of rows."""
        strips: dict[Load, Buffer] = {}
        used = {symbol for one in self.rows for dim in one.index for symbol in dim.symbols}
        lets = [let for let in self.nest.variables(first) if let.name in used]
        at = {let.name: Dim.of(w.fresh(let.name)) for let in lets}
        w.add(*(Let(str(at[let.name]), let.value) for let in lets))
        for load in self.rows:
            name = w.fresh(f"{load.buffer.name}_strip")
            strips[load] = Buffer(name, load.dtype, (Dim.of(self.width),), REGISTER)
            w.add(Reserve(strips[load]))
            for step in self._steps(load.buffer):
                *outer, last = (dim.substitute(at) for dim in load.index)
                source = Load(load.buffer, (*outer, last + step))
                w.add(_copy("load", source, Load(strips[load], (step,))))
        return strips

    def _steps(self, buffer: Buffer) -> list[Dim]:
        """Where vectors of a strip begin."""
        return [Dim.of(at) for at in range(0, self.width, BYTES // buffer.dtype.bytes)]


def _copy(way: str, source: Load, target: Load) -> Micro:
    name = f"raot_{way}{BYTES // source.dtype.bytes}_{source.dtype.value}"
    return microkernels.call(name, **{"from": source, "to": target})


def _at(buffer: Buffer, first: Dim) -> Load:
    """The address of an element in row-major order."""
    return Load(buffer, (*(ZERO,) * (buffer.rank - 1), first))


def strips_of(nest: Nest, bounds: Bounds) -> Strips | None:
    """The nest in strips; None where a result is not contiguous."""
    body = without_lets(nest.body)
    if not all(isinstance(stmt, Declare | Store) for stmt in body):
        return None
    accesses = [*accessed(body)]
    stored = dict.fromkeys(load.buffer for load, is_store in accesses if is_store)
    loaded = dict.fromkeys(load.buffer for load, is_store in accesses if not is_store)
    apart = {load.buffer for load, _ in accesses if not _is_contiguous(load, nest)}
    if not stored or stored.keys() & (apart | loaded.keys()):
        return None
    indices = [load for load, _ in accesses if load.buffer in stored]
    if len(indices) != len(stored):
        return None
    strips = Strips(nest, body, tuple(b for b in loaded if b not in apart), tuple(stored))
    others = dict.fromkeys(load for load, _ in accesses if load.buffer in apart)
    conditional = {load for stmt in body for load in _conditional(stmt)}
    return strips.with_rows([load for load in others if load not in conditional], bounds)


def _conditional(stmt: Stmt) -> Iterator[Load]:
    """Loads under a condition: without it, their elements may not exist."""
    for expr in expressions(stmt):
        match expr:
            case Select(_, then, otherwise):
                sides: tuple[Expr, ...] = (then, otherwise)
            case Binary(op, _, right) if op in LOGICAL:
                sides = (right,)
            case _:
                continue
        yield from (part for side in sides for part in parts(side) if isinstance(part, Load))


def _is_in_row(load: Load, nest: Nest, width: int, bounds: Bounds) -> bool:
    """Whether the elements of each strip are neighbors in memory, and whole vectors."""
    *outer, inner = nest.loops
    if load.dtype not in VECTORS or load.buffer.rank == 0 or width * load.dtype.bytes % BYTES:
        return False
    steps = [stride(load, loop.variable) for loop in outer]
    if stride(load, inner.variable) != 1 or None in steps:
        return False
    starts = dict.fromkeys((loop.variable for loop in outer), ZERO)
    start = row_major(load.index, load.buffer.shape).substitute(
        {**starts, inner.variable: inner.start}
    )
    each = BYTES // load.dtype.bytes
    multiples = [start, *(step for step in steps if step is not None)]
    whole = simplify(inner.extent % width, bounds) == 0
    return whole and all(simplify(dim % each, bounds) == 0 for dim in multiples)


def _is_contiguous(load: Load, nest: Nest) -> bool:
    """Whether element number k of the nest is element number k of the buffer."""
    if load.buffer.dtype not in VECTORS or load.buffer.rank == 0:
        return False
    number, inner = ZERO, ONE
    for loop in reversed(nest.loops):
        number = number + (Dim.of(loop.variable) - loop.start) * inner
        inner = inner * loop.extent
    return row_major(load.index, load.buffer.shape) == number
