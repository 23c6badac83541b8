# SPDX-License-Identifier: Apache-2.0
"""Elementary functions of strips: on targets with micro-kernels for them, which compilers make no
vectors of loops over (Helium), or slower ones (x86).

A loop that computes `exp`, `expm1`, `tanh`, `sigmoid` or `erf` of an expression becomes three: the
arguments of some iterations are stored in a strip, a micro-kernel replaces them by the function,
and the statements of the loop read it there. Contiguous arguments are read where they are. Where a
row is the function of something, and nothing else, its memory is the strip. On hosts, short rows,
such as those of a tile of sums, share a strip. The bits are those of the loop before, but for
subnormal numbers where vectors flush them.

Gates of integers take numbers of 16 bits, which are shifted. Cores with an FPU and without vectors
compute sigmoid alone so. Other targets compute the gates of
quantized recurrent layers so; cores with the DSP extension only where they are rows, because a
strip takes more loads and stores there than a call saves.

With lanes of partial sums, loops that sum stay what that pass made of them, and long rows become
blocks, which threads can share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from relax_aot.ir.axes import REGISTER
from relax_aot.ir.bounds import interval
from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Reserve,
    Stmt,
    Store,
    expressions,
    parts,
)
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.microkernels.fixed_gates import FIXED
from relax_aot.microkernels.functions import FUNCTIONS, GATES
from relax_aot.scheduling.contraction import moved, number_of, stride
from relax_aot.scheduling.nest import bounds_known, names_in, ranges, without_lets
from relax_aot.scheduling.strips import (
    declared,
    kept_scalars,
    may_compute,
    reads_early,
    written_out,
)
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="a row that is the function of another one needs no strip",
        before="""
            symbol n in 1..99
            kernel @squash(%x: f32[n]) -> (%y: f32[n]) {
              for i in 0..n {
                %y[i] = tanh(%x[i])
              }
            }""",
        after="""
            kernel @squash(%x: f32[n]) -> (%y: f32[n]) {
              micro raot_tanh_f32(...) [n]
            }""",
        target="mve",
    ),
    Example(
        why="arguments are stored where the powers will be",
        before="""
            symbol n in 1..99
            kernel @powers(%x: f32[n], %peak: f32[1]) -> (%y: f32[n], %t: f32[1]) {
              local total: f32 = 0.0:f32
              for i in 0..n {
                %y[i] = exp((%x[i] - %peak[0]))
                total = (total + %y[i])
              }
              %t[0] = total
            }""",
        after="""
            kernel @powers(%x: f32[n], %peak: f32[1]) -> (%y: f32[n], %t: f32[1]) {
              local total: f32 = 0.0:f32
              for lane in 0..n {
                %y[lane] = (%x[lane] - %peak[0])
              }
              micro raot_exp_f32(...) [n]
              for lane_0 in 0..n {
                total = (total + %y[lane_0])
              }
              %t[0] = total
            }""",
        target="mve",
    ),
    Example(
        why="a strip of 32, because the result is a product with the function",
        before="""
            symbol n in 1..99
            kernel @swish(%x: f32[n]) -> (%y: f32[n]) {
              for i in 0..n {
                %y[i] = (%x[i] * sigmoid(%x[i]))
              }
            }""",
        after="""
            kernel @swish(%x: f32[n]) -> (%y: f32[n]) {
              for i_strip in 0..(n + 31) // 32 {
                let i_width = min(-32*i_strip + n, 32)
                reserve %i_sigmoid: f32[32]
                micro raot_sigmoid_f32(..., %x[32*i_strip]) [i_width]
                for lane in 0..i_width {
                  %y[32*i_strip + lane] = (%x[32*i_strip + lane] * %i_sigmoid[lane])
                }
              }
            }""",
        target="mve",
    ),
    Example(
        why="on an FPU, sigmoid alone",
        before="""
            symbol n in 1..99
            kernel @gated(%x: f32[n]) -> (%y: f32[n], %z: f32[n]) {
              for i in 0..n {
                %y[i] = (%x[i] * sigmoid(%x[i]))
              }
              for j in 0..n {
                %z[j] = tanh(%x[j])
              }
            }""",
        after="""
            kernel @gated(%x: f32[n]) -> (%y: f32[n], %z: f32[n]) {
              for i_strip in 0..(n + 63) // 64 {
                let i_width = min(-64*i_strip + n, 64)
                reserve %i_sigmoid: f32[64]
                micro raot_sigmoid_f32(..., %x[64*i_strip]) [i_width]
                for lane in 0..i_width {
                  %y[64*i_strip + lane] = (%x[64*i_strip + lane] * %i_sigmoid[lane])
                }
              }
              for j in 0..n {
                %z[j] = tanh(%x[j])
              }
            }""",
        target="fpu",
    ),
    Example(
        why="gates of integers, whose arguments are shifted",
        before="""
            symbol n in 1..99
            kernel @gated(%x: i16[n], %c: i16[n]) -> (%y: i32[n]) {
              for i in 0..n {
                %y[i] = (fixed_tanh((cast(%x[i], i32, wrap) << 4:i32)) * cast(%c[i], i32, wrap))
              }
            }""",
        after="""
            kernel @gated(%x: i16[n], %c: i16[n]) -> (%y: i32[n]) {
              for i_strip in 0..(n + 31) // 32 {
                let i_width = min(-32*i_strip + n, 32)
                reserve %i_fixed_tanh: i16[32]
                micro raot_fixed_tanh_s16(..., %x[32*i_strip]) [i_width, 4]
                for lane in 0..i_width {
                  %y[32*i_strip + lane] = (cast(%i_fixed_tanh[lane], i32, wrap) * cast(...))
                }
              }
            }""",
        target="dsp",
    ),
    Example(
        why="a host's blocks of 1024, which threads can share",
        before="""
            symbol n in 1..9999
            kernel @squash(%x: f32[n]) -> (%y: f32[n]) {
              for i in 0..n {
                %y[i] = tanh(%x[i])
              }
            }""",
        after="""
            kernel @squash(%x: f32[n]) -> (%y: f32[n]) {
              for i_block in 0..(n + 1023) // 1024 {
                let i_width = min(-1024*i_block + n, 1024)
                micro raot_tanh_f32(...) [i_width]
              }
            }""",
        target="host",
    ),
    Example(
        why="short rows share a strip",
        before="""
            kernel @gate(%x: f32[40, 32], %b: f32[32]) -> (%y: f32[40, 32]) {
              for i in 0..40 {
                for j in 0..32 {
                  %y[i, j] = (%x[i, j] * tanh((%x[i, j] + %b[j])))
                }
              }
            }""",
        after="""
            kernel @gate(%x: f32[40, 32], %b: f32[32]) -> (%y: f32[40, 32]) {
              for i_strip in 0..2 {
                let i_width = min(-32*i_strip + 40, 32)
                reserve %j_tanh: f32[1024]
                for row in 0..i_width {
                  for lane in 0..32 {
                    %j_tanh[lane + 32*row] = (%x[32*i_strip + row, lane] + %b[lane])
                  }
                }
                micro raot_tanh_f32(...) [32*i_width]
            ...""",
        target="host",
    ),
    Example(
        why="one side of a choice is computed for all: its argument is read in any case",
        before="""
            symbol n in 1..99
            kernel @unit(%x: f32[n]) -> (%y: f32[n]) {
              for i in 0..n {
                %y[i] = select((%x[i] < 0.0:f32), expm1(%x[i]), %x[i])
              }
            }""",
        after="""
            kernel @unit(%x: f32[n]) -> (%y: f32[n]) {
              for i_strip in 0..(n + 31) // 32 {
                let i_width = min(-32*i_strip + n, 32)
                reserve %i_expm1: f32[32]
                micro raot_expm1_f32(..., %x[32*i_strip]) [i_width]
            ...""",
        target="mve",
    ),
    Example(
        why="a loop that sums stays: its lanes are vectors",
        before="""
            symbol n in 1..99
            kernel @total(%x: f32[n]) -> (%t: f32[1]) {
              local total: f32 = 0.0:f32
              for i in 0..n {
                total = (total + exp(%x[i]))
              }
              %t[0] = total
            }""",
        target="host",
    ),
    Example(
        why="the argument depends on the sum of the elements before",
        before="""
            symbol n in 1..99
            kernel @running(%x: f32[n]) -> (%y: f32[n]) {
              local total: f32 = 0.0:f32
              for i in 0..n {
                total = (total + %x[i])
                %y[i] = exp(total)
              }
            }""",
        target="mve",
    ),
)
_NAMES = FUNCTIONS | GATES | FIXED
_LEAST = 4
"""Fewer iterations than this are computed one by one, also as many as there are lanes of sums."""
_LEAST_STRIP = 64
MOST_BITS = 6
"""Integer bits of an argument of 16 bits."""
SHORT_ROW = 256
"""Elements of rows of which a strip holds several."""


def run(module: Module, target: Target) -> Module:
    """Functions in strips, where the target has micro-kernels for them."""
    if not _lengths(target):
        return module
    return replace(module, kernels=tuple(_in_strips(k, module, target) for k in module.kernels))


def _lengths(target: Target) -> dict[str, int]:
    """Elements of a strip for each function that micro-kernels compute."""
    lengths = dict.fromkeys(FUNCTIONS, target.functions) | dict.fromkeys(GATES, target.gates)
    lengths |= dict.fromkeys(FIXED, target.fixed)
    lengths["sigmoid"] = max(target.functions, target.sigmoids)
    return {function: length for function, length in lengths.items() if length}


def _in_strips(kernel: Kernel, module: Module, target: Target) -> Kernel:
    if kernel.parallel:
        return kernel
    w = Writer(names_in(kernel), module.bounds)
    with w.block() as body:
        _Strips(w, _lengths(target), target.partial_sums).block(kernel.body)
    return replace(kernel, body=tuple(body))


@dataclass(frozen=True, slots=True)
class _Strips:
    w: Writer
    lengths: Mapping[str, int]
    """Of a strip, by its function; 1 where only rows are computed so."""
    lanes: int
    """Of partial sums."""

    def block(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            match stmt:
                case For():
                    self.loop(stmt)
                case If():
                    then, otherwise = (self.nested(part) for part in (stmt.then, stmt.otherwise))
                    self.w.add(replace(stmt, then=then, otherwise=otherwise))
                case _:
                    self.w.add(stmt)
            if isinstance(stmt, Let) and stmt.value.symbols <= set(self.w.bounds):
                self.w.bounds = self.w.bounds.with_value(stmt.name, stmt.value, stmt.value)

    def nested(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        with self.w.block() as found:
            self.block(body)
        return tuple(found)

    def loop(self, loop: For) -> None:
        w, known = self.w, bounds_known(loop, self.w.bounds)
        flat = replace(loop, body=without_lets(loop.body))
        if known and not loop.axis and (loops := self.short_rows(flat)):
            self.strips(loops)
            return
        if known and not loop.axis and self.matches(flat) and (ready := self.ready(flat)):
            if whole := self.whole_row(flat):
                self.row(flat, *whole)
                return
            if self.length(ready) > 1:
                self.strips((flat,))
                return
        with w.block() as body:
            if known:
                w.bounds = ranges((loop,), w.bounds)
            self.block(loop.body)
        w.add(replace(loop, body=tuple(body)))

    def length(self, found: Iterable[Apply]) -> int:
        """Elements of a strip that is long enough for each of these functions."""
        return max(self.lengths[one.function] for one in found)

    def matches(self, loop: For) -> bool:
        """Whether it is worth a call, and no sum in lanes."""
        sums = any(
            isinstance(stmt, Assign) or (isinstance(stmt, Store) and stmt.buffer.scope == REGISTER)
            for stmt in loop.body
        )
        least = _LEAST if self.lanes == 1 else self.lanes + 1
        long = not loop.extent.is_constant or loop.extent.constant >= least
        return long and not (sums and self.lanes > 1)

    def short_rows(self, loop: For) -> tuple[For, ...]:
        """A nest whose inner loops are short rows, of which a strip holds several; else none. They
        are independent: what they read and store has an element for each iteration."""
        loops = [loop]
        while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], For):
            loops.append(replace(inner, body=without_lets(inner.body)))
        wide = [inner.extent for inner in loops[1:]]
        if self.lanes == 1 or not wide or any(inner.axis for inner in loops[1:]):
            return ()
        known = all(dim.is_constant and dim.constant > 0 for dim in wide)
        ready = self.ready(loops[-1])
        if not known or not ready:
            return ()
        if prod(dim.constant for dim in wide) > min(self.length(ready) // 2, SHORT_ROW):
            return ()
        names, body = {each.variable for each in loops}, loops[-1].body
        stores = [stmt for stmt in body if isinstance(stmt, Store)]
        loads = {e.buffer for stmt in body for e in expressions(stmt) if isinstance(e, Load)}
        shared = [stmt for stmt in stores if stmt.buffer in loads or stmt.buffer.scope == REGISTER]
        own = all(names <= set().union(*(d.symbols for d in stmt.index)) for stmt in shared)
        return tuple(loops) if own and not any(isinstance(stmt, Assign) for stmt in body) else ()

    def row(self, loop: For, store: Store, found: Apply) -> None:
        """The function of a row, stored where its arguments stood."""
        if self.lanes == 1:
            self.part_of_row(loop, store, found, ZERO, loop.extent)
            return
        names = (f"{loop.variable}_block", f"{loop.variable}_width")
        with self.w.tiles(names, loop.extent, self.lengths[found.function]) as (at, width):
            self.part_of_row(loop, store, found, at, width)

    def part_of_row(self, loop: For, store: Store, found: Apply, at: Dim, count: Dim) -> None:
        w, (argument,) = self.w, found.args
        part = _Strip((loop,), at, count, ZERO, 0, count)
        first = {loop.variable: loop.start + at}
        values = moved(store, first)
        source = values
        if isinstance(argument, Load) and stride(argument, loop.variable) == 1:
            source = moved(argument, first)
        else:
            self.each(part, (replace(store, value=argument),))
        w.micro(_NAMES[found.function], values=values, **{"from": source}, count=count)
        rest = tuple(stmt for stmt in loop.body if stmt != store)
        if rest:
            self.each(part, rest)

    def strips(self, loops: tuple[For, ...]) -> None:
        """Strips of iterations, with the functions of one after the other. Of a nest: iterations of
        its outermost loop, with all of the others. A strip has a loop of its own unless the number
        of iterations is constant: C compilers warn where a call may read a strip that is empty."""
        w, (head, *inner) = self.w, loops
        wide = prod(loop.extent.constant for loop in inner)
        size = self.size(loops, wide)
        names = (f"{head.variable}_strip", f"{head.variable}_width")
        with w.tiles(names, head.extent, size, apart=bool(inner)) as (at, width):
            place = Dim.of(head.variable) - head.start - at
            for loop in inner:
                place = place * loop.extent + Dim.of(loop.variable) - loop.start
            strip = _Strip(loops, at, width, place, size * wide, width * wide)
            body = loops[-1].body
            while found := self.ready(replace(loops[-1], body=body)):
                body = self.compute(strip, body, found)
            self.each(strip, body)

    def size(self, loops: tuple[For, ...], wide: int) -> int:
        """Iterations of a strip: several strips together are about as long as one alone would
        be."""
        body = loops[-1].body
        found = {e for stmt in body for e in expressions(stmt) if isinstance(e, Apply)}
        found = {one for one in found if self.is_function(one)}
        size = length = self.length(found)
        while size * len(found) > length and size > _LEAST_STRIP:
            size //= 2
        _, high = interval(loops[0].extent, self.w.bounds)
        return min(max(size // wide, 1), max(high, 1))

    def compute(
        self, strip: _Strip, body: tuple[Stmt, ...], found: list[Apply]
    ) -> tuple[Stmt, ...]:
        """Computes functions; returns the body that reads them, and scalars of their arguments
        that would take long to compute again."""
        w, shape, place = self.w, (Dim.of(strip.size),), (strip.place,)

        def reserve(kind: str, dtype: DType) -> Buffer:
            name = w.fresh(f"{strip.loops[-1].variable}_{kind}")
            buffer = Buffer(name, dtype, shape, REGISTER)
            w.add(Reserve(buffer))
            return buffer

        forms = {one: form for one in found if (form := _form(one)) is not None}
        results = {one: reserve(one.function, form.argument.dtype) for one, form in forms.items()}
        arguments = {one: form.argument for one, form in forms.items()}
        rows = {one: load for one in found if (load := _as_row(arguments[one], strip, body))}
        computed = declared(body, [arguments[one] for one in found if one not in rows])
        read: dict[Expr, Expr] = {
            one: _value(one, Load(buffer, place)) for one, buffer in results.items()
        }
        rest, kept = kept_scalars(_replaced(body, read), computed)
        strips: dict[Expr, Buffer] = {local: reserve(local.name, local.dtype) for local in kept}
        sources = {one: strips.get(arguments[one], buffer) for one, buffer in results.items()}
        stored = {sources[one]: arguments[one] for one in found if one not in rows}
        stored |= {buffer: local for local, buffer in strips.items()}
        stores = [Store(buffer, place, value) for buffer, value in stored.items()]
        if stores:
            self.each(strip, (*computed, *stores))
        for one, buffer in results.items():
            values = Load(buffer, (ZERO,))
            source = rows.get(one) or Load(sources[one], (ZERO,))
            name, count = _NAMES[one.function], strip.count
            w.micro(name, values=values, **{"from": source}, count=count, **forms[one].sizes)
        values_of: dict[Expr, Expr] = {
            local: Load(buffer, place) for local, buffer in strips.items()
        }
        return _replaced(rest, values_of)

    def each(self, strip: _Strip, body: tuple[Stmt, ...]) -> None:
        """The iterations of a strip with this body."""
        head, *inner = strip.loops
        sums: dict[Local, Expr] = {s.local: s.local for s in body if isinstance(s, Assign)}
        names = [*(["row"] * bool(inner)), *(loop.variable for loop in inner[:-1]), "lane"]
        extents = (strip.width, *(loop.extent for loop in inner))
        fresh = [
            For(self.w.fresh(name), ZERO, extent, ())
            for name, extent in zip(names, extents, strict=True)
        ]
        starts = (head.start + strip.at, *(loop.start for loop in inner))
        at = {
            loop.variable: start + Dim.of(own.variable)
            for loop, start, own in zip(strip.loops, starts, fresh, strict=True)
        }
        with self.w.nest(fresh):
            self.w.place(body, sums, at)

    def ready(self, loop: For) -> list[Apply]:
        """The functions in a loop of scalar statements whose arguments do not depend on what other
        iterations compute, and contain no other such function."""
        if not all(isinstance(stmt, Declare | Assign | Store) for stmt in loop.body):
            return []
        found: dict[Apply, None] = {}
        for number, stmt in enumerate(loop.body):
            for one in may_compute(stmt):
                form = _form(one) if one.function in self.lengths else None
                if form is None:
                    continue
                argument = written_out(form.argument, loop.body)
                if argument is None or not reads_early(argument, loop.body[:number], loop.body):
                    continue
                if not any(self.is_function(part) for part in parts(argument)):
                    found[one] = None
        return list(found)

    def is_function(self, expr: Expr) -> bool:
        return isinstance(expr, Apply) and expr.function in self.lengths

    def whole_row(self, loop: For) -> tuple[Store, Apply] | None:
        """The store of a function to contiguous memory, where the other statements read no other
        memory: it may be that of an argument."""
        stores = [stmt for stmt in loop.body if isinstance(stmt, Store)]
        ready = self.ready(loop)
        if len(stores) != 1 or not ready or stores[0].value != ready[0]:
            return None
        (store,), found = stores, ready[0]
        rest = [stmt for stmt in loop.body if stmt != store]
        own = Load(store.buffer, store.index)
        reads = [e for stmt in rest for e in expressions(stmt) if isinstance(e, Load)]
        fits = (
            store.buffer.dtype is DType.F32
            and stride(store, loop.variable) == 1
            and all(isinstance(stmt, Assign) for stmt in rest)
            and all(load == own for load in reads)
            and loop.body[0] == store
        )
        return (store, found) if fits and not any(map(self.is_function, _in(rest))) else None


@dataclass(frozen=True, slots=True)
class _Form:
    """What a micro-kernel reads for a function, and its sizes without the number of elements."""

    argument: Expr
    sizes: Mapping[str, int]


def _form(one: Apply) -> _Form | None:
    """Functions of integers take numbers of 16 bits and shift them."""
    if one.function not in FIXED:
        return _Form(one.args[0], {}) if one.args[0].dtype is DType.F32 else None
    match one.args[0]:
        case Binary("<<", Cast(value, DType.I32), places) if value.dtype is DType.I16:
            bits = number_of(places)
            fits = bits is not None and 0 <= bits <= MOST_BITS
            return _Form(value, {"bits": bits}) if fits and bits is not None else None
        case Cast(value, DType.I32) if value.dtype is DType.I16:
            return _Form(value, {"bits": 0})
    return None


def _value(one: Apply, load: Load) -> Expr:
    return Cast(load, DType.I32) if one.function in FIXED else load


@dataclass(frozen=True, slots=True)
class _Strip:
    """Iterations of a loop, or of the outermost loop of a nest: `width` of them from `at` on,
    `count` with those of the inner loops, `size` at most. `place`: of one in the strip."""

    loops: tuple[For, ...]
    at: Dim
    width: Dim
    place: Dim
    size: int
    count: Dim


def _as_row(argument: Expr, strip: _Strip, body: tuple[Stmt, ...]) -> Load | None:
    """The first element of an argument that is contiguous in the order of a strip, and that no
    iteration stores."""
    if not isinstance(argument, Load):
        return None
    if any(isinstance(stmt, Store) and stmt.buffer == argument.buffer for stmt in body):
        return None
    step = ONE
    for loop in reversed(strip.loops):
        if stride(argument, loop.variable) != step:
            return None
        step = step * loop.extent
    starts = {loop.variable: loop.start for loop in strip.loops[1:]}
    return moved(argument, {strip.loops[0].variable: strip.loops[0].start + strip.at, **starts})


def _replaced(body: tuple[Stmt, ...], values: Mapping[Expr, Expr]) -> tuple[Stmt, ...]:
    return map_exprs(body, lambda e: values.get(e, e))


def _in(body: list[Stmt]) -> Iterator[Expr]:
    for stmt in body:
        yield from expressions(stmt)
