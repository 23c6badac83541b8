# SPDX-License-Identifier: Apache-2.0
"""The graph level: values, calls, functions, and the module that holds everything.

A function is a flat list of calls in single-assignment form. Uses refer to a `Var` by
value, so `==` is structural and nothing can be disturbed from afar. A call names an op,
or one of the forms that need the module or the run (`FORMS`):

    call_kernel {kernel=@k}, call_extern {extern=@f}
    if(condition, captured...) {then=@f, else=@g, defines=[s...], then_sizes, else_sizes}
    define(v) {defines=[s], element=i, low=L, most=D}: the size s is element i of v, in L..D
    guard(v, others...) {kernel=@k}: v, after the kernel, which writes nothing, has checked it
    check() {relation, left, right}: the run ends with a status where these sizes disagree
    loop(carried..., captured...) {body=@f, turn=i, trips=D, ...}: see `Loop`
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.dims import Bounds, Dim, Relation, assume
from relax_aot.ir.extern import Extern
from relax_aot.ir.loops import Kernel
from relax_aot.ir.text import to_text
from relax_aot.ir.types import DType, Ref, TensorType

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Var:
    """A value: a parameter, a constant, or the result of a call."""

    name: str
    type: TensorType


Attr = int | float | str | bool | Dim | DType | Ref | tuple["Attr", ...]


def attr_value(value: Attr) -> Attr:
    """One spelling per value: a constant `Dim` is an int, a list is a tuple."""
    if isinstance(value, Dim):
        return value.constant if value.is_constant else value
    if isinstance(value, tuple | list):
        return tuple(attr_value(v) for v in value)
    return value


def attrs_of(values: Mapping[str, Attr]) -> tuple[tuple[str, Attr], ...]:
    return tuple((name, attr_value(values[name])) for name in sorted(values))


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the graph: `outs = op(args) {attrs}`.

    An absent optional argument is None. `origin` names the source-model nodes it came
    from; it is for people only.
    """

    outs: tuple[Var, ...]
    op: str
    args: tuple[Var | None, ...] = ()
    attrs: tuple[tuple[str, Attr], ...] = ()
    origin: str = ""

    @property
    def out(self) -> Var:
        (out,) = self.outs
        return out

    @property
    def inputs(self) -> tuple[Var, ...]:
        return tuple(arg for arg in self.args if arg is not None)

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of the functions that a call of control flow runs."""
        return tuple(self.ref(name) for name in CONTROL.get(self.op, ()))

    @property
    def defines(self) -> tuple[str, ...]:
        """The sizes that the call defines."""
        names = dict(self.attrs).get("defines", ())
        return tuple(map(str, names)) if isinstance(names, tuple) else ()

    def attr(self, name: str) -> Attr:
        return dict(self.attrs)[name]

    def ref(self, name: str) -> str:
        value = self.attr(name)
        assert isinstance(value, Ref)
        return value.name


FORMS = ("call_kernel", "call_extern", "guard", "view", "if", "define", "check", "loop")
"""What a call may name, in addition to ops."""

CONTROL = {"if": ("then", "else"), "loop": ("body",)}
"""The attributes of a form that name functions of the module."""


def attr_symbols(value: Attr) -> frozenset[str]:
    """The sizes that an attribute speaks of."""
    if isinstance(value, tuple):
        return frozenset[str]().union(*map(attr_symbols, value))
    return value.symbols if isinstance(value, Dim) else frozenset()


@dataclass(frozen=True, slots=True)
class Loop:
    """The attributes of `loop`, whose arguments are `carried` values and then captured ones.

    The body takes the carried values and the captured ones; it returns the carried values
    of the next iteration, and one row for each further result of the loop. Results are the last
    carried values, and the rows of all iterations, concatenated.
    """

    body: str
    turn: str
    """The number of the iteration, an inner symbol that the body may use."""
    trips: Dim
    """The maximum number of iterations."""
    count: str
    """The inner symbol for the final number of iterations; empty if not needed."""
    carried: int
    conditional: bool
    """The first carried value is the condition of the next iteration."""
    capped: bool
    """`trips` is a bound of memory: an iteration beyond it is an error, not the end."""
    sizes: tuple[tuple[str, Dim, Dim, Dim], ...]
    """Inner symbols in shapes of carried values: name, value before the first iteration, value
    after an iteration, and the maximum for which memory is planned."""

    @staticmethod
    def of(call: Call) -> Loop:
        names, first, later, most = (
            call.attr(name) for name in ("sizes", "first_sizes", "later_sizes", "most_sizes")
        )
        assert isinstance(names, tuple) and isinstance(first, tuple)
        assert isinstance(later, tuple) and isinstance(most, tuple)
        rows = zip(names, first, later, most, strict=True)
        carried = call.attr("carried")
        assert isinstance(carried, int)
        return Loop(
            call.ref("body"),
            str(call.attr("turn")),
            dim_attr(call.attr("trips")),
            str(call.attr("count")),
            carried,
            bool(call.attr("conditional")),
            bool(call.attr("capped")),
            tuple((str(n), dim_attr(a), dim_attr(b), dim_attr(c)) for n, a, b, c in rows),
        )

    @property
    def attrs(self) -> tuple[tuple[str, Attr], ...]:
        defined = (self.turn, *(n for n in (self.count,) if n), *(row[0] for row in self.sizes))
        return attrs_of({
            "body": Ref(self.body), "turn": self.turn, "trips": self.trips,
            "count": self.count, "carried": self.carried, "conditional": self.conditional,
            "capped": self.capped, "defines": defined,
            "sizes": tuple(row[0] for row in self.sizes),
            "first_sizes": tuple(row[1] for row in self.sizes),
            "later_sizes": tuple(row[2] for row in self.sizes),
            "most_sizes": tuple(row[3] for row in self.sizes),
        })  # fmt: skip


def dim_attr(value: Attr) -> Dim:
    """A size that is an attribute."""
    assert isinstance(value, int | Dim)
    return Dim.of(value)


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    params: tuple[Var, ...]
    body: tuple[Call, ...]
    results: tuple[Var, ...]


@dataclass(frozen=True)
class Constant:
    """A named constant; equal when type and bytes are equal. `data` may be a broadcast
    view (a splat), which costs nothing until it is written.

    One that was read from a text without its bytes has `absent`, their digest: it can be
    compared and printed, not compiled.
    """

    name: str
    type: TensorType
    data: Array = field(compare=False, repr=False)
    absent: str = field(default="", compare=False, repr=False)
    limits: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)
    """Of a quantization parameter that may be replaced: the lowest and highest value that the
    code takes, of each element or of all."""

    @cached_property
    def digest(self) -> str:
        if self.absent:
            return self.absent
        return hashlib.sha256(bytes_of(self.data)).hexdigest()[:16]

    # Each pass asks, and weights may be large.
    @cached_property
    def is_finite(self) -> bool:
        """Whether floats hold neither infinity nor NaN."""
        return self.type.dtype.is_float and bool(np.isfinite(self.data).all())

    @cached_property
    def is_balanced(self) -> bool:
        """Whether bytes are above -128."""
        return self.type.dtype is DType.I8 and bool(self.data.min(initial=0) > -128)

    @property
    def var(self) -> Var:
        return Var(self.name, self.type)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        same = (self.name, self.type) == (other.name, other.type)
        return same and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.name, self.type))


def bytes_of(data: Array) -> bytes | memoryview:
    """The bytes of the elements in order, which are not copied where they lie so."""
    data = np.ascontiguousarray(data).reshape(-1)
    # Elements of odd types have no buffer; their bytes do.
    return data.view(np.uint8).data if data.size else b""


CAPACITY = "capacity"
"""The origin of the condition that a growing state has room for the rows of a call."""
WINDOW = "memory of a window, always true"
"""The same for a window, which has memory for every call."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Makes a symbol the length of growing states: a call that succeeds sets it to `after`, and a
    call where that is more than `capacity` is refused.

    A window keeps the last `capacity` rows instead. It has memory for `places` rows, so that a
    call appends to the rows it finds, wherever they begin."""

    after: Dim
    capacity: int
    places: int = 0
    """Of a window; 0 for other growing states."""

    @property
    def is_window(self) -> bool:
        return self.places > 0

    @property
    def rows(self) -> int:
        """How many rows a state has memory for."""
        return self.places or self.capacity

    @property
    def slack(self) -> int:
        """The greatest number of the first row of a window: one in front of it is dropped."""
        return slack_of(self.capacity) if self.is_window else 0

    @property
    def condition(self) -> Condition:
        """What a call checks first; always true for a window."""
        origin = WINDOW if self.is_window else CAPACITY
        return Condition("<=", self.after, Dim.of(self.rows - self.slack), origin)

    def kept(self, sizes: Mapping[str, int]) -> int:
        """The length after a call of these sizes."""
        length = self.after.evaluate(sizes)
        return min(length, self.capacity) if self.is_window else length


def slack_of(window: int) -> int:
    """The rows that a window drops before the others are moved: an eighth, rounded up."""
    return -(-window // 8)


@dataclass(frozen=True, slots=True)
class Division:
    """A call whose size is above `part` does what calls of at most `part` do one after another:
    they append their rows to growing states, and the last of them returns the results. Sizes of
    calls are at most `whole`."""

    part: int
    whole: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that is known at run time only: `low..high`, both included.

    `origin` says where it comes from ("input x, axis 1"). An inner symbol is computed
    by the model while it runs. One with `growth` is kept in the state from call to call.
    One with a `division` counts rows, the first axis of inputs; once `high` is that of a part, the
    module is what one part computes.
    """

    name: str
    low: int
    high: int
    origin: str = ""
    inner: bool = False
    growth: Growth | None = None
    division: Division | None = None

    @property
    def whole(self) -> Symbol:
        """As callers see it."""
        return self if self.division is None else replace(self, high=self.division.whole)

    @property
    def raisable(self) -> bool:
        """Whether it may pass `high` once bounds are raised in C: what the model computes may,
        however few sizes that is now. A capacity is fixed."""
        return self.inner or (self.low < self.high and self.growth is None)


ASSUMED = "assumed: "
"""How the origin of a condition that the user states begins; the rest is as it was written."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a call needs of run-time sizes: `left == right` or `left <= right`.

    Conditions that are proved are never stored; the rest are checked on entry.
    """

    relation: str
    left: Dim
    right: Dim
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True, slots=True)
class State:
    """Memory that outlives a call: parameter `input` holds what result `output` left. Where
    both are the parameter, the calls of other entries leave something there.

    A growing state has a `length`, the symbol of its rows on `axis`. After lowering, both types
    have the capacity there, and the symbol says how many rows are used."""

    input: str
    output: str
    length: str = ""
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Alias:
    """How the source model spells the name of a parameter, result or symbol."""

    name: str
    source: str


def assumption_conditions(
    assumptions: Iterable[Relation], symbols: Iterable[Symbol], origin: str
) -> tuple[Condition, ...]:
    """What has to be checked on entry for `assumptions` to hold. Where that is about sizes that the
    model computes, the highs are what is checked."""
    entry = [s for s in symbols if not s.inner]
    names = {s.name for s in entry}
    found: list[Condition] = []
    for relation, left, right in assumptions:
        if left.symbols | right.symbols <= names:
            found.append(Condition(relation, left, right, origin))
        else:
            highs = [(Dim.of(s.name), Dim.of(s.high)) for s in entry if s.raisable]
            found += [Condition("<=", size, high, origin) for size, high in highs]
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=4)
def _bounds(symbols: tuple[Symbol, ...], conditions: tuple[Condition, ...]) -> Bounds:
    """One for all modules that stages make of one model: what was proved need not be again."""
    entry = {s.name for s in symbols if not s.inner}
    ranges = Bounds.of({s.name: (s.low, s.high) for s in symbols})
    raisable = frozenset(s.name for s in symbols if s.raisable)
    relations = [
        (c.relation, c.left, c.right)
        for c in conditions
        if c.left.symbols | c.right.symbols <= entry
    ]
    return assume(replace(ranges, raisable=raisable), relations)


@dataclass(frozen=True)
class Module:
    """Everything: graph functions, kernels, constants, and the facts about sizes.

    `functions[0]` is the entry; its parameters and results are the C interface.
    """

    functions: tuple[Function, ...]
    kernels: tuple[Kernel, ...] = ()
    constants: tuple[Constant, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    conditions: tuple[Condition, ...] = ()
    states: tuple[State, ...] = ()
    aliases: tuple[Alias, ...] = ()
    source: str = ""
    externs: tuple[Extern, ...] = ()
    replaceable: bool = False
    """Whether code is to fit other weights and quantization parameters of the same graph."""
    keeps_half: bool = False
    """Whether weights of half precision, and quantized ones of float convolutions, stay so: they
    take less memory, and more time."""
    calls_floats: bool = False
    """Whether arithmetic of floats is a call, on cores without an FPU."""
    operators: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Operators of the source model by origin. The text form omits them: only names that a user
    gives are looked up here."""

    def __str__(self) -> str:
        return to_text(self)

    @property
    def main(self) -> Function:
        return self.functions[0]

    @cached_property
    def bounds(self) -> Bounds:
        """Sizes are checked on entry, so conditions of the entry's symbols are facts."""
        return _bounds(self.symbols, self.conditions)

    @cached_property
    def inner(self) -> frozenset[str]:
        """The sizes that the model computes while it runs."""
        return frozenset(symbol.name for symbol in self.symbols if symbol.inner)

    @cached_property
    def lengths(self) -> dict[str, Growth]:
        """By the symbol's name, the lengths of growing states."""
        return {s.name: s.growth for s in self.symbols if s.growth is not None}

    @cached_property
    def constant_table(self) -> dict[str, Constant]:
        return {constant.name: constant for constant in self.constants}

    @cached_property
    def kernel_table(self) -> dict[str, Kernel]:
        return {kernel.name: kernel for kernel in self.kernels}

    @cached_property
    def kernel_calls(self) -> dict[str, tuple[Call, ...]]:
        """By the kernel's name, the calls of it; for every kernel, called or not."""
        found: dict[str, list[Call]] = {kernel.name: [] for kernel in self.kernels}
        for function in self.functions:
            for call in function.body:
                if call.op in ("call_kernel", "guard"):
                    found.setdefault(call.ref("kernel"), []).append(call)
        return {name: tuple(calls) for name, calls in found.items()}

    @cached_property
    def extern_table(self) -> dict[str, Extern]:
        return {extern.name: extern for extern in self.externs}

    @cached_property
    def function_table(self) -> dict[str, Function]:
        return {function.name: function for function in self.functions}

    @cached_property
    def at_capacity(self) -> dict[str, State]:
        """After lowering, the values with a place for every row of a growing state, of which only
        the first are written: the states, and what they are views of."""
        types = {v.name: v.type for v in self.main.params}
        found = {
            name: state
            for state in self.states
            if state.length and types[state.input].shape[state.axis] != Dim.of(state.length)
            for name in (state.input, state.output)
        }
        for call in reversed(self.main.body):
            if call.op == "view" and call.out.name in found:
                found.setdefault(call.inputs[0].name, found[call.out.name])
        return found

    @property
    def without_states(self) -> Module:
        """The module where states are inputs and results, and lengths are sizes of inputs."""
        symbols = tuple(replace(symbol, growth=None) for symbol in self.symbols)
        return replace(self, states=(), symbols=symbols)

    def source_name(self, name: str) -> str:
        """How the source model calls a parameter, result or symbol."""
        return next((a.source for a in self.aliases if a.name == name), name)
