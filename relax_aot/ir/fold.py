# SPDX-License-Identifier: Apache-2.0
"""Integer expressions, casts, comparisons and sizes in their shortest form: constant folding.

The last pass before C is printed. Every rule keeps every bit: integer arithmetic wraps, shifts
and divisions are those of raot/integer.h, and floats are touched only where the result is the
same for each value. The rules are proven in the tests by evaluating both sides for all values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, prove_le, simplify
from relax_aot.ir.loops import (
    LOGICAL,
    Apply,
    Binary,
    Cast,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Let,
    Lit,
    Select,
    Stmt,
    Unary,
    walk,
)
from relax_aot.ir.names import defined_name
from relax_aot.ir.rewrite import map_expr, map_exprs, map_index_dims
from relax_aot.ir.types import DType
from relax_aot.ir.value_ranges import Known, compared, type_range, value_range, within


def fold_kernel(kernel: Kernel, bounds: Bounds) -> Kernel:
    """The same results and the same failures for all contents of the buffers."""
    body = _Folder(_names(kernel)).block(kernel.body, Known.at_start(kernel, bounds))
    return kernel if body == kernel.body else replace(kernel, body=body)


def _names(kernel: Kernel) -> Counter[str]:
    """How often each name is defined."""
    return Counter(name for stmt in walk(kernel.body) if (name := defined_name(stmt)))


class _Folder:
    """Folds blocks; a body whose names are unique may move into the block around it."""

    def __init__(self, names: Counter[str]) -> None:
        self._names = names

    def block(self, body: tuple[Stmt, ...], known: Known) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        renamed: dict[str, Dim] = {}
        for stmt in body:
            if renamed:
                (stmt,) = map_index_dims((stmt,), lambda dim: dim.substitute(renamed))
            if isinstance(stmt, Let) and (stmt.value.is_constant or stmt.value.symbol):
                renamed[stmt.name] = stmt.value
                continue
            for folded in self._stmt(stmt, known):
                result.append(folded)
                known = known.after(folded)
        return tuple(result)

    def _stmt(self, stmt: Stmt, known: Known) -> tuple[Stmt, ...]:
        match stmt:
            case For():
                return self._for(stmt, known)
            case If():
                condition = fold_expr(stmt.condition, known)
                then = self.block(stmt.then, known)
                otherwise = self.block(stmt.otherwise, known)
                if isinstance(condition, Lit):
                    taken = then if condition.value else otherwise
                    if self._may_move(taken):
                        return taken
                if not then and not otherwise:
                    return ()
                return (If(condition, then, otherwise),)
            case _:
                (plain,) = map_index_dims((stmt,), lambda dim: _dim(dim, known))
                return map_exprs((plain,), lambda expr: _folded(expr, known))

    def _for(self, loop: For, known: Known) -> tuple[Stmt, ...]:
        start, stop = _dim(loop.start, known), _dim(loop.stop, known)
        if prove_le(stop, start, known.bounds):
            return ()
        body = loop.body
        if stop - start == 1 and not loop.axis:
            only = {loop.variable: start}
            body = map_index_dims(body, lambda dim: dim.substitute(only))
            if self._may_move(body):
                return self.block(body, known)
        body = self.block(body, known.inside(loop))
        return (replace(loop, start=start, stop=stop, body=body),) if body else ()

    def _may_move(self, body: tuple[Stmt, ...]) -> bool:
        return all(self._names[defined_name(stmt)] <= 1 for stmt in body)


def _dim(dim: Dim, known: Known) -> Dim:
    if dim.is_constant or not dim.symbols <= set(known.bounds):
        return dim
    return simplify(dim, known.bounds)


def fold_expr(expr: Expr, known: Known) -> Expr:
    """Bottom-up, until no rule applies."""
    return map_expr(expr, lambda part: _folded(part, known))


def _folded(expr: Expr, known: Known) -> Expr:
    """By the rules alone: the parts are folded already."""
    for rule in RULES:
        shorter = rule(expr, known)
        if shorter is not None and shorter != expr:
            return fold_expr(shorter, known)
    return expr


def one_value(expr: Expr, known: Known) -> Expr | None:
    """An integer whose range is one value; comparisons of ranges and of equal sides."""
    if isinstance(expr, Lit) or type_range(expr.dtype) is None:
        return None
    if isinstance(expr, Binary) and (known_result := compared(expr, known)) is not None:
        return Lit(known_result, DType.BOOL)
    if isinstance(expr, Index):
        return None
    found = value_range(expr, known)
    if found is None or found[0] != found[1]:
        return None
    return Lit(bool(found[0]) if expr.dtype is DType.BOOL else found[0], expr.dtype)


def constants(expr: Expr, known: Known) -> Expr | None:
    """Operations on two integer literals."""
    match expr:
        case Binary(op, Lit() as left, Lit() as right) if left.dtype.is_int and op in EVALUATED:
            value = EVALUATED[op](int(left.value), int(right.value), left.dtype.bits)
            return Lit(wrapped(value, left.dtype), left.dtype)
        case Unary("-", Lit() as lit) if lit.dtype.is_int:
            return Lit(wrapped(-int(lit.value), lit.dtype), lit.dtype)
        case _:
            return None


def wrapped(value: int, dtype: DType) -> int:
    """The value of `dtype` with the same low bits."""
    low, _ = dtype.limits
    return (value - low) % (1 << dtype.bits) + low


EVALUATED: Mapping[str, Callable[[int, int, int], int]] = {
    "+": lambda a, b, bits: a + b,
    "-": lambda a, b, bits: a - b,
    "*": lambda a, b, bits: a * b,
    "/": lambda a, b, bits: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0,
    "%": lambda a, b, bits: a % b if b else 0,
    "<<": lambda a, b, bits: a << b if 0 <= b < bits else 0,
    ">>": lambda a, b, bits: a >> (b if 0 <= b < bits else bits),
    "&": lambda a, b, bits: a & b,
    "|": lambda a, b, bits: a | b,
    "^": lambda a, b, bits: a ^ b,
}


def shortened(expr: Expr, known: Known) -> Expr | None:
    """`x + 0`, `x * 1` and their like, `x * 1.0` and `x / 1.0` of floats too; products and
    conjunctions with zero; what minimum and maximum never choose."""
    neutral = {"+": 0, "-": 0, "*": 1, "/": 1, "|": 0, "^": 0, "<<": 0, ">>": 0}
    match expr:
        case Binary("*" | "&", left, right) if expr.dtype.is_int and (
            zeros := [side for side in (left, right) if _is_number(side, 0)]
        ):
            return zeros[0]
        case Binary(op, left, right) if op in neutral and (not expr.dtype.is_float or op in "*/"):
            # Of floats, -0.0 + 0.0 is 0.0.
            if _is_number(right, neutral[op]):
                return left
            return right if op in "+*|^" and _is_number(left, neutral[op]) else None
        case Apply(("max" | "min") as function, (left, right)):
            a, b = value_range(left, known), value_range(right, known)
            if a is None or b is None:
                return None
            if function == "min":
                a, b = b, a
            return left if a[0] >= b[1] else right if b[0] >= a[1] else None
        case _:
            return None


def _is_number(expr: Expr, number: int) -> bool:
    return isinstance(expr, Lit) and expr.dtype is not DType.BOOL and expr.value == number


def associated(expr: Expr, known: Known) -> Expr | None:
    """`(x + a) + b` is `x + (a + b)`, and so are differences, products and shifts to the right.
    `a * b + y + c` is `a * b + c + y`: every product is then added by its instruction."""
    match expr:
        case Binary(("+" | "*") as op, Lit() as lit, right) if expr.dtype.is_int and not isinstance(
            right, Lit
        ):
            return Binary(op, right, lit)
        case Binary(
            ("+" | "-") as outer, Binary(("+" | "-") as inner, x, Lit() as a), Lit() as b
        ) if expr.dtype.is_int:
            first = int(a.value) if inner == "+" else -int(a.value)
            second = int(b.value) if outer == "+" else -int(b.value)
            return _plus(x, first + second, expr.dtype)
        case Binary("*", Binary("*", x, Lit() as a), Lit() as b) if expr.dtype.is_int:
            product = wrapped(int(a.value) * int(b.value), expr.dtype)
            return Binary("*", x, Lit(product, expr.dtype))
        case Binary(">>", Binary(">>", x, Lit() as a), Lit() as b):
            first, second = int(a.value), int(b.value)
            fits = min(first, second) >= 0 and first + second < expr.dtype.bits
            return Binary(">>", x, Lit(first + second, expr.dtype)) if fits else None
        case Binary(
            ("+" | "-") as op, Binary("+", Binary("*", _, factor) as product_of, y), Lit() as lit
        ) if (
            expr.dtype.is_int
            and not isinstance(y, Lit)
            # Products with powers of two are shifts.
            and not (isinstance(factor, Lit) and int(factor.value).bit_count() == 1)
        ):
            return Binary("+", Binary(op, product_of, lit), y)
        case Binary(("+" | "-") as op, x, Lit() as a) if expr.dtype.is_int and int(a.value) < 0:
            value = int(a.value) if op == "+" else -int(a.value)
            shorter = _plus(x, value, expr.dtype)
            return None if shorter == expr else shorter
        case _:
            return None


def _plus(x: Expr, value: int, dtype: DType) -> Expr:
    """`x + value`; as a difference where the number is then not negative."""
    value = wrapped(value, dtype)
    if value < 0 and -value <= dtype.limits[1]:
        return Binary("-", x, Lit(-value, dtype))
    return Binary("+", x, Lit(value, dtype))


def casts(expr: Expr, known: Known) -> Expr | None:
    """Casts to the type that a value has, of literals, of casts, and that change no value."""
    if not isinstance(expr, Cast) or expr.mode not in ("wrap", "saturate"):
        return None
    value, target = expr.value, expr.dtype
    if value.dtype is target:
        return value
    if isinstance(value, Index) and value.dim.is_constant:
        value = Lit(value.dim.constant, DType.I64)
    if isinstance(value, Lit):
        return _literal(value, expr)
    if not target.is_int or not value.dtype.is_int:
        return _float_of_integer(expr, known)
    found, whole = value_range(value, known), target.limits
    if expr.mode == "saturate":
        assert found is not None
        return Cast(value, target) if within(found, whole) else None
    if not isinstance(value, Cast) or value.mode != "wrap" or not value.value.dtype.is_int:
        return None
    inner = value_range(value.value, known)
    unchanged = inner is not None and within(inner, value.dtype.limits)
    if unchanged or value.dtype.bits >= target.bits:
        return Cast(value.value, target)
    return None


def _float_of_integer(cast: Cast, known: Known) -> Expr | None:
    """A float of an integer that was widened first."""
    value = cast.value
    if cast.dtype not in (DType.F32, DType.F64) or not isinstance(value, Cast):
        return None
    if value.mode != "wrap" or not value.dtype.is_int or not value.value.dtype.is_int:
        return None
    inner = value_range(value.value, known)
    same = inner is not None and within(inner, value.dtype.limits)
    return Cast(value.value, cast.dtype) if same else None


def _literal(lit: Lit, cast: Cast) -> Expr | None:
    target = cast.dtype
    if lit.dtype is DType.BOOL or lit.dtype.is_int:
        value = int(lit.value)
        if target is DType.BOOL:
            return Lit(value != 0, target)
        if target.is_int:
            low, high = target.limits
            inside = min(max(value, low), high)
            return Lit(inside if cast.mode == "saturate" else wrapped(value, target), target)
        if target in (DType.F32, DType.F64):
            return Lit(float(target.numpy.type(value)), target)
    if lit.dtype is DType.F32 and target is DType.F64:
        return Lit(float(np.float32(lit.value)), target)
    return None


def logical(expr: Expr, known: Known) -> Expr | None:
    """Conditions with sides that are known, and choices by them."""
    match expr:
        case Binary(op, left, right) if op in LOGICAL:
            decides = op == "||"
            for side, other in ((left, right), (right, left)):
                if isinstance(side, Lit):
                    return side if bool(side.value) is decides else other
            return left if left == right else None
        case Unary("!", Lit() as lit):
            return Lit(not lit.value, DType.BOOL)
        case Unary("!", Unary("!", value)) if isinstance(value, Binary | Unary):
            return value if value.dtype is DType.BOOL else None
        case Select(Lit() as condition, then, otherwise):
            return then if condition.value else otherwise
        case Select(_, then, otherwise) if then == otherwise:
            return then
        case _:
            return None


RULES: tuple[Callable[[Expr, Known], Expr | None], ...] = (
    one_value,
    constants,
    shortened,
    associated,
    casts,
    logical,
)
