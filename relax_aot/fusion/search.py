# SPDX-License-Identifier: Apache-2.0
"""Which pieces of one function are merged, in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relax_aot.fusion.mergers import MERGERS, inline, rows
from relax_aot.fusion.mergers._merger import Context, Link, Merger, Pair, Refused
from relax_aot.fusion.piece import Piece
from relax_aot.fusion.summary import Apart
from relax_aot.fusion.workspace import Workspace
from relax_aot.ir.bounds import GREATEST
from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Call, Function, Module
from relax_aot.ir.loops import Kernel

DEEPEST = 100
"""Functions on expressions call themselves for each operand in an operand."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """What a device computes in tiles: a kernel of one `product`, and an `attention`, which joins
    two products."""

    product: Callable[[Kernel, Bounds], bool]
    attention: Callable[[Kernel, Bounds], bool]


@dataclass(frozen=True, slots=True)
class Policy:
    """What fusion is for: time, or the smallest arena even where weights are read again
    for every row. Products in `tiles` share rows with other kernels only as parts of an
    attention."""

    rows_over_weights: bool = False
    mergers: tuple[Merger, ...] = MERGERS
    tiles: Tiles | None = None


class Search:
    """Merges the pieces of one function until nothing more is worth it. Products whose first result
    is in `apart` share their rows with nothing."""

    def __init__(
        self,
        function: Function,
        module: Module,
        outside: frozenset[str],
        policy: Policy,
        closed: frozenset[str] = frozenset(),
        apart: frozenset[str] = frozenset(),
    ) -> None:
        made = {o.name for c in function.body for o in c.outs}
        self._work = Workspace(function, module, outside & made, closed)
        ranges = {name: module.bounds.range(name) for name in module.bounds}
        lows = {
            name: (low, high if name in module.lengths else GREATEST)
            for name, (low, high) in ranges.items()
        }
        self._context = Context(
            module.bounds,
            Bounds.of(lows),
            frozenset(module.constant_table),
            frozenset(param.name for param in module.main.params),
            frozenset(state.output for state in module.states),
            self._work.kept,
            policy.rows_over_weights,
        )
        self._refusals: dict[tuple[str, str], str] = {}
        self._tiles, self._apart = policy.tiles, apart
        self._products: dict[int, frozenset[str]] = {}
        for merger in policy.mergers:
            for key in self._work.places():
                if merger is inline:  # into all readers, or into none
                    self._merge_into_readers(key, merger)
                else:
                    self._merge_with_writers(key, merger)
        self._work.drop_idle_views()

    def calls(self) -> tuple[list[Call], list[Kernel]]:
        return self._work.calls()

    def apart(self) -> list[Apart]:
        """Every pair of kernels that still pass a value, and why they are two."""
        notes = []
        for key in self._work.places():
            reader = self._work.piece(key)
            for value in reader.reads if reader is not None else ():
                source = self._work.source(value)
                if source is None or reader is None:
                    continue
                writer = self._work.piece(source[1])
                reason = self._refusals.get((source[0].name, reader.writes[-1].name))
                if writer is not None and reason is not None:
                    notes.append(Apart(source[0].name, writer.title, reader.title, reason))
        return notes

    def _merge_with_writers(self, key: int, merger: Merger) -> None:
        while (reader := self._work.piece(key)) is not None:
            for writer, links in self._writers(reader):
                merged = self._merged(writer, key, links, merger)
                if isinstance(merged, Piece):
                    if self._tiles is not None and merger is rows:
                        self._products[key] = self._products_of(writer) | self._products_of(key)
                    self._work.remove(writer)
                    self._work.remove(key)
                    self._work.add(merged, key)
                    break
                for link in links:
                    self._refusals[link.made.name, reader.writes[-1].name] = merged.reason
            else:
                return

    def _writers(self, reader: Piece) -> list[tuple[int, tuple[Link, ...]]]:
        """Pieces that it reads from, the last first."""
        found: dict[int, list[Link]] = {}
        for value in reader.reads:
            source = self._work.source(value)
            if source is not None:
                found.setdefault(source[1], []).append(Link(source[0], value))
        return [(key, tuple(links)) for key, links in sorted(found.items(), reverse=True)]

    def _merged(
        self, writer: int, key: int, links: tuple[Link, ...], merger: Merger
    ) -> Piece | Refused:
        producer, consumer = self._work.piece(writer), self._work.piece(key)
        assert producer is not None and consumer is not None
        made = (link.made.name for link in links)
        kept = frozenset(n for n in made if any(r != key for r, _ in self._work.readers(n)))
        merged = self._tried(Pair(producer, consumer, links, kept), merger)
        if isinstance(merged, Piece) and self._work.another_way(writer, key):
            return Refused("a call between them needs the complete value")
        if isinstance(merged, Piece) and merger is rows and not self._keeps(writer, key, merged):
            return Refused("a product would not be computed in tiles")
        return merged

    def _tried(self, pair: Pair, merger: Merger) -> Piece | Refused:
        if pair.producer.depth + pair.consumer.depth > DEEPEST:
            return Refused("a value would be an expression of too many operands in operands")
        return merger.merge(pair, self._context)

    def _keeps(self, writer: int, key: int, merged: Piece) -> bool:
        """Whether products that are in tiles still are, as parts of an attention, or may become
        that: a product by the kernels that read its rows."""
        if self._tiles is None:
            return True
        first, second = self._products_of(writer), self._products_of(key)
        if not first | second or self._attends(merged):
            return True
        return not second and len(first) == 1 and first.isdisjoint(self._apart)

    def _attends(self, piece: Piece) -> bool:
        return self._tiles is not None and self._tiles.attention(piece.closed()[0], self._bounds)

    def _products_of(self, key: int) -> frozenset[str]:
        """The first results of the products in a piece."""
        if key not in self._products:
            piece = self._work.piece(key)
            assert piece is not None and self._tiles is not None
            found = self._tiles.product(piece.closed()[0], self._bounds)
            self._products[key] = frozenset({piece.writes[0].name} if found else ())
        return self._products[key]

    def without_tiles(self) -> frozenset[str]:
        """Products that have lost their tiles, and have not become parts of an attention."""
        lost: set[str] = set()
        for key, names in self._products.items():
            piece = self._work.piece(key)
            if piece is None or not names or self._tiles is None:
                continue
            if not (self._tiles.product(piece.closed()[0], self._bounds) or self._attends(piece)):
                lost |= names
        return frozenset(lost)

    @property
    def _bounds(self) -> Bounds:
        return self._context.bounds

    def _merge_into_readers(self, key: int, merger: Merger) -> None:
        producer = self._work.piece(key)
        if producer is None or len(producer.writes) != 1 or producer.scratch:
            return
        (made,) = producer.writes
        readers = list(self._work.readers(made.name))
        several = len({reader for reader, _ in readers}) > 1
        kept = frozenset({made.name}) if several else frozenset[str]()
        changed: dict[int, Piece] = {}
        for reader, name in readers:
            consumer = changed.get(reader) or self._work.piece(reader)
            if consumer is None:
                return
            link = Link(made, next(v for v in consumer.reads if v.name == name))
            merged = self._tried(Pair(producer, consumer, (link,), kept), merger)
            if isinstance(merged, Refused):
                self._refusals[made.name, consumer.writes[-1].name] = merged.reason
                return
            changed[reader] = merged
        if not changed:
            return
        self._work.remove(key)
        for reader, merged in changed.items():
            self._work.remove(reader)
            self._work.add(merged, reader)
