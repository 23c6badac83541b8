"""Integer contractions whose vectors are places: of several channels by tiles, and where each
channel has an image to itself, as sums of shifted strips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, Load, Stmt, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels import by_position
from relax_aot.microkernels.dot2 import up
from relax_aot.scheduling.integer_grid import grid_of
from relax_aot.scheduling.integer_match import Contraction
from relax_aot.scheduling.integer_parts import Arrays, Form, Written, starts_known, weights_of
from relax_aot.scheduling.integer_places import MOST_PLACES, Block, Places
from relax_aot.scheduling.integer_requantize import Requantized, stored_at
from relax_aot.scheduling.jam import Names

LEAST_DEPTH = 4
ZERO, ONE = Dim.of(0), Dim.of(1)


def suits(what: Contraction, constants: frozenset[str]) -> bool:
    depth = int(np.prod(what.counts))
    return depth >= LEAST_DEPTH and starts_known(what, constants) and grid_of(what) is not None


def write(what: Contraction, names: Names, bounds: Bounds, form: Form) -> Written:
    """Of several channels, tiles; of one, sums of shifted strips."""
    grid = grid_of(what)
    assert grid is not None
    writer = Places if what.channel is not None else _Alone
    return writer(what, names, grid, form).write(bounds)


@dataclass
class _Alone(Places):
    """Convolutions of each channel by itself."""

    def _constants(self, lead: tuple[Dim, ...]) -> tuple[Buffer, Buffer]:
        name = self.what.w.load.buffer.name
        shape = (*lead, Dim.of(up(self.depth, 2)))
        weights = Buffer(self.names.fresh(f"{name}.taps"), DType.I16, shape)
        return weights, Buffer(self.names.fresh(f"{name}.start"), DType.I32, lead)

    def _operand(self) -> None:
        pass

    def _most(self) -> int:
        return MOST_PLACES

    def _results(self) -> None:
        self.sums = self._buffer("sums", DType.I32, 1, self.room)

    def _sums_of(self, block: Block, bounds: Bounds) -> list[Stmt]:
        source, rest = self._source(block, ZERO)
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        kind = "u8" if self.what.x.load.dtype is DType.U8 else "s8"
        operands = (
            Load(self.sums, (ZERO, ZERO)),
            source,
            Load(self.offsets, (ZERO,)),
            Load(self.weights, (*outer, ZERO)),
            Load(self.bias, outer),
        )
        places = simplify(block.places, bounds)
        sizes = (Dim.of(self.depth), places, rest)
        return [by_position(f"raot_depthwise_places_{kind}", operands, sizes)]

    def _rescaled(
        self,
        block: Block,
        found: Requantized,
        to: Callable[[Dim, Dim], Load],
        apart: Dim,
        bounds: Bounds,
    ) -> list[Stmt]:
        sums, at = Load(self.sums, (ZERO, ZERO)), self._begin(block, ZERO)
        extents = (ONE, simplify(block.places, bounds))
        done = found.rescaled(to(ZERO, ZERO), sums, extents, (ZERO, ZERO), at, (ZERO, ZERO))
        return [*self._sums_of(block, bounds), done]

    def _lined(
        self,
        block: Block,
        found: Requantized,
        store: Store,
        steps: Sequence[Dim],
        bounds: Bounds,
    ) -> list[Stmt]:
        sums, at = Load(self.sums, (ZERO, ZERO)), self._begin(block, ZERO)
        extents, between = (block.high, block.wide), (steps[1], block.pitch)
        to = stored_at(store, at)
        done = found.rescaled(to, sums, extents, between, at, (ZERO, ZERO))
        return [*self._sums_of(block, bounds), done]

    def _channel(self) -> tuple[str, Dim, dict[str, Dim]]:
        return "", ONE, {}

    def _over_channels(self, body: Sequence[Stmt], channel: str, stop: Dim) -> list[Stmt]:
        return list(body)

    def _weights(self, data: Arrays) -> Array:
        source = data[self.what.w.load.buffer.name]
        found = weights_of(self.what, self.outer, self._order(), source)
        flat = found.reshape(*found.shape[: len(self.outer)], self.depth)
        missing = up(self.depth, 2) - self.depth
        return np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, missing)]).astype(np.int16)
