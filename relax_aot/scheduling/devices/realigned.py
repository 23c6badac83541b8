# SPDX-License-Identifier: Apache-2.0
"""Factors of products whose rows are not aligned, copied to aligned rows before the product.

Rows of an odd length begin at any multiple of two bytes, where nothing copies several elements at
once. A launch before the product copies such a factor to memory of the arena in which each row
begins at a multiple of 16 bytes, so that the product has the form of aligned rows. What is behind
the last element of a row is zero. A factor of half precision that is computed, such as a cast one,
is computed there, once for all tiles. Matrix units take bytes along the steps alone, so a factor of
bytes whose neighbors are lines is transposed by the copy. Constants get such rows while compiling
(passes/byte_lines.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, ceildiv, prove_le, simplify
from relax_aot.ir.loops import Buffer, Expr, For, If, Lit, Load, Stmt, Store, parts
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import follow, indexed_by, moved, stride
from relax_aot.scheduling.devices.decoded import is_decoded
from relax_aot.scheduling.devices.operands import At, Product, below, extent, split
from relax_aot.scheduling.devices.vectors import BYTES, vectors
from relax_aot.scheduling.writer import Writer

EACH = 4
"""Rows of which a thread copies a vector each."""
LEAST = 4
"""Elements that are copied at once in products of fewer instructions than those of other rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A factor in aligned rows: `load` reads it, whose buffer has an axis for each loop of `batch`,
    one for all of `outer`, and one for all of `inner`, rounded up to whole vectors. `source`: the
    factor of the `product`; `near`: what is in memory of it."""

    product: Product
    source: Load
    near: Load
    load: Load
    batch: tuple[For, ...]
    outer: tuple[For, ...]
    inner: tuple[For, ...]

    @property
    def width(self) -> int:
        """Elements of a vector."""
        return BYTES // self.load.dtype.bytes

    @property
    def chunks(self) -> Dim:
        """What a thread copies: one vector of each of EACH rows."""
        *lead, outer, last = self.load.buffer.shape
        return prod(lead, start=ONE) * ceildiv(outer, EACH) * ceildiv(last, self.width)

    @property
    def contiguous(self) -> bool:
        """Whether the elements of a row are neighbors in memory, which are loaded as words."""
        one_axis = all(follow(self.source, *pair) for pair in pairwise(self.inner))
        near = stride(self.source, self.inner[-1].variable) == 1 and self.near == self.source
        return self.load.dtype.is_half and one_axis and near

    @property
    def _transposed(self) -> bool:
        """Whether neighbors in memory are in different rows: those of adjacent threads are."""
        return stride(self.near, self.outer[-1].variable) == 1

    def copy(self, w: Writer, chunk: Dim) -> None:
        """Writes a chunk. Neighbors share the divisions that tell where they are."""
        *_, outer, last = self.load.buffer.shape
        names = [w.fresh(name) for name in ("group", "vector")]
        counts = (ceildiv(outer, EACH), ceildiv(last, self.width))
        axes = [For(name, ZERO, count, ()) for name, count in zip(names, counts, strict=True)]
        axes = axes[::-1] if self._transposed else axes
        at = split(w, (*self.batch, *axes), chunk)
        group, vector = (at.pop(name) for name in names)
        with w.range("r", EACH) as r:
            row = w.named("row", group * EACH + r)
            with w.when(*[below(row, outer)] if simplify(outer % EACH, w.bounds) != 0 else ()):
                self._vector(w, {**at, **split(w, self.outer, row)}, vector * self.width)

    def _vector(self, w: Writer, at: At, first: Dim) -> None:
        """Copies the elements of a row from `first` on."""
        kind, count, width = self.load.dtype, extent(self.inner), self.width
        zero = Lit(0.0 if kind.is_float else 0, kind)
        some = w.reserve("some", kind, "register", width)
        with w.block() as each:
            with w.range("s", width) as s:
                w.add(Store(some, (s,), zero))
            with w.range("s", width) as s, w.when(below(first + s, count)):
                place = {**at, **split(w, self.inner, first + s)}
                w.add(Store(some, (s,), self.product.value(w, self.source, place)))
        if self.contiguous:
            with w.block() as whole:
                start = {**at, **dict.fromkeys((loop.variable for loop in self.inner), ZERO)}
                begin = moved(self.source, {**start, self.inner[-1].variable: first})
                w.micro(f"raot_load_any8_{kind.value}", to=some[(ZERO,)], **{"from": begin})
            w.add(If(below(first + width - 1, count), tuple(whole), tuple(each)))
        else:
            w.add(*each)
        *row, _ = moved(self.load, at).index
        to = Load(self.load.buffer, (*row, first))
        w.micro(f"raot_store{width}_{kind.value}", to=to, **{"from": some})


def aligned_rows(w: Writer, product: Product) -> tuple[Product, tuple[Rows, ...]] | None:
    """The product with aligned rows, and the factors that are copied before it; None where nothing
    is."""
    found = list[Rows]()
    for load, loops in product.sides:
        decoded = is_decoded(product, load, loops, w.bounds)
        if decoded or vectors(product, load, loops, w.bounds)[0] >= LEAST:
            continue
        rows = _rows(product, load, loops, w.bounds)
        if rows is None:
            return None
        found.append(rows)
    for at, rows in enumerate(found):
        buffer = rows.load.buffer
        memory = w.buffer(buffer.name, buffer.dtype, *buffer.shape)
        found[at] = replace(rows, load=replace(rows.load, buffer=memory))
        product = _with_rows(product, found[at])
    return (product, tuple(found)) if found else None


def _with_rows(product: Product, rows: Rows) -> Product:
    found = product.found
    if found.left == rows.source:
        found = replace(found, left=rows.load)
    else:
        found = replace(found, right=rows.load)
    computed = tuple(one for one in found.computed if one.load != rows.source)
    found = replace(found, computed=computed)
    return replace(product, found=found, filled=(*product.filled, rows.load))


def copy_rows(w: Writer, every: Sequence[Rows], threads: int, chosen: Dim) -> None:
    """The launch that copies factors to aligned rows; it has no blocks where `chosen` is 0."""
    if not every:
        return
    total = sum((rows.chunks for rows in every), ZERO)
    grid = simplify(ceildiv(total, threads) * chosen, w.bounds)
    with (
        w.range("block", grid, axis="block") as block,
        w.range("thread", threads, axis="thread") as thread,
    ):
        w.add(*_copied(w, every, block * threads + thread))


def _copied(w: Writer, every: Sequence[Rows], at: Dim) -> tuple[Stmt, ...]:
    """The copy of one vector: the vectors of all factors are numbered one after the other."""
    if not every:
        return ()
    first, *others = every
    with w.block() as copied:
        first.copy(w, at)
    return (If(below(at, first.chunks), tuple(copied), _copied(w, others, at - first.chunks)),)


def is_read_once(product: Product, load: Load, bounds: Bounds) -> bool:
    """Whether a factor is in memory, and its lines have no more elements than it, as those of
    windows have."""
    return _read_once(product, load, bounds) == load


def _read_once(product: Product, load: Load, bounds: Bounds) -> Load | None:
    """What has at least as many elements in memory as the lines of a factor: the factor, or what
    it is computed from."""
    if product.padded is not None:
        return None
    computed = product.found.computed_at(load)
    values: Iterable[Expr] = (load,) if computed is None else parts(computed.value)
    used = indexed_by(load)
    every = (*product.found.nest.loops, *product.steps)
    count = extent([loop for loop in every if loop.variable in used])
    loads = (one for one in values if isinstance(one, Load))
    return next((one for one in loads if prove_le(count, one.buffer.type.elements, bounds)), None)


def _rows(product: Product, load: Load, loops: tuple[For, ...], bounds: Bounds) -> Rows | None:
    """A factor in aligned rows along the axis on which its elements are neighbors, or along the
    steps of bytes; None where it is not in memory, or where its rows would have more elements than
    it, as those of windows."""
    steps, every = product.steps, (*product.found.nest.loops, *product.steps)
    known = load.dtype.is_half or load.dtype in (DType.I8, DType.U8)
    near = _read_once(product, load, bounds) if known else None
    if near is None or any(loop.start != ZERO for loop in every):
        return None
    used = indexed_by(load)
    along_lines = load.dtype.is_half and stride(near, loops[-1].variable) == 1
    outer, inner = (steps, loops) if along_lines else (loops, steps)
    batch = tuple(loop for loop in product.batch if loop.variable in used)
    width = BYTES // load.dtype.bytes
    shape = (*(loop.extent for loop in batch), extent(outer), ceildiv(extent(inner), width) * width)
    index = (*(Dim.of(loop.variable) for loop in batch), _position(outer), _position(inner))
    buffer = Buffer(f"{load.buffer.name}_rows", load.dtype, shape)
    return Rows(product, load, near, Load(buffer, index), batch, outer, inner)


def _position(loops: Sequence[For]) -> Dim:
    """On the axis that the loops are together."""
    position = ZERO
    for loop in loops:
        position = position * loop.extent + Dim.of(loop.variable)
    return position
