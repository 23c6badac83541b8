"""Which pieces of one function are merged, in which order.

Readers go into their writers first, so that a chain of element-wise calls ends up behind
the contraction that it follows; what is left is computed where it is read; last, rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relax_aot.fusion.forward import Link, forward
from relax_aot.fusion.inline import inline, is_movement
from relax_aot.fusion.nest import Refused, definition_of
from relax_aot.fusion.piece import Piece
from relax_aot.fusion.rows import join_rows
from relax_aot.fusion.summary import Apart
from relax_aot.fusion.workspace import Workspace
from relax_aot.ir.dims import Bounds, Dim, interval, prove_le
from relax_aot.ir.graph import Call, Function, Module, Var
from relax_aot.ir.loops import Assign, Bind, Kernel, walk

GREATEST = 2**31 - 1
BETWEEN = Refused("a call between them needs one of them whole")
Merge = Callable[[int, int, tuple[Link, ...]], Piece | Refused]


@dataclass(frozen=True, slots=True)
class Policy:
    """What fusion is for: time, or the smallest arena even where weights are read again
    for every row."""

    rows_over_weights: bool = False


class Search:
    """Merges the pieces of one function until nothing more is worth it."""

    def __init__(
        self,
        function: Function,
        module: Module,
        outside: frozenset[str],
        policy: Policy,
        closed: frozenset[str] = frozenset(),
    ) -> None:
        made = {o.name for c in function.body for o in c.outs}
        self._work = Workspace(function, module, outside & made, closed)
        self._policy = policy
        self._constants = frozenset(module.constant_table)
        lows = {name: (module.bounds.range(name)[0], GREATEST) for name in module.bounds}
        self._bounds = module.bounds
        self._lows = Bounds.of(lows)
        """Highs may be raised when the project is built, so they decide nothing here."""
        self._refusals: dict[tuple[str, str], str] = {}

    def run(self) -> None:
        for key in self._work.places():
            self._merge_with_writers(key, self._forwarded)
        for key in self._work.places():
            self._inline_into_readers(key)
        for key in self._work.places():
            self._merge_with_writers(key, self._row_by_row)
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

    # A piece and one of its writers

    def _merge_with_writers(self, key: int, merge: Merge) -> None:
        while (reader := self._work.piece(key)) is not None:
            for writer, links in self._writers(reader):
                merged = merge(writer, key, links)
                if isinstance(merged, Piece) and self._work.another_way(writer, key):
                    merged = BETWEEN
                if isinstance(merged, Piece):
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

    def _pair(self, writer: int, key: int) -> tuple[Piece, Piece]:
        producer, consumer = self._work.piece(writer), self._work.piece(key)
        assert producer is not None and consumer is not None
        return producer, consumer

    def _read_by_others(self, name: str, key: int) -> bool:
        return any(reader != key for reader, _ in self._work.readers(name))

    def _forwarded(self, writer: int, key: int, links: tuple[Link, ...]) -> Piece | Refused:
        producer, consumer = self._pair(writer, key)
        made = [link.made.name for link in links]
        kept = frozenset(name for name in made if self._read_by_others(name, key))
        if len(set(made)) != len(made):
            return Refused("the reader sees it in two shapes")
        if producer.fallible and any(v.name in self._work.kept for v in consumer.writes):
            return Refused("the writer can fail, and results are written after all that can")
        if _looks_up(consumer) and _sums_up(producer):
            return Refused("the reader looks places up, which the writer's schedule cannot carry")
        if kept and _moves(consumer):
            return Refused("others read it too, and the reader only moves it")
        if len(consumer.body) > 1 and not self._makes_more_than_it_takes(producer, links):
            return Refused("the reader has several parts, and the writer's operands are larger")
        return forward(producer, consumer, links, kept, self._bounds)

    def _makes_more_than_it_takes(self, producer: Piece, links: tuple[Link, ...]) -> bool:
        """Its operands, which must now live until the last part runs, cost no more."""
        made = sum((link.made.type.bytes for link in links), start=Dim.of(0))
        taken = sum(
            (v.type.bytes for v in producer.reads if v.name not in self._constants),
            start=Dim.of(0),
        )
        return interval(taken - made, self._bounds)[1] <= 0

    def _row_by_row(self, writer: int, key: int, links: tuple[Link, ...]) -> Piece | Refused:
        producer, consumer = self._pair(writer, key)
        if len(links) != 1 or links[0].made not in producer.writes:
            return Refused("the reader takes several values from it")
        (link,) = links
        if self._read_by_others(link.made.name, key):
            return Refused("others read it too, so it must be there whole")
        if producer.fallible or consumer.fallible:
            return Refused("one of them can fail")
        reason = self._no_gain(producer, consumer, link.made)
        if reason is not None:
            return Refused(reason)
        return join_rows(producer, consumer, link.made, link.seen)

    def _no_gain(self, producer: Piece, consumer: Piece, made: Var) -> str | None:
        """Why the outer loops had better stay apart; None where the row saves memory."""
        operands = [v for v in producer.reads if v.name not in self._constants]
        around = sum((v.type.bytes for v in operands), start=Dim.of(0))
        if prove_le(made.type.bytes, around, self._lows):
            return "what passes between them is no larger than what goes in"
        if self._policy.rows_over_weights:
            return None
        weights = any(
            v.name in self._constants and v.type.rank > 1
            for piece in (producer, consumer)
            for v in piece.reads
        )
        return "weights would be read again for each row" if weights else None

    # A piece and all its readers

    def _inline_into_readers(self, key: int) -> None:
        producer = self._work.piece(key)
        if producer is None or len(producer.writes) != 1 or producer.scratch:
            return
        (made,) = producer.writes
        readers = list(self._work.readers(made.name))
        changed: dict[int, Piece] = {}
        for reader, name in readers:
            consumer = changed.get(reader) or self._work.piece(reader)
            if consumer is None:
                return
            merged = inline(producer, consumer, made, self._work.value(reader, name))
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


def _moves(piece: Piece) -> bool:
    definition = definition_of(piece.body, piece.writes[0].name)
    return definition is not None and is_movement(definition)


def _looks_up(piece: Piece) -> bool:
    return any(isinstance(stmt, Bind) for stmt in walk(piece.body))


def _sums_up(piece: Piece) -> bool:
    return any(isinstance(stmt, Assign) for stmt in walk(piece.body))
