# SPDX-License-Identifier: Apache-2.0
"""A kernel call opened up, so that two of them can become one.

In a `Piece` the buffers carry the names of the values they hold, so a buffer of one
piece and a buffer of another with the same name are the same memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from relax_aot.fusion.accesses import accesses
from relax_aot.ir.graph import Call, Var, attrs_of
from relax_aot.ir.loops import (
    PARTS,
    Bind,
    Buffer,
    For,
    If,
    Kernel,
    Reserve,
    Stmt,
    expressions,
    held,
    index_dims,
    walk,
)
from relax_aot.ir.names import defined_name, renamed, unused_name
from relax_aot.ir.rewrite import map_buffers
from relax_aot.ir.types import Ref


@dataclass(frozen=True)
class Piece:
    """Loops over the graph's own values. `ops` says what it was made of."""

    ops: tuple[str, ...]
    reads: tuple[Var, ...]
    writes: tuple[Var, ...]
    scratch: tuple[Var, ...]
    body: tuple[Stmt, ...]
    origins: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{'+'.join(self.ops)} %{self.writes[0].name}"

    @property
    def fallible(self) -> bool:
        return any(isinstance(stmt, Bind) and not stmt.trusted for stmt in walk(self.body))

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that a new name must differ from."""
        names = set(_bound_names(self.body))
        for value in (*self.reads, *self.writes, *self.scratch):
            names |= {value.name} | value.type.symbols
        for stmt in walk(self.body):
            for dim in index_dims(stmt):
                names |= dim.symbols
        return frozenset(names)

    @cached_property
    def loaded(self) -> frozenset[str]:
        return frozenset(a.name for a in accesses(self.body) if not a.stored)

    @cached_property
    def depth(self) -> int:
        """The length of the longest chain of operands in an expression."""
        level = [expr for stmt in walk(self.body) for expr in expressions(stmt)]
        found = 0
        while level:
            level = [inner for part in level for inner in held(part, PARTS)]
            found += 1
        return found

    @staticmethod
    def of(call: Call, kernel: Kernel) -> Piece | None:
        """The call as a piece; None where its kernel is written for other shapes, or scheduled in
        parallel already."""
        if kernel.parallel:
            return None
        values = (*call.inputs, *call.outs)
        pairs = list(zip(kernel.buffers, values, strict=True))
        if any(buffer.type != value.type for buffer, value in pairs):
            return None
        names = {buffer.name: buffer_of(value) for buffer, value in pairs}
        body = map_buffers(kernel.body, lambda buffer: names.get(buffer.name, buffer))
        writes = call.outs[: len(kernel.outputs)]
        scratch = call.outs[len(kernel.outputs) :]
        op = kernel.name.removesuffix(f"_{call.outs[0].name}").removesuffix(f"_{writes[-1].name}")
        origins = (call.origin,) if call.origin else ()
        return Piece((op,), tuple(dict.fromkeys(call.inputs)), writes, scratch, body, origins)

    def closed(self) -> tuple[Kernel, Call]:
        """As a kernel and the call of it."""
        read = self.loaded
        reads = tuple(v for v in self.reads if v.name in read)
        # A kernel is named after three of the ops in it at most.
        ops = self.ops if len(self.ops) <= 3 else (*self.ops[:2], "etc")
        name = f"{'_'.join(ops)}_{self.writes[-1].name}"
        kernel = Kernel(
            name,
            tuple(map(buffer_of, reads)),
            tuple(map(buffer_of, self.writes)),
            tuple(map(buffer_of, self.scratch)),
            self.body,
        )
        outs = self.writes + self.scratch
        origin = " + ".join(dict.fromkeys(self.origins))
        return kernel, Call(outs, "call_kernel", reads, attrs_of({"kernel": Ref(name)}), origin)


def buffer_of(value: Var) -> Buffer:
    return Buffer(value.name, value.type.dtype, value.type.shape)


# Names


def _bound_names(body: tuple[Stmt, ...]) -> dict[str, None]:
    """Loop variables, named indices and locals, in order of appearance."""
    bound = (stmt for stmt in walk(body) if not isinstance(stmt, Reserve))
    return {name: None for stmt in bound if (name := defined_name(stmt))}


def kept_apart(one: Piece, other: Piece) -> tuple[Piece, Piece]:
    """The same two, where no loop of one has the name of a size that the other speaks of."""
    fresh = Fresh(one.names | other.names)
    return _away_from(one, other, fresh), _away_from(other, one, fresh)


def _away_from(piece: Piece, other: Piece, fresh: Fresh) -> Piece:
    sizes = other.names - _bound_names(other.body).keys()
    names = {name: fresh(name) for name in _bound_names(piece.body) if name in sizes}
    return replace(piece, body=renamed(piece.body, names)) if names else piece


class Fresh:
    """Makes names that are not used yet."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = set(taken)

    def __call__(self, name: str) -> str:
        candidate = unused_name(name, self._taken)
        self._taken.add(candidate)
        return candidate

    def renamed(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The same loops, every name in them new."""
        return renamed(body, {name: self(name) for name in _bound_names(body)})

    def unique(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The same loops, where no two statements bind the same name."""
        return _unique(body, self, set())


def _unique(body: tuple[Stmt, ...], fresh: Fresh, seen: set[str]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    rest = body
    while rest:
        stmt, rest = rest[0], rest[1:]
        name = defined_name(stmt)
        if name in seen:
            inside = () if isinstance(stmt, For) else rest
            stmt, *others = renamed((stmt, *inside), {name: fresh(name)})
            rest = tuple(others) or rest
        if name := defined_name(stmt):
            seen.add(name)
        match stmt:
            case For():
                stmt = replace(stmt, body=_unique(stmt.body, fresh, seen))
            case If():
                then = _unique(stmt.then, fresh, seen)
                stmt = If(stmt.condition, then, _unique(stmt.otherwise, fresh, seen))
            case _:
                pass
        result.append(stmt)
    return tuple(result)
