# SPDX-License-Identifier: Apache-2.0
"""What the strategies for contractions with known weights share: tiles of output positions,
windows at a position, and packed weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from relax_aot.ir.dims import ONE, ZERO, Dim, ceildiv
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Binary, Buffer, For, Load, Store, expressions
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.types import DType
from relax_aot.microkernels import all_micro_kernels
from relax_aot.scheduling.contraction import BYTES, Weighted, moved, step_of, stride, suffix_of
from relax_aot.scheduling.epilogue import values_of
from relax_aot.scheduling.packing import Arrays, Operand, Packed, elements, padded, round_up
from relax_aot.scheduling.targets import Context, Emit, Strategy
from relax_aot.scheduling.writer import Writer

# Output positions


@dataclass(frozen=True, slots=True)
class Tile:
    """`count` output positions from `first` on, `apart` from each other; `fixed`: outer loops over
    positions."""

    found: Weighted
    first: Dim
    count: Dim
    fixed: Mapping[str, Dim]
    apart: int = 1

    def at(self, w: Writer, offset: Dim = ZERO) -> dict[str, Dim]:
        """The value of each loop over positions at one position of the tile."""
        positions = self.found.positions
        if not positions:
            return {}
        position = self.first + offset * self.apart
        if self.fixed or len(positions) == 1:
            return {**self.fixed, positions[-1].variable: position}
        return position_at(w, self.found, position)

    def finish(
        self, w: Writer, found: Weighted, value: Callable[[Dim, Dim], Load], *, rows: bool = False
    ) -> None:
        """The statements that follow each sum; `value`: of a channel at a position. `rows`: the
        positions of a channel are contiguous, so their loop is the inner one."""
        extents = (("p", self.count), (found.own, Dim.of(found.channels)))
        with ExitStack() as loops:
            inner = extents[::-1] if rows else extents
            index = {name: loops.enter_context(w.range(name, extent)) for name, extent in inner}
            at = {**self.at(w, index["p"]), found.own: index[found.own]}
            w.finish(found.after, found.sum, value(index[found.own], index["p"]), at)


@contextmanager
def position_tiles(
    w: Writer, found: Weighted, size: int, joined: bool, phases: int = 1
) -> Iterator[Tile]:
    """The shared loops and tiles of positions: of all of them where they are `joined`, else
    along the last loop, of each of its `phases` separately."""
    outer, stop = () if joined else found.positions[:-1], found.tiled(joined)
    with w.nest(found.shared), w.nest(outer) as fixed, ExitStack() as loop:
        phase = loop.enter_context(w.range("phase", phases)) if phases > 1 else ZERO
        tiles = w.tiles(("tile", "positions"), ceildiv(stop - phase, phases), size)
        first, count = loop.enter_context(tiles)
        yield Tile(found, phase + first * phases, count, fixed, phases)


def position_at(w: Writer, found: Weighted, position: Dim) -> dict[str, Dim]:
    """The value of each loop over positions at the `position`-th one, the last loop fastest."""
    at: dict[str, Dim] = {}
    loops = found.positions
    for inner in reversed(range(1, len(loops))):
        loop, outer = loops[inner], "_".join(one.variable for one in loops[:inner])
        before = w.short(outer, position // loop.stop)
        at[loop.variable] = w.index(loop.variable, position - before * loop.stop, loop.stop)
        position = before
    for loop in found.positions[:1]:
        at[loop.variable] = w.index(loop.variable, position, loop.stop)
    return at


def with_channel(strategy: Strategy) -> Strategy:
    """The strategy for products of one channel that no loop counts."""

    def emit(found: Weighted, w: Writer, context: Context) -> Emit | None:
        moved_by = (loop for loop in found.shared if stride(found.w, loop.variable) != 0)
        if found.channel is not None or next(moved_by, None):
            return None
        one = For(w.fresh("channel"), ZERO, ONE, ())
        collapsed = found.collapsed and replace(found.collapsed, channel=one)
        return strategy(replace(found, channel=one, collapsed=collapsed), w, context)

    return emit


FEW = 8
"""Channels of a group at most that are done one by one."""


def each_channel(strategy: Strategy) -> Strategy:
    """The strategy for few channels of each group as groups of their own, which share their x."""

    def emit(found: Weighted, w: Writer, context: Context) -> Emit | None:
        groups = [loop for loop in found.shared if stride(found.w, loop.variable) != 0]
        if found.channel is None or found.channels > FEW or not groups:
            return None
        apart = replace(found, shared=(*found.shared, found.channel), channel=None, collapsed=None)
        return strategy(apart, w, context)

    return emit


# Windows


@dataclass(frozen=True, slots=True)
class Span:
    """A reduction loop at one position: `first..last` of `count` lie inside the image."""

    count: int
    first: Dim
    last: Dim
    step: Dim

    @property
    def whole(self) -> bool:
        return self.first == 0 and self.last == self.count


WHOLE = Span(1, ZERO, ONE, ZERO)


def window(
    w: Writer, found: Weighted, order: Sequence[int], at: Mapping[str, Dim]
) -> tuple[list[Span], Load]:
    """The reduction loops at one position, in an order, and the first element inside."""
    spans: list[Span] = []
    origin = dict(at)
    for position in order:
        loop = found.reductions[position]
        first = w.short(f"{loop.variable}_first", loop.start.substitute(at))
        last = w.short(f"{loop.variable}_last", loop.stop.substitute(at))
        step = step_of(found.x, loop.variable)
        spans.append(Span(found.counts[position], first, last, step))
        origin[loop.variable] = first
    return spans, moved(found.x, origin)


def sizes_of(spans: Sequence[Span], *names: str) -> dict[str, Dim]:
    """The sizes of a micro-kernel that takes `count0`, `first0` and so on of each span."""
    return {
        f"{name}{at}": Dim.of(getattr(span, name))
        for at, span in enumerate(spans)
        for name in names
    }


# Constants


class Weights:
    """Weights and starts of sums: axes of the shared loops `outer` that move them or `loads`, of
    the channel, and of the reduction loops in `order`."""

    def __init__(self, found: Weighted, order: Sequence[int], *loads: Load) -> None:
        self.found, self.order = found, order
        moved_by = [load for load in (found.w, found.start, *loads) if isinstance(load, Load)]
        self.outer = tuple(
            loop
            for loop in found.shared
            if any(stride(load, loop.variable) != 0 for load in moved_by)
        )
        self.lead = tuple(loop.stop.constant for loop in self.outer)
        self.index = tuple(Dim.of(loop.variable) for loop in self.outer)
        self.loops = self.outer if found.channel is None else (*self.outer, found.channel)

    def first(self, buffer: Buffer, *index: Dim) -> Load:
        """The first element of a packed constant at the current iteration of `outer`."""
        index = (*self.index, *index)
        return Load(buffer, (*index, *(ZERO,) * (buffer.rank - len(index))))

    def of_channel(self, buffer: Buffer, channel: Dim) -> Load:
        """The first element of a packed constant for a channel, the last loop of `outer`."""
        index = (*self.index[:-1], channel)
        return Load(buffer, (*index, *(ZERO,) * (buffer.rank - len(index))))

    def values(self, data: Arrays) -> Array:
        """Weights without their zero point."""
        found = self.found
        reductions = [found.reductions[position] for position in self.order]
        names = [loop.variable for loop in (*self.loops, *reductions)]
        extents = [loop.stop.constant for loop in self.loops]
        extents += [found.counts[position] for position in self.order]
        loaded = elements(found.w, data[found.w.buffer.name], names, extents)
        return np.asarray(loaded.astype(np.int64) - found.w_zero)

    def matrix(self, data: Arrays) -> Array:
        """As `values`, the reductions as one axis."""
        values = self.values(data)
        return values.reshape(*values.shape[: len(self.loops)], -1)

    def starts(self, data: Arrays, offset: int) -> Array:
        """The starts of sums as far as they are constants, less the contribution of the zero point
        of x to each. Wraps as sums do. `offset`: what was subtracted from x already."""
        found = self.found
        folded = self.matrix(data).sum(-1) * (found.x_zero - offset)
        begin = values_of(found.start, self.loops, data).astype(np.int64) - folded
        return np.asarray(begin.astype(np.uint64).astype(np.uint32).view(np.int32))

    # Packed, as buffers of the kernel

    def packed(
        self,
        w: Writer,
        suffix: str,
        kernel: str | MicroKernel,
        operand: str,
        sizes: Mapping[str, int],
        values: Callable[[Arrays], Array] | None = None,
    ) -> Buffer:
        """The matrix of channels and steps, or `values`, as a micro-kernel reads its operand."""
        kernel = all_micro_kernels()[kernel] if isinstance(kernel, str) else kernel
        read, matrix = Operand(kernel, operand, sizes), values or self.matrix
        buffer = self.buffer(w, suffix, read.load.dtype, (*self.lead, *read.shape))
        return w.constant(Packed(buffer, lambda data: read.pack(matrix(data), len(self.lead))))

    def packed_starts(self, w: Writer, offset: int, multiple: int = 1) -> Buffer:
        """One number per channel, padded to a multiple: in scratch memory, where it depends on what
        is known while the model runs."""
        channels = () if self.found.channel is None else (self.found.channels,)
        shape = (*self.lead, *(round_up(count, multiple) for count in channels))
        buffer = self.buffer(w, "bias", DType.I32, shape)
        w.constant(Packed(buffer, lambda data: padded(self.starts(data, offset), shape)))
        taken = self.found.taken
        if taken is None:
            return buffer
        made = w.buffer("starts", DType.I32, *shape)
        with ExitStack() as stack:
            opened = (w.range(loop.variable, loop.stop) for loop in self.loops)
            index = tuple(map(stack.enter_context, opened))
            at = {loop.variable: dim for loop, dim in zip(self.loops, index, strict=True)}
            w.add(Store(made, index, Binary("-", Load(buffer, index), moved(taken, at))))
        if channels and shape[-1] > channels[0]:
            with ExitStack() as stack:
                opened = (w.range(loop.variable, loop.stop) for loop in self.loops[:-1])
                index = tuple(map(stack.enter_context, opened))
                index = (*index, stack.enter_context(w.range("rest", shape[-1], channels[0])))
                w.add(Store(made, index, Load(buffer, index)))
        return made

    def buffer(self, w: Writer, suffix: str, dtype: DType, shape: Sequence[int]) -> Buffer:
        name = w.fresh(f"{self.found.w.buffer.name}.{suffix}")
        return Buffer(name, dtype, tuple(map(Dim.of, shape)))


def rests(found: Weighted, calls: Sequence[Arrays]) -> bool | None:
    """Whether weights without their zero point are more than signed bytes, in some of the calls;
    None where they are more than two of them. Without calls, weights may be replaced."""
    if found.fits_bytes:
        return False
    if found.w.dtype not in BYTES or not calls:
        return None
    values = [Weights(found, range(len(found.reductions))).matrix(data) for data in calls]
    return any(np.any(rest_of(v)) for v in values) if max(v.max() for v in values) < 255 else None


def byte_of(values: Array) -> Array:
    """The closest signed bytes."""
    return np.asarray(np.clip(values, -128, 127))


def rest_of(values: Array) -> Array:
    """What those are less: bytes, from -256 to 254."""
    return np.asarray(np.subtract(values, byte_of(values)))


def in_place(found: Weighted, loops: Sequence[For]) -> tuple[tuple[str, str], ...]:
    """x and the result, where each iteration of the loops has a slab of both to itself, within
    which all reads come before the first write."""
    read = [e for stmt in found.after for e in expressions(stmt) if isinstance(e, Load)]
    stores = [stmt for stmt in found.after if isinstance(stmt, Store)]
    if len(stores) != 1 or found.x.buffer.name in {load.buffer.name for load in read}:
        return ()
    target = stores[0].buffer
    if found.x.buffer.type != target.type:
        return ()
    pairs = list(zip(found.x.index, stores[0].index, strict=True))
    separate = all((Dim.of(loop.variable),) * 2 in pairs for loop in loops)
    return ((found.x.buffer.name, target.name),) if separate else ()


def copy_lines(
    w: Writer, to: Load, source: Load, extents: tuple[Dim, Dim], steps: tuple[Dim, Dim]
) -> None:
    """Copies rows of bytes; `steps`: from row to row of the result and of the source."""
    w.micro(
        f"raot_copy_rows_{suffix_of(to.dtype)}", to=to, **{"from": source}, rows=extents[0],
        columns=extents[1], to_step=steps[0], from_step=steps[1],
    )  # fmt: skip
