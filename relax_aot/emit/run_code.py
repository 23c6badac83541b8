# SPDX-License-Identifier: Apache-2.0
"""The statements of `<name>_run`: steps and commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from relax_aot.emit.c_names import comment
from relax_aot.emit.c_proof import differences
from relax_aot.emit.contexts import LayerCall, RunContext
from relax_aot.emit.extern_code import ExternCall
from relax_aot.emit.kernel_call import kernel_call, refused
from relax_aot.emit.lengths import bytes_before, first_row, grown
from relax_aot.ir.dims import Dim
from relax_aot.ir.extern import Extern
from relax_aot.planning.steps import (
    Branch,
    Check,
    Define,
    Node,
    Repeat,
    Step,
    Transfer,
    walk_steps,
)


@dataclass(slots=True)
class Statements:
    """Prints the steps of one program as C."""

    context: RunContext

    def steps(self) -> list[str]:
        """The body of the run: one call a line, branches as blocks."""
        nodes, last = self.context.plan.program.nodes, results_only(self.context)
        lines = [*self._nodes(nodes[: len(nodes) - len(last)], 0)]
        if last:
            kept = (f"    {line}" for line in grown(self.context))
            lines += ["if (is_last == 0) {", *kept, "    return RAOT_OK;", "}"]
        return [*lines, *self._nodes(last, 0), *self.commits()]

    def commits(self) -> list[str]:
        """What is staged goes to the caller's buffers: nothing can fail any more."""
        interface, plan = self.context.interface, self.context.plan
        ports = {port.name: f"out->{port.c_name}" for port in interface.outputs}
        lines: list[str] = []
        for commit in plan.commits:
            target = ports.get(commit.target) or self._pointer(commit.target)
            size = plan.program.values[commit.source].type.bytes
            less = ""
            part = next((p for p in interface.states if p.input == commit.target), None)
            if part is not None and (first := first_row(self.context, part)):
                before = bytes_before(self.context, part)
                target, less = f"raot_at(memory->state, {part.macro} + {before})", f" - {before}"
                lines += [f"/*@ split {first}; */"] * self.context.annotate
            lines += _copy(self.context, target, self._pointer(commit.source), size, "", less)
        return [*lines, *grown(self.context)]

    def _nodes(self, nodes: tuple[Node, ...], depth: int) -> Iterator[str]:
        """Nodes behind each other; the steps of a layer are one call."""
        position = 0
        while position < len(nodes):
            node = nodes[position]
            layer = self.context.layers.get(node.name) if isinstance(node, Step) else None
            if layer is None:
                yield from self._node(node, depth)
                position += 1
            else:
                yield from _layer_call(layer, "    " * depth)
                position += layer.length

    def _node(self, node: Node, depth: int) -> Iterator[str]:
        pad = "    " * depth
        match node:
            case Define() | Check():
                yield from sized(self.context, node, pad)
            case Repeat():
                yield from self._repeat(node, depth)
            case Branch():
                yield f"{pad}if ({self.chosen(node)}) {{"
                for then, nodes in ((True, node.then), (False, node.otherwise)):
                    yield from self._nodes(nodes, depth + 1)
                    yield from self.sizes_of_side(node, then, f"{pad}    ")
                    yield f"{pad}}} else {{" if then else f"{pad}}}"
            case Step():
                yield from self.called(node, pad)

    def chosen(self, branch: Branch) -> str:
        """A C condition: the first side of a branch runs."""
        return f"*{self._pointer(branch.condition)} != 0"

    def called(self, node: Step, pad: str) -> Iterator[str]:
        """The call of a kernel or extern, and the end of the run where it fails."""
        if not isinstance(node.callee, Extern):
            called = kernel_call(self.context, node)
            yield from called.lines([argument.text for argument in called.arguments], pad)
            return
        read, written = ([self._pointer(n) for n in names] for names in (node.args, node.outs))
        call = ExternCall(node.callee, node.call)
        for source, target, size in call.copied():
            if read[source] != written[target]:
                yield from _copy(self.context, written[target], read[source], size, pad)
        bounds = self.context.plan.module.bounds
        yield from call.lines(call.arguments(read, written, self.context.symbols, bounds), pad)

    def _repeat(self, node: Repeat, depth: int) -> Iterator[str]:
        """A loop of C; carried values are moved at the end of each iteration."""
        turn, pad = self.context.symbols[node.loop.turn], "    " * depth
        yield from self.before_loop(node, pad)
        yield f"{pad}for ({turn} = 0; {self.going(node)}; {turn}++) {{"
        yield from self._nodes(node.nodes, depth + 1)
        yield from self.end_of_iteration(node, f"{pad}    ")
        yield f"{pad}}}"
        yield from self.after_loop(node, pad)

    def before_loop(self, node: Repeat, pad: str) -> Iterator[str]:
        """Carried values of the first iteration, and their sizes."""
        for transfer in node.first:
            yield from self._moved(transfer, pad)
        for name, first, _, most in node.loop.sizes:
            yield f"{pad}{self.context.symbols[name]} = {self.context.dim(first)};"
            yield from self._fits(self.context.symbols[name], most, pad)

    def going(self, node: Repeat) -> str:
        """A C condition: another iteration follows."""
        within = f"{self.context.symbols[node.loop.turn]} < {self.context.dim(node.loop.trips)}"
        if node.condition is None:
            return within
        return f"{within} && *{self._pointer(node.condition)} != 0"

    def end_of_iteration(self, node: Repeat, pad: str) -> Iterator[str]:
        """Copy rows to the results, then carried values of the next iteration and their sizes,
        after the check that they fit."""
        turn = self.context.symbols[node.loop.turn]
        for transfer in node.rows:
            row = transfer.type.elements
            yield from self._moved(transfer, pad, f" + (size_t){turn} * {self.context.bytes(row)}")
        for name, _, later, most in node.loop.sizes:
            following = f"{self.context.symbols[name]}_next"
            yield f"{pad}const int32_t {following} = {self.context.dim(later)};"
            yield from self._fits(following, most, pad)
        for transfer in node.following:
            yield from self._moved(transfer, pad)
        for name, _, _, _ in node.loop.sizes:
            yield f"{pad}{self.context.symbols[name]} = {self.context.symbols[name]}_next;"

    def after_loop(self, node: Repeat, pad: str) -> Iterator[str]:
        """An iteration without planned memory is an error; the iterations are counted."""
        loop, turn = node.loop, self.context.symbols[node.loop.turn]
        if loop.capped and node.condition is not None:
            condition = self._pointer(node.condition)
            yield from refused(
                f"{turn} >= {self.context.dim(loop.trips)} && *{condition} != 0",
                "RAOT_ERR_CAPACITY",
                pad,
            )
        if loop.count in self.context.used:
            yield f"{pad}{self.context.symbols[loop.count]} = {turn};"

    def _fits(self, size: str, most: Dim, pad: str) -> Iterator[str]:
        yield from refused(f"{size} > {self.context.dim(most)}", "RAOT_ERR_CAPACITY", pad)

    def _moved(self, transfer: Transfer, pad: str, offset: str = "") -> Iterator[str]:
        source, target = self._pointer(transfer.source), self._pointer(transfer.target) + offset
        if source != target:
            yield from _copy(self.context, target, source, transfer.type.bytes, pad)

    def sizes_of_side(self, branch: Branch, then: bool, pad: str) -> Iterator[str]:
        """Sizes that the results of a branch have on one side."""
        for size in branch.sizes:
            if size.symbol in self.context.used:
                value = self.context.dim(size.then if then else size.otherwise)
                yield f"{pad}{self.context.symbols[size.symbol]} = {value};"

    def _pointer(self, name: str) -> str:
        return self.context.values[name]


def results_only(context: RunContext) -> tuple[Node, ...]:
    """The last nodes of a divided run that no state depends on: the last part alone has them."""
    interface, nodes = context.interface, context.plan.program.nodes
    states = {part.input for part in interface.states}
    staged = any(commit.target in states for commit in context.plan.commits)
    if interface.divided is None or staged:
        return ()
    memory = {context.values[name] for name in states}
    first = position = 0
    while position < len(nodes):
        node = nodes[position]
        layer = context.layers.get(node.name) if isinstance(node, Step) else None
        length = 1 if layer is None else layer.length
        inside = walk_steps(nodes[position : position + length])
        written = (name for step in inside if isinstance(step, Step) for name in step.outs)
        position += length
        if any(context.values.get(name) in memory for name in written):
            first = position
    return nodes[first:]


def sized(context: RunContext, node: Define | Check, pad: str) -> Iterator[str]:
    """A size from data, or what must hold of such sizes."""
    if isinstance(node, Check):
        left, right = (
            context.dim(node.condition.left),
            context.dim(node.condition.right),
        )
        failing = "!=" if node.condition.relation == "==" else ">"
        yield f"{pad}if ({left} {failing} {right}) {{ /* {comment(node.call.origin)} */"
        yield f"{pad}    return RAOT_ERR_MISMATCH;"
        yield f"{pad}}}"
        return
    element = f"{context.values[node.source]}[{node.element}]"
    yield from refused(f"{element} < {node.low}", "RAOT_ERR_SIZE", pad)
    yield from refused(f"{element} > {context.dim(node.most)}", "RAOT_ERR_CAPACITY", pad)
    if node.symbol in context.used:
        yield f"{pad}{context.symbols[node.symbol]} = (int32_t){element};"


def _layer_call(call: LayerCall, pad: str) -> Iterator[str]:
    if call.tables:
        inner = f"{pad}    "
        yield f"{pad}{{"
        yield from (f"{inner}{line}" for line in call.tables)
        yield from _layer_call(replace(call, tables=()), inner)
        yield f"{pad}}}"
        return
    text = f"{call.layer.c_name}({', '.join(call.arguments)});"
    if not call.layer.fallible:
        yield f"{pad}{text}"
        return
    yield f"{pad}status = {text}"
    yield from refused("status != RAOT_OK", "status", pad)


def _copy(
    context: RunContext, target: str, source: str, size: Dim, pad: str, less: str = ""
) -> Iterator[str]:
    """A copy of `size` bytes, whose pointers may be null if `size` is 0. `less` is subtracted."""
    count = context.bytes(size)
    line = f"(void)memcpy({target}, {source}, {count}{less});"
    if count.isdigit():
        yield f"{pad}{line}" if count != "0" else f"{pad};"
        return
    for name in differences(size) if context.annotate else ():
        yield f"{pad}/*@ split {context.symbols[name]}; */"
    yield f"{pad}if ({count} > 0) {{"
    yield f"{pad}    {line}"
    yield f"{pad}}}"
