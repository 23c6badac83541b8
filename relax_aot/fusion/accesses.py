# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of a kernel, each with the loops around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from relax_aot.ir.builder import At
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Bind, For, If, Let, Load, Stmt, Store, expressions


@dataclass(frozen=True)
class Access:
    """A load or a store of an element of the buffer `name`."""

    name: str
    stored: bool
    index: At
    """As written; `at` is free of names of `let`."""
    loops: tuple[For, ...]
    depths: tuple[int, ...]
    """How deep each loop is in `path`."""
    path: tuple[int, ...]
    """Where it is in the text. A statement loads before it stores."""
    lets: Mapping[str, Dim]
    ranges: tuple[For, ...]
    """The loops without bodies, free of names of `let`."""
    data: frozenset[str]
    """Names of `bind`: their values come from data."""
    branches: tuple[tuple[tuple[int, ...], int], ...]
    """The conditions around it, by their place in the text, and the branch of each."""

    @cached_property
    def at(self) -> At:
        return tuple(dim.substitute(self.lets) for dim in self.index)

    @cached_property
    def table(self) -> dict[str, For]:
        return {loop.variable: loop for loop in self.loops}

    @property
    def once(self) -> bool:
        """Each iteration of the loops around it accesses another element."""
        used = frozenset[str]().union(*(dim.symbols for dim in self.at))
        return used >= self.table.keys()


def accesses(body: tuple[Stmt, ...], name: str | None = None) -> Iterator[Access]:
    """All of them in the order of the text, or those of one buffer."""
    root = Access("", False, (), (), (), (), {}, (), frozenset(), ())
    return _accesses(body, root, name)


def _accesses(body: tuple[Stmt, ...], around: Access, only: str | None) -> Iterator[Access]:
    for position, stmt in enumerate(body):
        path = (*around.path, position)
        for expr in expressions(stmt):
            if isinstance(expr, Load) and only in (None, expr.buffer.name):
                name, index = expr.buffer.name, expr.index
                yield replace(around, name=name, index=index, path=(*path, 0))
        match stmt:
            case Store() if only in (None, stmt.buffer.name):
                name, index = stmt.buffer.name, stmt.index
                yield replace(around, name=name, stored=True, index=index, path=(*path, 1))
            case Let():
                value = stmt.value.substitute(around.lets)
                around = replace(around, lets={**around.lets, stmt.name: value})
            case Bind():
                around = replace(around, data=around.data | {stmt.name})
            case For():
                start, stop = (d.substitute(around.lets) for d in (stmt.start, stmt.stop))
                inner = replace(
                    around,
                    loops=(*around.loops, stmt),
                    depths=(*around.depths, len(path) - 1),
                    path=path,
                    ranges=(*around.ranges, For(stmt.variable, start, stop, ())),
                )
                yield from _accesses(stmt.body, inner, only)
            case If():
                for branch, block in ((1, stmt.then), (2, stmt.otherwise)):
                    branches = (*around.branches, (path, branch))
                    inner = replace(around, path=(*path, branch), branches=branches)
                    yield from _accesses(block, inner, only)
            case _:
                pass


def loads(body: tuple[Stmt, ...], name: str) -> list[Access]:
    return [a for a in accesses(body, name) if not a.stored]


def stores(body: tuple[Stmt, ...], name: str) -> list[Access]:
    return [a for a in accesses(body, name) if a.stored]
