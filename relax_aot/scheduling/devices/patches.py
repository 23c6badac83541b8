# SPDX-License-Identifier: Apache-2.0
"""Windows of a tile of pixels whose part of the image is in shared memory once.

An implicit product copies a pixel for each place of a window, or gathers its channels. Here a block
copies the part of the image that the windows of its tile of lines and columns reach, once, with
channels last in groups of 16 bytes, or of 8 where less is filled up. Outside of the image are zeros
or zero points. Then nothing is copied while matrix units multiply: a lane loads a group of a pixel
at a time, which is what it needs of one product, or of two. A table tells how far the groups are
from the first place of a window, so that channels and places are one axis and nothing is filled up
for each place. Weights are constants in the order in which lanes have them in registers, which
they load from global memory one step ahead. Filters are the rows of the products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ONE, ZERO, Dim, ceildiv, dim_min, simplify
from relax_aot.ir.loops import Barrier, Buffer, Cast, Expr, If, Lit, Load, Select, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by, moved, step_of
from relax_aot.scheduling.devices.operands import (
    At,
    Product,
    all_of,
    below,
    extent,
    inside,
    split,
)
from relax_aot.scheduling.devices.patch_forms import (
    EACH,
    Form,
    blocks_of,
    chunk_of,
    form_of,
    group_of,
    packed_weights,
    tiles_of,
    windows_of,
)
from relax_aot.scheduling.devices.units import COLUMNS, ROWS, Unit
from relax_aot.scheduling.devices.vectors import BYTES, VECTOR
from relax_aot.scheduling.devices.window_tables import bounded
from relax_aot.scheduling.packing import Packed, round_up
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

FEW, MORE = 32, 64
"""Filters up to which whole vectors of half precision have this form, too, where windows could
share lines of pixels, and where not."""
HELD = (48, 24)
"""Values that a thread loads before it stores the first of them: of the first channels, and of
others, when sums are in registers."""
REACH = (Dim.of(-(1 << 30)), Dim.of(1 << 30))
"""Bounds of a line or column of an image or around it."""
Pair = tuple[Dim, Dim]
"""A line and a column."""
_Source = tuple[Load, list[Expr]]
"""An element of an image, and when it exists."""


def patch_launches(
    w: Writer, product: Product, context: Context, enough: int, *, slid: bool
) -> bool:
    """Writes the launches of a product of windows for large and small sizes, if it is one and there
    is room. Whole vectors of half precision have other forms for more filters. `slid`: one is that
    of windows that share lines of pixels."""
    windows = windows_of(product, context, w.bounds)
    if windows is None or product.found.zeros != (0, 0):
        return False
    other = extent(windows.filters).constant > (FEW if slid else MORE)
    if other and windows.image.dtype.is_half and windows.have_vectors(w.bounds):
        return False
    group = group_of(windows)
    reduced = max(context.reduced.count(number) for number in range(2))
    tiles = tiles_of(windows, group, w.bounds, reduced)
    if not tiles:
        return False
    chunk = chunk_of(windows, tiles[0], group)
    if chunk is None:
        return False
    forms = [form_of(windows, tile, group, chunk) for tile in tiles]
    large, small = forms[0], [form for form in forms if form.fits][-1]
    whole = product.found.sum.dtype is DType.I32
    unit = Unit(windows.weights.dtype, windows.image.dtype, DType.I32 if whole else DType.F32)
    weights = w.constant(packed_weights(w, large))
    counts = [blocks_of(windows, form.tile, w.bounds) for form in (large, small)]
    many = ONE if small is large else simplify(dim_min(counts[0] // enough, 1), w.bounds)
    for form, count, chosen in zip((large, small), counts, (many, 1 - many), strict=True):
        if chosen != 0:
            launch = _Launch(w, form, unit, weights)
            launch.emit(simplify(count * chosen, w.bounds))
    return True


@dataclass(frozen=True, slots=True)
class _Place:
    """The number of the filters of a block, its first pixel, and the variables of its image."""

    across: Dim
    pixel: Pair
    image: At


@dataclass(frozen=True, slots=True)
class _Factors:
    """Registers of a lane: weights of two steps, a group of a pixel, and where the groups of both
    steps are."""

    left: Buffer
    right: Buffer
    far: Buffer


@dataclass(frozen=True, slots=True)
class _Launch:
    """The code of one block of warps."""

    w: Writer
    form: Form
    unit: Unit
    weights: Buffer

    def emit(self, grid: Dim) -> None:
        w, form, tile = self.w, self.form, self.form.tile
        kind, elements_ = form.windows.image.dtype, form.pitch * form.group
        with w.range("block", grid, axis="block") as block:
            place = self._place(block)
            patch = w.reserve("patch", kind, "shared", prod(form.reach) * elements_)
            with w.range("warp", tile.threads // LANES, axis="warp") as warp:
                self._warp(block, place, patch, warp)

    def _place(self, block: Dim) -> _Place:
        """What a block computes."""
        w, tile, windows = self.w, self.form.tile, self.form.windows
        sides = zip(windows.axes, (tile.lines, tile.columns), strict=True)
        counts = [simplify(ceildiv(axis.count, side), w.bounds) for axis, side in sides]
        counts.append(Dim.of(-(-extent(windows.filters).constant // tile.filters)))
        position, found = block, list[Dim]()
        for count in reversed(counts):
            before = w.short("tile", position // count)
            found.append(w.let("at", position - before * count, ZERO, count - 1))
            position = before
        across, column, line = found
        return _Place(
            across, (line * tile.lines, column * tile.columns), split(w, windows.outer, position)
        )

    def _warp(self, block: Dim, place: _Place, patch: Buffer, warp: Dim) -> None:
        w, form, tile, unit = self.w, self.form, self.form.tile, self.unit
        own = (tile.own[0] // ROWS, tile.own[1] // COLUMNS)
        sums = w.reserve("sums", unit.total, "lane", LANES, *own, 4)
        factors = _Factors(
            w.reserve("left", unit.left, "lane", LANES, 2, form.products, own[0], unit.width),
            w.reserve("right", unit.right, "lane", LANES, form.group),
            w.reserve("far", DType.I32, "lane", LANES, 2),
        )
        offsets = self._table()
        for chunk in range(form.chunks):
            if chunk > 0:
                place = self._place(block)
                w.add(Barrier("warp"))
            self._copy(place, patch, warp, chunk * form.chunk, factors.right)
            if chunk == 0:  # now that what was copied takes no registers
                with w.range("lane", LANES, axis="lane") as lane:
                    self._start(place, warp, sums, lane)
            self._multiply(place.across, patch, offsets, warp, chunk, sums, factors)
        place = self._place(block)
        with w.range("lane", LANES, axis="lane") as lane:
            found = form.windows.product.found
            for at, i, j in self._results(place, warp, sums, lane):
                value = sums[(lane, i // 2, j // 2, i % 2 * 2 + j % 2)]
                w.finish(found.after, found.sum, value, at)

    def _table(self) -> Buffer:
        """How far the groups of each step are, in groups, and those of a step behind the last."""
        w, values = self.w, [*self.form.offsets(), *[0] * EACH]
        buffer = Buffer(w.fresh("offsets"), DType.I32, (Dim.of(len(values)),))
        return w.constant(Packed(buffer, lambda _: np.array(values, np.int32)))

    def _copy(self, place: _Place, patch: Buffer, warp: Dim, channel: int, held: Buffer) -> None:
        """Copies channels of the image from one on, and waits for all threads. `held`: registers
        for a group. Compilers load all groups of a loop that they take apart before they store one:
        so only as many groups at once as there are registers for."""
        w, form, threads = self.w, self.form, self.form.tile.threads
        count, vectors = prod(form.reach) * form.groups, form.have_vectors(w.bounds)
        copies, held_at_once = -(-count // threads), HELD[channel > 0]
        parts = 1 if vectors else -(-copies * form.group // held_at_once)
        each, exact = -(-copies // parts), vectors and channel > 0
        with w.range("part", parts) as part:
            with w.range("lane", LANES, axis="lane") as lane:
                first = w.named("thread", warp * LANES + lane + part * (each * threads))
                with w.range("e", ceildiv(count - first, threads) if exact else each) as e:
                    item, whole = first + e * threads, exact or count % (each * threads) == 0
                    exists = [] if whole else [below(item, Dim.of(count))]
                    self._item(place, item, exists, patch, channel, held[lane, ZERO])
            if vectors:
                w.micro("raot_wait_copies")
            w.add(Barrier("warp"))

    def _item(
        self, place: _Place, item: Dim, exists: list[Expr], patch: Buffer, channel: int, held: Load
    ) -> None:
        """Copies one of the groups, if it `exists`."""
        w, form, (lines, columns) = self.w, self.form, self.form.reach
        pixels = lines * columns
        near, far = (form.groups, 1) if form.have_vectors(w.bounds) else (1, pixels)
        pixel = w.short("pixel", item // near % pixels)
        group = w.short("group", item // far % form.groups)
        line = w.short("line", pixel // columns)
        source = self._source(place, (line, w.short("near", pixel - line * columns)))
        to = patch[(pixel * form.pitch + group) * form.group,]
        self._group(source, exists, channel + group * form.group, to, held)

    def _source(self, place: _Place, near: Pair) -> _Source:
        """A pixel of the image, and when it exists. `near`: how far it is behind the first one."""
        w, windows = self.w, self.form.windows
        index, at, conditions = list(windows.image.index), dict(place.image), list[Expr]()
        for axis, first, behind in zip(windows.axes, place.pixel, near, strict=True):
            if axis.pixels is None:
                continue
            at[axis.pixels.variable] = first
            if axis.tap is not None:
                at[axis.tap.variable] = ZERO
            own = w.let("at", index[axis.at].substitute(at) + behind, *REACH)
            conditions += inside({"": own}, {"": (ZERO, windows.image.buffer.shape[axis.at])})
            index[axis.at] = own
        at |= {loop.variable: ZERO for loop in windows.product.steps if loop.extent == 1}
        return Load(windows.image.buffer, tuple(dim.substitute(at) for dim in index)), conditions

    def _group(
        self, source: _Source, exists: list[Expr], channel: Dim, to: Load, held: Load
    ) -> None:
        """Copies a group of channels of a pixel, if it `exists`."""
        w, form, windows = self.w, self.form, self.form.windows
        kind, (image, conditions) = windows.image.dtype, source
        fill = 0 if windows.product.padded is None else windows.product.fills[windows.right]
        zero = Lit(0.0, kind) if kind.is_float else Lit(fill, kind)
        end = [below(channel, Dim.of(windows.depth))] if windows.depth % form.chunk else []
        name, depth = windows.channels.variable if windows.channels else "", Dim.of(windows.depth)

        def filled() -> None:
            with w.range("s", form.group) as s:
                w.add(Store(held.buffer, (*held.index[:-1], s), zero))

        if form.have_vectors(w.bounds):
            with w.block() as copied:
                w.micro(
                    f"raot_copy_async_{kind.value}", to=to, count=form.group, ahead=0, part=0,
                    apart=0, near=0, far=0, **{"from": moved(image, {name: channel})},
                )  # fmt: skip
            with w.block() as outside:
                filled()
                w.micro(self._name("store"), to=to, **{"from": held})
            with w.when(*exists):
                w.add(If(all_of([*conditions, *end]), tuple(copied), tuple(outside)))
            return
        if form.group == VECTOR and kind.is_half and windows.depth % form.group == 0:
            known = all_of([*exists, *conditions, *end])
            inside_ = Select(known, Lit(1, DType.I64), Lit(0, DType.I64))
            w.micro(
                f"raot_load_planes_{kind.value}", to=held, ahead=0,
                count=bounded(w, "count", inside_, ONE), apart=step_of(image, name),
                **{"from": moved(image, {name: channel})},
            )  # fmt: skip
        else:
            filled()
            rest = windows.depth % form.group != 0 or bool(end)
            with (
                w.when(*exists, *conditions), w.range("s", form.group) as s,
                w.when(*[below(channel + s, depth)] if rest else ()),
            ):  # fmt: skip
                value = moved(image, {name: channel + s})
                w.add(Store(held.buffer, (*held.index[:-1], s), value))
        with w.when(*exists):
            w.micro(self._name("store"), to=to, **{"from": held})

    def _name(self, way: str) -> str:
        """Of a micro-kernel for a group in shared memory."""
        form, kind = self.form, self.form.windows.image.dtype
        whole = way == "store" and form.group * kind.bytes == BYTES
        return f"raot_{way}{'' if whole else '_group'}{form.group}_{kind.value}"

    def _multiply(
        self, across: Dim, patch: Buffer, offsets: Buffer, warp: Dim, chunk: int, sums: Buffer,
        factors: _Factors,
    ) -> None:  # fmt: skip
        """Multiplies the steps of some channels. The weights of a step, and where its groups are,
        are loaded while the step before is multiplied."""
        w, form, tile, unit = self.w, self.form, self.form.tile, self.unit
        matrices, columns = int(sums.shape[1]), int(sums.shape[2])
        left, right, far = factors.left, factors.right, factors.far
        first_matrix = w.named("own_filters", warp // tile.warps[1] * matrices)
        line, column = self._own(warp)
        axes, line_of = form.windows.axes, form.reach[1]
        most = Dim.of(max(form.offsets()))
        row = w.named("row", across * form.chunks * form.steps * form.products)
        wide = self.weights.shape[1]

        def fetch(half: Dim, step: Dim, near: Dim) -> None:
            """Loads what belongs to the step so `near` behind one."""
            with w.range("lane", LANES, axis="lane") as lane:
                w.micro(
                    "raot_load_offset_i32", to=far[lane, half], ahead=step * EACH,
                    near=near * EACH, **{"from": offsets[lane % EACH,]},
                )  # fmt: skip
                with w.range("h", form.products) as h, w.range("i", matrices) as i:
                    begin = (first_matrix * LANES + lane) * unit.width
                    w.micro(
                        f"raot_load_weights{unit.width}_{unit.left.value}",
                        to=left[lane, half, h, i, ZERO],
                        ahead=(step + chunk * form.steps) * form.products * wide,
                        near=(near * form.products + h) * wide + i * (LANES * unit.width),
                        **{"from": self.weights[row, begin]},
                    )  # fmt: skip

        def multiply(half: Dim, *, some: int = 0) -> None:
            """Multiplies a step, of which only so many groups exist, if `some`."""
            size = form.pitch * form.group
            with w.range("j", columns) as j:
                pixel = j * COLUMNS
                behind = pixel // tile.columns * (axes[0].step * line_of)
                behind += pixel % tile.columns * axes[1].step
                with w.range("lane", LANES, axis="lane") as lane:
                    own = line * (axes[0].step * line_of) + (column + lane // 4) * axes[1].step
                    ahead = bounded(w, "ahead", Cast(far[lane, half], DType.I64), most)
                    if some:
                        with w.range("s", form.group) as s:
                            w.add(Store(right, (lane, s), Lit(0.0, unit.right)))
                    with w.when(*[below(lane % EACH, Dim.of(some))] if some else ()):
                        w.micro(
                            self._name("load"), to=right[lane, ZERO], ahead=ahead * form.group,
                            near=behind * size, **{"from": patch[own * size,]},
                        )  # fmt: skip
                with w.range("h", form.products) as h, w.range("i", matrices) as i:
                    w.micro(
                        unit.product, sums=sums[(ZERO, i, j, ZERO)],
                        left=left[ZERO, half, h, i, ZERO],
                        right=right[ZERO, h * (unit.width // 2)],
                        left_row=prod(map(int, left.shape[1:])), right_row=form.group,
                        sums_row=prod(map(int, sums.shape[1:])),
                    )  # fmt: skip

        masked = int(form.rest > 0 and unit.left.is_float)
        pairs = (form.steps - masked) // 2
        fetch(ZERO, ZERO, ZERO)
        if pairs > 0:
            with w.range("pair", pairs) as pair, w.range("half", 2) as half:
                fetch(1 - half, pair * 2, half + 1)
                multiply(half)
        for step in range(pairs * 2, form.steps):
            half = Dim.of(step % 2)
            if step + 1 < form.steps:
                fetch(1 - half, Dim.of(step + 1), ZERO)
            multiply(half, some=form.rest if masked and step + 1 == form.steps else 0)

    def _own(self, warp: Dim) -> Pair:
        """The first line and column of a warp in its tile."""
        w, tile = self.w, self.form.tile
        first = w.named("own_pixels", warp % tile.warps[1] * tile.own[1])
        line = w.named("own_line", first // tile.columns)
        return line, w.named("own_column", first - line * tile.columns)

    def _start(self, place: _Place, warp: Dim, sums: Buffer, lane: Dim) -> None:
        """Starts the sums of a thread: those that are no results with zero."""
        w, start, unit = self.w, self.form.windows.product.found.start, self.unit
        zero = Lit(0, DType.I32) if unit.total is DType.I32 else Lit(0.0, DType.F32)
        _, *shape = sums.shape
        with w.range("i", shape[0]) as i, w.range("j", shape[1]) as j, w.range("n", 4) as n:
            w.add(Store(sums, (lane, i, j, n), start if isinstance(start, Lit) else zero))
        if isinstance(start, Lit):
            return
        for at, i, j in self._results(place, warp, sums, lane, indexed_by(start)):
            index = (lane, i // 2, j // 2, i % 2 * 2 + j % 2)
            w.place((Store(sums, index, start),), {}, at)

    def _results(
        self, place: _Place, warp: Dim, sums: Buffer, lane: Dim, used: frozenset[str] | None = None
    ) -> Iterator[tuple[dict[str, Dim], Dim, Dim]]:
        """Each result of a lane: two rows and two columns of each matrix (PTX ISA, m16n8k16).
        `used`: the loop variables that matter, where the last filter stands for those beyond it."""
        w, tile, windows = self.w, self.form.tile, self.form.windows
        count = extent(windows.filters)
        first = place.across * tile.filters + warp // tile.warps[1] * tile.own[0] + lane // 4
        line, column = self._own(warp)
        with w.range("i", 2 * sums.shape[1]) as i:
            near = first + i // 2 * ROWS + i % 2 * (ROWS // 2)
            row = w.let("filter", near, ZERO, round_up(count.constant, tile.filters) - ONE)
            partial = count.constant % tile.filters != 0
            if used is not None and partial:
                row, partial = w.named("last", dim_min(row, count - 1)), False
            with w.when(*[below(row, count)] if partial else ()):
                at = {**place.image, **split(w, windows.filters, row)}
                with w.range("j", 2 * sums.shape[2]) as j:
                    pixel = j // 2 * COLUMNS
                    right = pixel % tile.columns + lane % 4 * 2 + j % 2
                    own = (line + pixel // tile.columns, column + right)
                    pixels = self._pixel(place, own, used)
                    with w.when(*pixels[1]):
                        yield {**at, **pixels[0]}, i, j

    def _pixel(
        self, place: _Place, own: Pair, used: frozenset[str] | None
    ) -> tuple[dict[str, Dim], list[Expr]]:
        """The loop variables of a pixel of the tile, and when it exists."""
        w, tile, at, conditions = self.w, self.form.tile, dict[str, Dim](), list[Expr]()
        sides = (("line", tile.lines), ("column", tile.columns))
        axes = zip(self.form.windows.axes, place.pixel, own, sides, strict=True)
        for axis, first, near, (label, side) in axes:
            name = axis.pixels.variable if axis.pixels else ""
            if axis.pixels is None or (used is not None and name not in used):
                continue
            at[name] = w.let(label, first + near, ZERO, ceildiv(axis.count, side) * side - 1)
            if simplify(axis.count % side, w.bounds) != 0:
                conditions.append(below(at[name], axis.count))
        return at, conditions
