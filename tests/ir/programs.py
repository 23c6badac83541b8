# SPDX-License-Identifier: Apache-2.0
"""Random modules: every kind of statement, expression, attribute and fact, and hard names.

They keep the rules of text (what is used is defined above) and need not make sense.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from relax_aot.ir.dims import Dim, ceildiv, dim_max, dim_min
from relax_aot.ir.extern import Extern, ExternParam, Returns, Role
from relax_aot.ir.graph import (
    Alias,
    Attr,
    Call,
    Condition,
    Constant,
    Function,
    Module,
    State,
    Symbol,
    Var,
    attrs_of,
)
from relax_aot.ir.loops import (
    FUNCTIONS,
    OPERATORS,
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
    Select,
    Stmt,
    Store,
    Unary,
)
from relax_aot.ir.types import DType, Ref, TensorType

WORDS = [
    *("x", "y.1", "for", "if", "let", "local", "inf", "nan", "true", "f32", "min", "max", "return"),
    *("index", "cast", "select", "func", "symbol", "in", "bind", "_", "e5", "_x"),
]
NAMES = st.one_of(
    st.sampled_from(WORDS), st.text(min_size=1, max_size=6), st.text('`"\\\n#% é\u2028', min_size=1)
)
ORIGINS = st.one_of(
    st.just(""), st.text(max_size=12), st.sampled_from(['"', ' "a"', "a  b", "# x"])
)


def _grow(inner: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    pair = st.tuples(inner, inner)
    number = st.integers(1, 9)
    divided = st.tuples(inner, number)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] - p[1]),
        pair.map(lambda p: p[0] * p[1]),
        pair.map(lambda p: dim_min(*p)),
        pair.map(lambda p: dim_max(*p)),
        divided.map(lambda p: p[0] // p[1]),
        divided.map(lambda p: p[0] % p[1]),
        divided.map(lambda p: ceildiv(*p)),
        pair.filter(lambda p: p[1] != 0).map(lambda p: p[0] // p[1]),
    )


LEAVES = st.one_of(NAMES.map(Dim.of), st.integers(-9, 10**12).map(Dim.of))
DIMS = st.recursive(LEAVES, _grow, max_leaves=4)
DTYPES = st.sampled_from(DType)
TYPES = st.builds(TensorType, DTYPES, st.lists(DIMS, max_size=3).map(tuple))
FLOATS = st.floats().map(lambda x: math.nan if math.isnan(x) else x)
ATTRS: st.SearchStrategy[Attr] = st.recursive(
    st.one_of(
        st.integers(), FLOATS, st.booleans(), st.text(max_size=8), DTYPES, NAMES.map(Ref), DIMS
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@st.composite
def literals(draw: st.DrawFn) -> Lit:
    dtype = draw(DTYPES)
    number: st.SearchStrategy[Any] = (
        FLOATS if dtype.is_float else st.booleans() if dtype is DType.BOOL else st.integers()
    )
    return Lit(draw(number), dtype)


class _Scope:
    """What a random kernel may use at one place."""

    def __init__(self, buffers: list[Buffer], locals_: list[Local]) -> None:
        self.buffers, self.locals = buffers, locals_


def _load(draw: st.DrawFn, buffer: Buffer) -> Load:
    return Load(buffer, tuple(draw(DIMS) for _ in buffer.shape))


def _expr(draw: st.DrawFn, scope: _Scope, depth: int = 2) -> Expr:
    leaves = ["literal", "index", "load"] + (["local"] if scope.locals else [])
    inner = ["unary", "binary", "apply", "cast", "select"] if depth else []
    match draw(st.sampled_from(leaves + inner)):
        case "literal":
            return draw(literals())
        case "index":
            return Index(draw(DIMS))
        case "load":
            return _load(draw, draw(st.sampled_from(scope.buffers)))
        case "local":
            return draw(st.sampled_from(scope.locals))
        case "unary":
            return Unary(draw(st.sampled_from("-!")), _expr(draw, scope, depth - 1))
        case "binary":
            left = _expr(draw, scope, depth - 1)
            right: Expr = Cast(_expr(draw, scope, depth - 1), left.dtype)
            return Binary(draw(st.sampled_from(OPERATORS)), left, right)
        case "apply":
            function, count = draw(st.sampled_from(sorted(FUNCTIONS.items())))
            return Apply(function, tuple(_expr(draw, scope, depth - 1) for _ in range(count)))
        case "cast":
            mode = draw(st.sampled_from(["wrap", "saturate", "bits"]))
            return Cast(_expr(draw, scope, depth - 1), draw(DTYPES), mode)
        case _:
            return Select(*(_expr(draw, scope, depth - 1) for _ in range(3)))


def _block(draw: st.DrawFn, scope: _Scope, depth: int) -> tuple[Stmt, ...]:
    scope = _Scope(scope.buffers, list(scope.locals))
    return tuple(_stmt(draw, scope, depth) for _ in range(draw(st.integers(0, 3))))


def _stmt(draw: st.DrawFn, scope: _Scope, depth: int) -> Stmt:
    kinds = ["store", "declare", "let", "bind"] + (["assign"] if scope.locals else [])
    match draw(st.sampled_from(kinds + (["for", "if"] if depth else []))):
        case "store":
            where = _load(draw, draw(st.sampled_from(scope.buffers)))
            return Store(where.buffer, where.index, _expr(draw, scope))
        case "declare":
            taken = {local.name for local in scope.locals}
            local = Local(draw(NAMES.filter(lambda name: name not in taken)), draw(DTYPES))
            stmt = Declare(local, _expr(draw, scope))
            scope.locals.append(local)
            return stmt
        case "let":
            return Let(draw(NAMES), draw(DIMS))
        case "bind":
            low, high = draw(DIMS), draw(DIMS)
            trust = draw(st.sampled_from(["", "clamped", "checked"]))
            return Bind(draw(NAMES), _expr(draw, scope), low, high, trust)
        case "assign":
            return Assign(draw(st.sampled_from(scope.locals)), _expr(draw, scope))
        case "for":
            body = _block(draw, scope, depth - 1)
            return For(draw(NAMES), draw(DIMS), draw(DIMS), body)
        case _:
            condition = _expr(draw, scope)
            then = _block(draw, scope, depth - 1)
            return If(condition, then, _block(draw, scope, depth - 1))


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    names = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    buffers = [Buffer(n, draw(DTYPES), tuple(draw(st.lists(DIMS, max_size=2)))) for n in names]
    groups = (tuple(buffers[:1]), tuple(buffers[1:2]), tuple(buffers[2:]))
    body = _block(draw, _Scope(buffers, []), 2)
    in_place = ((names[0], names[1]),) if draw(st.booleans()) else ()
    return Kernel(draw(NAMES), *groups, body, in_place)


@st.composite
def constants(draw: st.DrawFn, name: str) -> Constant:
    dtype = draw(DTYPES)
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    count = math.prod(shape)
    raw = draw(st.binary(min_size=count * dtype.bytes, max_size=count * dtype.bytes))
    data = np.frombuffer(raw, np.uint8).reshape(*shape, -1) if count else np.empty([*shape, 1])
    if dtype is DType.BOOL:
        data = data % 2
    if draw(st.booleans()) and count:
        data = np.broadcast_to(data.reshape(count, -1)[0], (*shape, dtype.bytes))
    array = np.ascontiguousarray(data, np.uint8).reshape(-1)[: count * dtype.bytes]
    array = array.view(dtype.numpy).reshape(shape)
    return Constant(name, TensorType(dtype, tuple(map(Dim.of, shape))), array)


def _function(draw: st.DrawFn, name: str, values: list[Var]) -> Function:
    taken = {value.name for value in values}

    def fresh() -> Var:
        found = draw(NAMES.filter(lambda n: n not in taken))
        taken.add(found)
        return Var(found, draw(TYPES))

    params = tuple(fresh() for _ in range(draw(st.integers(0, 2))))
    known = [*values, *params]
    body = []
    for _ in range(draw(st.integers(0, 3))):
        args = draw(st.lists(st.sampled_from([None, *known]), max_size=3))
        outs = tuple(fresh() for _ in range(draw(st.integers(0, 2))))
        attrs = draw(st.dictionaries(NAMES, ATTRS, max_size=3))
        body.append(Call(outs, draw(NAMES), tuple(args), attrs_of(attrs), draw(ORIGINS)))
        known += outs
    results = draw(st.lists(st.sampled_from(known), max_size=2)) if known else []
    return Function(name, params, tuple(body), tuple(results))


EXTERNS = st.builds(
    Extern,
    NAMES,
    NAMES,
    st.text(max_size=5),
    st.lists(
        st.builds(
            ExternParam,
            NAMES,
            st.sampled_from(Role),
            st.sampled_from(["float", "int32_t", "unsigned int"]),
            st.one_of(st.none(), TYPES),
        ),
        max_size=2,
    ).map(tuple),
    st.sampled_from(Returns),
)


@st.composite
def modules(draw: st.DrawFn) -> Module:
    """A module with some of everything."""
    names = draw(st.lists(NAMES, max_size=2, unique=True))
    held = tuple(draw(constants(name)) for name in names)
    values = [constant.var for constant in held]
    functions = draw(st.lists(NAMES, min_size=1, max_size=2))
    sizes = st.integers(0, 2**31)
    relations = st.sampled_from(["==", "<="])

    def some(strategy: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(st.lists(strategy, max_size=2)))

    return Module(
        functions=tuple(_function(draw, name, values) for name in functions),
        kernels=some(kernels()),
        constants=held,
        symbols=some(st.builds(Symbol, NAMES, sizes, sizes, ORIGINS, st.booleans())),
        conditions=some(st.builds(Condition, relations, DIMS, DIMS, ORIGINS)),
        states=some(st.builds(State, NAMES, NAMES)),
        aliases=some(st.builds(Alias, NAMES, st.text(max_size=5))),
        source=draw(st.text(max_size=5)),
        externs=some(EXTERNS),
    )
