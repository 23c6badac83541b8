# SPDX-License-Identifier: Apache-2.0
"""States that are updated where they lie.

A state's new value may be written over the old one if nothing reads the old one afterwards, and
nothing can fail from then on: a run that ends with a status leaves every state as it was. Other
states are written to the arena and copied at the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from relax_aot.ir.graph import Module
from relax_aot.planning.appends import append_in_place
from relax_aot.planning.in_place import Share, joined, share_memory, shares_of
from relax_aot.planning.steps import (
    Branch,
    Check,
    Define,
    End,
    Node,
    Program,
    Repeat,
    Step,
    program_of,
    walk_steps,
    written_by,
)


def program_in_place(module: Module, *, keep_states: bool = False) -> Program:
    """The steps of a lowered module, where values share memory that may. With `keep_states` the
    old states stay as they are until the end; rows may be appended to them."""
    program = append_in_place(module, program_of(module))
    if not keep_states:
        program = update_in_place(module, program)
    return share_memory(module, program)


def update_in_place(module: Module, program: Program) -> Program:
    """The program where the new value of a state has the memory of the old one, if it may."""
    names = {
        state.output: state.input
        for state in module.states
        if program.root(state.output) == state.output and state.output in program.values
    }
    found = {new: _Walk(old, new).shares(program) for new, old in names.items()}
    possible = {new: shares for new, shares in found.items() if shares is not None}
    possible = _consistent(possible, program)
    shares = [share for shares in possible.values() for share in shares]
    return joined(program, {new: names[new] for new in possible}, shares)


def _consistent(found: dict[str, list[Share]], program: Program) -> dict[str, list[Share]]:
    """A kernel has one buffer for both in all of its calls, or in none."""
    steps = list(walk_steps(program.nodes))
    calls = Counter(node.callee.name for node in steps if isinstance(node, Step))
    uses: Counter[tuple[str, str, str]] = Counter()

    def key(share: Share) -> tuple[str, str, str]:
        node = steps[share.position]
        assert isinstance(node, Step)
        return node.callee.name, share.read, share.written

    for shares in found.values():
        uses.update(map(key, shares))
    kept = {
        new: shares
        for new, shares in found.items()
        if all(uses[key(share)] == calls[key(share)[0]] for share in shares)
    }
    return kept if len(kept) == len(found) else _consistent(kept, program)


class _Refused(Exception):
    """The old value is read too late, or something may fail too late."""


@dataclass
class _Walk:
    """Follows the steps in order. `written`: on some way here, the new value was written."""

    old: str
    new: str

    def shares(self, program: Program) -> list[Share] | None:
        self._positions = iter(range(sum(1 for _ in walk_steps(program.nodes))))
        self._found: list[Share] = []
        try:
            self._follow(program.nodes, written=False)
        except _Refused:
            return None
        return self._found

    def _follow(self, nodes: tuple[Node, ...], written: bool) -> bool:
        for node in nodes:
            position = next(self._positions)
            match node:
                case Step():
                    written = self._step(node, position, written)
                case Define():
                    self._read(self.old == node.source, written)
                    self._fail(written)
                case Check():
                    self._fail(written)
                case Branch():
                    self._read(self.old == node.condition, written)
                    then = self._follow(node.then, written)
                    otherwise = self._follow(node.otherwise, written)
                    written = then or otherwise
                case Repeat():
                    written = self._repeat(node, written)
        return written

    def _step(self, step: Step, position: int, written: bool) -> bool:
        self._read(self.old in step.args, written)
        if self.new not in step.outs:
            if step.callee.fallible:
                self._fail(written)
            return written
        if step.callee.fallible or written:
            raise _Refused
        if self.old in step.args:
            if (*step.args, *step.outs).count(self.old) != 1 or step.outs.count(self.new) != 1:
                raise _Refused
            both = (self.old, self.new)
            allowed = [s for s in shares_of(step, position) if (s.before, s.after) == both]
            if not allowed:
                raise _Refused
            self._found += allowed[:1]
        return True

    def _repeat(self, node: Repeat, written: bool) -> bool:
        """What any iteration writes is written when the next one reads."""
        for transfer in node.first:
            self._read(transfer.source == self.old, written)
            written = written or transfer.target == self.new
        inside = [name for one in walk_steps(node.nodes) for name in _writes(one)]
        written = written or self.new in (*written_by(node), *inside)
        if node.fallible:
            self._fail(written)
        written = self._follow(node.nodes, written)
        next(self._positions)  # its end
        for transfer in (*node.rows, *node.following):
            self._read(transfer.source == self.old, written)
        return written

    @staticmethod
    def _read(reads: bool, written: bool) -> None:
        if reads and written:
            raise _Refused

    @staticmethod
    def _fail(written: bool) -> None:
        if written:
            raise _Refused


def _writes(node: Node | End) -> tuple[str, ...]:
    match node:
        case Step():
            return node.outs
        case Repeat():
            return written_by(node)
        case _:
            return ()
