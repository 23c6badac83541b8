# SPDX-License-Identifier: Apache-2.0
"""The run taken apart: one call of a kernel at a time, with the place kept by the caller.

The program becomes blocks, each with at most one call. A block ends by saying which one comes
next, so branches and loops are choices of a number, and a loop returns after each of its
calls. What a run keeps in variables, data-dependent sizes and iterations of loops, is loaded from
the caller's position before a block and stored behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from relax_aot.emit.arenas import LocalView
from relax_aot.emit.c_names import comment
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.header import SizeView
from relax_aot.emit.run_code import Statements, sized
from relax_aot.ir.dims import Dim, dim_max
from relax_aot.ir.extern import Extern
from relax_aot.planning import GREATEST_BYTES, TooLarge, greatest_bytes
from relax_aot.planning.steps import Branch, Check, Define, Node, Repeat, Step

CONTROL, COMMIT = "(control)", "(commit)"
"""Names of blocks that call no kernel."""
_MEMBERS = {"memory": "memory", "dims": "dims", "inputs": "in", "outputs": "out"}
"""Structs that a run is given, and where a position keeps them."""


@dataclass(frozen=True, slots=True)
class _BlockView:
    """One step: its number, the name of what it calls, its lines."""

    number: int
    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepView:
    """The form of a run that returns between kernels, and what it says of itself."""

    blocks: tuple[_BlockView, ...]
    size: SizeView
    """No run has more steps."""
    sizes: tuple[LocalView, ...]
    """Variables that live from step to step, and the member of the position that keeps each."""
    locals: tuple[LocalView, ...]
    uses: tuple[LocalView, ...]
    """Structs that the run was given and a step reads: what they are called, and their member."""
    size_count: int
    block_count: int
    kept: str
    """The names of the variables, for a comment."""
    memory_struct: str

    @classmethod
    def of(
        cls,
        context: RunContext,
        inner: tuple[LocalView, ...],
        entry: tuple[LocalView, ...],
        results: tuple[LocalView, ...],
    ) -> StepView:
        """`inner` are the variables of the run, `entry` those that hold sizes of this call."""
        writer = _Writer(context)
        end = writer.follow(context.plan.program.nodes, 0)
        blocks, last, count = writer.blocks, end.block, end.opened + 1
        if commits := writer.commits():
            last, count = writer.next(last), count + 1
            blocks[last].name = COMMIT
            blocks[last].lines += commits
        blocks[last].lines += [f"position->result->{r.c_name} = {r.value};" for r in results]
        blocks[last].lines.append(_goto("-1"))
        text = [line for block in blocks for line in block.lines]
        used = mentioned(entry, text)
        words = words_of([*text, *(local.value for local in used)])
        words |= {"memory"} if context.plan.slots or context.interface.has_state else set()
        words |= {"dims"} if context.plan.dynamic and context.interface.dims else set()
        return cls(
            tuple(_BlockView(n, block.name, tuple(block.lines)) for n, block in enumerate(blocks)),
            _most(context, count),
            tuple(
                LocalView(local.c_name, f"position->sizes[{number}]", local.note)
                for number, local in enumerate(inner)
            ),
            used,
            tuple(
                LocalView(_struct(context, struct), member, "")
                for struct, member in _MEMBERS.items()
                if member in words
            ),
            len(inner),
            len(blocks),
            comment(", ".join(local.c_name for local in inner)),
            _struct(context, "memory"),
        )


@dataclass(slots=True)
class _Block:
    name: str = CONTROL
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _End:
    """Where a piece of the program ends, and how many blocks it opened on its longest way."""

    block: int
    opened: Dim


def _struct(context: RunContext, kind: str) -> str:
    """The name of a struct; entries share that of memory."""
    interface = context.interface
    return f"{interface.owner if kind == 'memory' else interface.name}_{kind}"


def mentioned(variables: Iterable[LocalView], text: Iterable[str]) -> tuple[LocalView, ...]:
    """Those of the variables that the text speaks of."""
    words = words_of(text)
    return tuple(variable for variable in variables if variable.c_name in words)


def words_of(text: Iterable[str]) -> set[str]:
    """Names in C, without those in comments and of members."""
    bare = re.sub(r"/\*.*?\*/|->\s*\w+", " ", "\n".join(text), flags=re.DOTALL)
    return set(re.findall(r"\w+", bare))


@dataclass(slots=True)
class _Writer(Statements):
    """Writes the nodes of a program into blocks."""

    blocks: list[_Block] = field(default_factory=lambda: [_Block()])

    def follow(self, nodes: tuple[Node, ...], at: int) -> _End:
        """Write the nodes into the block `at`, and into new ones as long as it takes."""
        opened = Dim.of(0)
        for node in nodes:
            match node:
                case Define() | Check():
                    self.blocks[at].lines += sized(self.context, node, "")
                    continue
                case Step():
                    if self.blocks[at].name != CONTROL:
                        at, opened = self.next(at), opened + 1
                    callee = node.callee
                    self.blocks[at].name = (
                        callee.function
                        if isinstance(callee, Extern)
                        else self.context.kernels[callee.name].layer
                    )
                    self.blocks[at].lines += self.called(node, "")
                    continue
                case Branch():
                    end = self._follow_branch(node, at)
                case Repeat():
                    end = self._follow_loop(node, at)
            at, opened = end.block, opened + end.opened
        return _End(at, opened)

    def _follow_branch(self, node: Branch, at: int) -> _End:
        """Both sides lead to one block behind them."""
        starts, ends = [], []
        for then in (True, False):
            starts.append(self.open())
            ends.append(self.follow(node.then if then else node.otherwise, starts[-1]))
            self.blocks[ends[-1].block].lines += self.sizes_of_side(node, then, "")
        behind = self.open()
        self.blocks[at].lines += _choice(self.chosen(node), *starts)
        for end in ends:
            self.blocks[end.block].lines.append(_goto(behind))
        return _End(behind, dim_max(*(end.opened + 1 for end in ends)) + 1)

    def _follow_loop(self, node: Repeat, at: int) -> _End:
        """The condition of the loop is checked before the first iteration and after each."""
        turn, going = self.context.symbols[node.loop.turn], self.going(node)
        body = self.open()
        end = self.follow(node.nodes, body)
        behind = self.open()
        self.blocks[at].lines += [*self.before_loop(node, ""), f"{turn} = 0;"]
        self.blocks[end.block].lines += [*self.end_of_iteration(node, ""), f"{turn}++;"]
        for block in (at, end.block):
            self.blocks[block].lines += _choice(going, body, behind)
        self.blocks[behind].lines += self.after_loop(node, "")
        trips, opened = map(self.context.greatest, (node.loop.trips, end.opened + 1))
        return _End(behind, dim_max(trips, 0) * opened + 1)

    def open(self) -> int:
        self.blocks.append(_Block())
        return len(self.blocks) - 1

    def next(self, at: int) -> int:
        """A new block behind this one."""
        number = self.open()
        self.blocks[at].lines.append(_goto(number))
        return number


def _goto(number: int | str) -> str:
    return f"position->next = {number};"


def _choice(condition: str, then: int, otherwise: int) -> list[str]:
    sides = (f"    {_goto(then)}", "} else {", f"    {_goto(otherwise)}")
    return [f"if ({condition}) {{", *sides, "}"]


def _most(context: RunContext, count: Dim) -> SizeView:
    greatest = greatest_bytes(count, context.plan.module)
    if greatest > GREATEST_BYTES:
        raise TooLarge(
            f"a run could have {greatest} steps; at most {GREATEST_BYTES} are supported. Use a "
            "smaller bound (--bound), or compile without --stepwise"
        )
    macro = f"{context.interface.prefix}_STEPS"
    return SizeView(macro, context.constant(count), greatest, "steps of a run at most")
