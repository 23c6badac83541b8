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
from relax_aot.emit.run_code import Statements
from relax_aot.ir.dims import Dim, dim_max
from relax_aot.ir.extern import Extern
from relax_aot.planning import GREATEST_BYTES, TooLarge, at_most, greatest_bytes, inner_sizes
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
        blocks = [_Block()]
        end = _follow(context, context.plan.program.nodes, blocks, 0)
        last, count = end.block, end.opened + 1
        if commits := Statements(context).commits():
            last, count = _next(blocks, last), count + 1
            blocks[last].name = COMMIT
            blocks[last].lines += commits
        blocks[last].lines += [f"position->result->{r.c_name} = {r.value};" for r in results]
        blocks[last].lines.append(_goto("-1"))
        text = [line for block in blocks for line in block.lines]
        used = mentioned(entry, text)
        words = _words([*text, *(local.value for local in used)])
        words |= {"memory"} if context.plan.slots or context.interface.has_state else set()
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
    words = _words(text)
    return tuple(variable for variable in variables if variable.c_name in words)


def _words(text: Iterable[str]) -> set[str]:
    """Names in C, without those in comments and of members."""
    bare = re.sub(r"/\*.*?\*/|->\s*\w+", " ", "\n".join(text), flags=re.DOTALL)
    return set(re.findall(r"\w+", bare))


def _follow(context: RunContext, nodes: tuple[Node, ...], blocks: list[_Block], at: int) -> _End:
    """Write the nodes into the block `at`, and into new ones as long as it takes."""
    opened = Dim.of(0)
    for node in nodes:
        match node:
            case Define() | Check():
                blocks[at].lines += Statements(context).sized(node, "")
            case Step():
                if blocks[at].name != CONTROL:
                    at, opened = _next(blocks, at), opened + 1
                blocks[at].name = _name(context, node)
                blocks[at].lines += Statements(context).called(node, "")
            case Branch():
                end = _branch(context, node, blocks, at)
                at, opened = end.block, opened + end.opened
            case Repeat():
                end = _repeat(context, node, blocks, at)
                at, opened = end.block, opened + end.opened
    return _End(at, opened)


def _branch(context: RunContext, node: Branch, blocks: list[_Block], at: int) -> _End:
    """Both sides lead to one block behind them."""
    starts, ends, longest = [], [], []
    for then in (True, False):
        sizes = list(Statements(context).sizes_of_side(node, then, ""))
        nodes = node.then if then else node.otherwise
        start = _open(blocks)
        end = _follow(context, nodes, blocks, start)
        blocks[end.block].lines += sizes
        starts.append(start)
        ends.append(end.block)
        longest.append(end.opened + 1)
    behind = _open(blocks)
    blocks[at].lines += _choice(Statements(context).chosen(node), *starts)
    for block in ends:
        blocks[block].lines.append(_goto(behind))
    return _End(behind, dim_max(*longest) + 1)


def _repeat(context: RunContext, node: Repeat, blocks: list[_Block], at: int) -> _End:
    """The condition of the loop is checked before the first iteration and after each."""
    turn, going = context.symbols[node.loop.turn], Statements(context).going(node)
    body = _open(blocks)
    end = _follow(context, node.nodes, blocks, body)
    behind = _open(blocks)
    blocks[at].lines += [*Statements(context).before_loop(node, ""), f"{turn} = 0;"]
    blocks[end.block].lines += [*Statements(context).end_of_iteration(node, ""), f"{turn}++;"]
    for block in (at, end.block):
        blocks[block].lines += _choice(going, body, behind)
    blocks[behind].lines += Statements(context).after_loop(node, "")
    inner = inner_sizes(context.plan.program, context.plan.module.bounds)
    trips, opened = (
        at_most(dim, inner, context.plan.module.bounds) for dim in (node.loop.trips, end.opened + 1)
    )
    return _End(behind, dim_max(trips, 0) * opened + 1)


def _name(context: RunContext, node: Step) -> str:
    if isinstance(node.callee, Extern):
        return node.callee.function
    return context.kernels[node.callee.name].layer


def _open(blocks: list[_Block]) -> int:
    blocks.append(_Block())
    return len(blocks) - 1


def _next(blocks: list[_Block], at: int) -> int:
    """A new block behind this one."""
    number = _open(blocks)
    blocks[at].lines.append(_goto(number))
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
