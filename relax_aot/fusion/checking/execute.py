# SPDX-License-Identifier: Apache-2.0
"""A kernel executed once for all sizes: what its loops leave in each array, as terms.

Loop variables stay symbols. A loop whose iterations touch elements of their own leaves boxes;
one that carries something from an iteration to the next leaves a fold. Every statement is
followed as the loop level declares it; nothing here knows how kernels are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from relax_aot.fusion.checking.arrays import Array, Arrays, Box
from relax_aot.fusion.checking.boxes import disjoint, over_loop
from relax_aot.fusion.checking.effects import Loops
from relax_aot.fusion.checking.evaluate import Evaluation, State, select
from relax_aot.fusion.checking.terms import Bound, Term, World
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ONE, Dim
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Declare,
    For,
    If,
    Kernel,
    Let,
    Micro,
    Multiply,
    Reserve,
    Stmt,
    Store,
)
from relax_aot.ir.types import Shape


class NotFollowedError(Exception):
    """A statement whose effect is not written out in loops and stores."""


@dataclass(frozen=True, slots=True)
class Executed:
    arrays: Mapping[str, Array]
    """Results and scratch by the names of their buffers, as they are at the end."""
    checks: frozenset[tuple[Dim, Dim]]
    """Ranges, in sizes alone, outside which an index from data is refused."""
    single: frozenset[tuple[object, ...]]
    """Loads on an axis of one position whose index is not known to be 0."""
    loads: Mapping[tuple[str, At], tuple[Term, Shape]]
    """Elements that are read, by buffer and index: their values, and the shapes of the buffers."""


def execute(
    kernel: Kernel,
    names: Mapping[str, str],
    world: World,
    given: Mapping[str, Array] | None = None,
) -> Executed:
    """`names` are the values that the kernel's buffers hold; `given` is the memory of buffers that
    hold something at the start, and that stores may change."""
    return _Execution(world, names).run(kernel, given or {})


class _Execution(Evaluation):
    def __init__(self, world: World, names: Mapping[str, str]) -> None:
        super().__init__(world, names)
        self._checks: set[tuple[Dim, Dim]] = set()
        self._loops = Loops()

    def run(self, kernel: Kernel, given: Mapping[str, Array]) -> Executed:
        own = (*kernel.outputs, *kernel.scratch)
        arrays = {b.name: self._arrays.undefined(b.dtype, b.shape) for b in own}
        state = State({}, {}, {**arrays, **given})
        self._block(kernel.body, state)
        return Executed(state.arrays, frozenset(self._checks), frozenset(self._single), self._loads)

    # Statements

    def _block(self, body: tuple[Stmt, ...], state: State) -> None:
        hidden: dict[str, Term | None] = {}
        for stmt in body:
            match stmt:
                case For():
                    self._for(stmt, state)
                case Store():
                    if stmt.buffer.name not in state.arrays:
                        raise NotFollowedError(f"a store to {stmt.buffer.name}")
                    value = self._value(stmt.value, state)
                    at = tuple(map(self._world.simplified, self._at(stmt.index, state)))
                    array = state.arrays[stmt.buffer.name]
                    state.arrays[stmt.buffer.name] = self._arrays.stored(array, at, value)
                case Declare():
                    value = self._value(stmt.value, state)
                    hidden.setdefault(stmt.local.name, state.locals.get(stmt.local.name))
                    state.locals[stmt.local.name] = value
                case Assign():
                    state.locals[stmt.local.name] = self._value(stmt.value, state)
                case Let():
                    (state.dims[stmt.name],) = self._at((stmt.value,), state)
                case Bind():
                    state.dims[stmt.name] = self._bind(stmt, state)
                case If():
                    self._if(stmt, state)
                case Reserve() | Multiply() | Micro():
                    raise NotFollowedError(f"a statement of the kind {type(stmt).__name__}")
        for name, value_before in hidden.items():
            if value_before is None:
                del state.locals[name]
            else:
                state.locals[name] = value_before

    def _bind(self, stmt: Bind, state: State) -> Dim:
        low, high = stmt.low.substitute(state.dims), stmt.high.substitute(state.dims)
        if not stmt.trusted and not self._world.free(low) | self._world.free(high):
            self._checks.add((low, high))
        return self._world.bind(Bound(self._value(stmt.value, state), low, high, stmt.trusted))

    def _if(self, stmt: If, state: State) -> None:
        condition = self._value(stmt.condition, state)
        then, other = state.copy(), state.copy()
        self._block(stmt.then, then)
        self._block(stmt.otherwise, other)
        for name, before in state.locals.items():
            one, two = then.locals[name], other.locals[name]
            state.locals[name] = (
                before if one is two is before else select(self._world, condition, one, two)
            )
        for name, array in state.arrays.items():
            left, right = then.arrays[name], other.arrays[name]
            if left != array or right != array:
                state.arrays[name] = _joined(self._world, condition, array, left, right)

    def _for(self, loop: For, state: State) -> None:
        start, stop = loop.start.substitute(state.dims), loop.stop.substitute(state.dims)
        if self._world.known_le(stop, start):
            return
        loop = self._loops.split(loop, start, stop, self._world)
        stop = loop.stop.substitute(state.dims)
        outer = state.dims.get(loop.variable)
        if stop - start == ONE:
            state.dims[loop.variable] = start
            self._block(loop.body, state)
        else:
            variable = self._world.variable(loop.variable, start, stop)
            if loop.variable[-1] in Loops.DIGITS:
                self._world.digits.add(variable)
            state.dims[loop.variable] = Dim.of(variable)
            self._iterations(loop, variable, state)
        del state.dims[loop.variable]
        if outer is not None:
            state.dims[loop.variable] = outer

    def _iterations(self, loop: For, variable: str, state: State) -> None:
        effects = self._loops.effects(loop)
        stored = effects.stores.keys() & state.arrays.keys()
        # Where a store is the only access, which rows are an iteration's own does not matter.
        shared = {n for n in stored if n in effects.loads or effects.stores[n] > 1}
        world, dims = self._world, state.dims
        own = {n for n in shared if self._loops.own_rows(loop, n, variable, dims, world)}
        while not self._one_iteration(loop, variable, state, stored, own):
            own = set()

    def _one_iteration(
        self, loop: For, variable: str, state: State, stored: set[str], own: set[str]
    ) -> bool:
        """Follow the body once. False where rows that seemed the iteration's own need a fold."""
        world, arrays = self._world, self._arrays
        number = world.number()
        carried = sorted(self._loops.effects(loop).assigned & state.locals.keys())
        step = Dim.of(variable)
        inner = state.copy()
        for name in carried:
            inner.locals[name] = world.term("phi", (number, name), (step,))
        for name in stored - own:
            start = world.term("phi", (number, f"%{name}"), (step,))
            inner.arrays[name] = state.arrays[name].holding(start)
        self._block(loop.body, inner)
        layers: dict[str, tuple[Box, ...]] = {}
        for name in sorted(stored):
            before = state.arrays[name] if name in own else None
            found = _layers(world, inner.arrays[name], before, variable, number, name)
            if found is None and name in own:
                return False
            if found is not None:
                layers[name] = found
        # What still reads an array as earlier iterations left it makes the array a carried one.
        while read := {
            name
            for name in layers.keys() - own
            if any(
                (number, f"%{name}") in term.phis
                for term in _seen(world, inner, carried, stored, layers)
            )
        }:
            for name in read:
                del layers[name]
        folded = sorted(stored - layers.keys())
        names = (*carried, *(f"%{name}" for name in folded))
        first, following = (
            (*map(at.locals.__getitem__, carried), *(arrays.term_of(at.arrays[n]) for n in folded))
            for at in (state, inner)
        )
        label = (number, variable, names)
        fold = world.term("def", label, world.ranges[variable], (*first, *following))
        for name in carried:
            state.locals[name] = world.term("fold", name, (), (fold,))
        for name in folded:
            made = world.term("fold", f"%{name}", (), (fold,))
            state.arrays[name] = state.arrays[name].holding(made)
        for name, boxes in layers.items():
            closed = tuple(_closed(world, box, number, fold) for box in boxes)
            state.arrays[name] = state.arrays[name].under(*closed)
        return True


def _seen(
    world: World,
    inner: State,
    carried: list[str],
    stored: set[str],
    layers: Mapping[str, tuple[Box, ...]],
) -> Iterator[Term]:
    """What an iteration leaves where it changes something."""
    for name in carried:
        yield inner.locals[name]
    for name in stored:
        if name in layers:
            for box in layers[name]:
                yield box.value
        else:
            yield Arrays(world).term_of(inner.arrays[name])


def _layers(
    world: World, array: Array, before: Array | None, variable: str, number: int, name: str
) -> tuple[Box, ...] | None:
    """What all iterations add to the array; None where a fold has to say it."""
    if before is None:
        if array.base.kind != "phi" or array.base.label != (number, f"%{name}"):
            return None
        new = array.boxes
    else:
        count = len(before.boxes)
        if array.base is not before.base or array.boxes[:count] != before.boxes:
            return None
        new = array.boxes[count:]
    made = []
    for box in new:
        wide = over_loop(world, box, variable)
        if wide is None:
            return None
        made.append(wide)
    if before is None:
        for place, box in enumerate(made):
            for other in made[:place]:
                if not disjoint(world, box, other):
                    return None
    return tuple(made)


def _closed(world: World, box: Box, number: int, fold: Term) -> Box:

    def rule(phi: Term) -> Term:
        assert isinstance(phi.label, tuple)
        return world.term("at", phi.label[1], phi.dims, (fold,))

    value = world.replace_phis(box.value, number, rule)
    return box if value is box.value else Box(box.axes, value)


def _joined(world: World, condition: Term, before: Array, then: Array, other: Array) -> Array:
    """Layers of both branches, each over what was there where the other is taken."""
    count = len(before.boxes)
    plain = all(a.base is before.base and a.boxes[:count] == before.boxes for a in (then, other))
    if not plain:
        parts = (condition, Arrays(world).term_of(then), Arrays(world).term_of(other))
        return before.holding(world.term("chosen", None, (), parts))
    ours, theirs = then.boxes[count:], other.boxes[count:]
    if [b.axes for b in ours] == [b.axes for b in theirs]:
        made = tuple(
            Box(a.axes, select(world, condition, a.value, b.value))
            for a, b in zip(ours, theirs, strict=True)
        )
        return before.under(*made)
    result = before
    for taken, boxes in ((True, ours), (False, theirs)):
        for box in boxes:
            kept = Arrays(world).read(result, box.position)
            value = (
                select(world, condition, box.value, kept)
                if taken
                else select(world, condition, kept, box.value)
            )
            result = result.under(Box(box.axes, value))
    return result
