# SPDX-License-Identifier: Apache-2.0
"""Rows of floats that are quantized to the pairs of 16 bits which products read.

Where rows of bytes in scratch are written by a micro-kernel alone, and read only by micro-kernels
that gather the pairs of one or three rows for the product behind them, the first one writes these
pairs, and none gathers them. Where three rows are multiplied together, their pairs are interleaved,
and a row that is multiplied by itself is copied before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, ceildiv, row_major
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Buffer,
    For,
    If,
    Kernel,
    Let,
    Load,
    Micro,
    Stmt,
    Store,
    expressions,
    walk,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.nest import bounds_known, names_in
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="a row of a product, and its pairs",
        target="dsp",
        before="""
            kernel @dot(%x: f32[7], %f: f32[1], %k: i32[1], %w: i16[2, 2, 2, 2, 2], %s: f32[6],
              %b: f32[6]) -> (%y: f32[6]) scratch (%rows: i8[7], %pairs: i16[4, 1, 2]) {
              micro raot_quantize_row_s8(%rows[0], %x[0], %f[0], %k[0]) [7]
              %pairs[3, 0, 1] = 0:i16
              micro raot_gather_pairs_s8(%pairs[0, 0, 0], %rows[0]) [0, 7, 1, 1, 0, 1, 0, 1, 1, 1,
                0, 1, 1, 1, 1]
              micro raot_multiply_pair_row_f32(%y[0], %w[0, 0, 0, 0, 0], %pairs[0, 0, 0], %s[0],
                %f[0], %b[0]) [6, 4]
            }""",
        after="""
            kernel @dot(...) scratch (%rows_pairs: i16[1, 4, 1, 2], %pairs: i16[4, 1, 2]) {
              micro raot_quantize_pairs_s16(%rows_pairs[0, 0, 0, 0], ...) [7, 1]
              %pairs[3, 0, 1] = 0:i16
              micro raot_multiply_pair_row_f32(..., %rows_pairs[0, 0, 0, 0], ...) [6, 4]
            }""",
    ),
    Example(
        why="three rows together, or up to two of them by themselves",
        target="dsp",
        before="""
            symbol n in 1..3
            kernel @dot(%x: f32[n, 8], %f: f32[n], %k: i32[1], %w: i16[2, 2, 2, 2, 2], %s: f32[6],
              %b: f32[6]) -> (%y: f32[n, 6]) scratch (%rows: i8[n, 8], %p: i16[4, 3, 2],
              %q: i16[4, 1, 2]) {
              for i in 0..n {
                micro raot_quantize_row_s8(%rows[i, 0], %x[i, 0], %f[i], %k[0]) [8]
              }
              if (index(n) == index(3)) {
                micro raot_gather_pairs_s8(%p[0, 0, 0], %rows[0, 0]) [0, 8, 1, 1, 0, 1, 0, 1, 1, 3,
                  0, 1, 3, 8, 3]
                micro raot_multiply_pair_rows_f32(%y[0, 0], %w[0, 0, 0, 0, 0], %p[0, 0, 0], %s[0],
                  %f[0], %b[0]) [6, 4]
              } else {
                for r in 0..n {
                  micro raot_gather_pairs_s8(%q[0, 0, 0], %rows[r, 0]) [0, 8, 1, 1, 0, 1, 0, 1, 1,
                    1, 0, 1, 1, 1, 1]
                  micro raot_multiply_pair_row_f32(%y[r, 0], %w[0, 0, 0, 0, 0], %q[0, 0, 0], %s[0],
                    %f[r], %b[0]) [6, 4]
                }
              }
            }""",
        after="""
            kernel @dot(...) scratch (%rows_pairs: i16[(n + 2) // 3, 4, 3, 2], ...) {
              for i in 0..n {
                micro raot_quantize_pairs_s16(%rows_pairs[i // 3, 0, i % 3, 0], ...) [8, 3]
              }
              if (index(n) == index(3)) {
                micro raot_multiply_pair_rows_f32(..., %rows_pairs[0, 0, 0, 0], ...) [6, 4]
              } else {
                for r in 0..n {
                  for pair in 0..4 {
                    %q[pair, 0, 0] = %rows_pairs[r // 3, pair, r % 3, 0]
                    %q[pair, 0, 1] = %rows_pairs[r // 3, pair, r % 3, 1]
                  }
                  micro raot_multiply_pair_row_f32(%y[r, 0], ..., %q[0, 0, 0], ...) [6, 4]
                }
              }
            }""",
    ),
    Example(
        why="bytes that something else reads",
        target="dsp",
        before="""
            kernel @dot(%x: f32[8], %f: f32[1], %k: i32[1], %w: i16[2, 2, 2, 2, 2], %s: f32[6],
              %b: f32[6]) -> (%y: f32[6], %z: i8[1]) scratch (%rows: i8[8], %pairs: i16[4, 1, 2]) {
              micro raot_quantize_row_s8(%rows[0], %x[0], %f[0], %k[0]) [8]
              micro raot_gather_pairs_s8(%pairs[0, 0, 0], %rows[0]) [0, 8, 1, 1, 0, 1, 0, 1, 1, 1,
                0, 1, 1, 1, 1]
              micro raot_multiply_pair_row_f32(%y[0], %w[0, 0, 0, 0, 0], %pairs[0, 0, 0], %s[0],
                %f[0], %b[0]) [6, 4]
              %z[0] = %rows[3]
            }""",
    ),
)
QUANTIZE, GATHER = "raot_quantize_row_s8", "raot_gather_pairs_s8"
ROW, THREE_ROWS = PRODUCTS = ("raot_multiply_pair_row_f32", "raot_multiply_pair_rows_f32")
GATHERED = {
    "zero": 0, "channel_step": 1, "lines": 1, "first1": 0, "last1": 1, "taps": 1, "first": 0,
    "stride": 1,
}  # fmt: skip
"""The sizes of a gather of rows."""


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets whose products read pairs."""
    if not target.quotients or target.compact:
        return module
    kernels = {kernel.name: _in_pairs(kernel, module.bounds) for kernel in module.kernels}
    return with_kernels(module, kernels)


def _in_pairs(kernel: Kernel, bounds: Bounds) -> Kernel:
    micros = [stmt for stmt in walk(kernel.body) if isinstance(stmt, Micro)]
    for rows in kernel.scratch:
        if any(one.name == QUANTIZE and _operand(one, "out").buffer == rows for one in micros):
            three = any(
                one.name == GATHER and _operand(one, "image").buffer == rows
                and _size(one, "columns") == 3 for one in micros
            )  # fmt: skip
            kernel = _with_pairs(kernel, rows, 3 if three else 1, bounds)
    return kernel


def _with_pairs(kernel: Kernel, rows: Buffer, together: int, bounds: Bounds) -> Kernel:
    """The kernel with pairs in place of the bytes of `rows`, if nothing else accesses these."""
    w = Writer(names_in(kernel), bounds)
    blocks = ceildiv(prod(rows.shape[:-1], start=ONE), together)
    shape = (blocks, (rows.shape[-1] + 3) // 4 * 2, Dim.of(together), Dim.of(2))
    pairs = Buffer(w.fresh(f"{rows.name}_pairs"), DType.I16, shape)
    with w.block() as body:
        _Pairs(w, rows, pairs).block(kernel.body)
    if any(_accesses(stmt, rows) for stmt in walk(body)):
        return kernel
    scratch = tuple(pairs if buffer == rows else buffer for buffer in kernel.scratch)
    return replace(kernel, scratch=scratch, body=tuple(body))


def _accesses(stmt: Stmt, buffer: Buffer) -> bool:
    stored = isinstance(stmt, Store) and stmt.buffer == buffer
    return stored or any(isinstance(e, Load) and e.buffer == buffer for e in expressions(stmt))


def _operand(stmt: Micro, name: str) -> Load:
    names = [operand.name for operand in stmt.kernel.operands]
    return stmt.operands[names.index(name)]


def _size(stmt: Micro, name: str) -> Dim:
    return stmt.sizes[list(stmt.kernel.sizes).index(name)]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """`pairs`: those of the rows, in blocks of one or three rows."""

    w: Writer
    rows: Buffer
    pairs: Buffer

    def block(self, body: Sequence[Stmt]) -> None:
        """Adds the statements, with pairs where they are possible."""
        w, read = self.w, False
        for stmt, after in zip(body, [*body, None][1:], strict=True):
            if read:  # the product of the gather before it
                read = False
                continue
            match stmt:
                case For() if stmt.extent == 0:
                    pass
                case For() if bounds_known(stmt, w.bounds):
                    with w.loop(stmt.variable, stmt.start, stmt.stop, stmt.axis):
                        self.block(stmt.body)
                case If():
                    then, otherwise = (self.nested(part) for part in (stmt.then, stmt.otherwise))
                    w.add(replace(stmt, then=then, otherwise=otherwise))
                case Micro() if stmt.name == QUANTIZE and self.quantize(stmt):
                    pass
                case Micro() if stmt.name == GATHER and self.multiply(stmt, after):
                    read = True
                case _:
                    w.add(stmt)
            if isinstance(stmt, Let) and stmt.value.symbols <= set(w.bounds):
                w.bounds = w.bounds.with_value(stmt.name, stmt.value, stmt.value)

    def nested(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        with self.w.block() as found:
            self.block(body)
        return tuple(found)

    @property
    def together(self) -> Dim:
        return self.pairs.shape[2]

    def place(self, load: Load) -> Load | None:
        """The first pair of a row of bytes."""
        if load.buffer != self.rows or load.index[-1] != 0:
            return None
        row = row_major(load.index[:-1], self.rows.shape[:-1]) if load.index[1:] else ZERO
        return Load(self.pairs, (row // self.together, ZERO, row % self.together, ZERO))

    def quantize(self, stmt: Micro) -> bool:
        place = self.place(_operand(stmt, "out"))
        if place is None or _size(stmt, "count") != self.rows.shape[-1]:
            return False
        given = {name: _operand(stmt, name) for name in ("x", "by", "kept")}
        self.w.micro(
            "raot_quantize_pairs_s16", pairs=place, **given, count=self.rows.shape[-1],
            step=self.together,
        )  # fmt: skip
        return True

    def multiply(self, gather: Micro, product: Stmt | None) -> bool:
        """The product of rows whose pairs are gathered before it."""
        place, count = self.place(_operand(gather, "image")), _size(gather, "columns")
        depth, known = self.rows.shape[-1], {n: _size(gather, n) for n in gather.kernel.sizes}
        fits = (
            {name: known[name] for name in GATHERED} == GATHERED
            and known["channels"] == depth
            and known["width"] == known["wide"] == count
            and (count == 1 or (count == 3 and known["column_step"] == depth))
        )
        if place is None or not fits or not isinstance(product, Micro):
            return False
        name = ROW if count == 1 else THREE_ROWS
        gathered = _operand(gather, "pairs")
        if product.name != name or _operand(product, "pairs") != gathered:
            return False
        if count == self.together and place.index[2] == 0:
            operands = (place if one == gathered else one for one in product.operands)
            self.w.add(replace(product, operands=tuple(operands)))
            return True
        if count != 1:
            return False
        with self.w.range("pair", self.pairs.shape[1]) as k:
            for half in (ZERO, ONE):
                value = Load(self.pairs, (place.index[0], k, place.index[2], half))
                self.w.add(Store(gathered.buffer, (k, ZERO, half), value))
        self.w.add(product)
        return True
