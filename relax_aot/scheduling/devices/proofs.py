# SPDX-License-Identifier: Apache-2.0
"""What is proven of the loops of one kernel: independent iterations, and scalars that reduce.

An index from data that may be out of range ends the run, whatever other iterations do: here it
counts as one that is inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from relax_aot.fusion.checking import independence
from relax_aot.fusion.checking.dependences import Accesses
from relax_aot.fusion.checking.independence import private_scratch
from relax_aot.ir.dims import ZERO, Bounds
from relax_aot.ir.loops import (
    BODIES,
    Apply,
    Assign,
    Binary,
    Bind,
    Cast,
    Declare,
    Expr,
    For,
    Kernel,
    Lit,
    Load,
    Local,
    Micro,
    Multiply,
    Stmt,
    Store,
    expressions,
    mapped,
    walk,
)
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.types import DType
from relax_aot.scheduling.writer import Writer

_NEUTRAL = {"+": -0.0, "*": 1, "&&": True, "||": False, "&": -1, "|": 0, "^": 0}


def cast(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype is dtype else Cast(value, dtype)


@dataclass(frozen=True, slots=True)
class Reduced:
    """A scalar that each iteration changes by `kind`, which is associative but for rounding."""

    local: Local
    kind: str

    def combined(self, one: Expr, other: Expr) -> Expr:
        if self.kind in ("max", "min"):
            return Apply(self.kind, (one, other))
        return Binary(self.kind, one, other)

    @property
    def kept(self) -> DType:
        """The type of partial results in memory, which would round scalars of half precision:
        these are floats."""
        return DType.F32 if self.local.dtype.is_half else self.local.dtype

    def total(self, w: Writer) -> Local:
        """The scalar that partial results are added to."""
        if self.kept is self.local.dtype:
            return self.local
        return Local(w.fresh(f"{self.local.name}_total"), self.kept)

    def before(self, total: Local) -> tuple[Stmt, ...]:
        return () if total == self.local else (Declare(total, cast(self.local, self.kept)),)

    def after(self, total: Local) -> tuple[Stmt, ...]:
        own = self.local
        return () if total == own else (Assign(own, cast(total, own.dtype)),)

    @property
    def neutral(self) -> Lit:
        """What changes no value."""
        dtype = self.local.dtype
        if self.kind in _NEUTRAL:
            value = _NEUTRAL[self.kind]
            if dtype.is_int:
                low, high = dtype.limits
                return Lit(high if value == -1 and low == 0 else int(value), dtype)
            return Lit(value if self.kind in ("&&", "||") else float(value), dtype)
        if dtype.is_int:
            return Lit(dtype.limits[0 if self.kind == "max" else 1], dtype)
        return Lit(float("-inf" if self.kind == "max" else "inf"), dtype)


class Proofs:
    """Of the loops in the body of `kernel`, by their identities. With `ordered`, sums of floats
    keep their order."""

    def __init__(self, kernel: Kernel, bounds: Bounds, *, ordered: bool = False) -> None:
        self.kernel, self.bounds = kernel, bounds
        self._ordered = ordered
        self._private: dict[int, frozenset[str] | None] = {}
        self._reduced: dict[int, tuple[Reduced, ...] | None] = {}
        self._trusted = replace(kernel, body=map_statements(kernel.body, _trusting))
        pairs = zip(walk(kernel.body), walk(self._trusted.body), strict=True)
        self._twins = {id(one): two for one, two in pairs if isinstance(two, For)}

    def private(self, loop: For) -> frozenset[str] | None:
        """The scratch of which each iteration needs a copy; None where iterations depend on each
        other."""
        if id(loop) not in self._private:
            twin = self._twins[id(loop)]
            found = private_scratch(self._trusted, twin, self.bounds.open, self._accesses)
            if found and found & self._used_outside(loop):
                found = None
            self._private[id(loop)] = found
        return self._private[id(loop)]

    @cached_property
    def _accesses(self) -> Accesses:
        return independence.accesses_of(self._trusted)

    def _used_outside(self, loop: For) -> set[str]:
        """Memory that others access too, if only in loops without iterations."""
        inside = {id(stmt) for stmt in walk((loop,))}
        others = (stmt for stmt in walk(self.kernel.body) if id(stmt) not in inside)
        return {load.buffer.name for stmt in others for load, _ in accesses_of(stmt)}

    def independent(self, loop: For) -> bool:
        return self.private(loop) == frozenset()

    def reduced(self, loop: For) -> tuple[Reduced, ...] | None:
        """The scalars that a loop reduces, whose iterations are independent otherwise; None
        where it does something else."""
        if id(loop) not in self._reduced:
            self._reduced[id(loop)] = self._reduction(loop)
        return self._reduced[id(loop)]

    def _reduction(self, loop: For) -> tuple[Reduced, ...] | None:
        found = reductions(loop)
        if not found or (self._ordered and any(map(_rounds, found))):
            return None
        if any(_rounds(one) and adds_integers((loop,)) for one in found):
            return None
        changed = {one.local for one in found}
        twin = self._twins[id(loop)]
        assert isinstance(twin, For)
        names = (f"reduced {number}" for number, _ in enumerate(walk(twin.body)))

        def apart(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Assign) and stmt.local in changed:
                return Declare(Local(next(names), stmt.local.dtype), stmt.value)
            return stmt

        alone = replace(twin, body=map_statements(twin.body, apart))

        def with_alone(stmt: Stmt) -> Stmt:
            return alone if stmt is twin else mapped(stmt, BODIES, with_alone)

        kernel = replace(self._trusted, body=tuple(map(with_alone, self._trusted.body)))
        proven = private_scratch(kernel, alone, self.bounds.open) == frozenset()
        return found if proven else None


def _trusting(stmt: Stmt) -> Stmt:
    return replace(stmt, trust="checked") if isinstance(stmt, Bind) and not stmt.trusted else stmt


def outer_scalars(body: Iterable[Stmt]) -> set[Local]:
    """The scalars that statements assign and do not declare."""
    inner = list(walk(body))
    declared = {stmt.local for stmt in inner if isinstance(stmt, Declare)}
    return assigned(inner) - declared


def assigned(body: Iterable[Stmt]) -> set[Local]:
    """The scalars that statements assign."""
    return {stmt.local for stmt in walk(body) if isinstance(stmt, Assign)}


def reductions(loop: For) -> tuple[Reduced, ...]:
    """How scalars of outside change, where each is read for its own change alone and all of them
    are combined in one way each; else nothing."""
    changed = outer_scalars(loop.body)
    kinds: dict[Local, set[str]] = {local: set() for local in changed}
    for stmt in walk(loop.body):
        used = [e for e in expressions(stmt) if isinstance(e, Local) and e in changed]
        if isinstance(stmt, Assign) and stmt.local in changed:
            if used != [stmt.local]:
                return ()
            kinds[stmt.local].add(_kind(stmt))
        elif used:
            return ()
    if any(len(found) != 1 or "" in found for found in kinds.values()):
        return ()
    ordered = sorted(kinds.items(), key=lambda item: item[0].name)
    return tuple(Reduced(local, *found) for local, found in ordered)


def _kind(stmt: Assign) -> str:
    total = stmt.local
    match stmt.value:
        case Binary(op, left, right) if op in _NEUTRAL and total in (left, right):
            return op
        case Binary("-", left, _) if left == total:
            return "+"
        case Apply("fma", (_, _, other)) if other == total:
            return "+"
        case Apply("max" | "min" as kind, args) if total in args:
            return kind
        case _:
            return ""


def _rounds(one: Reduced) -> bool:
    return one.kind in ("+", "*") and not one.local.dtype.is_int


def adds_integers(body: Iterable[Stmt]) -> bool:
    """Whether statements read integer elements alone, in most models quantized values: a sum in the
    middle between two results keeps its order (passes/partial_sums.py)."""
    loads = [load for load, is_stored in accessed(body) if not is_stored]
    return bool(loads) and not any(_is_float(load) for load in loads)


def _is_float(load: Load) -> bool:
    return load.buffer.dtype.is_float or load.buffer.dtype.is_stored_float


def accessed(body: Iterable[Stmt]) -> Iterator[tuple[Load, bool]]:
    """Every element that statements access, and whether it is stored."""
    for stmt in walk(body):
        yield from accesses_of(stmt)


def accesses_of(stmt: Stmt) -> Iterator[tuple[Load, bool]]:
    """Those of one statement, not of its body."""
    yield from ((expr, False) for expr in expressions(stmt) if isinstance(expr, Load))
    if isinstance(stmt, Store):
        yield Load(stmt.buffer, stmt.index), True
    if isinstance(stmt, Multiply):
        yield Load(stmt.sums, (ZERO, ZERO)), True
    if isinstance(stmt, Micro):
        yield from ((load, True) for load in stmt.written)
