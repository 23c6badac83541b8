# SPDX-License-Identifier: Apache-2.0
"""The order in which calls run, chosen so that fewer bytes are alive at a time.

Works on the lowered module, at the greatest sizes. A call stays behind those whose values or
sizes it reads, and behind checks that stood before it; calls that may fail, and C functions of
the user's, keep their order among each other. An `if` or a loop is one job; the functions
that it runs are ordered first.

A new order is taken only where the arena becomes smaller by it, or is as large with fewer results
that are staged: a result that is written before something can fail is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relax_aot.ir.dims import Dim, interval
from relax_aot.ir.graph import Attr, Call, Function, Loop, Module
from relax_aot.ir.types import Ref
from relax_aot.planning import Home, greatest_bytes, homes_of, inner_sizes, slot_bytes
from relax_aot.planning.lifetimes import lifetimes
from relax_aot.planning.orientation import Block
from relax_aot.planning.packing import pack
from relax_aot.planning.sequence import Job, Jobs, lowest_order, peak_of
from relax_aot.planning.states import program_in_place
from relax_aot.planning.steps import program_of

ALIGNMENT = 16


def run(module: Module, *, keep_states: bool = False) -> Module:
    """The module with calls in an order that needs no more memory than the given one.
    `keep_states`: as for `plan`."""
    for name in reversed([function.name for function in module.functions]):
        module = _with_order(module, name, keep_states)
    return module


def _with_order(module: Module, name: str, keep_states: bool) -> Module:
    function = module.function_table[name]
    graph = _Graph(module)
    jobs = graph.jobs(function)
    bodies = [_moved(function.body, lowest_order(jobs).order)]
    if function is module.main:
        bodies += graph.checks_first(function, jobs)
    others = [body for body in dict.fromkeys(bodies) if body != function.body]
    if not others:
        return module
    sizes: dict[str, int] = {}
    choices = [module]
    for body in others:
        moved = replace(function, body=body)
        functions = tuple(moved if f.name == name else f for f in module.functions)
        choices.append(replace(module, functions=functions))
    return min(choices, key=lambda choice: _arena(choice, sizes, keep_states))


def _moved(body: tuple[Call, ...], order: Sequence[int]) -> tuple[Call, ...]:
    return tuple(body[i] for i in order)


def _arena(module: Module, sizes: dict[str, int], keep_states: bool) -> tuple[int, int]:
    """What the plan will need, and how many results are copied at the end; `sizes` keeps what has
    been computed."""
    program = program_in_place(module, keep_states=keep_states)
    homes, commits = homes_of(module, program)
    inner = inner_sizes(program, module.bounds)
    blocks = []
    for name, life in lifetimes(program, frozenset(c.source for c in commits)).items():
        if homes[name] is Home.SLOT:
            if name not in sizes:
                size = slot_bytes(program.values[name].type, inner, module.bounds, ALIGNMENT)
                sizes[name] = greatest_bytes(size, module)
            blocks.append(Block(name, life, sizes[name]))
    return pack(blocks).packing.height if blocks else 0, len(commits)


class _Graph:
    """A module's calls as jobs."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.program = program_of(module)
        homes, _ = homes_of(module, self.program)
        inner = inner_sizes(self.program, module.bounds)
        self.bytes: dict[str, int] = {}
        for name, var in self.program.values.items():
            if homes[name] is Home.SLOT:
                size = slot_bytes(var.type, inner, module.bounds, ALIGNMENT)
                self.bytes[name] = max(interval(size, module.bounds)[1], 0)
        self.inner = {symbol.name for symbol in module.symbols if symbol.inner}

    def jobs(self, function: Function) -> Jobs:
        numbers: dict[str, int] = {}
        sizes: list[int] = []
        calls = [call for call in function.body if call.op != "guard"]
        made_here = {self.program.root(v.name) for call in calls for v in call.outs}
        for name in sorted(made_here):
            numbers[name] = len(sizes)
            sizes.append(self.bytes.get(name, 0))
        results = {self.program.root(v.name) for v in function.results}
        kept = frozenset(numbers[name] for name in results if name in numbers)
        writer: dict[str, int] = {}
        jobs: list[Job] = []
        last_in_order, checks = -1, set[int]()
        for position, call in enumerate(function.body):
            after = {writer[name] for name in self._needs(call) if name in writer} | checks
            if self._keeps_its_place(call):
                after |= {last_in_order} - {-1}
                last_in_order = position
            if call.op == "check":
                checks = {position}
            writer |= dict.fromkeys((out.name for out in call.outs), position)
            writer |= dict.fromkeys(_defines(call), position)
            jobs.append(self._job(call, frozenset(after), numbers))
        return Jobs(tuple(jobs), tuple(sizes), kept)

    def checks_first(self, function: Function, jobs: Jobs) -> list[tuple[Call, ...]]:
        """Orders in which results are written after all that can fail, so that fewer are staged:
        as given and with few bytes alive. None if no result is written before a failure."""
        failing = [i for i, call in enumerate(function.body) if self._keeps_its_place(call)]
        early = set(failing)
        for position in reversed(range(len(function.body))):
            if position in early:
                early |= jobs.jobs[position].after
        late = [i for i in range(len(function.body)) if i not in early]
        written = (jobs.jobs[i].writes for i in late if failing and i < failing[-1])
        if not jobs.kept & frozenset[int]().union(*written):
            return []
        body = _moved(function.body, (*sorted(early), *late))
        plain = self.jobs(replace(function, body=body))
        last = frozenset({len(early) - 1})
        held = tuple(
            replace(job, after=job.after | last) if i >= len(early) else job
            for i, job in enumerate(plain.jobs)
        )
        return [body, _moved(body, lowest_order(replace(plain, jobs=held)).order)]

    def _job(self, call: Call, after: frozenset[int], numbers: dict[str, int]) -> Job:
        if call.op == "view":
            return Job(after, frozenset(), frozenset())
        reads = {self.program.root(v.name) for v in call.inputs}
        outs = () if call.op == "guard" else call.outs
        writes = {self.program.root(v.name) for v in outs}
        within = 0
        for name in self._runs(call):
            body = self.jobs(self.module.function_table[name])
            within = max(within, peak_of(body, range(len(body.jobs))))
        if call.op == "if":  # the results are written by the branches
            within -= sum(self.bytes.get(name, 0) for name in writes)
        return Job(
            after,
            frozenset(numbers[name] for name in reads if name in numbers),
            frozenset(numbers[name] for name in writes),
            max(within, 0),
            tuple(self._in_place(call, numbers)),
        )

    def _in_place(self, call: Call, numbers: dict[str, int]) -> list[tuple[int, int]]:
        if call.op != "call_kernel":
            return []
        kernel = self.module.kernel_table[call.ref("kernel")]
        args = dict(zip((b.name for b in kernel.inputs), call.inputs, strict=True))
        outs = dict(zip((b.name for b in kernel.outputs), call.outs, strict=False))
        pairs = []
        for read, written in kernel.in_place:
            source, target = (
                self.program.root(args[read].name),
                self.program.root(outs[written].name),
            )
            if self.bytes.get(source, -1) == self.bytes.get(target, -2) and source in numbers:
                pairs.append((numbers[target], numbers[source]))
        return pairs

    def _runs(self, call: Call) -> list[str]:
        """The functions of the module that the call runs."""
        names = (value.name for _, value in call.attrs if isinstance(value, Ref))
        return [name for name in names if name in self.module.function_table]

    def _needs(self, call: Call) -> set[str]:
        """The values and inner sizes that must be there."""
        symbols: set[str] = set()
        for var in (*call.inputs, *call.outs):
            symbols |= var.type.symbols
        for _, value in call.attrs:
            symbols |= _symbols_in(value)
        if call.op in ("call_kernel", "guard"):
            symbols |= set(self.module.kernel_table[call.ref("kernel")].free_symbols)
        values = {v.name for v in call.inputs}
        for name in self._runs(call):
            for inside in self.module.function_table[name].body:
                values |= self._needs(inside)
        return values | {f"size {name}" for name in (symbols & self.inner)}

    def _keeps_its_place(self, call: Call) -> bool:
        """Which failure is reported, and the side effects of a C function, must not
        depend on the order that is chosen here."""
        if call.op in ("view", "if"):
            bodies = [self.module.function_table[name].body for name in self._runs(call)]
            return any(self._keeps_its_place(inside) for body in bodies for inside in body)
        if call.op == "call_kernel":
            return self.module.kernel_table[call.ref("kernel")].fallible
        return True


def _defines(call: Call) -> tuple[str, ...]:
    names = dict(call.attrs).get("defines", ())
    assert isinstance(names, tuple)
    if call.op == "loop":
        loop = Loop.of(call)
        names = (loop.count, *(size[0] for size in loop.sizes))
    return tuple(f"size {name}" for name in names)


def _symbols_in(value: Attr) -> set[str]:
    if isinstance(value, Dim):
        return set(value.symbols)
    if isinstance(value, tuple):
        return set().union(*(_symbols_in(v) for v in value))
    return set()
