# SPDX-License-Identifier: Apache-2.0
"""The loop level: one call as buffers, loops, loads and stores.

Every index is a `Dim` over shape symbols and loop variables, so kernels can be analyzed without C.
A value read from data becomes an index through `Bind`, which checks it. Kernels write to buffers
of the caller (destination passing) and own no memory: even scratch belongs to the caller.

Integer arithmetic wraps; integer division truncates and gives 0 for a divisor of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any, TypeVar

from relax_aot.ir.axes import ARENA
from relax_aot.ir.dims import Dim
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.parameters import fraction, whole
from relax_aot.ir.types import DType, Shape, TensorType

Number = int | float | bool


class _Arithmetic:
    """Operators that build expressions. Python numbers take the other side's type."""

    __slots__ = ()

    def __add__(self, other: Operand) -> Binary:
        return binary("+", self, other)

    def __radd__(self, other: Operand) -> Binary:
        return binary("+", other, self)

    def __sub__(self, other: Operand) -> Binary:
        return binary("-", self, other)

    def __rsub__(self, other: Operand) -> Binary:
        return binary("-", other, self)

    def __mul__(self, other: Operand) -> Binary:
        return binary("*", self, other)

    def __rmul__(self, other: Operand) -> Binary:
        return binary("*", other, self)

    def __truediv__(self, other: Operand) -> Binary:
        return binary("/", self, other)

    def __rtruediv__(self, other: Operand) -> Binary:
        return binary("/", other, self)

    def __neg__(self) -> Unary:
        return Unary("-", _expr(self))

    def __lt__(self, other: Operand) -> Binary:
        return binary("<", self, other)

    def __le__(self, other: Operand) -> Binary:
        return binary("<=", self, other)

    def __gt__(self, other: Operand) -> Binary:
        return binary("<", other, self)

    def __ge__(self, other: Operand) -> Binary:
        return binary("<=", other, self)

    def __and__(self, other: Operand) -> Binary:
        return binary("&&", self, other)

    def __or__(self, other: Operand) -> Binary:
        return binary("||", self, other)

    def __invert__(self) -> Unary:
        return Unary("!", _expr(self))


@dataclass(frozen=True, slots=True)
class Lit(_Arithmetic):
    """A number of a given element type."""

    value: Number
    dtype: DType

    def __eq__(self, other: object) -> bool:
        # NaN equals itself here and 0.0 differs from -0.0: a literal is its text.
        same = isinstance(other, Lit) and repr(self.value) == repr(other.value)
        return same and isinstance(other, Lit) and self.dtype is other.dtype

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))


@dataclass(frozen=True, slots=True)
class Local(_Arithmetic):
    """A scalar variable of the kernel."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Index(_Arithmetic):
    """The value of an index expression, as int64."""

    dim: Dim
    dtype: DType = DType.I64


@dataclass(frozen=True, slots=True)
class Load(_Arithmetic):
    buffer: Buffer
    index: tuple[Dim, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class Unary(_Arithmetic):
    """`-x` (wrapping for integers) and `!x` (logical)."""

    op: str
    value: Expr

    @property
    def dtype(self) -> DType:
        return self.value.dtype


COMPARISONS = ("<", "<=", "==", "!=")
LOGICAL = ("&&", "||")
OPERATORS = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", *COMPARISONS, *LOGICAL)


@dataclass(frozen=True, slots=True)
class Binary(_Arithmetic):
    op: str
    left: Expr
    right: Expr

    @property
    def dtype(self) -> DType:
        return DType.BOOL if self.op in COMPARISONS + LOGICAL else self.left.dtype


# Scalar functions: name -> number of arguments. `max`/`min` give NaN when either is NaN.
# `exp_below(a, b)` is exp(a - b) for a <= b. `fraction(a, b)` is a / b for 0 <= a <= b and
# 1 <= b <= 2^64. NaN may be an argument of both. `gate_sigmoid` and `gate_tanh`, of f32, are
# sigmoid and tanh by a table (ops/_gates.py); `fixed_sigmoid` and `fixed_tanh`, of i32, are those
# of numbers in steps of 2^-15 (ops/_fixed_gates.py).
FUNCTIONS = {
    "abs": 1, "sqrt": 1, "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log1p": 1,
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1,
    "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1,
    "erf": 1, "sigmoid": 1, "floor": 1, "ceil": 1, "trunc": 1, "rint": 1, "round": 1,
    "isnan": 1, "isinf": 1, "signbit": 1,
    "max": 2, "min": 2, "pow": 2, "fmod": 2, "exp_below": 2, "fraction": 2, "fma": 3,
    "gate_sigmoid": 1, "gate_tanh": 1, "fixed_sigmoid": 1, "fixed_tanh": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Apply(_Arithmetic):
    """A scalar function of FUNCTIONS; all arguments have one type."""

    function: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        predicate = self.function in ("isnan", "isinf", "signbit")
        return DType.BOOL if predicate else self.args[0].dtype


@dataclass(frozen=True, slots=True)
class Cast(_Arithmetic):
    """Conversion to `dtype`: float to integer truncates; out of range, `wrap` takes the
    low bits and `saturate` the nearest value; NaN becomes 0. `bits` keeps the bits, for
    types of one width. Casts to f8e8m0 name their rounding: `wrap_nearest`, `saturate_down`."""

    value: Expr
    dtype: DType
    mode: str = "wrap"


@dataclass(frozen=True, slots=True)
class Select(_Arithmetic):
    """`then` where `condition` holds, else `otherwise`; only the chosen one is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr

    @property
    def dtype(self) -> DType:
        return self.then.dtype


Expr = Lit | Local | Index | Load | Unary | Binary | Apply | Cast | Select
Operand = Expr | _Arithmetic | Number


def _expr(value: _Arithmetic) -> Expr:
    assert isinstance(value, Lit | Local | Index | Load | Unary | Binary | Apply | Cast | Select)
    return value


def as_expr(value: Operand, dtype: DType) -> Expr:
    """`value` as an expression; a Python number becomes a literal of `dtype`."""
    if isinstance(value, bool | int | float):
        if dtype is DType.BOOL:
            return Lit(bool(value), dtype)
        is_float = dtype.is_float or dtype.is_stored_float
        return Lit(fraction(value) if is_float else whole(value), dtype)
    return _expr(value)


def binary(op: str, left: Operand | Dim, right: Operand | Dim) -> Binary:
    """Sizes count as their values; a Python number takes the other side's type."""
    if isinstance(left, Dim) or isinstance(right, Dim):
        left, right = (
            Index(Dim.of(side)) if isinstance(side, Dim | int) else side for side in (left, right)
        )
    side = left if isinstance(left, _Arithmetic) else right
    assert isinstance(side, _Arithmetic)
    dtype = _expr(side).dtype
    a, b = as_expr(left, dtype), as_expr(right, dtype)
    assert a.dtype is b.dtype, f"{op}: {a.dtype.value} and {b.dtype.value}"
    return Binary(op, a, b)


def apply(function: str, *args: Operand) -> Apply:
    assert FUNCTIONS[function] == len(args), function
    dtype = next(_expr(a).dtype for a in args if isinstance(a, _Arithmetic))
    return Apply(function, tuple(as_expr(a, dtype) for a in args))


PLAIN: dict[str, Callable[[Expr, Expr], Expr]] = {
    "exp_below": lambda a, b: apply("exp", Binary("-", a, b)),
    "fraction": lambda a, b: Binary("/", a, b),
}
"""Functions of a restricted domain by those of every domain, with the same value."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Row-major memory that a kernel reads or writes."""

    name: str
    dtype: DType
    shape: Shape
    scope: str = ARENA
    """One of axes.SCOPES."""

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Iterable[Dim]) -> Load:
        where = tuple(index)
        assert len(where) == len(self.shape), f"{self.name}: {len(where)} indices for {self.type}"
        return Load(self, where)


@dataclass(frozen=True, slots=True)
class For:
    """`for variable in start..stop`. A serial loop runs its iterations in order. Those of a loop
    that is parallel on an `axis` run in any order, or at once: no two of them access one element,
    one writing it, without a barrier between."""

    variable: str
    start: Dim
    stop: Dim
    body: tuple[Stmt, ...]
    axis: str = ""
    """Empty (serial), or one of axes.PARALLEL_AXES."""

    @property
    def extent(self) -> Dim:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Store:
    buffer: Buffer
    index: tuple[Dim, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Declare:
    """A new scalar variable; it lives until the end of the enclosing block."""

    local: Local
    value: Expr


@dataclass(frozen=True, slots=True)
class Assign:
    local: Local
    value: Expr


@dataclass(frozen=True, slots=True)
class Let:
    """A name for an index expression, usable as a symbol in later ones."""

    name: str
    value: Dim


@dataclass(frozen=True, slots=True)
class Bind:
    """A name for an integer read from data, usable as a symbol in later index expressions.

    Where it is outside `low..high` (both included) the kernel ends with RAOT_ERR_INDEX. One that
    has `trust` lies inside: `clamped` by construction, whatever the data; `checked` since a
    `guard` of the graph, or what is known of the data, says so.
    """

    name: str
    value: Expr
    low: Dim
    high: Dim
    trust: str = ""

    @property
    def trusted(self) -> bool:
        return bool(self.trust)


@dataclass(frozen=True, slots=True)
class If:
    condition: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Memory of the kernel's own until the end of the enclosing block, small and of a size
    that is a number; what it holds at the start is undefined."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Barrier:
    """Every iteration of the enclosing loop on `axis` arrives here before any goes on."""

    axis: str


@dataclass(frozen=True, slots=True)
class Multiply:
    """Sums of products of two strided operands, added to a tile of sums.

    `sums[r, c] = fma(left[r * left_row + i], right[c + j], sums[r, c])` for each of `rows` and
    `columns`, where (i, j) takes the steps of all levels, the outermost first. A level is a
    count and how many elements a step is on the left and on the right. `left` and `right` are
    the first elements; the other places count from there in row-major memory. Elements of one of
    them may have half precision. Of a row of `sums`, what lies beyond `columns` is undefined
    afterwards. `separate`: products are rounded before they are added.
    """

    sums: Buffer
    rows: Dim
    columns: Dim
    levels: tuple[tuple[Dim, Dim, Dim], ...]
    left: Load
    left_row: Dim
    right: Load
    separate: bool = False


@dataclass(frozen=True, slots=True)
class Micro:
    """A call of a micro-kernel: where its operands begin, and its sizes."""

    kernel: MicroKernel
    operands: tuple[Load, ...]
    sizes: tuple[Dim, ...]

    @staticmethod
    def of(kernel: MicroKernel, **arguments: Load | Dim | int) -> Micro:
        """A call whose operands and sizes are given by name."""
        names = [operand.name for operand in kernel.operands]
        assert sorted(arguments) == sorted([*names, *kernel.sizes]), f"{kernel.name}: {arguments}"
        given = {k: Dim.of(v) if isinstance(v, int) else v for k, v in arguments.items()}
        operands = tuple(load for name in names if isinstance(load := given[name], Load))
        sizes = tuple(dim for name in kernel.sizes if isinstance(dim := given[name], Dim))
        assert len(operands) + len(sizes) == len(given), f"{kernel.name}: an operand is an address"
        return Micro(kernel, operands, sizes)

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def written(self) -> tuple[Load, ...]:
        pairs = zip(self.kernel.operands, self.operands, strict=True)
        return tuple(load for operand, load in pairs if operand.name in self.kernel.written)


Stmt = For | Store | Declare | Assign | Let | Bind | If | Reserve | Barrier | Multiply | Micro
_Node = TypeVar("_Node", bound=Expr | Stmt)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A call as loops. Inputs are read only; outputs and scratch are written."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    in_place: tuple[tuple[str, str], ...] = ()
    """(input, output) pairs that may be the same memory: each element of the input is read
    for the last time before its place is written. A schedule must keep that."""

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return self.inputs + self.outputs + self.scratch

    @property
    def read(self) -> frozenset[str]:
        """The buffers that are loaded from."""
        exprs = (expr for stmt in walk(self.body) for expr in expressions(stmt))
        return frozenset(expr.buffer.name for expr in exprs if isinstance(expr, Load))

    @property
    def free_symbols(self) -> tuple[str, ...]:
        """The shape symbols that it must be given, sorted."""
        used = set[str]().union(*(buffer.type.symbols for buffer in self.buffers))
        body = [*walk(self.body)]
        used.update(*(dim.symbols for stmt in body for dim in index_dims(stmt)))
        return tuple(sorted(used.difference(map(bound_name, body))))

    @property
    def same_memory(self) -> dict[str, str]:
        """One name for all buffers that `in_place` connects, by the name of each."""
        same: dict[str, str] = {}
        for one, other in self.in_place:
            old, new = same.get(one, one), same.get(other, other)
            same |= {name: new for name, known in (*same.items(), (one, old)) if known == old}
            same[other] = new
        return same

    @property
    def fallible(self) -> bool:
        return any(isinstance(stmt, Bind) and not stmt.trusted for stmt in walk(self.body))

    @property
    def parallel(self) -> bool:
        """Whether a loop is parallel: such a kernel is scheduled, and passes leave it as it is."""
        return any(isinstance(stmt, For) and stmt.axis for stmt in walk(self.body))


# Traversal: which fields of a node hold statements, expressions and sizes, in their order

_Fields = Mapping[type, tuple[str, ...]]
BODIES: _Fields = {For: ("body",), If: ("then", "otherwise")}
PARTS: _Fields = {
    Unary: ("value",), Cast: ("value",), Binary: ("left", "right"), Apply: ("args",),
    Select: ("condition", "then", "otherwise"), Store: ("value",), Declare: ("value",),
    Assign: ("value",), Bind: ("value",), If: ("condition",), Multiply: ("left", "right"),
    Micro: ("operands",),
}  # fmt: skip
DIMS: _Fields = {
    Load: ("index",), Index: ("dim",), For: ("start", "stop"), Store: ("index",), Let: ("value",),
    Bind: ("low", "high"), Multiply: ("rows", "columns", "left_row", "levels"), Micro: ("sizes",),
}  # fmt: skip


def held(node: Expr | Stmt, fields: _Fields) -> list[Any]:
    """What these fields of a node hold, one by one."""
    found: list[Any] = []
    for name in fields.get(type(node), ()):
        value = getattr(node, name)
        if isinstance(value, tuple):
            _hold(value, found)
        else:
            found.append(value)
    return found


def _hold(values: tuple[Any, ...], found: list[Any]) -> None:
    for value in values:
        if isinstance(value, tuple):
            _hold(value, found)
        else:
            found.append(value)


def mapped(node: _Node, fields: _Fields, rule: Callable[[Any], Any]) -> _Node:
    """The node with `rule` applied to what these fields hold; itself where nothing changes."""
    changed: dict[str, Any] = {}
    for name in fields.get(type(node), ()):
        old = getattr(node, name)
        new = _mapped(old, rule) if isinstance(old, tuple) else rule(old)
        if new is not old:
            changed[name] = new
    if not changed:
        return node
    # What dataclasses.replace does, in a third of its time: compilation is mostly rebuilding.
    names = type(node).__match_args__
    return type(node)(*[changed[n] if n in changed else getattr(node, n) for n in names])


def _mapped(value: tuple[Any, ...], rule: Callable[[Any], Any]) -> tuple[Any, ...]:
    new = tuple([_mapped(part, rule) if isinstance(part, tuple) else rule(part) for part in value])
    return value if all(map(is_, new, value)) else new


def walk(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement, outer ones first."""
    return _nested(body, BODIES)


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """Every expression in one statement (not in its body), parts included."""
    return _nested(held(stmt, PARTS), PARTS)


def parts(expr: Expr) -> Iterator[Expr]:
    """An expression and all in it, from left to right."""
    return _nested([expr], PARTS)


def _nested(nodes: Iterable[Any], fields: _Fields) -> Iterator[Any]:
    ahead = [*nodes][::-1]
    while ahead:
        node = ahead.pop()
        yield node
        if type(node) in fields:
            ahead += held(node, fields)[::-1]


def index_dims(stmt: Stmt) -> Iterator[Dim]:
    """Every index expression that a statement itself holds."""
    for node in (stmt, *expressions(stmt)):
        yield from held(node, DIMS)


def bound_name(stmt: Stmt) -> str:
    """The index name that a statement defines."""
    name = stmt.name if isinstance(stmt, Let | Bind) else ""
    return stmt.variable if isinstance(stmt, For) else name
