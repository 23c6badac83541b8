# SPDX-License-Identifier: Apache-2.0
"""Which memory each value lives in, where a board has several.

Regions are given in order of preference, the fast one first. What all fits into the first
stays there. Else values that are touched most often per byte come first; the rest goes
one region further. Sizes are those at the upper bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relax_aot.errors import RelaxAotError
from relax_aot.ir.graph import Constant
from relax_aot.planning.orientation import Block, lower_bound
from relax_aot.planning.packing import pack
from relax_aot.planning.search import Budget

WORK = 1_000_000
"""Moves for each question whether one more value fits."""


@dataclass(frozen=True, slots=True)
class Region:
    """A memory for values or for constants; `bytes` is what it has for them, None where
    it was not stated. Constants go into the linker's section `section`."""

    name: str
    bytes: int | None = None
    constants: bool = False
    section: str = ""


ANYWHERE = Region("")
"""The one arena of a board that names no regions."""


class NoRoom(RelaxAotError):
    """The values of a model do not fit the regions of a board."""


def assign(
    blocks: Sequence[Block], touches: Mapping[str, int], regions: Sequence[Region]
) -> list[list[Block]]:
    """The blocks of each region. Raises `NoRoom` with what is missing, and where."""
    chosen: list[list[Block]] = []
    rest = list(blocks)
    for region in regions:
        taken = _taken(rest, touches, region)
        chosen.append(taken)
        names = {block.name for block in taken}
        rest = [block for block in rest if block.name not in names]
    if rest:
        raise NoRoom(_message(blocks, rest, regions))
    return chosen


def _taken(blocks: list[Block], touches: Mapping[str, int], region: Region) -> list[Block]:
    if region.bytes is None or not blocks or _height(blocks, region) <= region.bytes:
        return blocks
    by_heat = sorted(blocks, key=lambda b: (-touches.get(b.name, 0) / max(b.size, 1), b.name))
    taken: list[Block] = []
    for block in by_heat:
        candidate = [*taken, block]
        if (
            lower_bound(candidate) <= region.bytes
            and pack(candidate).packing.height <= region.bytes
        ):
            taken = candidate
    names = {block.name for block in taken}
    return [block for block in blocks if block.name in names]


def _height(blocks: list[Block], region: Region) -> int:
    """Of a packing that is good enough, or of the best that little work finds."""
    return pack(blocks, Budget(work=WORK), enough=region.bytes or 0).packing.height


def _message(blocks: Sequence[Block], rest: Sequence[Block], regions: Sequence[Region]) -> str:
    need = pack(list(blocks)).packing.height
    room = ", ".join(f"{r.name} has {r.bytes}" for r in regions)
    largest = max(rest, key=lambda block: block.size)
    short = pack(list(rest)).packing.height
    return (
        f"the values of the model need {need} bytes at once and do not fit: {room}; {short} bytes "
        f"do not fit, the largest value is %{largest.name} with {largest.size}. Use a smaller "
        "bound (--bound), --optimize memory, or another board"
    )


def place_constants(
    constants: Sequence[Constant], regions: Sequence[Region], alignment: int
) -> dict[str, Region]:
    """A region for each constant, small ones first into the preferred region: biases and
    scales are read as often as their weights. Nothing where no region is named."""
    if not regions:
        return {}
    placed: dict[str, Region] = {}
    room = {region.name: region.bytes for region in regions}
    for constant in sorted(constants, key=lambda c: (_constant_bytes(c, alignment), c.name)):
        size = _constant_bytes(constant, alignment)
        for region in regions:
            left = room[region.name]
            if left is None or size <= left:
                placed[constant.name] = region
                room[region.name] = None if left is None else left - size
                break
        else:
            total = sum(_constant_bytes(c, alignment) for c in constants)
            has = ", ".join(f"{r.name} has {r.bytes}" for r in regions)
            raise NoRoom(
                f"constants of {total} bytes do not fit: {has}; no space for %{constant.name} "
                f"with {size}. Use another board, or quantize the model"
            )
    return placed


def _constant_bytes(constant: Constant, alignment: int) -> int:
    return -(-constant.type.bytes.constant // alignment) * alignment
