"""A kernel executed once for all sizes: what its loops leave in each array, as terms.

Loop variables stay symbols. A loop whose iterations touch elements of their own leaves boxes;
one that carries something from an iteration to the next leaves a fold. Every statement is
followed as the loop level declares it; nothing here knows how kernels are merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from relax_aot.fusion.checking.arrays import Array, Arrays, Box
from relax_aot.fusion.checking.terms import ONE, ZERO, At, Bound, Term, World, exact_quotient, rise
from relax_aot.ir.dims import Dim, FloorDiv, Mod
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Bind,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Let,
    Lit,
    Load,
    Local,
    Micro,
    Multiply,
    Reserve,
    Select,
    Stmt,
    Store,
    Unary,
    expressions,
    index_dims,
    walk,
)
from relax_aot.ir.rewrite import map_index_dims


class NotFollowedError(Exception):
    """A statement whose effect is not written out in loops and stores."""


DIGITS = ("/", "%")
"""Ends of the names of loops that one loop was split into."""
Single = tuple[str, int, tuple[tuple[int, int], ...]]
"""A value, an axis, and the index there without the names in it."""


@dataclass(frozen=True, slots=True)
class Executed:
    arrays: Mapping[str, Array]
    """Results and scratch by the names of their buffers, as they are at the end."""
    checks: frozenset[tuple[Dim, Dim]]
    """Ranges, in sizes alone, outside which an index from data is refused."""
    single: frozenset[Single]
    """Loads on an axis of one position whose index is not known to be 0."""


@dataclass
class _State:
    dims: dict[str, Dim]
    locals: dict[str, Term]
    arrays: dict[str, Array]

    def copy(self) -> _State:
        return _State(dict(self.dims), dict(self.locals), dict(self.arrays))


def execute(kernel: Kernel, names: Mapping[str, str], world: World) -> Executed:
    """`names` are the values that the kernel's buffers hold."""
    return _Execution(world, names).run(kernel)


class _Execution:
    def __init__(self, world: World, names: Mapping[str, str]) -> None:
        self._world = world
        self._names = names
        self._arrays = Arrays(world)
        self._checks: set[tuple[Dim, Dim]] = set()
        self._single: set[Single] = set()
        self._effects: dict[int, _Effects] = {}
        self._splits: dict[int, For] = {}

    def run(self, kernel: Kernel) -> Executed:
        own = (*kernel.outputs, *kernel.scratch)
        arrays = {b.name: self._arrays.undefined(b.dtype, b.shape) for b in own}
        state = _State({}, {}, arrays)
        self._block(kernel.body, state)
        return Executed(state.arrays, frozenset(self._checks), frozenset(self._single))

    # Statements

    def _block(self, body: tuple[Stmt, ...], state: _State) -> None:
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

    def _bind(self, stmt: Bind, state: _State) -> Dim:
        low, high = stmt.low.substitute(state.dims), stmt.high.substitute(state.dims)
        if not stmt.trusted and not self._world.free(low) | self._world.free(high):
            self._checks.add((low, high))
        return self._world.bind(Bound(self._value(stmt.value, state), low, high, stmt.trusted))

    def _if(self, stmt: If, state: _State) -> None:
        condition = self._value(stmt.condition, state)
        then, other = state.copy(), state.copy()
        self._block(stmt.then, then)
        self._block(stmt.otherwise, other)
        for name, before in state.locals.items():
            one, two = then.locals[name], other.locals[name]
            state.locals[name] = (
                before if one is two is before else self._select(condition, one, two)
            )
        for name, array in state.arrays.items():
            left, right = then.arrays[name], other.arrays[name]
            if left != array or right != array:
                state.arrays[name] = self._joined(condition, array, left, right)

    def _select(self, condition: Term, then: Term, other: Term) -> Term:
        if then is other:
            return then
        return self._world.term("select", None, (), (condition, then, other))

    def _joined(self, condition: Term, before: Array, then: Array, other: Array) -> Array:
        """Layers of both branches, each over what was there where the other is taken."""
        count = len(before.boxes)
        plain = all(
            a.base is before.base and a.boxes[:count] == before.boxes for a in (then, other)
        )
        if not plain:
            parts = (condition, self._arrays.term_of(then), self._arrays.term_of(other))
            return replace(before, base=self._world.term("chosen", None, (), parts), boxes=())
        ours, theirs = then.boxes[count:], other.boxes[count:]
        if [b.axes for b in ours] == [b.axes for b in theirs]:
            made = tuple(
                Box(a.axes, self._select(condition, a.value, b.value))
                for a, b in zip(ours, theirs, strict=True)
            )
            return replace(before, boxes=(*before.boxes, *made))
        result = before
        for taken, boxes in ((True, ours), (False, theirs)):
            for box in boxes:
                kept = self._arrays.read(result, box.position)
                value = (
                    self._select(condition, box.value, kept)
                    if taken
                    else self._select(condition, kept, box.value)
                )
                result = replace(result, boxes=(*result.boxes, Box(box.axes, value)))
        return result

    def _at(self, index: At, state: _State) -> At:
        """The index over the loops of the world."""
        return tuple(self._world.of_digits(dim.substitute(state.dims)) for dim in index)

    def _split(self, loop: For, start: Dim, stop: Dim) -> For:
        """A loop whose variable stores divide, as one loop in another: the same iterations in
        the same order."""
        if start != ZERO:
            return loop
        found = self._splits.get(id(loop))
        if found is None:
            found = loop
            outer, inner = (f"{loop.variable}{mark}" for mark in DIGITS)
            divided = sorted(self._effects_of(loop).divided, key=str)
            parts = [(by, exact_quotient(stop, by)) for n, by in divided if n == loop.variable]
            sizes = [(by, n) for by, n in parts if n is not None and n != ONE and by != ONE]
            known = self._world.known_le
            if sizes and not {outer, inner} & _names(loop.body):
                by, n = max(sizes, key=lambda s: s[0].constant if s[0].is_constant else 0)
                value = {loop.variable: Dim.of(outer) * by + Dim.of(inner)}
                if known(ZERO, by) and known(ZERO, n):
                    body = map_index_dims(loop.body, lambda dim: dim.substitute(value))
                    found = For(outer, ZERO, n, (For(inner, ZERO, by, body),))
            self._splits[id(loop)] = found
        return found

    def _for(self, loop: For, state: _State) -> None:
        start, stop = loop.start.substitute(state.dims), loop.stop.substitute(state.dims)
        if self._world.known_le(stop, start):
            return
        loop = self._split(loop, start, stop)
        stop = loop.stop.substitute(state.dims)
        outer = state.dims.get(loop.variable)
        if stop - start == ONE:
            state.dims[loop.variable] = start
            self._block(loop.body, state)
        else:
            variable = self._world.variable(loop.variable, start, stop)
            if loop.variable[-1] in DIGITS:
                self._world.digits.add(variable)
            state.dims[loop.variable] = Dim.of(variable)
            self._iterations(loop, variable, state)
        del state.dims[loop.variable]
        if outer is not None:
            state.dims[loop.variable] = outer

    def _iterations(self, loop: For, variable: str, state: _State) -> None:
        effects = self._effects_of(loop)
        stored = effects.stores.keys() & state.arrays.keys()
        # Where a store is the only access, which rows are an iteration's own does not matter.
        shared = {n for n in stored if n in effects.loads or effects.stores[n] > 1}
        own = {name for name in shared if self._own_rows(name, loop.body, variable, state)}
        while not self._one_iteration(loop, variable, state, stored, own):
            own = set()

    def _effects_of(self, loop: For) -> _Effects:
        found = self._effects.get(id(loop))
        if found is None:
            stores: Counter[str] = Counter()
            loads: set[str] = set()
            assigned: set[str] = set()
            divided: set[tuple[str, Dim]] = set()
            waiting = list(loop.body)
            while waiting:
                stmt = waiting.pop()
                match stmt:
                    case For():
                        inner = self._effects_of(stmt)
                        stores.update(inner.stores)
                        loads |= inner.loads
                        assigned |= inner.assigned
                        divided |= inner.divided
                    case If():
                        waiting += stmt.then + stmt.otherwise
                    case Store():
                        stores[stmt.buffer.name] += 1
                        divided |= set(_divided(stmt))
                    case Assign():
                        assigned.add(stmt.local.name)
                    case _:
                        pass
                loads |= {e.buffer.name for e in expressions(stmt) if isinstance(e, Load)}
            found = _Effects(stores, frozenset(loads), frozenset(assigned), frozenset(divided))
            self._effects[id(loop)] = found
        return found

    def _one_iteration(
        self, loop: For, variable: str, state: _State, stored: set[str], own: set[str]
    ) -> bool:
        """Follow the body once. False where rows that seemed the iteration's own need a fold."""
        world, arrays = self._world, self._arrays
        number = world.number()
        carried = sorted(self._effects_of(loop).assigned & state.locals.keys())
        step = Dim.of(variable)
        inner = state.copy()
        for name in carried:
            inner.locals[name] = world.term("phi", (number, name), (step,))
        for name in stored - own:
            start = world.term("phi", (number, f"%{name}"), (step,))
            inner.arrays[name] = replace(state.arrays[name], base=start, boxes=())
        self._block(loop.body, inner)
        layers: dict[str, tuple[Box, ...]] = {}
        for name in sorted(stored):
            before = state.arrays[name] if name in own else None
            found = self._layers(inner.arrays[name], before, variable, number, name)
            if found is None and name in own:
                return False
            if found is not None:
                layers[name] = found
        # What still reads an array as earlier iterations left it makes the array a carried one.
        while read := {
            name
            for name in layers.keys() - own
            if any((number, f"%{name}") in term.phis for term in self._seen(inner, carried, layers))
        }:
            for name in read:
                del layers[name]
        folded = sorted(stored - layers.keys())
        parts = {name: (state.locals[name], inner.locals[name]) for name in carried}
        for name in folded:
            ends = (arrays.term_of(state.arrays[name]), arrays.term_of(inner.arrays[name]))
            parts[f"%{name}"] = ends
        span = world.ranges[variable]
        definition = world.definition(number, variable, span, parts)
        for name in carried:
            state.locals[name] = world.term("fold", name, (), (definition,))
        for name in folded:
            made = world.term("fold", f"%{name}", (), (definition,))
            state.arrays[name] = replace(state.arrays[name], base=made, boxes=())
        for name, boxes in layers.items():
            closed = tuple(self._closed(box, number, definition) for box in boxes)
            array = state.arrays[name]
            state.arrays[name] = replace(array, boxes=(*array.boxes, *closed))
        return True

    def _seen(
        self, inner: _State, carried: list[str], layers: Mapping[str, tuple[Box, ...]]
    ) -> Iterator[Term]:
        for name in carried:
            yield inner.locals[name]
        for name, array in inner.arrays.items():
            if name in layers:
                for box in layers[name]:
                    yield box.value
            else:
                yield self._arrays.term_of(array)

    def _layers(
        self, array: Array, before: Array | None, variable: str, number: int, name: str
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
            wide = self._arrays.over_loop(box, variable)
            if wide is None:
                return None
            made.append(wide)
        if before is None:
            for place, box in enumerate(made):
                for other in made[:place]:
                    if not self._arrays.disjoint(box, other):
                        return None
        return tuple(made)

    def _closed(self, box: Box, number: int, definition: Term) -> Box:
        world = self._world

        def rule(phi: Term) -> Term:
            assert isinstance(phi.label, tuple)
            return world.term("at", phi.label[1], phi.dims, (definition,))

        value = world.replace_phis(box.value, number, rule)
        return box if value is box.value else replace(box, value=value)

    # Rows of an iteration

    def _own_rows(self, name: str, body: tuple[Stmt, ...], variable: str, state: _State) -> bool:
        """On one axis, all that an iteration touches of the array is its own."""
        touched = _touched(body, name, state.dims, {})
        different = {(index, *inner.items()): (index, inner) for index, inner in touched}
        found = [
            (tuple(map(self._world.simplified, index)), inner)
            for index, inner in different.values()
        ]
        rank = len(state.arrays[name].shape)
        return any(self._own_on(axis, found, variable) for axis in range(rank))

    def _own_on(
        self, axis: int, found: list[tuple[At, Mapping[str, tuple[Dim, Dim]]]], variable: str
    ) -> bool:
        world = self._world
        step = Dim.of(variable)
        first: tuple[Dim, Dim] | None = None
        for index, inner in found:
            dim = index[axis]
            stride = rise(dim, variable)
            if stride.symbols & {variable, *inner} or stride == ZERO:
                return False
            rest = dim - stride * step
            if variable in rest.symbols:
                return False
            ends = _extremes(rest, inner)
            if ends is None or not (ends[0].symbols | ends[1].symbols).isdisjoint({variable}):
                return False
            low, high = ends
            width = stride if world.known_lt(ZERO, stride) else -stride
            if not world.known_lt(high - low, width):
                return False
            if first is None:
                first = stride, low
            elif first != (stride, low):
                return False
        return True

    # Expressions

    def _value(self, expr: Expr, state: _State) -> Term:
        world = self._world
        match expr:
            case Lit():
                return world.term("literal", (repr(expr.value), expr.dtype))
            case Local():
                return state.locals[expr.name]
            case Index():
                return world.term("index", expr.dtype, self._at((expr.dim,), state))
            case Load():
                return self._load(expr.buffer, expr.index, state)
            case Unary():
                return self._operation(expr.op, expr.dtype, state, expr.value)
            case Binary():
                return self._operation(expr.op, expr.left.dtype, state, expr.left, expr.right)
            case Apply():
                return self._operation(expr.function, expr.args[0].dtype, state, *expr.args)
            case Cast():
                value = self._value(expr.value, state)
                return world.cast(value, expr.value.dtype, expr.dtype, expr.mode)
            case Select():
                condition = self._value(expr.condition, state)
                then = self._value(expr.then, state)
                return self._select(condition, then, self._value(expr.otherwise, state))

    def _operation(self, name: str, dtype: object, state: _State, *args: Expr) -> Term:
        values = tuple(self._value(arg, state) for arg in args)
        return self._world.term("op", (name, dtype, len(args)), (), values)

    def _load(self, buffer: Buffer, index: At, state: _State) -> Term:
        at = self._at(index, state)
        array = state.arrays.get(buffer.name)
        if array is not None:
            for axis, (dim, size) in enumerate(zip(at, array.shape, strict=True)):
                if size == ONE and dim != ZERO:
                    shown = tuple((factor, len(atoms)) for factor, atoms in dim.terms)
                    self._single.add((self._names[buffer.name], axis, shown))
            return self._arrays.read(array, self._arrays.valid(at, array.shape))
        return self._world.term("leaf", (self._names[buffer.name], buffer.dtype), at)


@dataclass(frozen=True, slots=True)
class _Effects:
    """What a block does, inner blocks included."""

    stores: Mapping[str, int]
    """How many statements store to a buffer."""
    loads: frozenset[str]
    assigned: frozenset[str]
    divided: frozenset[tuple[str, Dim]]
    """Variables that an index of a store divides, and by what."""


def _names(body: tuple[Stmt, ...]) -> set[str]:
    names: set[str] = set()
    for stmt in walk(body):
        names = names.union(*(dim.symbols for dim in index_dims(stmt)))
        names |= {stmt.variable} if isinstance(stmt, For) else set()
    return names


def _divided(store: Store) -> Iterator[tuple[str, Dim]]:
    """Names that the index divides, and by what."""
    for dim in store.index:
        for _, monomial in dim.terms:
            for atom, _ in monomial:
                if isinstance(atom, FloorDiv | Mod) and atom.numerator.symbol is not None:
                    yield atom.numerator.symbol, atom.denominator


Touched = tuple[At, Mapping[str, tuple[Dim, Dim]]]


def _touched(
    body: tuple[Stmt, ...],
    name: str,
    dims: dict[str, Dim],
    ranges: Mapping[str, tuple[Dim, Dim]],
) -> Iterator[Touched]:
    """Indices of loads and stores, with the ranges of the loops around them in `body`."""
    dims = dict(dims)
    for stmt in body:
        for expr in expressions(stmt):
            if isinstance(expr, Load) and expr.buffer.name == name:
                yield tuple(dim.substitute(dims) for dim in expr.index), ranges
        match stmt:
            case Store() if stmt.buffer.name == name:
                yield tuple(dim.substitute(dims) for dim in stmt.index), ranges
            case For():
                inner = f"{stmt.variable}'in"
                span = (stmt.start.substitute(dims), stmt.stop.substitute(dims))
                around = {**dims, stmt.variable: Dim.of(inner)}
                yield from _touched(stmt.body, name, around, {**ranges, inner: span})
            case If():
                yield from _touched(stmt.then, name, dims, ranges)
                yield from _touched(stmt.otherwise, name, dims, ranges)
            case Let():
                dims[stmt.name] = stmt.value.substitute(dims)
            case Bind():
                # Nothing is known of it: no expression in it is the same twice.
                dims[stmt.name] = Dim.of(f"{stmt.name}'data")
                ranges = {**ranges, f"{stmt.name}'data": (ZERO, ZERO - 1)}
            case _:
                pass


def _extremes(dim: Dim, ranges: Mapping[str, tuple[Dim, Dim]]) -> tuple[Dim, Dim] | None:
    """Least and greatest value over inner loops whose strides are positive numbers."""
    low = high = dim
    for name in reversed(list(ranges)):
        start, stop = ranges[name]
        for which, end in enumerate((low, high)):
            if name not in end.symbols:
                continue
            stride = rise(end, name)
            if not stride.is_constant or stride.constant <= 0 or start == stop + 1:
                return None
            put = end.substitute({name: stop - 1 if which else start})
            low, high = (low, put) if which else (put, high)
    return low, high
