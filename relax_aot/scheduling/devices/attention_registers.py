# SPDX-License-Identifier: Apache-2.0
"""What the lanes of a warp of an attention by matrix units keep in registers, and where it is."""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.loops import Buffer, Expr
from relax_aot.ir.types import DType
from relax_aot.scheduling.devices.attention_blocks import Blocks
from relax_aot.scheduling.devices.attention_counts import Counts
from relax_aot.scheduling.devices.attention_scores import Score
from relax_aot.scheduling.devices.attention_seen import End
from relax_aot.scheduling.devices.operands import At
from relax_aot.scheduling.devices.units import COLUMNS, STEPS
from relax_aot.scheduling.devices.vectors import VECTOR
from relax_aot.scheduling.writer import Writer


@dataclass(frozen=True, slots=True)
class Registers:
    """Of the lanes of a warp, for each matrix of queries. `rest`: what weights lose by rounding,
    where a model computes them as floats; a product with `minus` subtracts what is kept. `sums`: of
    values. `whole`: of the powers alone; those of one block are a product with `ones`. `last`: the
    maximum of the blocks before, whose sums are multiplied by `factor`. `places`: of the loops over
    rows that scores depend on, where these take divisions."""

    queries: Buffer
    scores: Buffer
    weights: Buffer
    rest: Buffer | None
    minus: Buffer | None
    sums: Buffer
    whole: Buffer
    peak: Buffer
    last: Buffer
    factor: Buffer
    ones: Buffer
    places: Buffer | None

    @property
    def parts(self) -> tuple[Buffer, ...]:
        """Of the weights."""
        return (self.weights,) if self.rest is None else (self.weights, self.rest)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a warp is: its first row, the first key of a block, and the matrices of the batch.
    It is block number `part`. `whole`: no key of it is beyond the last one. `ends`: of the keys
    that its score compares with (Seen), and `counts` in their place. `rate`: of exponents to base
    2, per unit of a score."""

    row: Dim
    key: Dim
    batch: At
    score: Score
    rate: Expr
    whole: bool = False
    part: Dim = ZERO
    ends: tuple[End, ...] = ()
    counts: Counts | None = None


def registers_of(
    w: Writer, kind: DType, size: Blocks, shape: tuple[int, int], *, floats: bool, moving: int
) -> Registers:
    """Reserves them. `shape`: the depth and the width of the matrices. `floats`: whether a model
    computes weights as floats. `moving`: the number of loops over rows whose places are kept."""
    keys, count, (depth, width) = size.keys, size.matrices, shape

    def lanes(name: str, dtype: DType, *shape: int) -> Buffer:
        return w.reserve(name, dtype, "lane", LANES, *shape)

    whole, peak, last, factor = (
        lanes(name, DType.F32, count * 2) for name in ("whole", "peak", "last", "factor")
    )
    queries = lanes("queries", kind, count, depth // STEPS, VECTOR)
    scores = lanes("scores", DType.F32, count, keys // COLUMNS, 4)
    weights = lanes("weights", kind, count, keys // STEPS, VECTOR)
    rest = lanes("rest", kind, count, keys // STEPS, VECTOR) if floats else None
    minus = lanes("minus", kind, COLUMNS // 4) if floats else None
    sums = lanes("sums", DType.F32, count, width // COLUMNS, 4)
    ones = lanes("ones", kind, 4)
    places = lanes("places", DType.I32, count * 2, moving) if moving else None
    return Registers(
        queries, scores, weights, rest, minus, sums, whole, peak, last, factor, ones, places
    )
