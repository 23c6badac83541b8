# SPDX-License-Identifier: Apache-2.0
"""Results that take the memory of a dead operand.

A kernel says which of its buffers may be the same memory; here each use is decided. The
kernel then has one buffer for both, which it reads and writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from relax_aot.ir.extern import Role
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Buffer, Expr, Kernel, Load
from relax_aot.ir.rewrite import map_exprs
from relax_aot.planning.steps import (
    Branch,
    Check,
    Define,
    End,
    Node,
    Program,
    Repeat,
    Step,
    Transfer,
    touched,
    walk_steps,
    written_by,
)


@dataclass(frozen=True, slots=True)
class Share:
    """Step number `position` puts the result `after` where the operand `before` was."""

    position: int
    before: str
    after: str
    read: str
    """The buffer that is read, and the one that is written, in the callee's words."""
    written: str


def share_memory(module: Module, program: Program) -> Program:
    """The program with operands and results joined where that is right and useful."""
    shares = _shares(module, program)
    if not shares:
        return program
    by_step = {share.position: share for share in shares}
    roots = dict(program.roots) | {share.before: share.after for share in shares}
    joined = Program((), roots, {})
    counter = iter(range(len(list(walk_steps(program.nodes)))))
    nodes = tuple(_rewritten(node, counter, by_step, joined) for node in program.nodes)
    gone = {share.before for share in shares}
    values = {name: var for name, var in program.values.items() if name not in gone}
    return Program(nodes, roots, values)


def _rewritten(
    node: Node,
    counter: Iterator[int],
    shares: dict[int, Share],
    joined: Program,
) -> Node:
    position = next(counter)
    if isinstance(node, Branch):
        then, otherwise = (
            tuple(_rewritten(n, counter, shares, joined) for n in side)
            for side in (node.then, node.otherwise)
        )
        condition = joined.root(node.condition)
        return replace(node, condition=condition, then=then, otherwise=otherwise)
    if isinstance(node, Define):
        return replace(node, source=joined.root(node.source))
    if isinstance(node, Check):
        return node
    if isinstance(node, Repeat):
        inside = tuple(_rewritten(n, counter, shares, joined) for n in node.nodes)
        next(counter)  # its end
        return replace(
            node,
            first=tuple(_moved(t, joined) for t in node.first),
            nodes=inside,
            following=tuple(_moved(t, joined) for t in node.following),
            rows=tuple(_moved(t, joined) for t in node.rows),
        )
    args = tuple(joined.root(name) for name in node.args)
    outs = tuple(joined.root(name) for name in node.outs)
    share = shares.get(position)
    if share is None or not isinstance(node.callee, Kernel):
        return replace(node, args=args, outs=outs)
    kernel = _one_buffer(node.callee, share)
    kept = tuple(
        name
        for name, buffer in zip(args, node.callee.inputs, strict=True)
        if buffer.name != share.read
    )
    return replace(node, callee=kernel, args=kept, outs=outs, updates=(joined.root(share.after),))


def _moved(transfer: Transfer, joined: Program) -> Transfer:
    source, target = joined.root(transfer.source), joined.root(transfer.target)
    return replace(transfer, source=source, target=target)


def _one_buffer(kernel: Kernel, share: Share) -> Kernel:
    (target,) = (b for b in kernel.outputs if b.name == share.written)

    def rule(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer.name == share.read:
            return Load(Buffer(target.name, target.dtype, target.shape), expr.index)
        return expr

    inputs = tuple(b for b in kernel.inputs if b.name != share.read)
    return replace(kernel, inputs=inputs, body=map_exprs(kernel.body, rule), in_place=())


def _shares(module: Module, program: Program) -> list[Share]:
    facts = _Facts(module, program)
    shares: list[Share] = []
    taken: set[str] = set()
    for position, (node, level) in enumerate(_levels(program.nodes, 0, Counter())):
        if not isinstance(node, Step):
            continue
        if isinstance(node.callee, Kernel):
            kernel = node.callee
            if facts.calls[kernel.name] > 1:
                continue
            pairs = kernel.in_place
            names = [b.name for b in kernel.inputs]
            outputs = [b.name for b in kernel.outputs]
        else:
            pairs = tuple((p.name, p.name) for p in node.callee.of_role(Role.UPDATE))
            names = [p.name for p in node.callee.read]
            outputs = [p.name for p in node.callee.written]
        for read, written in pairs:
            before = node.args[names.index(read)]
            after = node.outs[outputs.index(written)]
            if facts.fits(position, level, node, before, after) and before not in taken:
                shares.append(Share(position, before, after, read, written))
                taken.add(before)
                break
    return shares


class _Facts:
    """Who writes and who reads each root, by the position of the step."""

    def __init__(self, module: Module, program: Program) -> None:
        self._program = program
        self._module = module
        self.calls: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        self._writers: dict[str, list[tuple[int, int]]] = {}
        self._last_failure = -1
        for position, (node, level) in enumerate(_levels(program.nodes, 0, Counter())):
            for name in touched(node):
                self._last[name] = position
            if isinstance(node, Repeat):
                for name in written_by(node):
                    self._writers.setdefault(name, []).append((position, level))
            if isinstance(node, Define | Check) or (isinstance(node, End) and node.repeat.fallible):
                self._last_failure = position
            if not isinstance(node, Step):
                continue
            self.calls[node.callee.name] += 1
            if node.callee.fallible:
                self._last_failure = position
            for name in node.outs:
                self._writers.setdefault(name, []).append((position, level))
        self._results = {program.root(v.name) for v in module.main.results}

    def fits(self, position: int, level: int, step: Step, before: str, after: str) -> bool:
        values = self._program.values
        if before == after or before not in values or after not in values:
            return False
        if before in self._results or self._last[before] != position:
            return False
        if (*step.args, *step.outs).count(before) != 1:
            return False
        if self._writers[after] != [(position, level)]:
            return False
        if len(self._writers[before]) != 1 or self._writers[before][0][1] != level:
            return False
        if after in self._results and self._writers[before][0][0] <= self._last_failure:
            return False  # the result would have to be staged
        return values[before].type.bytes == values[after].type.bytes


def _levels(
    nodes: tuple[Node, ...], level: int, made: Counter[str]
) -> Iterator[tuple[Node | End, int]]:
    """Nodes in the order of the text, each with a number for the list that it stands in."""
    for node in nodes:
        yield node, level
        if isinstance(node, Branch):
            for side in (node.then, node.otherwise):
                made["lists"] += 1
                yield from _levels(side, made["lists"], made)
        if isinstance(node, Repeat):
            made["lists"] += 1
            yield from _levels(node.nodes, made["lists"], made)
            yield End(node), level
