# SPDX-License-Identifier: Apache-2.0
"""An independent proof of plans for steps that may run at the same time: what shares memory is
done with, whatever order the steps take that happens-before allows.

Shares no code with the planner, as check.py.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relax_aot.planning import Plan
    from relax_aot.planning.steps import Node


class PlanError(AssertionError):
    """The planner is wrong: a defect of ours, never the user's fault."""


def unordered(plan: Plan) -> set[tuple[str, str]]:
    """Pairs of slots where neither is done with before the other is first written, in the
    partial order of steps that the plan was made for."""
    slots = {s.var.name for s in plan.slots}
    numbered = _accesses(plan)
    after = _after(plan, len(numbered) - 1)
    _check_overwrites(plan, after)

    def steps(name: str) -> list[int]:
        return [i for i, (reads, writes) in enumerate(numbered) if name in reads | writes]

    def writers(name: str) -> list[int]:
        return [i for i, (_, writes) in enumerate(numbered) if name in writes]

    for name in slots:
        for step, (reads, _) in enumerate(numbered):
            if name in reads and not any(step in after[writer] for writer in writers(name)):
                raise PlanError(f"{name} is read by step {step}, before it is written")

    def done_before(one: str, other: str) -> bool:
        return all(w in after[use] for use in steps(one) for w in writers(other))

    return {
        (min(one, other), max(one, other))
        for one, other in combinations(sorted(slots), 2)
        if not done_before(one, other) and not done_before(other, one)
    }


def _accesses(plan: Plan) -> list[tuple[set[str], set[str]]]:
    """What each step reads and writes, by number; last, the commits."""
    numbered: list[tuple[set[str], set[str]]] = []

    def number(nodes: tuple[Node, ...]) -> None:
        from relax_aot.planning.steps import Branch, Check, Define, Repeat, Step

        for node in nodes:
            match node:
                case Step():
                    numbered.append((set(node.args) | set(node.updates), set(node.outs)))
                case Branch():
                    numbered.append(({node.condition}, set()))
                    number(node.then)
                    number(node.otherwise)
                case Define():
                    numbered.append(({node.source}, set()))
                case Check():
                    numbered.append((set(), set()))
                case Repeat():
                    results = {t.target for t in (*node.first, *node.rows)}
                    numbered.append(({t.source for t in node.first}, results))
                    number(node.nodes)
                    moved = {t.source for t in (*node.following, *node.rows)}
                    numbered.append((moved | results, results))

    number(plan.program.nodes)
    numbered.append(({commit.source for commit in plan.commits}, set()))
    return numbered


def _after(plan: Plan, end: int) -> dict[int, set[int]]:
    """The steps that each step happens before; all happen before the commits, step `end`."""
    following: dict[int, list[int]] = {step: [end] for step in range(end)}
    for one, other in plan.happens_before or ():
        following[one].append(other)
    after: dict[int, set[int]] = {}
    for step in range(end + 1):
        reached: set[int] = set()
        ahead = list(following.get(step, ()))
        while ahead:
            if (one := ahead.pop()) not in reached:
                reached.add(one)
                ahead += following.get(one, ())
        after[step] = reached
        if step in reached:
            raise PlanError(f"step {step} happens before itself")
    return after


def _check_overwrites(plan: Plan, after: dict[int, set[int]]) -> None:
    """Of two values in one memory, one is written after all uses of the other.

    Follows the graph's own values; of the planner's work it takes only which memory each has.
    """
    from relax_aot.planning.steps import End, Step, walk_steps

    steps = list(walk_steps(plan.program.nodes))
    outer = {node.name for node in plan.program.nodes if isinstance(node, Step)}
    writer = {
        out.name: position
        for position, node in enumerate(steps)
        if isinstance(node, Step) and node.name in outer and node.outs
        for out in node.call.outs
    }
    called = {node.name for node in steps if isinstance(node, Step)}
    bases: dict[str, str] = {}
    for function in plan.module.functions:
        for call in function.body:
            copied = call.op == "call_kernel" and call.outs[0].name not in called
            if call.op in ("view", "guard") or copied:
                inputs = (v.name for v in call.inputs)
                roots = {plan.program.root(out.name) for out in call.outs}
                same = (name for name in inputs if plan.program.root(name) in roots)
                bases |= dict.fromkeys((out.name for out in call.outs), next(same))

    def base(name: str) -> str:
        while name in bases:
            name = bases[name]
        return name

    uses = {name: {position} for name, position in writer.items()}
    for position, node in enumerate(steps):
        for var in () if isinstance(node, End) else node.call.inputs:
            uses.get(base(var.name), set()).add(position)
    for result in plan.module.main.results:
        uses.get(base(result.name), set()).add(len(steps))

    for name, position in writer.items():
        for use in uses[name] - {position}:
            if use not in after[position]:
                raise PlanError(f"{name} is read by step {use}, before it is written")

    def follows(one: str, other: str) -> bool:
        done = uses[other] - {writer[one]}
        return all(writer[one] in after.get(use, ()) for use in done)

    memory: dict[str, list[str]] = {}
    for name in writer:
        memory.setdefault(plan.program.root(name), []).append(name)
    for names in memory.values():
        for one, other in combinations(names, 2):
            if not follows(one, other) and not follows(other, one):
                raise PlanError(f"{one} and {other} share memory and are needed at one time")
