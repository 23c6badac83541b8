# SPDX-License-Identifier: Apache-2.0
"""Least and greatest value of the integer expressions of a kernel: interval arithmetic.

Sound for every content of the buffers. An operation whose exact result may leave its type wraps,
so its range is then that of the type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import add, mul, sub

from relax_aot.ir.dims import Bounds, Dim, interval
from relax_aot.ir.loops import (
    COMPARISONS,
    LOGICAL,
    Apply,
    Assign,
    Binary,
    Bind,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Kernel,
    Let,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Unary,
    walk,
)
from relax_aot.ir.types import DType

Range = tuple[int, int]
EXACT: Mapping[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul}


@dataclass(frozen=True, slots=True)
class Known:
    """What is known at one point of a kernel: ranges of index names and of scalars."""

    bounds: Bounds
    scalars: Mapping[str, Range] = field(default_factory=dict)
    assigned: frozenset[str] = frozenset()
    """Scalars with more than one value."""

    @staticmethod
    def at_start(kernel: Kernel, bounds: Bounds, given: Mapping[str, Range | None] = {}) -> Known:
        """Bounds may be raised when the project is built, so only their lows count; `given` are
        parameters that take the place of numbers."""
        assigned = (stmt.local.name for stmt in walk(kernel.body) if isinstance(stmt, Assign))
        scalars = {name: ends for name, ends in given.items() if ends}
        return Known(bounds.lows.with_ranges(given), scalars, frozenset(assigned))

    def dim(self, dim: Dim) -> Range:
        return interval(dim, self.bounds)

    def inside(self, loop: For) -> Known:
        low, high = self.dim(loop.start)[0], self.dim(loop.stop)[1] - 1
        return self._named(loop.variable, low, high)

    def after(self, stmt: Stmt) -> Known:
        """Behind a statement that names a value."""
        match stmt:
            case Let():
                return self._named(stmt.name, *self.dim(stmt.value))
            case Bind():
                return self._named(stmt.name, self.dim(stmt.low)[0], self.dim(stmt.high)[1])
            case Declare(local, value) if local.name not in self.assigned:
                found = value_range(value, self)
                scalars = {**self.scalars, local.name: found} if found else self.scalars
                return replace(self, scalars=scalars)
            case _:
                return self

    def _named(self, name: str, low: int, high: int) -> Known:
        return replace(self, bounds=self.bounds.with_range(name, low, max(low, high)))


def type_range(dtype: DType) -> Range | None:
    """None for types that are no integers."""
    if dtype is DType.BOOL:
        return 0, 1
    return dtype.limits if dtype.is_int or dtype.is_stored_int else None


def value_range(expr: Expr, known: Known) -> Range | None:
    """None for values that are no integers."""
    whole = type_range(expr.dtype)
    if whole is None:
        return None
    found = _exact(expr, known)
    return found if found is not None and within(found, whole) else whole


def within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def compared(expr: Binary, known: Known | None = None) -> bool | None:
    """What a comparison gives whatever the data are; None where that is not known. A float is not
    less than itself, and equals itself unless it is NaN."""
    if expr.left == expr.right:
        if expr.op == "<":
            return False
        if not expr.left.dtype.is_float:
            return {"<=": True, "==": True, "!=": False}.get(expr.op)
    known = Known(Bounds.of({})) if known is None else known
    a, b = value_range(expr.left, known), value_range(expr.right, known)
    if a is None or b is None:
        return None
    if expr.op == "<":
        return True if a[1] < b[0] else False if a[0] >= b[1] else None
    if expr.op == "<=":
        return True if a[1] <= b[0] else False if a[0] > b[1] else None
    if expr.op in ("==", "!=") and (a[1] < b[0] or b[1] < a[0]):
        return expr.op == "!="
    return None


def exact(expr: Binary, known: Known) -> bool:
    """The sum, difference or product of two integers never wraps."""
    whole, found = type_range(expr.dtype), _exact(expr, known)
    return whole is not None and found is not None and within(found, whole)


def _exact(expr: Expr, known: Known) -> Range | None:
    """The range without regard to wrapping; None where only the type is known."""
    match expr:
        case Lit():
            return int(expr.value), int(expr.value)
        case Local():
            return known.scalars.get(expr.name)
        case Index():
            inside = all(name in known.bounds for name in expr.dim.symbols)
            return known.dim(expr.dim) if inside else None
        case Unary("-", value):
            found = value_range(value, known)
            return None if found is None else (-found[1], -found[0])
        case Cast():
            return _cast(expr, known)
        case Select():
            a, b = value_range(expr.then, known), value_range(expr.otherwise, known)
            return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
        case Apply(("max" | "min") as function, (left, right)):
            a, b = value_range(left, known), value_range(right, known)
            best = max if function == "max" else min
            return None if a is None or b is None else (best(a[0], b[0]), best(a[1], b[1]))
        case Apply("fixed_sigmoid"):
            return (0, 2**15 - 1)
        case Apply("fixed_tanh"):
            return (1 - 2**15, 2**15 - 1)
        case Binary():
            return _binary(expr, known)
        case Load() | Unary() | Apply():
            return None


def _cast(cast: Cast, known: Known) -> Range | None:
    found, whole = value_range(cast.value, known), type_range(cast.dtype)
    if found is None or whole is None or cast.mode == "bits":
        return None
    if cast.dtype is DType.BOOL:
        return (int(found[0] > 0 or found[1] < 0), int(found != (0, 0)))
    if cast.mode == "saturate":
        low, high = (min(max(end, whole[0]), whole[1]) for end in found)
        return low, high
    return found


def _binary(expr: Binary, known: Known) -> Range | None:
    if expr.op in COMPARISONS + LOGICAL:
        return 0, 1
    a, b = value_range(expr.left, known), value_range(expr.right, known)
    if a is None or b is None:
        return None
    if expr.op in EXACT:
        ends = [EXACT[expr.op](x, y) for x in a for y in b]
        return min(ends), max(ends)
    bits = expr.dtype.bits
    if expr.op in (">>", "<<") and within(b, (0, bits - 1)):
        ends = [x >> y if expr.op == ">>" else x << y for x in a for y in b]
        return min(ends), max(ends)
    if expr.op == "/" and b[0] == b[1] > 0:
        return _towards_zero(a[0], b[0]), _towards_zero(a[1], b[0])
    if expr.op == "%" and b[0] > 0:
        unchanged = a[0] >= 0 and a[1] < b[0]
        return a if unchanged else (0, b[1] - 1)
    if expr.op == "&" and min(a[0], b[0]) >= 0:
        return 0, min(a[1], b[1])
    return None


def _towards_zero(value: int, divisor: int) -> int:
    return value // divisor if value >= 0 else -(-value // divisor)
