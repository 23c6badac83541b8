# SPDX-License-Identifier: Apache-2.0
"""One copy of tied weights: an embedding reads the table that a product has packed.

A language model multiplies by its table of embeddings, often transposed. The product reads the
table in panels of columns, and few rows of it are gathered, so these are read from the panels.
Which constants are the same table is found by their values, which is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.dims import Bounds, Dim, dim_min
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array, Call, Constant, Function, Module
from relax_aot.ir.loops import (
    Bind,
    Buffer,
    Cast,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Let,
    Lit,
    Load,
    Micro,
    Multiply,
    Stmt,
    binary,
    expressions,
    walk,
)
from relax_aot.ir.rewrite import map_exprs, rewrite_module
from relax_aot.ir.types import DType, Shape
from relax_aot.scheduling.nest import greatest, ranges
from relax_aot.scheduling.targets import Target

LEAST_BYTES = 1024
"""Smaller tables take less than the longer index."""
SHARE = 8
"""The product must do this many times the work of the others, whose reads become slower."""
BLOCK_AXES = 4
"""Of quantized weights: blocks of rows, blocks of columns, and the two axes of a block."""
WIDTHS, GROUPS = (2, 4, 8, 16, 32, 64), (1, 2, 4)

_TEXT = """
            const %table: f32[32, 16] = splat 0.5
            const %packed: f32[512] = splat 0.5
            kernel @row(%table: f32[32, 16], %at: i64[1]) -> (%y: f32[16]) {
              bind at in 0..31 = %at[0]
              for d in 0..16 {
                %y[d] = %table[at, d]
              }
            }
            kernel @product(%x: f32[16, 16], %packed: f32[512]) -> (%y: f32[16, 32]) {
              for i in 0..16 {
                for j in 0..32 {
                  local sum: f32 = 0.0:f32
                  for k in 0..16 {
                    sum = (sum + (%x[i, k] * %packed[(32*k) + j]))
                  }
                  %y[i, j] = sum
                }
              }
            }"""
_NIBBLES = """
            const %table: i4[64, 16] = splat 3
            const %packed: u8[4, 2, 16, 4] = splat 51
            kernel @row(%table: i4[64, 16], %at: i64[1]) -> (%y: f32[16]) {
              bind at in 0..63 = %at[0]
              for d in 0..16 {
                %y[d] = cast(%table[at, d], f32, wrap)
              }
            }
            kernel @product(%x: u8[16, 16], %packed: u8[4, 2, 16, 4]) -> (%y: u8[32, 64]) {
              for i in 0..32 {
                for j in 0..64 {
                  %y[i, j] = %packed[0, 0, i % 16, j % 4]
                }
              }
            }"""
_ROW_PAIRS = _NIBBLES.replace("[4, 2, 16, 4] = splat 51", "[2, 4, 16, 4] = splat 59").replace(
    "[4, 2, 16, 4]", "[2, 4, 16, 4]"
)
_PAIRS = (
    _NIBBLES.replace("i4[64, 16] = splat 3", "i8[64, 16] = splat 3")
    .replace("i4", "i8")
    .replace("u8[4, 2, 16, 4] = splat 51", "i16[16, 4, 4, 2] = splat 771")
    .replace("%packed: u8[4, 2, 16, 4]", "%packed: i16[16, 4, 4, 2]")
    .replace("u8[32, 64]", "i16[32, 64]")
    .replace("i % 16, j % 4]", "i % 4, j % 2]")
)
EXAMPLES = (
    Example(
        why="an embedding and a product with the same table",
        before=_TEXT,
        after="""
            kernel @row(%table: f32[512], %at: i64[1]) -> (%y: f32[16]) {
              bind at in 0..31 = %at[0]
              for d in 0..16 {
                %y[d] = %table[at + 32*d]
              }
            }
            ...""",
        target="fpu",
    ),
    Example(
        why="weights of 4 bits, of which two share a byte",
        before=_NIBBLES,
        after="""
            kernel @row(%table: u8[4, 2, 16, 4], %at: i64[1]) -> (%y: f32[16]) {
              bind at in 0..63 = %at[0]
              for d in 0..16 {
                %y[d] = cast(cast(((((cast(%table[at // 16, d // 8, at % 16, d % 4], i32, ...
              }
            }
            ...""",
        target="fpu",
    ),
    Example(
        why="weights of 4 bits, of which those of two rows share a byte",
        before=_ROW_PAIRS,
        after="""
            kernel @row(%table: u8[2, 4, 16, 4], %at: i64[1]) -> (%y: f32[16]) {
              bind at in 0..63 = %at[0]
              for d in 0..16 {
                %y[d] = cast(cast(((((cast(%table[at // 32, d // 4, at % 16, d % 4], i32, ...
              }
            }
            ...""",
        target="fpu",
    ),
    Example(
        why="weights of 8 bits, of which two are a 16-bit integer",
        before=_PAIRS,
        after="""
            kernel @row(%table: i16[16, 4, 4, 2], %at: i64[1]) -> (%y: f32[16]) {
              bind at in 0..63 = %at[0]
              for d in 0..16 {
                %y[d] = cast(cast(((((cast(%table[at // 4, d // 4, at % 4, (d % 4) // 2], i32, ...
              }
            }
            ...""",
        target="fpu",
    ),
    Example(
        why="other values",
        before=_TEXT.replace("f32[512] = splat 0.5", "f32[512] = splat 0.25"),
        target="fpu",
    ),
)


@dataclass(frozen=True, slots=True)
class _Panels:
    """Position of a table's element: panels of `width` columns, in each the groups of `group`
    rows. `padded`: the last panel is as wide as the others."""

    transposed: bool
    rows: int
    columns: int
    width: int
    group: int
    padded: bool

    def packed(self, table: Array) -> Array:
        """The elements in their order."""
        table = table.T if self.transposed else table
        missing = -self.columns % self.width if self.padded else 0
        table = np.pad(table, ((0, 0), (0, missing)))
        groups = table.reshape(self.rows // self.group, self.group, -1)
        starts = range(0, groups.shape[2], self.width)
        parts = [groups[:, :, at : at + self.width].transpose(0, 2, 1) for at in starts]
        return np.concatenate([part.reshape(-1) for part in parts])

    def begins(self, table: Array, packed: Array) -> bool:
        """Whether the first elements are those of the first panel: all of them take long."""
        rows = (table.T if self.transposed else table)[: self.group, : self.width]
        return np.array_equal(rows.T.reshape(-1), packed.reshape(-1)[: rows.size])

    def index(self, at: tuple[Dim, ...], shape: Shape) -> tuple[Dim, ...]:
        """In a packed constant of this shape: flat, or with an axis for each of the parts."""
        row, column = reversed(at) if self.transposed else at
        if len(shape) == 2:
            return row, column
        one = self.width == self.columns
        panel = Dim.of(0) if one else column // self.width
        width, inside = Dim.of(self.width), column if one else column % self.width
        parts = (panel, row // self.group, inside, row % self.group)
        if len(shape) > 1:
            return parts[: len(shape)]
        if not self.padded and self.columns % self.width:
            width = dim_min(self.width, self.columns - panel * self.width)
        before = panel * (self.width * self.rows) + parts[1] * width * self.group
        return (before + inside * self.group + parts[3],)

    def read(self, load: Load, packed: Buffer) -> Expr:
        return Load(packed, self.index(load.index, packed.shape))

    def fits(self, shape: tuple[int, ...]) -> bool:
        panels = -(-self.columns // self.width)
        if len(shape) == 2:
            return shape == (self.rows, self.columns) and panels == self.group == 1
        if len(shape) > 1:
            sizes = (panels, self.rows // self.group, self.width, self.group)
            return shape == sizes or (self.group == 1 and shape == sizes[:3])
        return shape == (self.rows * (panels * self.width if self.padded else self.columns),)


@dataclass(frozen=True, slots=True)
class _Nibbles:
    """Position of an element of 4 bits: blocks of `width` rows and twice `steps` columns, of which
    the columns k and k + `steps` share a byte."""

    width: int
    steps: int

    def holds(self, table: Array, packed: Array) -> bool:
        stored: NDArray[np.uint8] = packed.astype(np.uint8)
        count, groups = stored.shape[:2]
        if table.shape[1] != groups * 2 * self.steps or table.shape[0] > count * self.width:
            return False
        halves = np.stack([stored & np.uint8(15), stored >> np.uint8(4)], axis=-1)
        rows = halves.transpose(0, 2, 1, 4, 3).reshape(count * self.width, -1)[: table.shape[0]]
        return np.array_equal(rows, table.astype(np.int8).view(np.uint8) & np.uint8(15))

    def read(self, load: Load, packed: Buffer) -> Expr:
        (row, column), steps = load.index, self.steps
        places = (row // self.width, column // (2 * steps), row % self.width, column % steps)
        byte = Cast(Load(packed, places), DType.I32)
        shift = Cast(Index(column % (2 * steps) // steps * 4), DType.I32)
        low = binary("&", binary(">>", byte, shift), Lit(15, DType.I32))
        sign = Lit(8, DType.I32)
        return Cast(binary("-", binary("^", low, sign), sign), load.dtype)


@dataclass(frozen=True, slots=True)
class _RowPairs:
    """Position of an element of 4 bits: blocks of `width` bytes by `steps` columns. Bytes hold the
    row r with 8 added in their low half, and the row r + `width`."""

    width: int
    steps: int

    def holds(self, table: Array, packed: Array) -> bool:
        stored: NDArray[np.uint8] = packed.astype(np.uint8)
        count, groups = stored.shape[:2]
        height = 2 * self.width
        if table.shape[1] != groups * self.steps or table.shape[0] > count * height:
            return False
        halves = np.stack([stored & np.uint8(15) ^ np.uint8(8), stored >> np.uint8(4)], axis=1)
        rows = halves.transpose(0, 1, 3, 2, 4).reshape(count * height, -1)[: table.shape[0]]
        return np.array_equal(rows, table.astype(np.int8).view(np.uint8) & np.uint8(15))

    def read(self, load: Load, packed: Buffer) -> Expr:
        (row, column), height = load.index, 2 * self.width
        places = (row // height, column // self.steps, row % self.width, column % self.steps)
        byte = Cast(Load(packed, places), DType.I32)
        second = row % height // self.width
        shift, sign = (Cast(Index(second * number), DType.I32) for number in (4, 8))
        low = binary("&", binary(">>", byte, shift), Lit(15, DType.I32))
        return Cast(binary("-", binary("^", low, sign), Lit(8, DType.I32)), load.dtype)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Position of a byte: blocks of `width` rows and `steps` columns, of which two neighbors are a
    16-bit integer, the first plus 256 times the second."""

    width: int
    steps: int

    def holds(self, table: Array, packed: Array) -> bool:
        count, groups = packed.shape[:2]
        if table.shape[1] != groups * self.steps or table.shape[0] > count * self.width:
            return False
        both = packed.astype(np.int32) + 128
        parts = np.stack([(both & 255) - 128, both >> 8], axis=-1)
        rows = parts.transpose(0, 2, 1, 3, 4).reshape(count * self.width, -1)[: table.shape[0]]
        return np.array_equal(rows, table)

    def read(self, load: Load, packed: Buffer) -> Expr:
        (row, column), steps = load.index, self.steps
        places = (row // self.width, column // steps, row % self.width, column % steps // 2)
        both = binary("+", Cast(Load(packed, places), DType.I32), Lit(128, DType.I32))
        second = column % 2
        shifted = binary(">>", both, Cast(Index(second * 8), DType.I32))
        byte = binary("&", shifted, Cast(Index(255 - second * 256), DType.I32))
        return Cast(binary("-", byte, Cast(Index(128 - second * 128), DType.I32)), load.dtype)


_Place = _Panels | _Nibbles | _RowPairs | _Pairs


def run(module: Module, _: Target) -> Module:
    """Data that may be replaced are left alone: other weights may be tied no more."""
    if module.replaceable:
        return module
    for table in module.constants:
        if table.type.rank == 2 and table.data.nbytes >= LEAST_BYTES:
            module = _shared(module, table)
    return module


def _shared(module: Module, table: Constant) -> Module:
    """Without the table, if all that reads it can read another constant."""
    readers = _readers(module, table.name)
    if not readers or not all(_is_gathered(module, k, name) for k, name in readers.items()):
        return module
    work = SHARE * sum(
        _reads(module.kernel_table[k].body, name, module.bounds) for k, name in readers.items()
    )
    for other in module.constants:
        if other is not table:
            panels = _place(table, other)
            if panels and work <= _work_with(module, other, table):
                return _replaced(module, table, other, panels, readers)
    return module


def _readers(module: Module, constant: str) -> dict[str, str]:
    """The input of each kernel that is this constant in all calls. Empty if something else
    reads it, or other calls give other constants."""
    found: dict[str, set[str]] = {}
    for function in module.functions:
        if any(var.name == constant for var in function.results):
            return {}
        for call in function.body:
            places = [at for at, var in enumerate(call.inputs) if var.name == constant]
            if places and call.op != "call_kernel":
                return {}
            if places:
                inputs = module.kernel_table[call.ref("kernel")].inputs
                found.setdefault(call.ref("kernel"), set()).update(inputs[p].name for p in places)
    for kernel, names in found.items():
        at = [b.name for b in module.kernel_table[kernel].inputs].index(next(iter(names)))
        calls = module.kernel_calls[kernel]
        if len(names) > 1 or any(c.inputs[at].name != constant for c in calls):
            return {}
    return {kernel: next(iter(names)) for kernel, names in found.items()}


def _is_gathered(module: Module, kernel: str, name: str) -> bool:
    """Element by element: micro-kernels read a table in its own order."""
    body = module.kernel_table[kernel].body
    return not any(load.buffer.name == name for stmt in walk(body) for load in _operands(stmt))


def _reads(body: Iterable[Stmt], name: str, bounds: Bounds) -> int:
    """How often elements are read at most."""
    count = 0
    for stmt in body:
        loads = [expr for expr in expressions(stmt) if isinstance(expr, Load)]
        count += sum(load.buffer.name == name for load in loads)
        if isinstance(stmt, Let):
            bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
        elif isinstance(stmt, Bind):
            bounds = bounds.with_value(stmt.name, stmt.low, stmt.high)
        elif isinstance(stmt, For):
            inside = ranges((stmt,), bounds)
            count += greatest(stmt.extent, bounds) * _reads(stmt.body, name, inside)
        elif isinstance(stmt, If):
            count += _reads((*stmt.then, *stmt.otherwise), name, bounds)
    return count


def _operands(stmt: Stmt) -> Iterator[Load]:
    if isinstance(stmt, Micro):
        yield from stmt.operands
    if isinstance(stmt, Multiply):
        yield from (stmt.left, stmt.right)


def _work_with(module: Module, packed: Constant, table: Constant) -> int:
    """Products of elements at most, in the kernels that read the packed table: each element of a
    result takes a row or a column of it."""
    depth = min(table.data.shape)
    calls = [c for f in module.functions for c in f.body]
    outs = [c.outs[0].type for c in calls if any(v.name == packed.name for v in c.inputs)]
    return sum(depth * greatest(type_.elements, module.bounds) for type_ in outs)


def _place(table: Constant, packed: Constant) -> _Place | None:
    """Where the elements of a table lie in a packed constant; None where it is another one."""
    kinds = (table.type.dtype, packed.type.dtype)
    if kinds == (DType.I4, DType.U8) and packed.type.rank == BLOCK_AXES:
        forms = (form(*packed.data.shape[2:]) for form in (_Nibbles, _RowPairs))
        return next((form for form in forms if form.holds(table.data, packed.data)), None)
    if kinds == (DType.I8, DType.I16) and packed.type.rank == BLOCK_AXES:
        pairs = _Pairs(packed.data.shape[2], 2 * packed.data.shape[3])
        return pairs if pairs.holds(table.data, packed.data) else None
    return _panels_of(table.data, packed.data) if kinds[0] is kinds[1] else None


def _panels_of(table: Array, packed: Array) -> _Panels | None:
    """How the values of one lie in the other, bit by bit."""
    bits = f"u{table.dtype.itemsize}"
    table, packed = np.ascontiguousarray(table).view(bits), packed.view(bits)
    for transposed in (True, False):
        rows, columns = table.shape[::-1] if transposed else table.shape
        for width, group, padded in product((columns, *WIDTHS), GROUPS, (True, False)):
            panels = _Panels(transposed, rows, columns, width, group, padded)
            whole = width <= columns and rows % group == 0
            if not whole or not panels.fits(packed.shape):
                continue
            begins = panels.begins(table, packed)
            if begins and np.array_equal(panels.packed(table), packed.reshape(-1)):
                return panels
    return None


def _replaced(
    module: Module,
    table: Constant,
    other: Constant,
    place: _Place,
    readers: dict[str, str],
) -> Module:
    def kernel(before: Kernel) -> Kernel:
        if before.name not in readers:
            return before
        buffer = Buffer(readers[before.name], other.type.dtype, other.type.shape)

        def read(expr: Expr) -> Expr:
            known = isinstance(expr, Load) and expr.buffer.name == buffer.name
            return place.read(expr, buffer) if known and isinstance(expr, Load) else expr

        inputs = tuple(buffer if b.name == buffer.name else b for b in before.inputs)
        return replace(before, inputs=inputs, body=map_exprs(before.body, read))

    def call(_: Function, before: Call) -> Call:
        args = [other.var if var.name == table.name else var for var in before.inputs]
        return replace(before, args=tuple(args)) if tuple(args) != before.inputs else before

    return replace(
        rewrite_module(module, call),
        kernels=tuple(map(kernel, module.kernels)),
        constants=tuple(c for c in module.constants if c is not table),
    )
