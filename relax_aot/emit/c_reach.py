# SPDX-License-Identifier: Apache-2.0
"""Indices that interval arithmetic alone cannot prove to be inside their buffer.

An interval analysis loses relations between sizes and loop variables: for `n - 1 - i`, that i is
less than n. This file evaluates the same arithmetic to find the sizes and loops of such an index,
which a prover then analyzes value by value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import NamedTuple

from relax_aot.ir.dims import Bounds, Dim, FloorDiv, Max, Min, Mod, row_major
from relax_aot.ir.loops import (
    PARTS,
    Binary,
    Bind,
    Buffer,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Micro,
    Multiply,
    Select,
    Stmt,
    Store,
    held,
)
from relax_aot.ir.value_ranges import Range

NOTHING = frozenset[str]()
WIDEST = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Apart:
    """What is analyzed separately: iterations of loops, by their variables, and values of sizes."""

    loops: frozenset[str] = NOTHING
    sizes: frozenset[str] = NOTHING

    def __or__(self, other: Apart) -> Apart:
        return Apart(self.loops | other.loops, self.sizes | other.sizes)


NONE = Apart()


def apart(kernel: Kernel, known: Apart, bounds: Bounds) -> Apart:
    """`known` and what else has to be looked at one by one, so that intervals place all indices:
    loops or sizes alone where that is enough, and none that can be left out."""
    unclear = _unclear(kernel, known, bounds)
    if not unclear:
        return known
    sizes = frozenset(name for name in unclear if name in bounds)
    loops, both = Apart(unclear - sizes), Apart(unclear - sizes, sizes)
    for more in (loops, Apart(sizes=sizes), both):
        if not _unclear(kernel, known | more, bounds):
            found = more
            for name in sorted(more.loops | more.sizes, reverse=True):
                fewer = Apart(found.loops - {name}, found.sizes - {name})
                if not _unclear(kernel, known | fewer, bounds):
                    found = fewer
            return known | found
    return known | both


class Sample(NamedTuple):
    """Which of its values something has that is looked at one by one: 0 is the first, 1 the
    second, -1 the last, None one in the middle. `iterations` is for loops, by their
    depth of nesting modulo its length."""

    size: int | None
    iterations: tuple[int | None, ...]

    def of(self, span: Range, which: int | None) -> int:
        low, high = span
        if which is None:
            return (low + high) // 2
        return min(low + which, high) if which >= 0 else high


LEVELS = 3
SAMPLES = tuple(
    Sample(size, iterations)
    for size in (-1, 0, 1, None)
    for iterations in (*product((-1, 0), repeat=LEVELS), (None,))
)
"""Loops nested in each other begin or end independently: three levels of them in all ways."""


def _unclear(kernel: Kernel, known: Apart, bounds: Bounds) -> frozenset[str]:
    """The sizes and loops that indices rest on which are beyond their buffer by intervals."""
    if not known.sizes and not known.loops:
        return _rests(kernel, known, bounds, SAMPLES[0])
    return NOTHING.union(
        *(_rests(kernel, known, bounds, sample) for sample in _samples(kernel, known))
    )


def _samples(kernel: Kernel, known: Apart) -> Iterable[Sample]:
    """Those of SAMPLES that differ in what is looked at one by one."""
    depths = sorted({depth % LEVELS for depth in _depths(kernel.body, known.loops, 0)})
    different = {
        (
            sample.size if known.sizes else None,
            tuple(sample.iterations[depth % len(sample.iterations)] for depth in depths),
        ): sample
        for sample in SAMPLES
    }
    return different.values()


def _depths(body: Iterable[Stmt], loops: Collection[str], depth: int) -> Iterator[int]:
    """How deep the loops are nested that have these variables."""
    for stmt in body:
        match stmt:
            case For():
                if stmt.variable in loops:
                    yield depth
                yield from _depths(stmt.body, loops, depth + 1)
            case If():
                yield from _depths(stmt.then, loops, depth)
                yield from _depths(stmt.otherwise, loops, depth)
            case _:
                pass


def _rests(kernel: Kernel, known: Apart, bounds: Bounds, sample: Sample) -> frozenset[str]:
    extents = {name: bounds.range(name) for name in bounds}
    spans = {
        name: (sample.of(span, sample.size),) * 2 if name in known.sizes else span
        for name, span in extents.items()
    }
    place = _Place(
        spans, extents, {name: frozenset({name}) for name in spans}, extents, known, sample
    )
    _follow(kernel.body, place)
    return frozenset(place.found)


@dataclass(frozen=True, slots=True)
class _Place:
    """What is known at one place of a kernel: the span of each name, and which sizes and loops
    it rests on."""

    spans: Mapping[str, Range]
    whole: Mapping[str, Range]
    """The same without regard to the sample: what is looked at one by one has all its values."""
    rests: Mapping[str, frozenset[str]]
    extents: Mapping[str, Range]
    """The sizes that buffers may have: those of the whole image."""
    known: Apart
    sample: Sample
    depth: int = 0
    found: set[str] = field(default_factory=set)

    def named(self, name: str, span: Range, whole: Range, rests: frozenset[str]) -> _Place:
        return replace(
            self,
            spans={**self.spans, name: span},
            whole={**self.whole, name: whole},
            rests={**self.rests, name: rests},
        )

    def basis(self, *dims: Dim) -> frozenset[str]:
        names = NOTHING.union(*(dim.symbols for dim in dims))
        return NOTHING.union(*(self.rests.get(name, NOTHING) for name in names))

    def inside(self, loop: For) -> _Place | None:
        """In an iteration of a loop; None without one."""
        start, stop = span(loop.start, self.spans), span(loop.stop, self.spans)
        if start[0] >= stop[1]:
            return None
        iterated = (start[0], stop[1] - 1)
        whole = span(loop.start, self.whole)[0], span(loop.stop, self.whole)[1] - 1
        if loop.variable in self.known.loops:
            which = self.sample.iterations[self.depth % len(self.sample.iterations)]
            first = self.sample.of(iterated, which)
            iterated = (first, min(first + start[1] - start[0], iterated[1]))
        basis = self.basis(loop.start, loop.stop) | {loop.variable}
        inner = replace(self.named(loop.variable, iterated, whole, basis), depth=self.depth + 1)
        return _below(Dim.of(loop.variable), loop.stop, 1, inner)


def _follow(body: Iterable[Stmt], place: _Place) -> None:
    for stmt in body:
        # Where micro-kernels begin to read is not looked at: they may go beyond sizes within what
        # they are given.
        for expr in () if isinstance(stmt, Multiply | Micro) else held(stmt, PARTS):
            _look(expr, place)
        match stmt:
            case Store():
                _check(stmt.index, stmt.buffer, place)
            case For():
                if (inner := place.inside(stmt)) is not None:
                    _follow(stmt.body, inner)
            case If():
                if (inner := _where(stmt.condition, place)) is not None:
                    _follow(stmt.then, inner)
                _follow(stmt.otherwise, place)
            case Micro():
                _check_apart(stmt.operands, place)
            case Let():
                one, whole = span(stmt.value, place.spans), span(stmt.value, place.whole)
                place = place.named(stmt.name, one, whole, place.basis(stmt.value))
            case Bind():
                one, whole = _between(stmt, place.spans), _between(stmt, place.whole)
                place = place.named(stmt.name, one, whole, place.basis(stmt.low, stmt.high))
            case _:
                pass


def _between(bind: Bind, spans: Mapping[str, Range]) -> Range:
    low, high = span(bind.low, spans)[0], span(bind.high, spans)[1]
    return low, max(low, high)


def _look(expr: Expr, place: _Place) -> None:
    match expr:
        case Load():
            _check(expr.index, expr.buffer, place)
        case Select():
            _look(expr.condition, place)
            if (inner := _where(expr.condition, place)) is not None:
                _look(expr.then, inner)
            _look(expr.otherwise, place)
        case Binary():
            _look(expr.left, place)
            inner = _where(expr.left, place) if expr.op == "&&" else place
            if inner is not None:
                _look(expr.right, inner)
        case _:
            for part in held(expr, PARTS):
                _look(part, place)


def _where(condition: Expr, place: _Place) -> _Place | None:
    """What is known where a condition holds; None where it does not hold."""
    match condition:
        case Binary("&&", left, right):
            inner = _where(left, place)
            return None if inner is None else _where(right, inner)
        case Binary("<" | "<=", Index(less), Index(more)):
            return _below(less, more, int(condition.op == "<"), place)
        case _:
            return place


def _below(less: Dim, more: Dim, by: int, place: _Place) -> _Place | None:
    """`less + by <= more` narrows what stands in it alone."""
    spans = _narrowed(less, more, by, place.spans)
    whole = _narrowed(less, more, by, place.whole)
    if spans is None or whole is None:
        return None
    return replace(place, spans=spans, whole=whole)


def _narrowed(
    less: Dim, more: Dim, by: int, spans: Mapping[str, Range]
) -> Mapping[str, Range] | None:
    (low, _), (_, high) = span(less, spans), span(more, spans)
    if low + by > high:
        return None
    narrowed = dict(spans)
    for dim, least, most in ((less, WIDEST[0], high - by), (more, low + by, WIDEST[1])):
        for name in dim.symbols:
            rest = dim - Dim.of(name)
            if rest.is_constant and name in narrowed:
                ends = narrowed[name]
                kept = max(ends[0], least - rest.constant), min(ends[1], most - rest.constant)
                narrowed[name] = kept if kept[0] <= kept[1] else ends
    return narrowed


def _check(index: tuple[Dim, ...], buffer: Buffer, place: _Place) -> None:
    # Axis by axis for a sample, or all axes at once for all samples: that one sample's element
    # lies inside the buffer says nothing about the next one.
    if all(
        _inside(at, size, place.spans, place.extents)
        for at, size in zip(index, buffer.shape, strict=True)
    ) or _inside(row_major(index, buffer.shape), buffer.type.elements, place.whole, place.extents):
        return
    place.found.update(place.basis(*index))


def _check_apart(operands: Iterable[Load], place: _Place) -> None:
    """Two operands in one buffer: a micro-kernel goes from one to the other by how far they are
    apart."""
    for one, other in combinations(operands, 2):
        if one.buffer == other.buffer:
            shape = one.buffer.shape
            low, high = span(
                row_major(one.index, shape) - row_major(other.index, shape), place.spans
            )
            if low < high:
                place.found.update(place.basis(*one.index, *other.index))


def _inside(at: Dim, size: Dim, spans: Mapping[str, Range], extents: Mapping[str, Range]) -> bool:
    low, high = span(at, spans)
    return low >= 0 and high < span(size, extents)[1]


def span(dim: Dim, spans: Mapping[str, Range]) -> Range:
    """By intervals alone, each symbol taken by itself wherever it occurs."""
    low = high = 0
    for coefficient, factors in dim.terms:
        term = (coefficient, coefficient)
        for atom, power in factors:
            base = spans.get(atom, WIDEST) if isinstance(atom, str) else _atom(atom, spans)
            for _ in range(power):
                corners = [x * y for x in term for y in base]
                term = min(corners), max(corners)
        low, high = low + term[0], high + term[1]
    return low, high


def _atom(atom: FloorDiv | Mod | Min | Max, spans: Mapping[str, Range]) -> Range:
    if isinstance(atom, Min | Max):
        parts = [span(arg, spans) for arg in atom.args]
        best = min if isinstance(atom, Min) else max
        return best(part[0] for part in parts), best(part[1] for part in parts)
    whole, by = span(atom.numerator, spans), span(atom.denominator, spans)
    by = max(by[0], 1), max(by[1], 1)
    if isinstance(atom, Mod):
        unchanged = whole[0] >= 0 and whole[1] < by[0]
        return whole if unchanged else (0, by[1] - 1)
    corners = [x // y for x in whole for y in by]
    return min(corners), max(corners)
