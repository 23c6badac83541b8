# SPDX-License-Identifier: Apache-2.0
"""The invariants of parallel loops, barriers and scopes of memory. Part of check_kernel.py.

Every iteration of a parallel loop arrives at the same barriers: conditions and ranges of serial
loops around a barrier are the same in each iteration. What is computed from other values and
loaded at indices that are the same in all iterations is the same itself, since there are no
races; these are the matter of the interpreter (evaluation/races.py). A scalar belongs to the
iteration that declares it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from relax_aot.ir.axes import CORE, LANE, LANES, PARALLEL_AXES, REGISTER
from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.loops import (
    Assign,
    Barrier,
    Bind,
    Declare,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Micro,
    Multiply,
    Reserve,
    Stmt,
    Store,
    expressions,
    parts,
)


@dataclass(frozen=True, slots=True)
class _Level:
    """A parallel loop around a statement. `uneven`: why not all of its iterations arrive there."""

    axis: str
    variable: str
    uneven: str = ""


@dataclass(frozen=True, slots=True)
class _Around:
    """What is around a statement. `own`: scalars and registers of the innermost parallel
    iteration; `foreign`: those of iterations around it; `control`: the number of levels in whose
    iterations the conditions and ranges around differ."""

    assigned: dict[str, int]
    """By the name of a scalar: the number of levels that what is assigned to it depends on."""
    levels: tuple[_Level, ...] = ()
    own: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    control: int = 0
    varying: Mapping[str, int] = field(default_factory=dict)
    """By the name of an index, a scalar (`local `) or a buffer (`%`): the number of levels whose
    iterations it depends on."""

    def depth(self, names: Iterable[str]) -> int:
        """The number of levels whose iterations differ in these."""
        return max((self.varying.get(name, 0) for name in names), default=0)

    def depth_of(self, *values: Expr | Dim) -> int:
        """The number of levels whose iterations differ in these values."""
        return max((self.depth(_names(value)) for value in values), default=0)

    def named(self, name: str, depth: int) -> _Around:
        return replace(self, varying={**self.varying, name: depth})

    def declared(self, name: str, depth: int) -> _Around:
        depth = max(depth, self.assigned.get(name, 0))
        return replace(self.named(f"local {name}", depth), own=self.own | {name})

    def within(self, reason: str, depth: int) -> _Around:
        """Inside what the iterations of the outer `depth` levels do not have in common."""
        levels = (
            replace(level, uneven=level.uneven or reason) if number < depth else level
            for number, level in enumerate(self.levels)
        )
        return replace(self, levels=tuple(levels), control=max(self.control, depth))


def _names(value: Expr | Dim) -> Iterator[str]:
    """What a value is computed from, as `_Around.varying` has it."""
    if isinstance(value, Dim):
        yield from value.symbols
        return
    for part in parts(value):
        match part:
            case Local(name):
                yield f"local {name}"
            case Load(buffer, index):
                yield f"%{buffer.name}"
                yield from (name for dim in index for name in dim.symbols)
            case Index(dim):
                yield from dim.symbols
            case _:
                pass


def parallel_problems(kernel: Kernel) -> Iterator[str]:
    assigned: dict[str, int] = {}
    core = {f"%{buffer.name}": 1 for buffer in kernel.scratch if buffer.scope == CORE}
    while True:  # what one pass finds about assigned scalars may raise what others depend on
        before = dict(assigned)
        found = list(_block(kernel.body, _Around(assigned, varying=core)))
        if assigned == before:
            break
    yield from found


def _block(body: tuple[Stmt, ...], around: _Around) -> Iterator[str]:
    for stmt in body:
        yield from _statement(stmt, around)
        match stmt:
            case For() if stmt.axis:
                levels = (*around.levels, _Level(stmt.axis, stmt.variable))
                inner = replace(
                    around, levels=levels, own=frozenset(), foreign=around.foreign | around.own
                )
                yield from _block(stmt.body, inner.named(stmt.variable, len(levels)))
            case For():
                depth = max(around.control, around.depth_of(stmt.start, stmt.stop))
                inner = around.within(f"the range of {stmt.variable}", depth)
                yield from _block(stmt.body, inner.named(stmt.variable, depth))
            case If():
                inner = around.within("a condition", around.depth_of(stmt.condition))
                for side in (stmt.then, stmt.otherwise):
                    yield from _block(side, inner)
            case Let() | Bind():
                around = around.named(stmt.name, around.depth_of(stmt.value))
            case Declare():
                around = around.declared(stmt.local.name, around.depth_of(stmt.value))
            case Assign():
                name, depth = stmt.local.name, around.depth_of(stmt.value)
                depth = max(depth, around.control, around.assigned.get(name, 0))
                around.assigned[name] = depth
            case Reserve():
                around = around.named(f"%{stmt.buffer.name}", len(around.levels))
                if stmt.buffer.scope == REGISTER:
                    around = replace(around, own=around.own | {f"%{stmt.buffer.name}"})
            case _:
                pass


def _statement(stmt: Stmt, around: _Around) -> Iterator[str]:
    if isinstance(stmt, For) and stmt.axis:
        if stmt.axis not in PARALLEL_AXES:
            yield f"the loop over {stmt.variable}: {stmt.axis} is no axis of parallel loops"
        for level in around.levels:
            if level.axis == stmt.axis:
                both = f"{level.variable} and {stmt.variable}"
                yield f"the loops over {both} are both parallel({stmt.axis})"
    if isinstance(stmt, Barrier):
        own = next((one for one in around.levels if one.axis == stmt.axis), None)
        if own is None:
            yield f"barrier {stmt.axis}: no loop around it is parallel({stmt.axis})"
        elif own.uneven:
            yield (
                f"barrier {stmt.axis}: {own.uneven} differs between the iterations of"
                f" {own.variable}, so not all of them arrive"
            )
    if isinstance(stmt, Assign) and stmt.local.name in around.foreign:
        yield f"the scalar {stmt.local.name} is assigned inside a parallel loop, declared outside"
    if isinstance(stmt, Reserve) and stmt.buffer.scope == LANE:
        if [level.axis for level in around.levels][-1:] != ["warp"]:
            yield f"%{stmt.buffer.name}: registers of lanes are reserved in a loop over warps"
        if stmt.buffer.shape[:1] != (Dim.of(LANES),):
            yield f"%{stmt.buffer.name}: the first axis of registers of lanes is {LANES}"
    for access in _accesses(stmt):
        if f"%{access.buffer.name}" in around.foreign:
            yield f"%{access.buffer.name} is in registers of one iteration, and is used by others"
        if access.buffer.scope == LANE and access.index:
            yield from _lane_problems(stmt, access, around)


def _lane_problems(stmt: Stmt, access: Load, around: _Around) -> Iterator[str]:
    """A lane has its own registers alone; a warp calls micro-kernels with those of all."""
    first, name = access.index[0], f"%{access.buffer.name}"
    lane = next((level.variable for level in around.levels if level.axis == "lane"), "")
    if lane:
        if first != Dim.of(lane):
            yield f"{name}[{first}] is in registers of another lane than {lane}"
    elif isinstance(stmt, Store) and access.index == stmt.index and access.buffer == stmt.buffer:
        yield f"{name} is in registers of lanes, and is stored to outside of a loop over lanes"
    elif not first.is_constant or (isinstance(stmt, Micro) and first != ZERO):
        yield f"{name}[{first}] is in registers of a lane that is not the same everywhere"


def _accesses(stmt: Stmt) -> Iterator[Load]:
    yield from (expr for expr in expressions(stmt) if isinstance(expr, Load))
    if isinstance(stmt, Store):
        yield Load(stmt.buffer, stmt.index)
    if isinstance(stmt, Multiply):
        yield Load(stmt.sums, (ZERO, ZERO))
