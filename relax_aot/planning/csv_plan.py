# SPDX-License-Identifier: Apache-2.0
"""The memory planner by itself: a table of lifetimes in, the same with offsets out."""

from __future__ import annotations

import csv
from pathlib import Path

from relax_aot.errors import RelaxAotError
from relax_aot.planning.lifetimes import Lifetime
from relax_aot.planning.orientation import Block
from relax_aot.planning.packing import pack
from relax_aot.planning.search import Budget, Found

COLUMNS = ("id", "lower", "upper", "size")


class TableError(RelaxAotError):
    """A table that cannot be read, with the line at fault."""


WORK_WITHOUT_TIME = 1_000_000_000
"""Moves of the search where no time is given: the same table then has the same offsets."""


def plan_csv(
    source: Path, target: Path | None, capacity: int | None = None, seconds: float | None = None
) -> Found:
    """Read `id,lower,upper,size` (half-open lifetimes), write the same with `offset`.

    With a capacity, any plan within it will do; without, the lowest one is looked for.
    """
    blocks = read_table(source)
    budget = Budget(work=WORK_WITHOUT_TIME) if seconds is None else Budget(seconds=seconds)
    found = pack(blocks, budget, capacity or 0)
    if target is not None:
        rows = [
            {
                "id": b.name,
                "lower": b.lifetime.start,
                "upper": b.lifetime.stop,
                "size": b.size,
                "offset": found.packing.offsets[b.name],
            }
            for b in blocks
        ]
        try:
            with target.open("w", newline="") as file:
                writer = csv.DictWriter(file, [*COLUMNS, "offset"], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            raise TableError(f"cannot write {target}: {error.strerror}") from None
    return found


def read_table(source: Path) -> list[Block]:
    try:
        with source.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [c for c in COLUMNS if c not in (reader.fieldnames or ())]
            if missing:
                raise TableError(f"{source}: column {missing[0]!r} is missing; need {COLUMNS}")
            blocks = [_block(source, number, row) for number, row in enumerate(reader, 2)]
    except OSError as error:
        raise TableError(f"cannot read {source}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TableError(f"cannot read {source}: {error}") from None
    if len({b.name for b in blocks}) != len(blocks):
        raise TableError(f"{source}: an id stands twice")
    return blocks


def _block(source: Path, number: int, row: dict[str, str]) -> Block:
    try:
        lower, upper, size = (int(row[column]) for column in COLUMNS[1:])
    except (TypeError, ValueError):
        raise TableError(f"{source}, line {number}: expected integers, got {row}") from None
    if lower >= upper or size < 0:
        raise TableError(f"{source}, line {number}: needs lower < upper and size >= 0")
    return Block(row["id"], Lifetime(lower, upper), size)
