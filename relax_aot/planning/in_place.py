# SPDX-License-Identifier: Apache-2.0
"""Results that take the memory of a dead operand.

A kernel says which of its buffers may be the same memory; here each use is decided. The
kernel then has one buffer for both, which it reads and writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.ir.extern import Role
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Buffer, Expr, For, If, Kernel, Let, Load, Stmt, Store
from relax_aot.ir.rewrite import map_exprs
from relax_aot.planning.conflicts import HappensBefore
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

Precedes = Callable[[int, int], bool]
"""Whether one step ends before another begins, by their positions."""


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
    return _shared(module, program, int.__lt__)


def share_memory_in(
    module: Module, program: Program, order: HappensBefore
) -> tuple[Program, HappensBefore]:
    """The same for steps in a partial order, outside of branches and loops; and the order of the
    steps that are left."""
    positions = {id(node): n for n, node in enumerate(walk_steps(program.nodes))}
    outer = {positions[id(node)] for node in program.nodes}
    shared = _shared(module, program, lambda a, b: b in outer and order.precedes(a, b))
    left = {node.name for node in walk_steps(shared.nodes) if isinstance(node, Step)}
    dropped = {
        position
        for position, node in enumerate(walk_steps(program.nodes))
        if isinstance(node, Step) and node.name not in left
    }
    return shared, order.without(dropped)


def _shared(module: Module, program: Program, precedes: Precedes) -> Program:
    shares = _shares(module, program, precedes)
    return joined(program, {share.before: share.after for share in shares}, shares)


def joined(program: Program, roots: Mapping[str, str], shares: Sequence[Share]) -> Program:
    """The program where each key of `roots` has the memory of its value."""
    if not roots:
        return program
    by_step: dict[int, list[Share]] = {}
    for share in shares:
        by_step.setdefault(share.position, []).append(share)
    joint = Program((), {**program.roots, **roots}, {})
    counter = iter(range(len(list(walk_steps(program.nodes)))))
    nodes = _rewritten(program.nodes, counter, by_step, joint)
    values = {name: var for name, var in program.values.items() if name not in roots}
    return Program(nodes, joint.roots, values)


def _rewritten(
    nodes: tuple[Node, ...],
    counter: Iterator[int],
    shares: Mapping[int, Sequence[Share]],
    joint: Program,
) -> tuple[Node, ...]:
    """A kernel that does nothing once two buffers are one is not called."""
    results: list[Node] = []
    for node in nodes:
        own = shares.get(next(counter), ())
        match node:
            case Branch():
                then = _rewritten(node.then, counter, shares, joint)
                otherwise = _rewritten(node.otherwise, counter, shares, joint)
                condition = joint.root(node.condition)
                results.append(replace(node, condition=condition, then=then, otherwise=otherwise))
            case Define():
                results.append(replace(node, source=joint.root(node.source)))
            case Check():
                results.append(node)
            case Repeat():
                inside = _rewritten(node.nodes, counter, shares, joint)
                next(counter)  # its end
                first, following, rows = (
                    tuple(_moved(transfer, joint) for transfer in transfers)
                    for transfers in (node.first, node.following, node.rows)
                )
                results.append(
                    replace(node, first=first, nodes=inside, following=following, rows=rows)
                )
            case Step():
                step = _step(node, own, joint)
                copies = len(step.outs) == len(own)
                if not (copies and isinstance(step.callee, Kernel) and not step.callee.body):
                    results.append(step)
    return tuple(results)


def _step(node: Step, shares: Sequence[Share], joint: Program) -> Step:
    args = tuple(joint.root(name) for name in node.args)
    outs = tuple(joint.root(name) for name in node.outs)
    kernel = node.callee
    if not shares or not isinstance(kernel, Kernel):
        return replace(node, args=args, outs=outs)
    gone = {share.read for share in shares}
    kept = tuple(
        name for name, buffer in zip(args, kernel.inputs, strict=True) if buffer.name not in gone
    )
    for share in shares:
        kernel = one_buffer(kernel, share)
    updates = tuple(joint.root(share.after) for share in shares)
    return replace(node, callee=kernel, args=kept, outs=outs, updates=updates)


def _moved(transfer: Transfer, joint: Program) -> Transfer:
    source, target = joint.root(transfer.source), joint.root(transfer.target)
    return replace(transfer, source=source, target=target)


def one_buffer(kernel: Kernel, share: Share) -> Kernel:
    """The kernel with one buffer for an operand and a result; copies to the same place are gone."""
    (target,) = (b for b in kernel.outputs if b.name == share.written)

    def rule(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer.name == share.read:
            return Load(Buffer(target.name, target.dtype, target.shape), expr.index)
        return expr

    inputs = tuple(b for b in kernel.inputs if b.name != share.read)
    body = _without_copies(map_exprs(kernel.body, rule))
    return replace(kernel, inputs=inputs, body=body, in_place=())


def _without_copies(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Without stores of an element to itself, and without loops and conditions of nothing."""
    kept: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Store(buffer, index, Load(source, at)) if (buffer, index) == (source, at):
                pass
            case For():
                if inside := _without_copies(stmt.body):
                    kept.append(replace(stmt, body=inside))
            case If(then=then, otherwise=()):
                if inside := _without_copies(then):
                    kept.append(replace(stmt, then=inside))
            case _:
                kept.append(stmt)
    return () if all(isinstance(stmt, Let) for stmt in kept) else tuple(kept)


def _shares(module: Module, program: Program, precedes: Precedes) -> list[Share]:
    facts = _Facts(module, program, precedes)
    shares: list[Share] = []
    taken: set[str] = set()
    for position, (node, level) in enumerate(_levels(program.nodes, 0, Counter())):
        if not isinstance(node, Step):
            continue
        if isinstance(node.callee, Kernel) and facts.calls[node.callee.name] > 1:
            continue
        for share in shares_of(node, position):
            before, after = share.before, share.after
            if facts.fits(position, level, node, before, after) and before not in taken:
                shares.append(share)
                taken.add(before)
                break
    return shares


def shares_of(step: Step, position: int) -> Iterator[Share]:
    """Operands and results of a step that its callee allows to be the same memory."""
    if isinstance(step.callee, Kernel):
        pairs = step.callee.in_place
        names = [b.name for b in step.callee.inputs]
        outputs = [b.name for b in step.callee.outputs]
    else:
        pairs = tuple((p.name, p.name) for p in step.callee.of_role(Role.UPDATE))
        names = [p.name for p in step.callee.read]
        outputs = [p.name for p in step.callee.written]
    for read, written in pairs:
        before, after = step.args[names.index(read)], step.outs[outputs.index(written)]
        yield Share(position, before, after, read, written)


class _Facts:
    """Who writes and who reads each root, by the position of the step."""

    def __init__(self, module: Module, program: Program, precedes: Precedes) -> None:
        self._program = program
        self._precedes = precedes
        self._module = module
        self.calls: Counter[str] = Counter()
        self._uses: dict[str, set[int]] = {}
        self._writers: dict[str, list[tuple[int, int]]] = {}
        self._failures: list[int] = []
        for position, (node, level) in enumerate(_levels(program.nodes, 0, Counter())):
            for name in touched(node):
                self._uses.setdefault(name, set()).add(position)
            if isinstance(node, Repeat):
                for name in written_by(node):
                    self._writers.setdefault(name, []).append((position, level))
            if isinstance(node, Define | Check) or (isinstance(node, End) and node.repeat.fallible):
                self._failures.append(position)
            if not isinstance(node, Step):
                continue
            self.calls[node.callee.name] += 1
            if node.callee.fallible:
                self._failures.append(position)
            for name in node.outs:
                self._writers.setdefault(name, []).append((position, level))
        self._results = {program.root(v.name) for v in module.main.results}

    def fits(self, position: int, level: int, step: Step, before: str, after: str) -> bool:
        values = self._program.values
        if before == after or before not in values or after not in values:
            return False
        earlier = self._uses[before] - {position}
        if before in self._results or not all(self._precedes(use, position) for use in earlier):
            return False
        if (*step.args, *step.outs).count(before) != 1:
            return False
        if self._writers[after] != [(position, level)]:
            return False
        if len(self._writers[before]) != 1 or self._writers[before][0][1] != level:
            return False
        written = self._writers[before][0][0]
        if after in self._results and not self._after_failures(written):
            return False  # the result would have to be staged
        return values[before].type.bytes == values[after].type.bytes

    def _after_failures(self, position: int) -> bool:
        return all(self._precedes(failure, position) for failure in self._failures)


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
