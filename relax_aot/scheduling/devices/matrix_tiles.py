# SPDX-License-Identifier: Apache-2.0
"""Tiles of the products of matrix units (matrix_units.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relax_aot.ir.axes import LANES
from relax_aot.scheduling.devices.sum_parts import Rounds
from relax_aot.scheduling.devices.units import ROWS
from relax_aot.scheduling.devices.vectors import VECTOR

FORGETFUL = Rounds(2, few_lines=False, kept=False)
"""Keeps no addresses from one half of shared memory to the other, which takes fewest registers."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of `rows` by `columns` results for `warps` along both; `steps` of the sum are in
    shared memory at a time, for types of other sizes as many as have the same bytes. `rounds`: of a
    tile of few columns."""

    rows: int
    columns: int
    steps: int
    warps: tuple[int, int]
    rounds: Rounds | None = None

    @property
    def own(self) -> tuple[int, int]:
        """Rows and columns of a warp."""
        return self.rows // self.warps[0], self.columns // self.warps[1]

    @property
    def lines(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def threads(self) -> int:
        return self.warps[0] * self.warps[1] * LANES

    @property
    def swapped(self) -> Tile:
        return Tile(self.columns, self.rows, self.steps, (self.warps[1], self.warps[0]))

    def reduced(self, times: int) -> Tile:
        """With fewer registers for a thread: without addresses that are kept, then with half of
        the results, as long as warps have whole matrices and all threads copy vectors of both
        factors."""
        tile = self
        for _ in range(times):
            if tile.rounds != FORGETFUL:
                tile = replace(tile, rounds=FORGETFUL)
                continue
            halves = [replace(tile, rows=tile.rows // 2), replace(tile, columns=tile.columns // 2)]
            halves = [one for one in halves if one.is_whole]
            tile = max(halves, key=lambda one: min(one.own), default=tile)
        return tile

    @property
    def is_whole(self) -> bool:
        """Whether each warp has matrices of both factors, and each thread copies some of both."""
        least = VECTOR * self.threads
        return all(
            own % ROWS == 0 and lines * self.steps >= least
            for own, lines in zip(self.own, self.lines, strict=True)
        )

    @property
    def copies(self) -> int:
        """Vectors of both factors that a thread copies."""
        return -(-(self.rows + self.columns) * self.steps // (VECTOR * self.threads))


@dataclass(frozen=True, slots=True)
class Tiles:
    """`large` ones where the tiles are at least `enough`, so that all processors of a device have
    work, else `small` ones, or `short` ones for bytes whose lines are summed and `rounding` ones
    for floats; `slim` ones for few columns, the first that has all of them; warps have 64 rows each
    there. `single` ones are where bytes or floats are gathered.
    Threads of more warps copy less: `wide` tiles are for windows and computed values that are
    gathered, `medium` ones for few rows of others, and for short vectors instead of small ones.
    Sums of lines take registers, and so does the rounding of floats: these products have `narrow`
    tiles for large ones. Columns that are decoded are multiplied with as many rows as there is room
    for: `tall` tiles where these are at least half full, or `low` ones. `slid` ones, pairs of large
    and small, are for few filters whose windows share pixels, which are rows, with more warps for
    pixels in registers; `planes` ones for more. `patches`: windows may have tiles of their own."""

    large: Tile = Tile(128, 128, 32, (2, 4))
    narrow: Tile = Tile(128, 64, 32, (4, 2))
    small: Tile = Tile(64, 128, 32, (2, 2))
    single: Tile = Tile(64, 64, 32, (2, 4))
    wide: Tile = Tile(128, 128, 32, (4, 4))
    medium: Tile = Tile(64, 128, 32, (2, 4))
    short: Tile = Tile(64, 64, 64, (2, 2))
    slim: tuple[Tile, ...] = (
        Tile(128, 16, 32, (2, 1), Rounds(4, few_lines=True, kept=True)),
        Tile(128, 32, 32, (2, 1), Rounds(2, few_lines=True, kept=False)),
        Tile(128, 64, 32, (2, 2), FORGETFUL),
    )
    tall: Tile = Tile(512, 64, 32, (8, 2))
    low: Tile = Tile(128, 64, 32, (4, 2))
    slid: tuple[tuple[Tile, Tile], ...] = (
        (Tile(256, 32, 32, (4, 1)), Tile(128, 32, 32, (4, 1))),
        (Tile(128, 64, 32, (4, 1)), Tile(128, 64, 32, (4, 1))),
        (Tile(256, 32, 32, (8, 1)), Tile(128, 32, 32, (4, 1))),
        (Tile(128, 64, 32, (4, 2)), Tile(128, 64, 32, (4, 2))),
    )
    planes: tuple[Tile, Tile] = (Tile(128, 128, 32, (4, 2)), Tile(64, 128, 32, (2, 2)))
    rounding: Tile = Tile(64, 64, 32, (2, 2))
    enough: int = 16
    patches: bool = True


TILES = Tiles()
_DOT_TILE = Tile(64, 64, 32, (2, 2))
DOT_TILES = Tiles(Tile(128, 64, 32, (4, 2)), small=_DOT_TILE, short=_DOT_TILE, patches=False)
