# SPDX-License-Identifier: Apache-2.0
"""Steps, branches and loops of a run on a GPU as one straight list of launches.

A run never waits for the GPU, so data-dependent values stay there. Both sides of a branch are
launched with a condition word each, of which one is 0; a loop is launched for its greatest number
of iterations, with a condition word too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from relax_aot.emit.cuda_launcher import Launcher
from relax_aot.ir.dims import Dim
from relax_aot.ir.types import C_TYPES
from relax_aot.planning import greatest_bytes
from relax_aot.planning.steps import Branch, Check, Define, Node, Repeat, Step


def write_nodes(w: Launcher, nodes: tuple[Node, ...], condition: int | None) -> None:
    for node in nodes:
        match node:
            case Step():
                w.step(node, condition)
            case Define():
                _define(w, node, condition)
            case Check():
                _check(w, node, condition)
            case Branch():
                _branch(w, node, condition)
            case Repeat():
                _repeat(w, node, condition)


def _define(w: Launcher, node: Define, condition: int | None) -> None:
    type_ = C_TYPES[w.type_of(node.source).dtype]
    lines = [
        f"const {type_} value = source[{node.element}];",
        f"if (value < {node.low}) {{",
        "    frame[0] = RAOT_ERR_SIZE;",
        f"}} else if (value > {w.controls.dim(node.most)}) {{",
        "    frame[0] = RAOT_ERR_CAPACITY;",
        "} else {",
        f"    frame[{w.slots.sizes[node.symbol]}] = (int32_t)value;",
        "}",
    ]
    pointers = [w.pointer("source", node.source)]
    note = f"the size {node.symbol}"
    w.add(w.controls.call("size", note, lines, [node.most], pointers, condition=condition))


def _check(w: Launcher, node: Check, condition: int | None) -> None:
    left, right = node.condition.left, node.condition.right
    failing = "!=" if node.condition.relation == "==" else ">"
    lines = [
        f"if ({w.controls.dim(left)} {failing} {w.controls.dim(right)}) {{",
        "    frame[0] = RAOT_ERR_MISMATCH;",
        "}",
    ]
    note = f"{node.condition}: {node.call.origin}"
    w.add(w.controls.call("check", note, lines, [left, right], condition=condition))


def _branch(w: Launcher, node: Branch, condition: int | None) -> None:
    word = w.slots.nodes[id(node)]
    lines = [
        "const int32_t open = frame[outer];",
        f"frame[{word}] = open != 0 && *flag != 0 ? 1 : 0;",
        f"frame[{word + 1}] = open != 0 && *flag == 0 ? 1 : 0;",
    ]
    outer = {"outer": str(condition)}
    flag = [w.pointer("flag", node.condition)]
    w.add(w.controls.call("choose", "which side of a branch runs", lines, (), flag, outer))
    for number, nodes in enumerate((node.then, node.otherwise)):
        write_nodes(w, nodes, word + number)
        sizes = {s.symbol: s.otherwise if number else s.then for s in node.sizes}
        if sizes:
            lines = [
                f"frame[{w.slots.sizes[name]}] = {w.controls.dim(dim)};"
                for name, dim in sizes.items()
            ]
            note = "sizes of a side of a branch"
            w.add(w.controls.call("sizes", note, lines, sizes.values(), condition=word + number))


def _repeat(w: Launcher, node: Repeat, condition: int | None) -> None:
    word, loop = w.slots.nodes[id(node)], node.loop
    for transfer in node.first:
        w.moved(transfer, condition)
    first = {name: (one, most) for name, one, _, most in loop.sizes}
    lines = list(_fitting(w, first, [w.slots.sizes[name] for name in first]))
    lines += [f"frame[{w.slots.sizes[loop.count]}] = 0;"] if loop.count else []
    dims = [dim for pair in first.values() for dim in pair]
    w.add(
        w.controls.call(
            "enter", "a loop begins", [f"frame[{word}] = 1;", *lines], dims,
            condition=condition,
        )
    )  # fmt: skip
    trips = w.context.greatest(loop.trips)
    most = max(greatest_bytes(trips, w.context.plan.module), 0)
    for turn in range(most):
        _iteration(w, node, turn, condition)
    if loop.capped and node.condition is not None:
        lines = [
            f"if (frame[{word}] != 0 && *flag != 0) {{",
            "    frame[0] = RAOT_ERR_CAPACITY;",
            "}",
        ]
        flag = [w.pointer("flag", node.condition)]
        note = "a loop that goes on has no more memory"
        w.add(w.controls.call("capped", note, lines, (), flag, condition=condition))


def _iteration(w: Launcher, node: Repeat, turn: int, condition: int | None) -> None:
    word, loop = w.slots.nodes[id(node)], node.loop
    pointers = [] if node.condition is None else [w.pointer("flag", node.condition)]
    going = f"frame[{word}] != 0 && frame[outer] != 0 && turn < {w.controls.dim(loop.trips)}"
    going += " && *flag != 0" if pointers else ""
    lines = [
        f"frame[{word}] = {going} ? 1 : 0;",
        f"frame[{w.slots.sizes[loop.turn]}] = turn;",
    ]
    numbers = {"outer": str(condition), "turn": str(turn)}
    note = "whether another iteration follows"
    w.add(w.controls.call("follow", note, lines, [loop.trips], pointers, numbers))
    write_nodes(w, node.nodes, word)
    for transfer in node.rows:
        at = Dim.of(loop.turn) * transfer.type.bytes
        w.moved(transfer, word, at)
    later = {name: (next_, most) for name, _, next_, most in loop.sizes}
    kept = [word + 1 + number for number in range(len(later))]
    if later:
        dims = [dim for pair in later.values() for dim in pair]
        lines = list(_fitting(w, later, kept))
        w.add(w.controls.call("grow", "sizes of the next iteration", lines, dims,
                                    condition=word))  # fmt: skip
    for transfer in node.following:
        w.moved(transfer, word)
    lines = [
        f"frame[{w.slots.sizes[name]}] = frame[{slot}];"
        for name, slot in zip(later, kept, strict=True)
    ]
    if loop.count:
        lines.append(f"frame[{w.slots.sizes[loop.count]}] = turn + 1;")
    if lines:
        w.add(
            w.controls.call(
                "leave", "an iteration ends", lines, (), (),
                {"turn": str(turn)} if loop.count else {}, condition=word,
            )
        )  # fmt: skip


def _fitting(
    w: Launcher, sizes: Mapping[str, tuple[Dim, Dim]], words: Sequence[int]
) -> Iterator[str]:
    """Statements that set words to sizes, if all are at most what they may be."""
    for number, (size, most) in enumerate(sizes.values()):
        yield f"const int32_t size{number} = {w.controls.dim(size)};"
        yield f"if (size{number} > {w.controls.dim(most)}) {{"
        yield "    frame[0] = RAOT_ERR_CAPACITY;"
        yield "}"
    for number, word in enumerate(words):
        yield f"frame[{word}] = size{number};"
