# SPDX-License-Identifier: Apache-2.0
"""Which elements of axes and which iterations of loops go together.

Every place on an axis of a value, and every iteration of a loop, is a number. A loop that accesses
an axis at `v + 2` ties its iteration v to that place: the kernel without this iteration is the
kernel of arrays without this place. What is tied forms one channel, through all kernels that it
passes. `fixed` are those that have to stay.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Module, Var
from relax_aot.ir.loops import Bind, For, Index, Load, Stmt, Store, expressions, parts, walk
from relax_aot.ops._op import Array
from relax_aot.pruning.plain import GREATEST, Plain, folded, loads_of, span

Key = tuple[str, int, int]
"""("value", number of the value, axis), or ("loop", number of the call, number of the loop)."""


@dataclass
class Links:
    first: dict[Key, int] = field(default_factory=dict)
    sizes: dict[Key, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    pairs: list[tuple[Array, Array]] = field(default_factory=list)
    stay: list[Array] = field(default_factory=list)
    count: int = 0

    def places(self, key: Key) -> Array:
        return np.arange(self.first[key], self.first[key] + self.sizes[key])

    def add(self, key: Key, size: int) -> None:
        if key not in self.first:
            self.first[key], self.sizes[key] = self.count, size
            self.count += size

    def axis(self, name: str, axis: int) -> Key:
        return "value", self.values.setdefault(name, len(self.values)), axis

    def value(self, name: str, shape: Iterable[Dim]) -> None:
        for axis, size in enumerate(shape):
            if size.is_constant and 1 < size.constant <= GREATEST:
                self.add(self.axis(name, axis), size.constant)

    def keep(self, key: Key) -> None:
        if key in self.first:
            self.stay.append(self.places(key))

    def keep_value(self, value: Var, name: str = "") -> None:
        """All places of a value, or of a constant as a call reads it, which has a name there."""
        for axis in range(value.type.rank):
            self.keep(self.axis(name or value.name, axis))

    def tie(self, one: Array, other: Array) -> None:
        self.pairs.append((one, other))

    def channels(self) -> tuple[Array, Array]:
        """The channel of each place and iteration, by its least number, and which are fixed."""
        label = np.arange(self.count)
        if self.pairs:
            one = np.concatenate([pair[0] for pair in self.pairs])
            other = np.concatenate([pair[1] for pair in self.pairs])
            while True:
                least = np.minimum(label[one], label[other])
                if (label[one] == least).all() and (label[other] == least).all():
                    break
                np.minimum.at(label, label[one], least)
                np.minimum.at(label, label[other], least)
                np.minimum.at(label, one, least)
                np.minimum.at(label, other, least)
                label = label[label]
        fixed = np.zeros(self.count, np.bool_)
        for places in self.stay:
            fixed[label[places]] = True
        return label, fixed


def argument(call: int, position: int) -> str:
    """The name of a constant as one call reads it: each has a copy of its own."""
    return f"{call}:{position}"


def links_of(module: Module, kernels: dict[int, Plain | None]) -> Links:
    """Of the entry's calls; `kernels` by the number of the call."""
    links = Links()
    main = module.main
    constants = module.constant_table
    for value in (*main.params, *(out for call in main.body for out in call.outs)):
        links.value(value.name, value.type.shape)
    for number, call in enumerate(main.body):
        names = named(call, number, constants.keys())
        for name, value in zip(names, call.inputs, strict=True):
            links.value(name, value.type.shape)
        plain = kernels.get(number)
        if plain is not None:
            _kernel(links, number, call, names, plain)
        elif call.op != "view":
            for name, value in zip(names, call.inputs, strict=True):
                links.keep_value(value, name)
            for value in call.outs:
                links.keep_value(value)
    for value in (*main.params, *main.results):
        links.keep_value(value)
    _, fixed = links.channels()
    for number, call in enumerate(main.body):
        if call.op == "view":
            name = named(call, number, constants.keys())[0]
            _view(links, name, call, fixed)
    return links


def named(call: Call, number: int, constants: Container[str]) -> list[str]:
    """The names of a call's arguments in `Links`."""
    return [
        argument(number, position) if value.name in constants else value.name
        for position, value in enumerate(call.inputs)
    ]


def _kernel(links: Links, number: int, call: Call, names: list[str], plain: Plain) -> None:
    kernel = plain.kernel
    buffers = dict(zip((b.name for b in kernel.inputs), names, strict=True))
    outs = (o.name for o in call.outs)
    buffers |= dict(zip((b.name for b in (*kernel.outputs, *kernel.scratch)), outs, strict=True))
    for index, loop in enumerate(plain.loops):
        iterations = span(loop)
        if iterations is not None:
            links.add(("loop", number, index), len(iterations))
    _Nest(links, number, buffers, plain).block(plain.body, {})


class _Nest:
    """Ties the loops of one kernel to what they access."""

    def __init__(self, links: Links, number: int, buffers: dict[str, str], plain: Plain) -> None:
        self.links, self.number, self.buffers, self.plain = links, number, buffers, plain

    def block(self, body: tuple[Stmt, ...], loops: dict[str, For]) -> None:
        for stmt in body:
            for load in loads_of(stmt):
                self.access(load, loops)
            if isinstance(stmt, Store):
                self.access(Load(stmt.buffer, stmt.index), loops)
            for dim in _numbers(stmt):
                self.keep_loops(dim, loops)
            if isinstance(stmt, For):
                self.enter(stmt, loops)
                self.block(stmt.body, {**loops, stmt.variable: stmt})
            else:
                for inner in _blocks(stmt):
                    self.block(inner, loops)

    def enter(self, loop: For, loops: dict[str, For]) -> None:
        """A loop stays whole where iterations do other things than to add to scalars, and to write
        to places of their own."""
        changed = folded(loop)
        inner = [*walk(loop.body)]
        apart = all(
            any(loop.variable in dim.symbols for dim in stmt.index)
            for stmt in inner
            if isinstance(stmt, Store)
        )
        if changed is None or set(changed.values()) - {"+"} or not apart:
            self.links.keep(self.key(loop))

    def key(self, loop: For) -> Key:
        return "loop", self.number, self.plain.numbers[id(loop)]

    def keep_loops(self, dim: Dim, loops: dict[str, For]) -> None:
        for name in dim.symbols & loops.keys():
            self.links.keep(self.key(loops[name]))

    def access(self, load: Load, loops: dict[str, For]) -> None:
        name = self.buffers[load.buffer.name]
        for axis, dim in enumerate(load.index):
            key = self.links.axis(name, axis)
            if key not in self.links.first:
                self.keep_loops(dim, loops)
                continue
            if not self.tied(key, dim, loops):
                self.links.keep(key)
                self.keep_loops(dim, loops)

    def tied(self, key: Key, dim: Dim, loops: dict[str, For]) -> bool:
        size = self.links.sizes[key]
        places = self.links.places(key)
        if dim.is_constant:
            if not 0 <= dim.constant < size:
                return False
            self.links.stay.append(places[[dim.constant]])
            return True
        found = along(dim, loops)
        if found is None:
            return False
        iterations = span(loops[found.variable])
        assert iterations is not None
        first = np.array(iterations) * found.factor + found.start
        every = first[:, None] + np.arange(found.block)
        if every.min() < 0 or every.max() >= size:
            return False
        own = self.links.places(self.key(loops[found.variable]))
        self.links.tie(np.repeat(own, found.block), places[every.reshape(-1)])
        for other in found.others:
            self.links.keep(self.key(loops[other]))
        return True


@dataclass(frozen=True, slots=True)
class Along:
    """How a loop runs along an axis: iteration v takes `block` places from
    `factor * v + start` on, in the loops `others` inside it."""

    variable: str
    factor: int
    start: int
    block: int
    others: tuple[str, ...]


def along(dim: Dim, loops: Mapping[str, For]) -> Along | None:
    """None where an axis is accessed in another way."""
    factors: dict[str, int] = {}
    start = 0
    for factor, monomial in dim.terms:
        if not monomial:
            start = factor
            continue
        ((atom, power), *more) = monomial
        loop = loops.get(atom) if isinstance(atom, str) else None
        if more or power != 1 or loop is None or span(loop) is None:
            return None
        factors[str(atom)] = factor
    outer, *others = sorted(factors, key=lambda name: -abs(factors[name]))
    block = 1
    for name in others:
        iterations = span(loops[name])
        assert iterations is not None
        if factors[name] < 0 or iterations.start != 0:
            return None
        block += factors[name] * (len(iterations) - 1)
    if others and block != factors[outer]:
        return None
    return Along(outer, factors[outer], start, block, tuple(others))


def _numbers(stmt: Stmt) -> list[Dim]:
    """Sizes that are no places: an iteration is more than a place where these name it."""
    found = [expr.dim for e in expressions(stmt) for expr in parts(e) if isinstance(expr, Index)]
    if isinstance(stmt, For):
        found += [stmt.start, stmt.stop]
    if isinstance(stmt, Bind):
        found += [stmt.low, stmt.high]
    return found


def _blocks(stmt: Stmt) -> list[tuple[Stmt, ...]]:
    return [getattr(stmt, name) for name in ("then", "otherwise") if hasattr(stmt, name)]


def _view(links: Links, source: str, call: Call, fixed: Array) -> None:
    """Axes of equal size are tied one to one. Where several become one, or one several, the places
    of one of them that is not fixed yet are tied, with all that lie in it."""
    before, after = call.inputs[0].type.shape, call.out.type.shape
    for left, right in pairs_of(before, after):
        one = [links.axis(source, axis) for axis in left]
        other = [links.axis(call.out.name, axis) for axis in right]
        if len(one) == len(other) == 1 and before[left[0]] == after[right[0]]:
            if one[0] in links.first:
                links.tie(links.places(one[0]), links.places(other[0]))
            continue
        many, single, shape = one, other, [before[axis] for axis in left]
        if len(one) == 1:
            many, single, shape = other, one, [after[axis] for axis in right]
        free = [
            key for key in many if key in links.first and not fixed[links.places(key)[:1]].all()
        ]
        known = all(size.is_constant for size in shape)
        if len(single) != 1 or single[0] not in links.first or not known or not free:
            for key in (*one, *other):
                links.keep(key)
            continue
        sizes = [size.constant for size in shape]
        chosen = max(free, key=lambda key: int((~fixed[links.places(key)]).sum()))
        at = np.indices(sizes)[many.index(chosen)].reshape(-1)
        links.tie(links.places(single[0]), links.places(chosen)[at])
        for key in many:
            if key != chosen:
                links.keep(key)


def pairs_of(before: tuple[Dim, ...], after: tuple[Dim, ...]) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of axes with the same number of elements on both sides."""
    found: list[tuple[list[int], list[int]]] = []
    ends = len(before), len(after)
    i = j = 0
    while (i, j) != ends:
        from_i, from_j = i, j
        left = right = Dim.of(1)
        if i < ends[0] and j < ends[1]:  # so that an axis of size 1 is one of its own
            left, right, i, j = before[i], after[j], i + 1, j + 1
        while (i, j) != ends and not (i > from_i and j > from_j and left == right):
            known = left.is_constant and right.is_constant
            behind = left.constant <= right.constant if known else i - from_i <= j - from_j
            if i < ends[0] and (j == ends[1] or behind):
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
        found.append(([*range(from_i, i)], [*range(from_j, j)]))
    return found
