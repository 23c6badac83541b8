# SPDX-License-Identifier: Apache-2.0
"""What the loops of a kernel say about it: which element is computed when, at what cost."""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.ir.builder import At
from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.loops import (
    DIMS,
    Apply,
    Binary,
    Bind,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Let,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    Unary,
    mapped,
    parts,
)
from relax_aot.ir.rewrite import map_expr
from relax_aot.ir.types import DType, Shape


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops with nothing between them, and what the innermost holds."""

    loops: tuple[For, ...]
    inner: tuple[Stmt, ...]

    @property
    def table(self) -> dict[str, For]:
        return {loop.variable: loop for loop in self.loops}

    @staticmethod
    def of(body: tuple[Stmt, ...]) -> Nest:
        loops: list[For] = []
        while len(body) == 1 and isinstance(body[0], For):
            loops.append(body[0])
            body = body[0].body
        return Nest(tuple(loops), body)

    def axes(self, index: At, shape: Shape) -> dict[str, int] | None:
        """Loop variable -> axis, where the loops run over exactly the elements of `shape`
        and `index` is their position; None otherwise."""
        axes: dict[str, int] = {}
        for axis, dim in enumerate(index):
            name = dim.symbol
            if name is None or name not in self.table:
                if dim == ZERO and shape[axis] == Dim.of(1):
                    continue
                return None
            loop = self.table[name]
            if name in axes or loop.start != ZERO or loop.stop != shape[axis]:
                return None
            axes[name] = axis
        return axes if len(axes) == len(self.loops) else None


@dataclass(frozen=True, slots=True)
class Definition:
    """A kernel that computes each element by itself: `output[variables] = value`."""

    variables: dict[str, int]
    """Loop variable -> axis of the output."""
    value: Expr
    shape: Shape
    fetched: tuple[Declare | Bind, ...] = ()
    """Indices from data that the value needs, in order."""

    @property
    def is_movement(self) -> bool:
        """A value is fetched from elsewhere or is a number; nothing is computed."""
        index = self.value.index if isinstance(self.value, Load) else ()
        return isinstance(self.value, Load | Lit) and not any(dim.divides for dim in index)

    @staticmethod
    def of(body: tuple[Stmt, ...], output: str) -> Definition | None:
        """None where an element needs more than one expression and indices from data that are
        known to be in range."""
        loops, outer, before, store = _stem(body)
        if not isinstance(store, Store) or store.buffer.name != output:
            return None
        nest = Nest(loops, (store,))
        value: Expr = store.value
        index = store.index
        fetched: list[Declare | Bind] = []
        for stmt in reversed((*outer, *before)):
            match stmt:
                case Bind(trust="checked"):
                    fetched.insert(0, stmt)
                case Declare() if any(_uses(later.value, stmt.local) for later in fetched):
                    if _uses(value, stmt.local):
                        return None
                    fetched.insert(0, stmt)
                case Declare():
                    if _uses(value, stmt.local) > 1 or stmt in outer:
                        return None
                    value = _with_local(value, stmt.local, stmt.value)
                case Let() if not fetched:
                    named = {stmt.name: stmt.value}
                    value = substitute_in(value, named)
                    index = tuple(dim.substitute(named) for dim in index)
                case _:
                    return None
        whole = (value, *(stmt.value for stmt in fetched))
        loads = (part for expr in whole for part in parts(expr) if isinstance(part, Load))
        if any(load.buffer.name == output for load in loads):
            return None
        variables = nest.axes(index, store.buffer.shape)
        if variables is None:
            return None
        return Definition(variables, as_stored(value), store.buffer.shape, tuple(fetched))


def _stem(
    body: tuple[Stmt, ...],
) -> tuple[tuple[For, ...], tuple[Stmt, ...], tuple[Stmt, ...], Stmt | None]:
    """The loops around the last statement, what stands before it in outer loops and in the
    innermost one, and itself."""
    loops: list[For] = []
    outer: list[Stmt] = []
    while body:
        *before, last = body
        if not isinstance(last, For):
            return tuple(loops), tuple(outer), tuple(before), last
        outer += before
        loops.append(last)
        body = last.body
    return (), (), (), None


def _uses(expr: Expr, local: Local) -> int:
    return list(parts(expr)).count(local)


def _with_local(expr: Expr, local: Local, value: Expr) -> Expr:
    return map_expr(expr, lambda e: value if e == local else e)


def substitute_in(expr: Expr, values: dict[str, Dim]) -> Expr:
    return map_expr(expr, lambda part: mapped(part, DIMS, lambda dim: dim.substitute(values)))


def as_stored(value: Expr) -> Expr:
    """The value as memory would give it back: narrow floats are computed in `f32` and
    rounded where they are stored, so a value that is not stored is rounded on its way."""
    rounded = isinstance(value, Load) or (
        isinstance(value, Cast) and value.value.dtype is not value.dtype
    )
    return (
        Cast(Cast(value, DType.F32), value.dtype)
        if value.dtype.is_narrow and not rounded
        else value
    )


# Cost, in additions

_DEAR = {"max": 1, "min": 1, "abs": 1, "fma": 1, "isnan": 1, "isinf": 1, "signbit": 1,
        "floor": 3, "ceil": 3, "trunc": 3, "rint": 3, "round": 3, "sqrt": 8, "fraction": 8,
        "exp_below": 31}  # fmt: skip
_FUNCTION = 30


def cost(expr: Expr) -> int:
    """About how many additions one evaluation is worth; loads and indices are free."""
    total = 0
    for part in parts(expr):
        match part:
            case Binary():
                total += 8 if part.op in ("/", "%") else 1
            case Apply():
                total += _DEAR.get(part.function, _FUNCTION)
            case Unary() | Cast() | Select():
                total += 1
            case Lit() | Local() | Index() | Load():
                pass
    return total
