# SPDX-License-Identifier: Apache-2.0
"""The statements of `<name>_run`: checks, slots, steps, commits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from relax_aot.emit.c_names import comment
from relax_aot.emit.c_proof import differences
from relax_aot.emit.contexts import RunContext, commit_type
from relax_aot.emit.extern_code import copied, extern_arguments, extern_call_lines
from relax_aot.emit.interface import (
    DimField,
    Interface,
    Port,
    state_header,
    state_symbols,
)
from relax_aot.ir.dims import Dim, interval
from relax_aot.ir.extern import Extern
from relax_aot.ir.graph import ASSUMED
from relax_aot.planning import Plan
from relax_aot.planning.steps import (
    Branch,
    Check,
    Define,
    Node,
    Repeat,
    Step,
    Transfer,
)

STATE_MARK = "RAOT_STATE_MARK"


# Checks on entry


def null_checks(context: RunContext) -> str:
    """A C condition: some pointer that must not be null is."""
    interface = context.interface
    parts = ["memory == NULL"]
    parts += ["dims == NULL"] if interface.dims else []
    parts += ["in == NULL"] if interface.inputs else []
    parts += ["out == NULL"] if interface.outputs else []
    parts += ["result == NULL"] if interface.results else []
    return " || ".join(parts)


def init_null_check(interface: Interface) -> str:
    """A C condition: some pointer that init needs is null."""
    parts = ["memory == NULL"]
    parts += ["memory->state == NULL"] if interface.has_state else []
    parts += ["memory->weights == NULL"] if interface.weights_apart else []
    return " || ".join(parts)


def data_null_checks(context: RunContext) -> list[str]:
    """One C condition per buffer; zero elements may be a null pointer."""
    interface, plan = context.interface, context.plan
    checks = []
    for side, ports in (("in", interface.inputs), ("out", interface.outputs)):
        for port in ports:
            checks.append(_null_check(context, f"{side}->{port.c_name}", port.type.elements))
    used = arenas_used(plan)
    checks += [f"memory->{a.member} == NULL" for n, a in enumerate(interface.arenas) if n in used]
    if interface.has_state:
        checks.append("memory->state == NULL")
    if interface.weights_apart:
        checks.append("memory->weights == NULL")
    return checks


def _null_check(context: RunContext, pointer: str, elements: Dim) -> str:
    bounds = context.plan.module.bounds
    inner = {s.name for s in context.plan.module.symbols if s.inner}
    if elements.symbols & inner or interval(elements, bounds)[0] > 0:
        return f"{pointer} == NULL"
    return f"({pointer} == NULL && {context.dim(elements)} > 0)"


def size_checks(interface: Interface) -> list[str]:
    """One C condition per symbol: it is outside its bounds."""
    return [
        f"dims->{f.c_name} < {f.symbol.low} || dims->{f.c_name} > {f.macro}" for f in interface.dims
    ]


def condition_checks(context: RunContext) -> list[tuple[str, str]]:
    """(C condition that is true where the sizes disagree, what has to hold and why)."""
    checks = []
    for condition in context.interface.conditions:
        left, right = context.dim(condition.left), context.dim(condition.right)
        failing = "!=" if condition.relation == "==" else ">"
        origin = condition.origin
        said = origin if origin.startswith(ASSUMED) else f"{condition}: {origin}"
        checks.append((f"{left} {failing} {right}", comment(said.removesuffix(": "))))
    return checks


def arenas_used(plan: Plan) -> set[int]:
    """Arenas that hold anything at all."""
    return {slot.region for slot in plan.slots if slot.greatest_bytes > 0}


def spans(context: RunContext) -> tuple[list[str], list[str]]:
    """Initializers `{start, bytes}` of the memory that a run writes, and that it reads."""
    interface, plan = context.interface, context.plan
    inner = {s.name for s in plan.module.symbols if s.inner}

    def of(side: str, port: Port) -> str:
        greatest = port.type.symbols & inner
        size = port.macro if greatest else context.bytes(port.type.bytes)
        return f"{{{side}->{port.c_name}, {size}}}"

    writes = [of("out", port) for port in interface.outputs]
    used = arenas_used(plan)
    writes += [
        f"{{memory->{a.member}, need_{a.member}}}"
        for n, a in enumerate(interface.arenas)
        if n in used
    ]
    if interface.has_state:
        writes.append(f"{{memory->state, {interface.owner_prefix}_STATE_BYTES}}")
    reads = [of("in", port) for port in interface.inputs]
    if interface.weights_apart:
        reads.append(f"{{memory->weights, {interface.owner_prefix}_WEIGHTS_BYTES}}")
    return writes, reads


def locals_of_symbols(context: RunContext) -> list[DimField]:
    """Entry symbols that the run needs as variables."""
    return [f for f in context.interface.dims if f.symbol.name in context.used]


# Steps


def steps(context: RunContext) -> list[str]:
    """The body of the run: one call a line, branches as blocks."""
    lines: list[str] = []
    for node in context.plan.program.nodes:
        lines += _node(context, node, 0)
    return [*lines, *commits(context)]


def commits(context: RunContext) -> list[str]:
    """What is staged goes to the caller's buffers: nothing can fail any more."""
    lines: list[str] = []
    for commit in context.plan.commits:
        lines += _commit(context, commit.source, commit.target)
    return lines


def _node(context: RunContext, node: Node, depth: int) -> Iterator[str]:
    pad = "    " * depth
    match node:
        case Define() | Check():
            yield from sized(context, node, pad)
        case Repeat():
            yield from _repeat(context, node, depth)
        case Branch():
            yield f"{pad}if ({chosen(context, node)}) {{"
            yield from _side(context, node, True, depth + 1)
            yield f"{pad}}} else {{"
            yield from _side(context, node, False, depth + 1)
            yield f"{pad}}}"
        case Step():
            yield from called(context, node, pad)


def chosen(context: RunContext, branch: Branch) -> str:
    """A C condition: the first side of a branch runs."""
    return f"*{_pointer(context, branch.condition)} != 0"


def called(context: RunContext, node: Step, pad: str) -> Iterator[str]:
    """The call of a kernel or extern, and the end of the run where it fails."""
    if isinstance(node.callee, Extern):
        read, written = ([_pointer(context, n) for n in names] for names in (node.args, node.outs))
        arguments = extern_arguments(
            node.callee, node.call, read, written, context.symbols, context.plan.module.bounds
        )
        for source, target, size in copied(node.callee, node.call):
            if read[source] != written[target]:
                yield from _copy(context, written[target], read[source], size, pad)
        yield from extern_call_lines(node.callee, node.call, arguments, pad)
        return
    names = context.kernels[node.callee.name]
    arguments = [context.symbols[s] for s in names.symbols]
    arguments += [_pointer(context, name) for name in (*node.args, *node.outs)]
    tables: list[str] = []
    for parameter, value in zip(names.numbers, names.arguments, strict=True):
        type_, name = re.split(r"(?<=[ *])(?=\w+$)", parameter)
        if value.startswith("{"):
            tables += f"static {type_.removesuffix('*')}{name} = {value}".split("\n")
        arguments.append(f"&{name}" if value.startswith("{") else value)
    if tables:
        # Each call has numbers of its own, in a block of their own.
        yield f"{pad}{{"
        pad += "    "
        yield from (f"{pad}{table}" for table in tables)
    call = f"{names.c_name}({', '.join(arguments)})"
    if node.callee.fallible:
        yield f"{pad}RAOT_PROFILE({names.layer}, status = {call});"
        yield f"{pad}if (status != RAOT_OK) {{"
        yield f"{pad}    return status;"
        yield f"{pad}}}"
    else:
        yield f"{pad}RAOT_PROFILE({names.layer}, {call});"
    if tables:
        yield f"{pad.removesuffix('    ')}}}"


def sized(context: RunContext, node: Define | Check, pad: str) -> Iterator[str]:
    """A size from data, or what must hold of such sizes."""
    if isinstance(node, Check):
        left, right = context.dim(node.condition.left), context.dim(node.condition.right)
        failing = "!=" if node.condition.relation == "==" else ">"
        yield f"{pad}if ({left} {failing} {right}) {{ /* {comment(node.call.origin)} */"
        yield f"{pad}    return RAOT_ERR_MISMATCH;"
        yield f"{pad}}}"
        return
    element = f"{_pointer(context, node.source)}[{node.element}]"
    yield f"{pad}if ({element} < {node.low}) {{"
    yield f"{pad}    return RAOT_ERR_SIZE;"
    yield f"{pad}}}"
    yield f"{pad}if ({element} > {context.dim(node.most)}) {{"
    yield f"{pad}    return RAOT_ERR_CAPACITY;"
    yield f"{pad}}}"
    if node.symbol in context.used:
        yield f"{pad}{context.symbols[node.symbol]} = (int32_t){element};"


def _repeat(context: RunContext, node: Repeat, depth: int) -> Iterator[str]:
    """A loop of C; carried values are moved at the end of each iteration."""
    turn, pad = context.symbols[node.loop.turn], "    " * depth
    yield from before_loop(context, node, pad)
    yield f"{pad}for ({turn} = 0; {going(context, node)}; {turn}++) {{"
    for inside in node.nodes:
        yield from _node(context, inside, depth + 1)
    yield from end_of_turn(context, node, f"{pad}    ")
    yield f"{pad}}}"
    yield from after_loop(context, node, pad)


def before_loop(context: RunContext, node: Repeat, pad: str) -> Iterator[str]:
    """Carried values of the first iteration, and their sizes."""
    for transfer in node.first:
        yield from _moved(context, transfer, pad)
    for name, first, _, most in node.loop.sizes:
        yield f"{pad}{context.symbols[name]} = {context.dim(first)};"
        yield from _fits(context, context.symbols[name], most, pad)


def going(context: RunContext, node: Repeat) -> str:
    """A C condition: another iteration follows."""
    turns = f"{context.symbols[node.loop.turn]} < {context.dim(node.loop.trips)}"
    if node.condition is None:
        return turns
    return f"{turns} && *{_pointer(context, node.condition)} != 0"


def end_of_turn(context: RunContext, node: Repeat, pad: str) -> Iterator[str]:
    """Copy rows to the results, then carried values of the next iteration and their sizes, after
    the check that they fit."""
    turn = context.symbols[node.loop.turn]
    for transfer in node.rows:
        row = transfer.type.elements
        yield from _moved(context, transfer, pad, f" + (size_t){turn} * {context.count(row)}")
    for name, _, later, most in node.loop.sizes:
        following = f"{context.symbols[name]}_next"
        yield f"{pad}const int32_t {following} = {context.dim(later)};"
        yield from _fits(context, following, most, pad)
    for transfer in node.following:
        yield from _moved(context, transfer, pad)
    for name, _, _, _ in node.loop.sizes:
        yield f"{pad}{context.symbols[name]} = {context.symbols[name]}_next;"


def after_loop(context: RunContext, node: Repeat, pad: str) -> Iterator[str]:
    """An iteration without planned memory is an error; the iterations are counted."""
    loop, turn = node.loop, context.symbols[node.loop.turn]
    if loop.capped and node.condition is not None:
        condition = _pointer(context, node.condition)
        yield f"{pad}if ({turn} >= {context.dim(loop.trips)} && *{condition} != 0) {{"
        yield f"{pad}    return RAOT_ERR_CAPACITY;"
        yield f"{pad}}}"
    if loop.count in context.used:
        yield f"{pad}{context.symbols[loop.count]} = {turn};"


def _fits(context: RunContext, size: str, most: Dim, pad: str) -> Iterator[str]:
    yield f"{pad}if ({size} > {context.dim(most)}) {{"
    yield f"{pad}    return RAOT_ERR_CAPACITY;"
    yield f"{pad}}}"


def _moved(context: RunContext, transfer: Transfer, pad: str, offset: str = "") -> Iterator[str]:
    target, source = (_pointer(context, name) for name in (transfer.target, transfer.source))
    if source == f"{target}{offset}":
        return
    yield from _copy(context, f"{target}{offset}", source, transfer.type.bytes, pad)


def _side(context: RunContext, branch: Branch, then: bool, depth: int) -> Iterator[str]:
    for node in branch.then if then else branch.otherwise:
        yield from _node(context, node, depth)
    yield from sizes_of_side(context, branch, then, "    " * depth)


def sizes_of_side(context: RunContext, branch: Branch, then: bool, pad: str) -> Iterator[str]:
    """Sizes that the results of a branch have on one side."""
    for size in branch.sizes:
        if size.symbol in context.used:
            value = context.dim(size.then if then else size.otherwise)
            yield f"{pad}{context.symbols[size.symbol]} = {value};"


def _pointer(context: RunContext, name: str) -> str:
    return context.values[name]


def _commit(context: RunContext, source: str, target: str) -> Iterator[str]:
    interface = context.interface
    port = next((p for p in interface.outputs if p.name == target), None)
    destination = f"out->{port.c_name}" if port else context.values[target]
    size = commit_type(context.plan, source).type.bytes
    yield from _copy(context, destination, context.values[source], size, "")


def _copy(context: RunContext, target: str, source: str, size: Dim, pad: str) -> Iterator[str]:
    """A copy of `size` bytes, whose pointers may be null if `size` is 0."""
    count = context.bytes(size)
    line = f"(void)memcpy({target}, {source}, {count});"
    if count.isdigit():
        yield f"{pad}{line}" if count != "0" else f"{pad};"
        return
    for name in differences(size) if context.annotate else ():
        yield f"{pad}/*@ split {context.symbols[name]}; */"
    yield f"{pad}if ({count} > 0) {{"
    yield f"{pad}    {line}"
    yield f"{pad}}}"


def state_checks(context: RunContext) -> list[tuple[str, str]]:
    """(index in the header, C expression it must equal) for sizes that shape the state."""
    order = [field.source for field in state_header(context.interface)]
    return [
        (str(order.index(field.source) + 1), f"dims->{field.c_name}")
        for field in state_symbols(context.interface)
    ]


def header_values(interface: Interface) -> list[tuple[str, str]]:
    """(index in the header, C expression that init writes there)."""
    fields = enumerate(state_header(interface), 1)
    return [(str(position), f"dims->{field.c_name}") for position, field in fields]
