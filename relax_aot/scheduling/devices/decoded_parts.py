# SPDX-License-Identifier: Apache-2.0
"""When factors of a product on matrix units are decoded: what is loaded to registers during one
part of the sum is decoded during the next one, behind which it is multiplied. Pairs of parts are
as parts of twice the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.scheduling.devices.copies import Side
from relax_aot.scheduling.devices.decoded import Decoded
from relax_aot.scheduling.devices.operands import At, below
from relax_aot.scheduling.devices.sum_parts import Part
from relax_aot.scheduling.writer import Writer


@dataclass(frozen=True, slots=True)
class DecodedParts:
    """The code of a warp of a block of `threads`; none where no factor is decoded. `start`: the
    first row and column of the block. `parts`: their number. `steps`: of each."""

    w: Writer
    sides: Sequence[Side]
    warp: Dim
    threads: int
    start: tuple[Dim, Dim]
    batch: At
    parts: Dim
    steps: int

    @property
    def in_pairs(self) -> bool:
        return any(isinstance(one, Decoded) and one.steps > self.steps for one in self.sides)

    def begin(self, step: Dim) -> None:
        """Decodes what is multiplied first, from a step on."""
        self._fetch(step)
        self._put(ZERO, step)

    def fetch_second(self) -> None:
        """Loads what is multiplied then."""
        w, many = self.w, 2 if self.in_pairs else 1
        if self.parts == many or not any(isinstance(side, Decoded) for side in self.sides):
            return
        with w.when(*() if self.parts.is_constant else (below(ONE, self.parts),)):
            self._fetch(Dim.of(2 * self.steps if self.in_pairs else 0), whole=True)

    def put_next(self, part: Part) -> None:
        """Decodes what was loaded, without a condition: behind the last part, nothing reads it."""
        pair = part.pair
        if not self.in_pairs and part.another is not False:
            self._put(1 - part.half, ZERO, whole=True)
        elif pair is not None and pair.another:
            with self.w.when(*pair.begins):
                self._put(1 - pair.half, ZERO, whole=True)

    def fetch_next(self, part: Part) -> None:
        """Loads what is decoded behind the next barrier. `part`: the one that is multiplied."""
        w, pair, numbers = self.w, part.pair, part.half.symbols
        if not any(isinstance(side, Decoded) for side in self.sides):
            return
        if pair is not None and pair.second:
            with w.when(*pair.begins):
                first = (pair.number + 2) * (2 * self.steps)
                self._fetch(first, numbers=numbers, whole=True)
        elif not self.in_pairs and part.second:
            many = () if self.parts.is_constant else (below(part.number + 2, self.parts),)
            with w.when(*many):
                self._fetch((part.number + 1) * self.steps, numbers=numbers, whole=True)

    def _fetch(
        self, step: Dim, *, numbers: frozenset[str] = frozenset(), whole: bool = False
    ) -> None:
        """Loads steps from one on. `numbers`: the variables of loops that compilers unroll."""
        with self._decoded() as decoded:
            for side, first, lane, thread in decoded:
                side.fetch(
                    self.w, thread, self.threads, self.batch, (first, step), lane=lane,
                    numbers=numbers, whole=whole,
                )  # fmt: skip

    def _put(self, half: Dim, step: Dim, *, whole: bool = False) -> None:
        with self._decoded() as decoded:
            for side, first, lane, thread in decoded:
                place = (first, step)
                side.put(self.w, thread, self.threads, half, place, lane=lane, whole=whole)

    @contextmanager
    def _decoded(self) -> Iterator[list[tuple[Decoded, Dim, Dim, Dim]]]:
        """Each factor that is decoded with its first line, the lane and the thread."""
        w, pairs = self.w, zip(self.sides, self.start, strict=True)
        decoded = [(side, first) for side, first in pairs if isinstance(side, Decoded)]
        if not decoded:
            yield []
            return
        with w.range("lane", LANES, axis="lane") as lane:
            thread = w.named("thread", self.warp * LANES + lane)
            yield [(side, first, lane, thread) for side, first in decoded]
