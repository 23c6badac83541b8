# SPDX-License-Identifier: Apache-2.0
"""What every merger takes and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from relax_aot.fusion.piece import Piece
from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Var


@dataclass(frozen=True, slots=True)
class Link:
    """The consumer reads the producer's result `made` under the name and shape `seen`."""

    made: Var
    seen: Var


@dataclass(frozen=True, slots=True)
class Pair:
    """A kernel and one that reads its results."""

    producer: Piece
    consumer: Piece
    links: tuple[Link, ...]
    kept: frozenset[str]
    """Results of the producer that others read too."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a merger may know of the function around a pair."""

    bounds: Bounds
    lows: Bounds
    """The lowest sizes, and capacities: other highs may be raised when the project is built."""
    constants: frozenset[str]
    inputs: frozenset[str]
    """Parameters of the entry, which are alive all the time."""
    states: frozenset[str]
    """New values of states, which exist until the end of a call."""
    results: frozenset[str]
    """Values that are needed outside of the function."""
    rows_over_weights: bool
    """Share outer loops even where weights are then read again for every row."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why two kernels stay apart."""

    reason: str


class Merger(Protocol):
    def merge(self, pair: Pair, context: Context, /) -> Piece | Refused:
        """One piece in place of two."""
