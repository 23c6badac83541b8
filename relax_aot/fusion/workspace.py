# SPDX-License-Identifier: Apache-2.0
"""The calls of one function while they are being fused: who makes what, who reads it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from relax_aot.fusion.piece import Piece
from relax_aot.ir.graph import Call, Function, Module, Var, attr_symbols
from relax_aot.ir.loops import Kernel, Stmt, index_dims, walk

_Node = Piece | Call


class Workspace:
    """A set of nodes with the order that they came in; merging keeps it free of cycles."""

    def __init__(
        self,
        function: Function,
        module: Module,
        outside: frozenset[str],
        closed: frozenset[str] = frozenset(),
    ) -> None:
        """Calls whose first result is in `closed` are not opened, so nothing merges with them."""
        self._nodes: dict[int, _Node] = {}
        self._maker: dict[str, int] = {}
        self._users: dict[str, set[int]] = {}
        self._next = 0
        self._module = module
        self.kept = outside | {v.name for v in function.results}
        """Values that other calls read."""
        for call in function.body:
            is_closed = bool(call.outs) and call.outs[0].name in closed
            if call.op != "call_kernel" or is_closed:
                self.add(call)
            else:
                self.add(Piece.of(call, module.kernel_table[call.ref("kernel")]) or call)

    def add(self, node: _Node, place: int | None = None) -> int:
        key = self._next if place is None else place
        self._next = max(self._next, key + 1)
        self._nodes[key] = node
        for out in _writes_of(node):
            self._maker[out.name] = key
        for size in _sizes_made(node):
            self._maker[size] = key
        for name in self._needs(node):
            self._users.setdefault(name, set()).add(key)
        return key

    def _needs(self, node: _Node) -> set[str]:
        """Values, and sizes that the model computes."""
        names = {v.name for v in _reads_of(node)}
        if inner := self._module.inner:
            names |= {f"size {symbol}" for symbol in _symbols_of(node, self._module) & inner}
            names -= set(_sizes_made(node))
        return names

    def remove(self, key: int) -> _Node:
        node = self._nodes.pop(key)
        for out in _writes_of(node):
            if self._maker.get(out.name) == key:
                del self._maker[out.name]
        for name in self._needs(node):
            self._users.get(name, set()).discard(key)
        return node

    def places(self) -> list[int]:
        return sorted(self._nodes)

    def piece(self, key: int) -> Piece | None:
        node = self._nodes.get(key)
        return node if isinstance(node, Piece) else None

    def source(self, value: Var) -> tuple[Var, int] | None:
        """What `value` is a view of (or itself), and the piece that makes it."""
        key = self._maker.get(value.name)
        while key is not None:
            node = self._nodes[key]
            if isinstance(node, Piece):
                return next(v for v in node.writes + node.scratch if v.name == value.name), key
            if node.op != "view":
                return None
            value = node.inputs[0]
            key = self._maker.get(value.name)
        return None

    def readers(self, name: str) -> Iterator[tuple[int, str]]:
        """Nodes that read a value or a view of it, each with the name that it reads;
        `kept` counts as the reader -1."""
        if name in self.kept:
            yield -1, name
        for key in sorted(self._users.get(name, ())):
            node = self._nodes[key]
            if view := _view(node):
                yield from self.readers(view.out.name)
            else:
                yield key, name

    def another_way(self, first: int, second: int) -> bool:
        """A path leads from one to the other through a third, other than a view of the value."""
        seen: set[int] = set()
        stack = [k for k in self._next_nodes(first) if k != second]
        while stack:
            key = stack.pop()
            if key in seen:
                continue
            seen.add(key)
            node = self._nodes[key]
            view = _view(node)
            for after in self._next_nodes(key):
                if after == second:
                    if not view or not self._only_views(first, key):
                        return True
                else:
                    stack.append(after)
        return False

    def _only_views(self, first: int, key: int) -> bool:
        """The view `key` leads back to `first` over views alone."""
        while key != first:
            node = self._nodes[key]
            if (view := _view(node)) is None:
                return False
            key = self._maker.get(view.inputs[0].name, first)
        return True

    def _next_nodes(self, key: int) -> set[int]:
        node = self._nodes[key]
        names = (*(out.name for out in _writes_of(node)), *_sizes_made(node))
        return {user for name in names for user in self._users.get(name, ())}

    def drop_idle_views(self) -> None:
        """Remove views that are not read."""
        for key in reversed(self.places()):
            view = _view(self._nodes[key])
            if view and view.out.name not in self.kept and not self._users.get(view.out.name):
                self.remove(key)

    def calls(self) -> tuple[list[Call], list[Kernel]]:
        """Everything in an order that respects who needs what, and is otherwise as before."""
        waiting = {
            key: len({self._maker[name] for name in self._needs(node) if name in self._maker})
            for key, node in self._nodes.items()
        }
        ready = [key for key, count in waiting.items() if not count]
        heapq.heapify(ready)
        calls, kernels = [], []
        while ready:
            key = heapq.heappop(ready)
            node = self._nodes[key]
            if isinstance(node, Piece):
                kernel, call = node.closed()
                kernels.append(kernel)
                calls.append(call)
            else:
                calls.append(node)
            for after in self._next_nodes(key):
                waiting[after] -= 1
                if not waiting[after]:
                    heapq.heappush(ready, after)
        assert len(calls) == len(self._nodes), "fusion made a cycle"
        return calls, kernels


def _view(node: _Node) -> Call | None:
    return node if isinstance(node, Call) and node.op == "view" else None


def _reads_of(node: _Node) -> tuple[Var, ...]:
    return node.reads if isinstance(node, Piece) else node.inputs


def _writes_of(node: _Node) -> tuple[Var, ...]:
    return node.writes + node.scratch if isinstance(node, Piece) else node.outs


def _sizes_made(node: _Node) -> tuple[str, ...]:
    """The sizes that a node computes, under names that no value has."""
    return () if isinstance(node, Piece) else tuple(f"size {name}" for name in node.defines)


def _symbols_of(node: _Node, module: Module) -> frozenset[str]:
    """Sizes that a node speaks of; what control flow runs belongs to it."""
    values = (*_reads_of(node), *_writes_of(node))
    names = frozenset[str]().union(*(v.type.symbols for v in values))
    if isinstance(node, Piece):
        return names | _symbols_in(node.body)
    names |= frozenset[str]().union(*(attr_symbols(value) for _, value in node.attrs))
    for name in node.bodies:
        for call in module.function_table[name].body:
            names |= _symbols_of(call, module)
            if call.op in ("call_kernel", "guard"):
                names |= _symbols_in(module.kernel_table[call.ref("kernel")].body)
    return names


def _symbols_in(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Every name in an index expression."""
    return frozenset[str]().union(*(d.symbols for stmt in walk(body) for d in index_dims(stmt)))
