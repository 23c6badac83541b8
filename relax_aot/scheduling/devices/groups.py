# SPDX-License-Identifier: Apache-2.0
"""The statements of a kernel as groups, each of which becomes a launch.

A group is one statement that changes memory, with the scalars and names of sizes that it uses.
What is computed from inputs alone is computed again in each group; another scalar is kept in
memory of the kernel between its group and those that use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Buffer,
    Declare,
    For,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Reserve,
    Stmt,
    Store,
    expressions,
    index_dims,
    walk,
)
from relax_aot.scheduling.devices.proofs import accessed, outer_scalars
from relax_aot.scheduling.writer import Writer


@dataclass
class Group:
    """`body` in order; its last statement, `work`, is the only one that stores."""

    body: list[Stmt] = field(default_factory=list)
    before: list[Stmt] = field(default_factory=list)
    """What brings back names of other groups."""
    after: list[Stmt] = field(default_factory=list)
    """What keeps scalars for other groups."""

    @property
    def work(self) -> Stmt:
        return self.body[-1]

    @property
    def alone(self) -> bool:
        """Whether its scalars are those of `work`: it may be many threads."""
        scalars = all(isinstance(stmt, Declare | Bind | Let) for stmt in self.body[:-1])
        return scalars and not self.after and not outer_scalars((self.work,))

    @property
    def scalars(self) -> tuple[Stmt, ...]:
        return (*self.before, *self.body[:-1])

    @property
    def statements(self) -> tuple[Stmt, ...]:
        return (*self.before, *self.body, *self.after)


def groups_of(body: Sequence[Stmt]) -> list[Group]:
    """A group ends with each statement that stores or loops. Memory that the kernel reserves ties
    all groups."""
    found = [Group()]
    for stmt in body:
        found[-1].body.append(stmt)
        if isinstance(stmt, For | If | Store):
            found.append(Group())
    if not any(isinstance(stmt, Bind) and not stmt.trusted for stmt in found[-1].body):
        found.pop()
    if any(isinstance(stmt, Reserve) for stmt in body):
        found = [joined(found)]
    return found


def joined(groups: Sequence[Group]) -> Group:
    return Group([stmt for group in groups for stmt in group.body])


def connect(groups: Sequence[Group], kernel: Kernel, w: Writer) -> None:
    """Has each group keep the scalars that later ones use, and these bring them back."""
    makers = {name: (at, stmt) for at, group in enumerate(groups)
              for stmt in group.body if (name := _defined(stmt))}  # fmt: skip
    changes = [{_key(local) for local in _assigned(group)} for group in groups]
    kept: dict[str, Buffer] = {}

    def bring(name: str, at: int) -> Iterator[Stmt]:
        """Statements that define `name` in group `at`, which comes after its own."""
        start, stmt = makers[name]
        loads = {load.buffer.name for load, _ in accessed((stmt,))}
        between = (one for group in groups[start:at] for one in _overwritten(group, kernel))
        changed = [n for n in range(start, at) if name in changes[n]]
        if isinstance(stmt, Let) or not (changed or not loads.isdisjoint(between)):
            yield stmt
            return
        assert isinstance(stmt, Declare | Bind)
        load = Load(keep(name, stmt, groups[max(changed, default=start)]), (ZERO,))
        if isinstance(stmt, Declare):
            yield Declare(stmt.local, load)
        else:
            yield Bind(stmt.name, load, stmt.low, stmt.high, "checked")

    def keep(name: str, stmt: Declare | Bind, group: Group) -> Buffer:
        """Memory for the value that a name has behind a group."""
        value = stmt.local if isinstance(stmt, Declare) else Index(Dim.of(stmt.name))
        if name not in kept:
            kept[name] = w.buffer(f"{name.removeprefix('local ')}_kept", value.dtype, 1)
        store = Store(kept[name], (ZERO,), value)
        if store not in group.after:
            group.after.append(store)
        return kept[name]

    for at, group in enumerate(groups):
        own = {_defined(stmt) for stmt in group.body}
        needed, brought = [n for n in _used(group.body) if n not in own], list[Stmt]()
        seen = set[str]()
        while needed:
            name = needed.pop(0)
            if name in seen or name not in makers or makers[name][0] >= at:
                continue
            seen.add(name)
            stmts = list(bring(name, at))
            brought += stmts
            needed += list(_used(stmts))
        order = {name: number for number, name in enumerate(makers)}
        group.before = sorted(brought, key=lambda stmt: order[_defined(stmt)])
    for group in groups:
        _drop_unused(group)


def _drop_unused(group: Group) -> None:
    """Leaves out names that only other groups use."""
    used, kept = set(_used(group.after)), list[Stmt]()
    for stmt in reversed(group.body):
        may_fail = isinstance(stmt, Bind) and not stmt.trusted
        if not may_fail and _defined(stmt) and _defined(stmt) not in used:
            continue
        kept.append(stmt)
        used.update(_used([stmt]))
    group.body = kept[::-1]


def _overwritten(group: Group, kernel: Kernel) -> Iterator[str]:
    """Memory that a group changes."""
    for load, stored in accessed(group.body):
        if stored:
            yield load.buffer.name
            yield from (read for read, name in kernel.in_place if name == load.buffer.name)


def _key(local: Local) -> str:
    return f"local {local.name}"


def _defined(stmt: Stmt) -> str:
    match stmt:
        case Declare():
            return _key(stmt.local)
        case Let() | Bind():
            return stmt.name
        case _:
            return ""


def _assigned(group: Group) -> set[Local]:
    inner = walk(group.body)
    return {stmt.local for stmt in inner if isinstance(stmt, Assign)}


def _used(body: Iterable[Stmt]) -> Iterator[str]:
    """Names of sizes and scalars, some of them defined inside."""
    for stmt in walk(body):
        for dim in index_dims(stmt):
            yield from sorted(dim.symbols)
        yield from (_key(expr) for expr in expressions(stmt) if isinstance(expr, Local))
        if isinstance(stmt, Assign):
            yield _key(stmt.local)
