"""What becomes of a sum, where that is a byte: the part that micro-kernels can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    Apply,
    Binary,
    Cast,
    Expr,
    Lit,
    Load,
    Local,
    Micro,
    Stmt,
    Store,
)
from relax_aot.ir.parameters import whole
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.microkernels import by_position
from relax_aot.scheduling.integer_match import Contraction, number_of, stride

STAGED = Local("staged", DType.I8)
UNSIGNED = Local("staged", DType.U8)
GREATEST_SHIFT = 62
GREATEST_ZERO = 1 << 14


@dataclass(frozen=True, slots=True)
class Requantized:
    """The sum times `scale`, as a byte; `shift` is 0 where the product is one in float."""

    scale: Load
    zero: int
    shift: int | Load
    staged: Local = STAGED
    """What the byte is called."""

    def micro(
        self,
        out: Load,
        sums: Load,
        scale: Load,
        extents: tuple[Dim, Dim],
        steps: tuple[Dim, Dim, Dim],
    ) -> Micro:
        sizes = (*extents, *steps, Dim.of(self.zero))
        assert isinstance(self.shift, int)
        if self.shift == 0:
            return by_position("raot_requantize_f32", (out, sums, scale), sizes)
        return by_position("raot_requantize_i32", (out, sums, scale), (*sizes, Dim.of(self.shift)))

    def rescaled(
        self,
        out: Load,
        sums: Load,
        extents: tuple[Dim, Dim],
        steps: tuple[Dim, Dim],
        at: Mapping[str, Dim],
        scale_steps: tuple[Dim, Dim],
    ) -> Micro:
        """By vectors, of rows and columns; `at`: where loops stand at the first."""
        kind = "u8" if out.dtype is DType.U8 else "s8"
        scale = stored_at(self.scale, at)
        sizes = (*extents, *steps, *scale_steps, Dim.of(self.zero))
        if isinstance(self.shift, Load):
            operands = (out, sums, scale, stored_at(self.shift, at))
            return by_position(f"raot_rescale_shifts_{kind}", operands, sizes)
        if self.shift == 0:
            return by_position(f"raot_rescale_f32_{kind}", (out, sums, scale), sizes)
        shift = Dim.of(self.shift)
        return by_position(f"raot_rescale_i32_{kind}", (out, sums, scale), (*sizes, shift))


def split(what: Contraction) -> tuple[Requantized, Contraction] | None:
    """What makes a signed byte of the sum by one shift, and what becomes of that byte, called
    STAGED; None where the sum is used otherwise."""
    found = split_any(what)
    if found is None or found[0].staged != STAGED or not isinstance(found[0].shift, int):
        return None
    return found


def split_any(what: Contraction) -> tuple[Requantized, Contraction] | None:
    """The same for a byte of either type, and shifts that are read."""
    found: list[Requantized] = []

    def rule(expr: Expr) -> Expr:
        one = _byte_of(expr, what.sum)
        if one is None:
            return expr
        found.append(one)
        return one.staged

    after = map_exprs(what.after, rule)
    if not found or any(one != found[0] for one in found) or uses(after, what.sum):
        return None
    return found[0], replace(what, sum=found[0].staged, after=after)


def uses(body: tuple[Stmt, ...], local: Local) -> bool:
    seen: list[Expr] = []

    def note(expr: Expr) -> Expr:
        if expr == local:
            seen.append(expr)
        return expr

    map_exprs(body, note)
    return bool(seen)


def _byte_of(expr: Expr, total: Local) -> Requantized | None:
    if not isinstance(expr, Cast) or expr.dtype not in (DType.I8, DType.U8):
        return None
    staged = Local("staged", expr.dtype)
    match expr:
        case Cast(Binary("+", value, zero), _, "saturate"):
            number = number_of(zero)
            if number is None or not -GREATEST_ZERO < number < GREATEST_ZERO:
                return None
            found = _float(value, total) or _fixed(value, total)
            return replace(found, zero=number, staged=staged) if found else None
        case Cast(Binary(">>", Binary("+", value, twice), one), _, "saturate"):
            # ((x >> k) + 2 * zero + 1) >> 1 is x / 2^(k + 1), halves up, plus zero.
            odd = wide_number(twice)
            found = _high(value, total)
            if odd is None or odd % 2 == 0 or wide_number(one) != 1:
                return None
            if not -GREATEST_ZERO < odd < GREATEST_ZERO:
                return None
            return replace(found, zero=odd // 2, staged=staged) if found else None
    return None


def _float(expr: Expr, total: Local) -> Requantized | None:
    """rint(float(sum) * scale) as an integer, which NaN and overflow are ruled out for."""
    match expr:
        case Cast(Cast(Apply("rint", (Binary("*", left, right),)), DType.I32, "saturate"), _):
            for a, b in ((left, right), (right, left)):
                if a == Cast(total, DType.F32) and isinstance(b, Load) and b.dtype is DType.F32:
                    return Requantized(b, 0, 0)
    return None


def _fixed(expr: Expr, total: Local) -> Requantized | None:
    """(sum * scale + half) >> shift in 64 bits."""
    match expr:
        case Cast(Binary(">>", Binary("+", Binary("*", left, right), half), by), DType.I32, "wrap"):
            shift = wide_number(by)
            if (
                shift is None
                or not 32 < shift <= GREATEST_SHIFT
                or wide_number(half) != 1 << (shift - 1)
            ):
                return None
            for a, b in ((left, right), (right, left)):
                if a != Cast(total, DType.I64) or not isinstance(b, Cast):
                    continue
                if isinstance(b.value, Load) and b.value.dtype is DType.I32:
                    return Requantized(b.value, 0, shift)
    return None


def _high(expr: Expr, total: Local) -> Requantized | None:
    """The upper half of sum * scale, divided by 2^(shift - 33), downwards."""
    match expr:
        case Binary(
            ">>", Cast(Binary(">>", Binary("*", left, right), by), DType.I32, "wrap"), rest
        ):
            shift = _shift(rest)
            if shift is None or wide_number(by) != 32:
                return None
            for a, b in ((left, right), (right, left)):
                if a != Cast(total, DType.I64) or not isinstance(b, Cast):
                    continue
                if isinstance(b.value, Load) and b.value.dtype is DType.I32:
                    return Requantized(b.value, 0, shift)
    return None


def _shift(less: Expr) -> int | Load | None:
    """A shift of which 33 was taken. Those that are read are 33 to 62 (ops/requantize.py)."""
    number = wide_number(less)
    if number is not None:
        return number + 33 if 0 <= number <= GREATEST_SHIFT - 33 else None
    match less:
        case Binary("-", Load() as shift, taken) if shift.dtype is DType.I32:
            return shift if wide_number(taken) == 33 else None
    return None


def wide_number(expr: Expr) -> int | None:
    """The value of an integer that is written in the code, where nothing wraps."""
    match expr:
        case Lit(value, dtype) if dtype.is_int:
            return whole(value)
        case Cast(value) if expr.dtype.is_int and expr.mode == "wrap":
            return wide_number(value)
        case Binary(op, left, right) if op in ("<<", "+", "-", "*") and expr.dtype.is_int:
            a, b = wide_number(left), wide_number(right)
            if a is None or b is None or (op == "<<" and not 0 <= b < 63):
                return None
            if op == "<<":
                found = a << b
            else:
                found = a + b if op == "+" else a - b if op == "-" else a * b
            low, high = expr.dtype.limits
            return found if low <= found <= high else None
    return None


@dataclass(frozen=True, slots=True)
class CodeSum:
    """(STAGED * by + other * by_other + more) >> shift, as a byte that is the result."""

    store: Store
    other: Load
    by: int
    by_other: int
    more: int
    shift: int


def code_sum(what: Contraction) -> CodeSum | None:
    """Where the byte and another code become one code, the result."""
    if len(what.after) != 1 or not isinstance(what.after[0], Store):
        return None
    store = what.after[0]
    match store.value:
        case Cast(Cast(Binary(">>", total, by), DType.I32, "saturate"), DType.I8, "saturate"):
            pass
        case Cast(Binary(">>", total, by), DType.I8, "saturate"):
            pass
        case _:
            return None
    match total:
        case Binary("+", Binary("+", first, second), constant):
            left, right = _product(first), _product(second)
        case _:
            return None
    more, shift = number_of(constant), number_of(by)
    if left is None or right is None or more is None or shift is None or not 0 < shift < 32:
        return None
    own, other = (left, right) if left[0] == STAGED else (right, left)
    if own[0] != STAGED or not isinstance(other[0], Load):
        return None
    return CodeSum(store, other[0], own[1], other[1], more, shift)


def _product(expr: Expr) -> tuple[Expr, int] | None:
    """A signed byte times a number, in 32 bits."""
    match expr:
        case Binary("*", code, factor) if expr.dtype is DType.I32:
            number = number_of(factor)
            while isinstance(code, Cast) and code.dtype is DType.I32 and code.mode == "wrap":
                code = code.value
            fits = number is not None and code.dtype is DType.I8
            return (code, number) if fits and number is not None else None
    return None


def straight(what: Contraction) -> Store | None:
    """The store of a contraction whose byte is the result itself."""
    if len(what.after) != 1 or not isinstance(what.after[0], Store):
        return None
    store = what.after[0]
    known = what.sum in (STAGED, UNSIGNED)
    same = store.value == what.sum and store.buffer.dtype is what.sum.dtype
    return store if known and same else None


def steps_of(store: Store, names: Sequence[str]) -> list[Dim] | None:
    """How many elements further on a store is when each variable is one greater."""
    load = Load(store.buffer, store.index)
    found = [stride(load, name) for name in names]
    return [step for step in found if step is not None] if None not in found else None


def stored_at(store: Store | Load, at: Mapping[str, Dim]) -> Load:
    return Load(store.buffer, tuple(dim.substitute(at) for dim in store.index))
