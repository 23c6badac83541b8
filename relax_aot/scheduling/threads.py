# SPDX-License-Identifier: Apache-2.0
"""Threads: loops whose iterations are proven independent become parallel on the axis `thread`.

Of nested loops, the one is chosen that leaves least work to one thread. Scratch that
an iteration writes before it reads becomes core-local: its value gets a copy for each thread. A
sum is computed by one iteration, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from relax_aot.fusion.checking.independence import private_scratch
from relax_aot.ir.axes import CORE
from relax_aot.ir.dims import Bounds, Dim, interval
from relax_aot.ir.graph import Call, Function, Module
from relax_aot.ir.loops import (
    BODIES,
    Buffer,
    For,
    If,
    Kernel,
    Let,
    Micro,
    Multiply,
    Stmt,
    expressions,
    mapped,
    walk,
)
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.rewrite import map_buffers, rewrite_module
from relax_aot.ir.types import TensorType
from relax_aot.microkernels.functions import FUNCTIONS
from relax_aot.scheduling.nest import greatest, ranges

AXIS = "thread"
GREATEST = 32
"""Threads of one run at most."""
LEAST = 1 << 15
"""The work of a chunk of iterations: less is not worth a hand-over to another thread."""
LANES = 8
"""Products of a tile that count as one operation."""
PRODUCT = 2
"""Operations of each product in the loops that a micro-kernel stands for, about."""
BYTES = 4
"""Bytes of weights that count as one: reading them from memory takes as long."""


def run(
    module: Module, threads: int, least: int = 0, unsplit: Mapping[str, Kernel] | None = None
) -> Module:
    """The module for up to `threads` threads. Loops with less work than two chunks of `least`
    stay serial (by default LEAST). `unsplit`: the kernels with reductions that are not split yet,
    in which more loops are proven to be independent. Core-local scratch, also that of a text, has a
    copy for each thread."""
    least = least or LEAST
    before = unsplit or {}
    kernels = dict(module.kernel_table)
    if threads > 1:
        kernels = {
            k.name: _parallel(k, module.bounds, threads, least, before.get(k.name, k))
            for k in module.kernels
        }

    def call(_: Function, line: Call) -> Call:
        if line.op != "call_kernel":
            return line
        kernel = kernels[line.ref("kernel")]
        outs = list(line.outs)
        for place, buffer in enumerate(kernel.scratch, len(kernel.outputs)):
            if buffer.scope == CORE:
                type_ = TensorType(buffer.dtype, (Dim.of(threads), *buffer.shape))
                outs[place] = replace(outs[place], type=type_)
        return replace(line, outs=tuple(outs))

    if any(buffer.scope == CORE for kernel in kernels.values() for buffer in kernel.scratch):
        module = rewrite_module(module, call)
    return replace(module, kernels=tuple(kernels.values()))


def _parallel(kernel: Kernel, bounds: Bounds, threads: int, least: int, unsplit: Kernel) -> Kernel:
    """The kernel with the loops that gain most, none of them inside another."""
    if kernel.parallel or kernel.fallible:
        return kernel
    whole = work_of(kernel.body, bounds)
    candidates = [c for c in _candidates(kernel.body, bounds, (), 1) if c.work >= 2 * least]
    chosen: list[tuple[_Candidate, frozenset[str]]] = []
    for one in sorted(candidates, key=lambda c: c.seconds(threads, whole, least)):
        if any(one.overlaps(other) for other, _ in chosen):
            continue
        own = private_scratch(kernel, one.loop, bounds.open)
        if own is None and unsplit is not kernel and unsplit.scratch == kernel.scratch:
            own = _private_before(unsplit, one.loop, bounds.open)
        if own is not None:
            chosen.append((one, own))
    if not chosen:
        return kernel
    loops = {id(one.loop) for one, _ in chosen}
    return _marked(kernel, loops, frozenset[str]().union(*(own for _, own in chosen)))


def _private_before(unsplit: Kernel, loop: For, bounds: Bounds) -> frozenset[str] | None:
    """`private_scratch` of the loop with the same variable and iterations in the kernel before its
    reductions were split, which changes the order inside of an iteration alone."""
    loops = [
        stmt
        for stmt in walk(unsplit.body)
        if isinstance(stmt, For)
        and (stmt.variable, stmt.start, stmt.stop) == (loop.variable, loop.start, loop.stop)
    ]
    return private_scratch(unsplit, loops[0], bounds) if len(loops) == 1 else None


def _marked(kernel: Kernel, loops: Container[int], own: Container[str]) -> Kernel:
    """With parallel loops, given by their identities, and core-local scratch."""

    def in_core(buffer: Buffer) -> Buffer:
        return replace(buffer, scope=CORE) if buffer.name in own else buffer

    def mark(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and id(stmt) in loops:
            return replace(stmt, axis=AXIS)
        return mapped(stmt, BODIES, mark)

    body = map_buffers(tuple(map(mark, kernel.body)), in_core)
    return replace(kernel, body=body, scratch=tuple(map(in_core, kernel.scratch)))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A loop that may become parallel: where it is, how often it runs, its iterations, and the
    work of one and of the last of them at the greatest sizes. The last tile of rows is smaller."""

    loop: For
    path: tuple[int, ...]
    around: int
    iterations: int
    each: int
    last: int

    @property
    def work(self) -> int:
        return (self.iterations - 1) * self.each + self.last

    def seconds(self, threads: int, whole: int, least: int) -> float:
        """The time of the kernel, whose work is `whole`, where threads share this loop alone."""
        rounds, rest = divmod(self.iterations - 1, threads)
        longest = rounds * self.each + (self.each if rest else self.last)
        return whole - self.around * (self.work - longest - least / 4)

    def overlaps(self, other: _Candidate) -> bool:
        common = min(len(self.path), len(other.path))
        return self.path[:common] == other.path[:common]


def _candidates(
    body: tuple[Stmt, ...], bounds: Bounds, path: tuple[int, ...], around: int
) -> Iterator[_Candidate]:
    """Loops of several iterations, not below conditions."""
    for position, stmt in enumerate(body):
        if isinstance(stmt, Let) and stmt.value.symbols <= set(bounds):
            bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
        if isinstance(stmt, For) and (stmt.start.symbols | stmt.stop.symbols) <= set(bounds):
            inside, iterations = ranges((stmt,), bounds), greatest(stmt.extent, bounds)
            here = (*path, position)
            if iterations >= 2:
                end = interval(stmt.start, bounds)[1] + iterations - 1
                last = work_of(stmt.body, bounds.with_range(stmt.variable, end, end))
                each = work_of(stmt.body, inside)
                yield _Candidate(stmt, here, around, iterations, each, min(each, last))
            yield from _candidates(stmt.body, inside, here, around * iterations)


@dataclass(frozen=True, slots=True)
class Chunk:
    """How many iterations of a parallel loop one thread takes at a time. Where `symbol` is below
    `least`, the whole loop has less work than it costs to share it."""

    iterations: int
    symbol: str = ""
    least: int = 0


def chunks(kernel: Kernel, bounds: Bounds) -> dict[int, Chunk]:
    """By the identity of each loop that is parallel on threads."""
    symbols = kernel.free_symbols
    found = {}
    for loop, inside in _loops(kernel.body, bounds):
        work = work_of(loop.body, ranges((loop,), inside))
        chunk = Chunk(max(1, LEAST // max(work, 1)))
        if len(symbols) == 1 and symbols[0] in bounds:
            chunk = replace(chunk, symbol=symbols[0], least=_least(loop, symbols[0], inside))
        found[id(loop)] = chunk
    return found


def _loops(body: tuple[Stmt, ...], bounds: Bounds) -> Iterator[tuple[For, Bounds]]:
    """Every loop that is parallel on threads, with what is known around it."""
    for stmt in body:
        if isinstance(stmt, Let) and stmt.value.symbols <= set(bounds):
            bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
        if isinstance(stmt, For) and stmt.axis == AXIS:
            yield stmt, bounds
        elif isinstance(stmt, For):
            known = (stmt.start.symbols | stmt.stop.symbols) <= set(bounds)
            yield from _loops(stmt.body, ranges((stmt,), bounds) if known else bounds)
        elif isinstance(stmt, If):
            yield from _loops((*stmt.then, *stmt.otherwise), bounds)


def _least(loop: For, symbol: str, bounds: Bounds) -> int:
    """The least value at which the loop has work for two chunks, by bisection."""
    low, high = bounds.range(symbol)
    while low < high:
        middle = (low + high) // 2
        known = bounds.with_range(symbol, middle, middle)
        work = greatest(loop.extent, known) * work_of(loop.body, ranges((loop,), known))
        low, high = (low, middle) if work >= 2 * LEAST else (middle + 1, high)
    return low


def work_of(body: tuple[Stmt, ...], bounds: Bounds) -> int:
    """Operations at the greatest sizes, about."""
    total = 0
    for stmt in body:
        match stmt:
            case For():
                known = (stmt.start.symbols | stmt.stop.symbols) <= set(bounds)
                inside = ranges((stmt,), bounds) if known else bounds
                total += greatest(stmt.extent, bounds) * work_of(stmt.body, inside)
            case If():
                total += max(work_of(side, bounds) for side in (stmt.then, stmt.otherwise))
            case Let() if stmt.value.symbols <= set(bounds):
                bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
            case Multiply():
                counts = (stmt.columns, *(level[0] for level in stmt.levels))
                weights = prod(greatest(count, bounds) for count in counts)
                read = weights * stmt.right.buffer.dtype.bytes // BYTES
                total += max(weights * greatest(stmt.rows, bounds) // LANES, read)
            case Micro() if stmt.kernel.name in FUNCTIONS.values():
                total += greatest(stmt.sizes[0], bounds)
            case Micro():
                sizes = tuple(greatest(size, bounds) for size in stmt.sizes)
                total += _meaning(stmt.kernel, sizes) // PRODUCT
            case _:
                total += 1 + sum(1 for _ in expressions(stmt)) // 4
    return total


@lru_cache(maxsize=4096)
def _meaning(kernel: MicroKernel, sizes: tuple[int, ...]) -> int:
    """The work of the loops that a micro-kernel stands for."""
    values = zip(kernel.sizes, sizes, strict=True)
    return work_of(kernel.meaning.body, Bounds.of({name: (n, n) for name, n in values}))
