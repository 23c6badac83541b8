# SPDX-License-Identifier: Apache-2.0
"""Products with quantized constant weights in groups, as tiles of `multiply_groups.h`, and with
quantized activations as tiles of `dot_groups.h` or, if each group of a row has its own scale, of
`dot_blocks.h`. Some targets split float activations into integers, as `dot_parts.h` does.

The contraction has two levels: `total = total + scale[g, c] * (sum over the group g of x * w)`.
Weights are packed in panels of columns, those of 4 bits two in a byte, and are decoded in
registers. Scales multiply the sum of a group. Every result keeps the bits of the plain loops,
except with split activations: their sums of a group are exact before they are rounded, which
differs from the loops by less than another order of the sum may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import (
    Buffer,
    For,
    Load,
    Reserve,
    Store,
)
from relax_aot.ir.types import DType
from relax_aot.microkernels.groups import BLOCK_SCALES, BLOCKS, COLUMNS, WIDE
from relax_aot.scheduling.contraction import moved, step_of, stride
from relax_aot.scheduling.grouped import LEAST_GROUP, Grouped
from relax_aot.scheduling.packing import Arrays, Packed, padded, round_up
from relax_aot.scheduling.strategies._texts import (
    FLOAT_GROUPS,
    GROUPS,
    MATMUL,
    ONE_GROUP,
    ONE_ROW,
    ROW_BLOCKS,
    ROW_GROUPS,
)
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.writer import Writer

HALF = COLUMNS // 2
GREATEST_GROUP = 256
"""Steps of a group of dot products."""
SCALAR_LANES = 4
"""`lanes` of targets without vectors, where tiles are hardly faster than loops for short sums."""
PAIRED = ("_s16",)
"""Forms whose weights of 8 bits are halfwords of two steps each."""
COLUMN_PAIRS = ("_asimd",)
"""Forms whose bytes hold weights of 4 bits of two columns, of the first one with 8 added."""
WIDEST_PARTS = 4 * COLUMNS
"""Columns of one call: what it does for small elements is done for all of them."""
DEEPEST_PARTS = 4096
"""Steps of the longest row that is split: its parts take 16 KB."""
ORDERS = {
    ("_s16", 4): (0, 4, 2, 6, 1, 5, 3, 7),
    ("_parts_s16", 4): (0, 4, 1, 5, 2, 6, 3, 7),
    ("_parts_s16", 8): (0, 2, 1, 3),
}
"""Steps of a block, by form and bits. Of 4 bits, those in the low halves of its bytes are first."""
RAISED = {"_s16": (0, 1, 2, 3, 4, 6), "_parts_mve": range(8), "_parts_s16": range(8)}
"""Steps of a block whose weights of 4 bits have 8 added."""


# Packed weights


def packed_scales(found: Grouped, w: Writer, dtype: DType = DType.F32) -> Buffer:
    """Scales in panels of columns."""
    name, panels = found.scale.buffer.name, -(-found.columns // COLUMNS)
    groups = found.scale.buffer.shape[0].constant
    buffer = _buffer(w, f"{name}.packed", dtype, panels, groups, COLUMNS)
    return w.constant(Packed(buffer, lambda data: _panels(data[name], panels), origin=name))


def packed_steps(found: Grouped, w: Writer) -> Buffer:
    """Weights in panels of columns, step by step."""
    name, panels = found.w.buffer.name, -(-found.columns // COLUMNS)

    def values(data: Arrays) -> Array:
        whole = _panels(data[name].astype(np.int8), panels)
        return whole if found.bits == 8 else halves(whole[..., :HALF], whole[..., HALF:])

    kind, width = (DType.I8, COLUMNS) if found.bits == 8 else (DType.U8, HALF)
    buffer = _buffer(w, f"{name}.packed", kind, panels, found.depth, width)
    return w.constant(Packed(buffer, values, origin=name))


def packed_blocks(found: Grouped, w: Writer, form: str) -> Buffer:
    """Weights in blocks of columns and steps, the groups or lines filled up with zeros."""
    columns, steps = BLOCKS[form]
    name, panels = found.w.buffer.name, -(-found.columns // COLUMNS)
    count, width = panels * COLUMNS // columns, columns
    depth = round_up(found.depth, LEAST_GROUP if form.startswith("_parts") else found.group)
    is_shared = found.bits == 4 and form in COLUMN_PAIRS
    per_block = steps if is_shared else steps * 8 // found.bits

    def values(data: Arrays) -> Array:
        whole = padded(data[name].astype(np.int8), (depth, panels * COLUMNS))
        blocks = whole.reshape(depth // per_block, per_block, count, width).transpose(2, 0, 3, 1)
        if is_shared:
            first, second = np.split(blocks, 2, axis=2)
            return halves(np.bitwise_xor(first, np.int8(8)), second)
        order = np.array(ORDERS.get((form, found.bits), range(per_block)))
        if found.bits == 8:
            return pairs(blocks) if form in PAIRED else np.asarray(blocks[..., order])
        raised = np.isin(order, RAISED.get(form, ())).astype(np.int8) * np.int8(8)
        return halves(*np.split(np.bitwise_xor(blocks[..., order], raised), 2, axis=-1))

    kind = DType.I8 if found.bits == 8 else DType.U8
    if found.bits == 8 and form in PAIRED:
        kind, steps = DType.I16, steps // 2
    lanes = width // 2 if is_shared else width
    buffer = _buffer(w, f"{name}.packed", kind, count, depth // per_block, lanes, steps)
    return w.constant(Packed(buffer, values, origin=name))


def pairs(weights: Array) -> Array:
    """Two bytes, of which the second is not -128, as a 16-bit integer: the first plus 256 times the
    second."""
    first, second = (weights[..., start::2].astype(np.int32) for start in (0, 1))
    both = first + 256 * second
    assert both.min(initial=0) >= -(2**15), "weights are -127..127"
    return np.asarray(both.astype(np.int16))


def halves(low: Array, high: Array) -> Array:
    """Two integers of 4 bits in a byte."""
    fifteen = np.uint8(15)
    parts = (part.astype(np.int8).astype(np.uint8) & fifteen for part in (low, high))
    first, second = parts
    return np.asarray(first | second << np.uint8(4))


def _buffer(w: Writer, name: str, dtype: DType, *shape: int) -> Buffer:
    return Buffer(w.fresh(name), dtype, tuple(map(Dim.of, shape)))


def _panels(matrix: Array, panels: int) -> Array:
    """[k, columns] -> [panel, k, column], with zeros behind the columns."""
    wide = padded(matrix, (matrix.shape[0], panels * COLUMNS))
    return np.moveaxis(wide.reshape(matrix.shape[0], panels, COLUMNS), 1, 0)


# Loops


def groups(found: Grouped, w: Writer, context: Context) -> Emit | None:
    """Tiles of some rows and a panel of columns, where panels are filled well enough: with vectors,
    half of them."""
    panels, target = round_up(found.columns, COLUMNS), context.target
    has_vectors = target.lanes > SCALAR_LANES
    most = 2 * found.columns if has_vectors else 5 * found.columns // 4
    if not target.rows or panels > most:
        return None
    if found.x.dtype is DType.F32:
        tiles = partial(_emit, found, w, target.group_rows or target.rows, _multiply)
        if found.groups is None and found.depth <= LEAST_GROUP:
            return tiles if has_vectors else None
        if target.parts and _splits(found, context):
            return partial(_emit_parts, target.parts, found, w)
        return tiles
    if found.own is not None and found.scale.dtype is not DType.F16:
        return None
    whole = found.group % LEAST_GROUP == 0 and found.group <= GREATEST_GROUP
    inner = found.x.buffer.shape[-1]
    if not target.dots or not whole or inner != round_up(found.depth, found.group):
        return None
    if target.dots in PAIRED and found.bits == 8 and found.w.buffer.name not in context.balanced:
        return None
    dots = _dots if found.own is None else _blocks
    panels = target.rows if target.dots in WIDE else 1
    return partial(_emit, found, w, target.rows, partial(dots, target.dots), panels)


Tile = Callable[[Dim, Mapping[str, Dim], Load, Mapping[str, Dim]], None]
"""Writes one tile: its panel, the variables where it begins, the sums, and the sizes that tiles
have."""


def _multiply(found: Grouped, w: Writer) -> Tile:
    weights, scales = packed_steps(found, w), packed_scales(found, w)

    def tile(panel: Dim, at: Mapping[str, Dim], sums: Load, sizes: Mapping[str, Dim]) -> None:
        w.micro(
            f"raot_multiply_q{found.bits}_f32", sums=sums, left=moved(found.x, at),
            weights=weights[panel, ZERO, ZERO], scales=scales[panel, ZERO, ZERO],
            depth=found.depth, group=found.group, **sizes,
        )  # fmt: skip

    return tile


def _dots(form: str, found: Grouped, w: Writer) -> Tile:
    weights, scales = packed_blocks(found, w, form), packed_scales(found, w)
    blocks = COLUMNS // BLOCKS[form][0]

    def tile(panel: Dim, at: Mapping[str, Dim], sums: Load, sizes: Mapping[str, Dim]) -> None:
        w.micro(
            f"raot_dot_groups{form}_q{found.bits}", sums=sums, left=moved(found.x, at),
            weights=weights[panel * blocks, ZERO, ZERO, ZERO], scales=scales[panel, ZERO, ZERO],
            groups=found.scale.buffer.shape[0], group=found.group, **sizes,
        )  # fmt: skip

    return tile


def _blocks(form: str, found: Grouped, w: Writer) -> Tile:
    own, columns = found.own, BLOCKS[form][0]
    assert own is not None
    weights, blocks = packed_blocks(found, w, form), COLUMNS // columns
    scales = packed_scales(found, w, BLOCK_SCALES[form])
    moving = [lp for lp in found.nest.loops if stride(found.x, lp.variable) != 0]

    def tile(panel: Dim, at: Mapping[str, Dim], sums: Load, sizes: Mapping[str, Dim]) -> None:
        own_row = step_of(own, moving[-1].variable) if moving else own.buffer.shape[-1]
        w.micro(
            f"raot_dot_blocks{form}_q{found.bits}", sums=sums, left=moved(found.x, at),
            weights=weights[panel * blocks, ZERO, ZERO, ZERO], scales=scales[panel, ZERO, ZERO],
            own=moved(own, at), groups=found.scale.buffer.shape[0], group=found.group,
            own_row=own_row, **sizes,
        )  # fmt: skip

    return tile


def _emit(
    found: Grouped,
    w: Writer,
    most: int,
    tile_of: Callable[[Grouped, Writer], Tile],
    panels: int = 1,
) -> None:
    """Tiles of at most so many rows, or `panels` of one row, of which results may be the sums."""
    x, column = found.x, found.column
    moving = [lp for lp in found.nest.loops if stride(x, lp.variable) != 0]
    rows = moving[-1] if moving else None
    tile = tile_of(found, w)
    outer = [lp for lp in found.nest.loops if lp not in (rows, column)]
    whole = _stored(found) if rows is None and panels > 1 else None
    if whole is not None:
        sizes = {"rows": ONE, "columns": Dim.of(found.columns), "left_row": x.buffer.shape[-1]}
        with w.nest(outer):
            tile(ZERO, found.start, moved(whole, {column.variable: ZERO}), sizes)
        return
    first_row, row_count = (rows.start, rows.extent) if rows else (ZERO, ONE)
    high, wide = (most, COLUMNS) if rows or panels == 1 else (1, panels * COLUMNS)
    with (
        w.nest(outer),
        w.tiles((f"{column.variable}_panel", "width"), found.columns, wide) as (c, width),
        w.tiles(("row_tile", "height"), row_count, most) as (r, height),
    ):
        sums = Buffer(w.fresh("sums"), DType.F32, (Dim.of(high), Dim.of(wide)), REGISTER)
        w.add(Reserve(sums))
        at = dict(found.start)
        if rows is not None:
            at[rows.variable] = first_row + r
        left_row = x.buffer.shape[-1] if rows is None else step_of(x, rows.variable)
        sizes = {"rows": height, "columns": width, "left_row": left_row}
        tile(c // COLUMNS, at, sums[ZERO, ZERO], sizes)
        finish(found, w, sums, (rows, first_row + r, height), (c, width))


def _stored(found: Grouped) -> Load | None:
    """The contiguous results of a row that are its sums, if these are whole panels."""
    match found.after:
        case (Store(buffer, index, value),) if value == found.total:
            place = Load(buffer, index)
            contiguous = stride(place, found.column.variable) == 1
            return place if contiguous and found.columns % COLUMNS == 0 else None
    return None


def _splits(found: Grouped, context: Context) -> bool:
    """Whether rows are split into integers: groups are whole lines, and all scales are numbers."""
    finite = found.scale.buffer.name in context.finite
    return found.group % LEAST_GROUP == 0 and finite and found.depth <= DEEPEST_PARTS


def _emit_parts(form: str, found: Grouped, w: Writer) -> None:
    """Each row is split once, and multiplied by all panels of columns."""
    x, column = found.x, found.column
    lines, padded_columns = -(-found.depth // LEAST_GROUP), round_up(found.columns, COLUMNS)
    weights, scales = packed_blocks(found, w, f"_parts{form}"), packed_scales(found, w)
    block_columns, steps = BLOCKS[f"_parts{form}"]
    split = {
        "parts": w.buffer("parts", DType.I16, lines * LEAST_GROUP // steps, 2, steps),
        "units": w.buffer("units", DType.F32, lines),
        "small": w.buffer("small", DType.I32, lines),
    }
    if found.bits == 4:
        split["offsets"] = w.buffer("offsets", DType.I32, lines, 2)
    operands = {name: buffer[(ZERO,) * buffer.rank] for name, buffer in split.items()}
    sizes = {"lines": lines, "group_lines": found.group // LEAST_GROUP, "depth": found.depth}
    with w.nest([lp for lp in found.nest.loops if lp != column]):
        left = moved(x, found.start)
        w.micro(f"raot_split{form}_q{found.bits}_f32", left=left, depth=found.depth, **operands)
        with w.tiles((f"{column.variable}_tile", "width"), found.columns, WIDEST_PARTS) as (
            c,
            width,
        ):
            sums = w.reserve("sums", DType.F32, REGISTER, min(WIDEST_PARTS, padded_columns))
            panel, blocks = c // COLUMNS, COLUMNS // block_columns
            w.micro(
                f"raot_dot_parts{form}_q{found.bits}", sums=sums[(ZERO,)], left=left, columns=width,
                weights=weights[panel * blocks, ZERO, ZERO, ZERO],
                scales=scales[panel, ZERO, ZERO], **operands, **sizes,
            )  # fmt: skip
            with w.range("c", width) as at:
                w.finish(found.after, found.total, sums[(at,)], {column.variable: c + at})


def finish(
    found: Grouped,
    w: Writer,
    sums: Buffer,
    rows: tuple[For | None, Dim, Dim],
    columns: tuple[Dim, Dim],
) -> None:
    """The statements that follow each sum of a tile: rows and columns from the first on."""
    loop, first, height = rows
    start, width = columns
    with w.range("r", height) as r, w.range("c", width) as c:
        at = {found.column.variable: start + c}
        if loop is not None:
            at[loop.variable] = first + r
        w.finish(found.after, found.total, Load(sums, (r, c)), at)


EXAMPLES = (
    Example(
        why="weights of 4 bits in groups of 8, in one panel of columns",
        target="dsp",
        before=GROUPS,
        after="""
            kernel @dot(..., %w.packed: u8[1, 20, 16], %s.packed: f32[1, 3, 32]) -> (...) {
              for row_tile in 0..(n + 3) // 4 {
                let height = min(4, n - 4*row_tile)
                reserve %sums: f32[4, 32]
                micro raot_multiply_q4_f32(...
            ...
            }""",
    ),
    Example(
        why="quantized rows: blocks of 16 steps of four columns",
        target="mve",
        before=ROW_GROUPS,
        after="""
            kernel @dot(..., %w.packed: i8[8, 4, 4, 16], %s.packed: f32[1, 2, 32]) -> (...) {
            ...
                micro raot_dot_groups_mve_q8(...
            ...
                    %y[...] = (%sums[r_0, c] * %r[...])
            ...
            }""",
    ),
    Example(
        why="rows with a scale for each group; two loops are the columns",
        target="asimd",
        before=ROW_BLOCKS,
        after="""
            kernel @dot(..., %w.packed: i8[1, 16, 32, 4], %s.packed: f16[1, 2, 32]) -> (...) {
            ...
                micro raot_dot_blocks_asimd_q8(...
            ...""",
    ),
    Example(
        why="the sums of a row are its results",
        target="dsp",
        before=ONE_ROW,
        after="""
            kernel @dot(...) -> (%y: f32[160]) {
              micro raot_dot_blocks_s16_q8(%y[0], %x[0], ...) [1, 160, ...]
            }""",
    ),
    Example(
        why="rows of floats are split into two integers of 16 bits",
        target="mve",
        before=FLOAT_GROUPS,
        after="""
            kernel @dot(..., %w.packed: u8[8, 4, 4, 8], %s.packed: f32[1, 2, 32]) -> (...) {
              for i in 0..n {
                micro raot_split_mve_q4_f32(...
                reserve %sums: f32[32]
                micro raot_dot_parts_mve_q4(...
            ...
            }""",
    ),
    Example(
        why="a single group of few steps, with vectors",
        target="mve",
        before=ONE_GROUP,
        after="""
            kernel @dot(..., %w.packed: i8[1, 20, 32], %s.packed: f32[1, 1, 32]) -> (...) {
            ...
                micro raot_multiply_q8_f32(...
            ...
            }""",
    ),
    Example(why="the same without vectors: loops are as fast", target="dsp", before=ONE_GROUP),
    Example(why="no groups: weights have no scale", target="dsp", before=MATMUL),
)
