# SPDX-License-Identifier: Apache-2.0
"""Which products have patches of an image in shared memory (patches.py), their tiles, and where the
groups of channels are."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as pairs_of
from math import prod

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, ceildiv, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, For, Load
from relax_aot.scheduling.contraction import stride
from relax_aot.scheduling.devices.operands import (
    Product,
    extent,
)
from relax_aot.scheduling.devices.vectors import BYTES, aligned
from relax_aot.scheduling.nest import coefficient_dim, greatest
from relax_aot.scheduling.packing import Arrays, Packed, elements, padded, round_up
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

EACH = 4
"""Groups of a step: lanes with the rows of one column have one each."""
MOST, EACH_WARP = 40 << 10, 12800
"""Bytes of the part of an image in shared memory, at most, and for each warp of a block: a quarter
of the warps of a processor have room."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a warp multiplies, and how many `instructions` that takes for each product. `warps`: of
    a block, along filters and pixels, as many for each quarter of a processor."""

    filters: int
    pixels: int
    instructions: float
    warps: tuple[tuple[int, int], ...]

    @property
    def results(self) -> int:
        return self.filters * self.pixels


SHAPES = {
    1: (
        Shape(32, 64, 2.0, ((1, 4), (2, 2), (4, 2))),
        Shape(48, 32, 2.05, ((1, 4), (2, 4), (4, 2))),
        Shape(16, 64, 2.5, ((1, 4),)),
    ),
    2: (
        Shape(32, 32, 1.9, ((1, 4), (2, 4), (4, 2))),
        Shape(16, 64, 2.1, ((1, 4),)),
    ),
}
"""For groups of one product and of two."""
MOST_CHUNKS = 4
"""Times that channels are copied."""
WORD = 4
"""Bytes of a row of a matrix that a lane has in one register."""
BANKS = 128
"""Bytes that lanes read at once."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a tile: the loop over `pixels` and the one over places of a window, if there is
    one, move along axis `at` of the image by `step` and `apart` elements."""

    pixels: For | None = None
    tap: For | None = None
    at: int = -1
    step: int = 1
    apart: int = 1

    @property
    def taps(self) -> int:
        return 1 if self.tap is None else self.tap.extent.constant

    @property
    def count(self) -> Dim:
        return ONE if self.pixels is None else self.pixels.extent

    def reach(self, pixels: int) -> int:
        """Elements of the image that windows of so many pixels reach."""
        return (pixels - 1) * self.step + (self.taps - 1) * self.apart + 1


@dataclass(frozen=True, slots=True)
class Windows:
    """A product of `weights` and windows of an `image`, which is the right factor if it is `right`.
    `outer`: loops over images; `axes`: of pixels; `channels`: of an image."""

    product: Product
    weights: Load
    image: Load
    right: bool
    filters: tuple[For, ...]
    outer: tuple[For, ...]
    axes: tuple[Axis, Axis]
    channels: For | None

    @property
    def depth(self) -> int:
        return 1 if self.channels is None else self.channels.extent.constant

    @property
    def taps(self) -> int:
        return self.axes[0].taps * self.axes[1].taps

    def have_vectors(self, bounds: Bounds) -> bool:
        """Whether 16 bytes of the channels of a pixel are neighbors, and aligned."""
        if self.channels is None or self.depth % (BYTES // self.image.dtype.bytes) != 0:
            return False
        every = (*self.product.found.nest.loops, *self.product.steps)
        width = BYTES // self.image.dtype.bytes
        return aligned(self.product, self.image, (self.channels,), every, width, bounds)


def windows_of(product: Product, context: Context, bounds: Bounds) -> Windows | None:
    """The roles of the loops of a product of windows with known weights, if it is one."""
    found = product.found
    if found.computed or product.batch or product.even:
        return None
    for right in (True, False):
        image, weights = (found.right, found.left) if right else (found.left, found.right)
        pixels, filters = product.rows, product.columns
        if right:
            pixels, filters = filters, pixels
        fixed = (*filters, *product.steps)
        known = all(loop.start == 0 and loop.extent.is_constant for loop in fixed)
        if (
            weights.buffer.name not in context.constants
            or product.padded not in (None, image)
            or not (known and filters and pixels)
            or any(loop.start != 0 for loop in pixels)
        ):
            continue
        axes = [one for loop in pixels if (one := _axis(product, image, loop, bounds)) is not None]
        axes.sort(key=lambda axis: (axis.tap is not None, axis.at))
        *_, first, second = (Axis(), Axis(), *axes)
        both = (first, second) if first.at < second.at else (second, first)
        taps = [axis.tap for axis in both if axis.tap is not None]
        outer = tuple(loop for loop in pixels if loop not in (first.pixels, second.pixels))
        others = [loop for loop in product.steps if loop not in taps]
        channels = [loop for loop in others if loop.extent != 1]
        clipped = {loop.variable for loop in others} & product.ends(image).keys()
        own = {loop.variable for loop in channels}
        spatial = {loop.variable for loop in (*pixels, *taps)}
        mixed = any(dim.symbols & own and dim.symbols & spatial for dim in image.index)
        if len(channels) > 1 or mixed or clipped or first.taps * second.taps == 1:
            continue
        loops = (*pixels, *product.steps)
        if any(stride(image, loop.variable) is None for loop in loops):
            continue
        return Windows(
            product, weights, image, right, filters, outer, both,
            channels[0] if channels else None,
        )  # fmt: skip
    return None


def _axis(product: Product, image: Load, pixels: For, bounds: Bounds) -> Axis | None:
    """How pixels and places move along an axis of the image; None where what is clipped is not
    what is outside of the image."""
    dims = [at for at, dim in enumerate(image.index) if pixels.variable in dim.symbols]
    if len(dims) != 1:
        return None
    dim, size = image.index[dims[0]], image.buffer.shape[dims[0]]
    others = (*product.found.nest.loops, *product.steps)
    moving = [loop for loop in others if loop.variable in dim.symbols and loop != pixels]
    taps = [loop for loop in product.steps if loop in moving]
    if moving != taps or len(taps) > 1:
        return None
    tap = taps[0] if taps else None
    moves = [coefficient_dim(dim, loop.variable) for loop in (pixels, *taps)]
    if not all(one is not None and one.is_constant and one.constant > 0 for one in moves):
        return None
    step, *apart = (one.constant for one in moves if one is not None)
    axis = Axis(pixels, tap, dims[0], step, *apart)
    ends = product.ends(image)
    for loop in taps:
        if loop.variable in ends:
            before = -dim.substitute({loop.variable: ZERO})
            more = before + axis.apart - 1
            wanted = (more // axis.apart, (more + size) // axis.apart)
            pairs = zip(ends[loop.variable], wanted, (loop.start, loop.stop), strict=True)
            for end, own, whole in pairs:
                if end != whole and simplify(end - own, bounds) != 0:
                    return None
    return axis


@dataclass(frozen=True, slots=True)
class Tile:
    """`lines` by `columns` pixels, and `filters`, of `warps` along filters and pixels."""

    lines: int
    columns: int
    filters: int
    warps: tuple[int, int]

    @property
    def pixels(self) -> int:
        return self.lines * self.columns

    @property
    def own(self) -> tuple[int, int]:
        """Filters and pixels of a warp."""
        return self.filters // self.warps[0], self.pixels // self.warps[1]

    @property
    def threads(self) -> int:
        return prod(self.warps) * LANES

    @property
    def room(self) -> int:
        """Bytes in shared memory."""
        return min(MOST, prod(self.warps) * EACH_WARP)


def tiles_of(windows: Windows, group: int, bounds: Bounds, reduced: int = 0) -> tuple[Tile, ...]:
    """From the largest to the smallest, with as few filters that do not exist as possible. Each
    time that they are `reduced`, warps have fewer results; none where there are no such forms."""
    filters = extent(windows.filters).constant
    products = group * windows.image.dtype.bytes // (2 * WORD)

    def cost(form: tuple[Shape, tuple[int, int]]) -> tuple[float, int]:
        shape, (across, _) = form
        tiles = -(-filters // (shape.filters * across))
        return tiles * across * shape.filters * shape.instructions, tiles

    forms = [(shape, warps) for shape in SHAPES[products] for warps in shape.warps]
    for _ in range(reduced):
        most = min(forms, key=cost)[0].results
        forms = [form for form in forms if form[0].results < most]
        if not forms:
            return ()
    shape, (across, down) = min(forms, key=cost)
    return tuple(
        _tile(windows, shape.filters * across, (across, one), shape.pixels * one, bounds)
        for one in (4, 2, 1)
        if one <= down
    )


def _tile(
    windows: Windows, filters: int, warps: tuple[int, int], pixels: int, bounds: Bounds
) -> Tile:
    """The form with the fewest pixels that are computed and copied for the largest image."""
    own, sizes = pixels // warps[1], [greatest(axis.count, bounds) for axis in windows.axes]
    forms = [(pixels // size, size) for size in (8, 16, 32, 64, 128, 256) if pixels % size == 0]

    def cost(form: tuple[int, int]) -> int:
        count = prod(-(-size // side) for size, side in zip(sizes, form, strict=True))
        reach = prod(axis.reach(side) for axis, side in zip(windows.axes, form, strict=True))
        return count * (2 * pixels + reach)

    whole = [form for form in forms if own % form[1] == 0 or form[1] % own == 0]
    return Tile(*min(whole, key=cost), filters, warps)


@dataclass(frozen=True, slots=True)
class Form:
    """The part of an image in shared memory, for a tile. `group`: its elements; `chunk`: channels
    at a time; `pitch`: groups from one pixel to the next."""

    windows: Windows
    tile: Tile
    group: int
    chunk: int
    pitch: int

    @property
    def reach(self) -> tuple[int, int]:
        """Lines and columns of the image."""
        first, second = self.windows.axes
        return first.reach(self.tile.lines), second.reach(self.tile.columns)

    @property
    def groups(self) -> int:
        """Of a pixel."""
        return -(-self.chunk // self.group)

    @property
    def products(self) -> int:
        """Of matrix units with a group of each lane."""
        return self.group * self.windows.image.dtype.bytes // (2 * WORD)

    @property
    def chunks(self) -> int:
        return -(-self.windows.depth // self.chunk)

    @property
    def steps(self) -> int:
        """Of a chunk."""
        return -(-self.windows.taps * self.groups // EACH)

    @property
    def rest(self) -> int:
        """Groups of the last step, if these are not all."""
        return self.windows.taps * self.groups % EACH

    @property
    def fits(self) -> bool:
        """Whether there is room in shared memory."""
        size = self.group * self.windows.image.dtype.bytes
        return prod(self.reach) * self.pitch * size <= self.tile.room

    def place(self, line: int, column: int) -> int:
        """How far a pixel is behind the first one, in groups."""
        return (line * self.reach[1] + column) * self.pitch

    def have_vectors(self, bounds: Bounds) -> bool:
        """Whether groups are copied as they are."""
        whole = self.group * self.windows.image.dtype.bytes == BYTES
        return whole and self.windows.have_vectors(bounds)

    def offsets(self) -> list[int]:
        """How far each group of a window is behind the first one, in groups."""
        first, second = self.windows.axes
        every = pairs_of(range(first.taps), range(second.taps), range(self.groups))
        found = [self.place(y * first.apart, x * second.apart) + g for y, x, g in every]
        return [*found, *(0 for _ in range(self.steps * EACH - len(found)))]

    def conflicts(self) -> int:
        """How often banks are read, for all steps."""
        size = self.group * self.windows.image.dtype.bytes
        column, line = BANKS // size, self.windows.axes[1].step * self.pitch
        offsets, total = self.offsets(), 0
        for step in range(self.steps):
            own = offsets[step * EACH : (step + 1) * EACH]
            places = {line * g + one for g in range(column // EACH) for one in own}
            banks = [one % column for one in places]
            total += max(banks.count(bank) for bank in set(banks))
        return total


def form_of(windows: Windows, tile: Tile, group: int, chunk: int) -> Form:
    """With as few conflicts of banks as possible."""
    groups = -(-chunk // group)
    forms = [Form(windows, tile, group, chunk, groups + more) for more in range(8)]
    forms = [one for one in forms if one.fits] or forms[:1]
    return min(forms, key=lambda form: (form.conflicts(), form.pitch))


def group_of(windows: Windows) -> int:
    """The elements of a group: of 16 bytes where that fills up no more than 8 do."""
    width = BYTES // windows.image.dtype.bytes
    alike = round_up(windows.depth, width) == round_up(windows.depth, width // 2)
    return width if alike else width // 2


def chunk_of(windows: Windows, tile: Tile, group: int) -> int | None:
    """The channels that there is room for."""
    for count in range(1, MOST_CHUNKS + 1):
        chunk = round_up(-(-windows.depth // count), group)
        if Form(windows, tile, group, chunk, chunk // group).fits:
            return chunk
    return None


def blocks_of(windows: Windows, tile: Tile, bounds: Bounds) -> Dim:
    first, second = windows.axes
    tiles = ceildiv(first.count, tile.lines) * ceildiv(second.count, tile.columns)
    tiles *= ceildiv(extent(windows.filters), tile.filters)
    return simplify(extent(windows.outer) * tiles, bounds)


def packed_weights(w: Writer, form: Form) -> Packed:
    """Weights as lanes have them: of each tile of filters and each product those of all matrices.
    Behind them are zeros, which are loaded ahead and not multiplied."""
    windows = form.windows
    axes, load, count = windows.axes, windows.weights, extent(windows.filters).constant
    filters, chunks, steps, group = form.tile.filters, form.chunks, form.steps, form.group
    tiles, each = -(-count // filters), WORD // load.dtype.bytes
    order = [axes[0].tap, axes[1].tap, windows.channels]
    order += [loop for loop in windows.product.steps if loop not in order]
    loops = (*windows.filters, *(loop for loop in order if loop is not None))
    shape = ((tiles * chunks * steps + 1) * form.products, filters * 2 * EACH * each)

    def values(arrays: Arrays) -> Array:
        names, extents = [lp.variable for lp in loops], [lp.extent.constant for lp in loops]
        own = elements(load, arrays[load.buffer.name], names, extents)
        own = own.reshape(count, windows.taps, windows.depth)
        own = padded(own, (tiles * filters, windows.taps, chunks * form.chunk))
        own = own.reshape(-1, windows.taps, chunks, form.groups, group)
        own = own.transpose(0, 2, 1, 3, 4).reshape(len(own), chunks, -1, group)
        own = padded(own, (len(own), chunks, steps * EACH, group))
        own = own.reshape(tiles, -1, 2, 8, chunks, steps, EACH, form.products, 2, each)
        own = own.transpose(0, 4, 5, 7, 1, 3, 6, 8, 2, 9).reshape(-1, shape[1])
        return padded(own, shape)

    name = w.fresh(f"{load.buffer.name}.patches")
    return Packed(Buffer(name, load.dtype, tuple(map(Dim.of, shape))), values, load.buffer.name)
