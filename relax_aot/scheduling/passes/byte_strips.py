# SPDX-License-Identifier: Apache-2.0
"""Strips of loops over bytes on Helium, whose compilers make vectors of loops over 32-bit integers
and of loops over floats, but not of conversions between them.

An innermost loop that stores one byte or float of each iteration becomes several, over some of its
iterations at a time: micro-kernels make integers of contiguous bytes (`byte_strips.h`), floats of
integers (`scale_sums.h`) and bytes of either (`byte_strips.h`, `quantize_lines.h`), and loops of
one type stand between them. Results keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    COMPARISONS,
    PARTS,
    Apply,
    Binary,
    Bind,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    apply,
    expressions,
    held,
    mapped,
    parts,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import BYTES, indexed_by, moved, stride, suffix_of
from relax_aot.scheduling.nest import greatest, ranges, without_lets
from relax_aot.scheduling.passes.quantized_lines import Quantized, operands, quantized
from relax_aot.scheduling.scaled import in_memory
from relax_aot.scheduling.strategies.mve import MOST_APART
from relax_aot.scheduling.strips import choices, written_out
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

STRIP = 64
LEAST = 8
"""Fewer elements are computed one by one."""
INTEGERS = ("+", "-", "*", "&", "|", "^", "<<", ">>", *COMPARISONS)
"""Operations on 32-bit integers that vectors have."""
EXAMPLES = (
    Example(
        why="a product of floats",
        target="mve",
        before="""
            symbol n in 1..99
            kernel @product(%a: f32[n], %b: f32[n]) -> (%y: i8[n]) {
              for i in 0..n {
                local both: f32 = (%a[i] * %b[i])
                %y[i] = cast((rint((both / 0.5:f32)) + cast(3:i8, f32, wrap)), i8, saturate)
              }
            }""",
        after="""
            kernel @product(%a: f32[n], %b: f32[n], %quantized_scale: f32[1]) -> (%y: i8[n]) {
              for i_strip in 0..(n + 63) // 64 {
                let i_width = min(-64*i_strip + n, 64)
                reserve %i_values: f32[64]
                for lane in 0..i_width {
                  %i_values[lane] = (%a[64*i_strip + lane] * %b[64*i_strip + lane])
                }
                micro raot_quantize_lines_s8(%y[64*i_strip], ...) [1, i_width, 0, 0, 1, 3]
              }
            }""",
    ),
    Example(
        why="bytes become integers, and these floats",
        target="mve",
        before="""
            kernel @dequantize(%x: i8[20]) -> (%y: f32[20]) {
              for i in 0..20 {
                %y[i] = (cast((cast(%x[i], i32, wrap) - 3:i32), f32, wrap) * 0.5:f32)
              }
            }""",
        after="""
            kernel @dequantize(%x: i8[20]) -> (%y: f32[20]) scratch (...) {
              reserve %i_bytes: i32[20]
              micro raot_widen_strip_s8(%i_bytes[0], %x[0]) [20]
              reserve %i_values: i32[20]
              for lane in 0..20 {
                %i_values[lane] = (%i_bytes[lane] - 3:i32)
              }
              ...
              micro raot_scale_lines_f32(%y[0], %i_values[0], ...) [1, 20, 0, 1, 0, 0, 0]
            }""",
    ),
    Example(
        why="integers become bytes",
        target="mve",
        before="""
            kernel @sums(%a: i32[20], %b: i32[20]) -> (%y: u8[20]) {
              for i in 0..20 {
                %y[i] = cast((%a[i] + %b[i]), u8, saturate)
              }
            }""",
        after="""
            kernel @sums(%a: i32[20], %b: i32[20]) -> (%y: u8[20]) {
              reserve %i_values: i32[20]
              for lane in 0..20 {
                %i_values[lane] = min(max((%a[lane] + %b[lane]), 0:i32), 255:i32)
              }
              micro raot_narrow_strip_u8(%y[0], ...) [20, 1]
            }""",
    ),
    Example(
        why="a scale that differs between elements",
        target="mve",
        before="""
            kernel @product(%a: f32[99], %s: f32[99]) -> (%y: i8[99]) {
              for i in 0..99 {
                %y[i] = cast((rint(((%a[i] * %a[i]) / %s[i])) + cast(3:i8, f32, wrap)), i8,
                  saturate)
              }
            }""",
    ),
    Example(
        why="a row that a border cuts off, of which nothing may be read there",
        target="mve",
        before="""
            symbol n in 1..9
            kernel @pad(%x: i32[n, 20]) -> (%y: f32[n + 2, 20]) {
              for i in 0..n + 2 {
                for j in 0..20 {
                  %y[i, j] = select(((index(0) <= index(i - 1)) && (index(i - 1) < index(n))),
                    cast(%x[i - 1, j], f32, wrap), 0.5:f32)
                }
              }
            }""",
    ),
    Example(
        why="a mask of elements that are in memory",
        target="mve",
        before="""
            symbol n in 9..99
            kernel @mask(%x: i8[n], %m: bool[n]) -> (%y: f32[n]) {
              for i in 0..n {
                %y[i] = select(%m[i], cast(cast(%x[i], i32, wrap), f32, wrap), 0.5:f32)
              }
            }""",
        after="""
            ...
                for lane in 0..i_width {
                  %y[64*i_strip + lane] = select(%m[64*i_strip + lane], %i_floats[lane], 0.5:f32)
                }
              }
            }""",
    ),
    Example(
        why="a scale that an index from data finds",
        target="mve",
        before="""
            kernel @product(%a: f32[99], %s: f32[9], %k: i32[99]) -> (%y: i8[99]) {
              for i in 0..99 {
                clamped at in 0..8 = cast(%k[i], i64, wrap)
                %y[i] = cast((rint(((%a[i] * %a[i]) / %s[at])) + cast(3:i8, f32, wrap)), i8,
                  saturate)
              }
            }""",
    ),
    Example(
        why="elements that the loop reads are those that it writes",
        target="mve",
        before="""
            kernel @squares(%x: i8[99]) -> (%y: i8[100]) {
              for i in 0..99 {
                local x: f32 = cast(%y[i], f32, wrap)
                %y[i + 1] = cast((rint(((x * x) / 0.5:f32)) + cast(3:i8, f32, wrap)), i8, saturate)
              }
            }""",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets with Helium."""
    return apply_module(module, target, match) if target.channels_last else module


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    (loop,) = without_lets((stmt,))
    if not isinstance(loop, For) or loop.start != 0 or loop.axis or not loop.body:
        return None
    *declared, store = loop.body
    if not isinstance(store, Store) or not all(map(_computes, declared)):
        return None
    if greatest(loop.stop, w.bounds) < LEAST or not _elementwise(loop, store):
        return None
    step = stride(store, loop.variable)
    if step is None or not step.is_constant or not 0 < step.constant <= MOST_APART:
        return None
    value = written_out(store.value, loop.body)
    bound = {one.name for one in declared if isinstance(one, Bind)}
    lanes = _Lanes(loop.variable, ranges((loop,), w.bounds), _places(store))
    strips = _Strips(loop, lanes, tuple(declared), store, step)
    if value is None:
        return None
    found = quantized(value, {loop.variable, *bound})
    if found is not None and not isinstance(found.x, Load):
        given = quantized(store.value, set()) if bound else found
        if given is None:
            return None
        one = replace(found, x=given.x)
        return lambda: strips.emit(w, lambda s: s.quantize(one))
    if bound:
        return None
    if isinstance(value, Cast) and value.dtype in BYTES and lanes.is_integer(value.value):
        cast = value
        return lambda: strips.emit(w, lambda s: s.narrow(cast))
    if value.dtype is DType.F32 and step == 1 and lanes.integers(value):
        return lambda: strips.emit(w, lambda s: s.floats(value))
    return None


def _computes(stmt: Stmt) -> bool:
    """Whether a statement names a scalar, or a place in a table that a scalar stands for."""
    return isinstance(stmt, Declare) or (isinstance(stmt, Bind) and stmt.trusted)


def _elementwise(loop: For, store: Store) -> bool:
    """Whether an iteration reads nothing that another one writes."""
    loads = (part for one in loop.body for part in expressions(one) if isinstance(part, Load))
    own = [load for load in loads if load.buffer.name == store.buffer.name]
    return all(load.index == store.index for load in own)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The iterations of a loop over `name` as elements of vectors. `bounds`: the ranges that hold
    in it; `stored`: where on which axis each of them stores, which is in memory."""

    name: str
    bounds: Bounds
    stored: set[tuple[Dim, Dim]]

    def is_integer(self, value: Expr) -> bool:
        """Whether vectors of 32-bit integers compute an expression, and it changes in the loop."""
        return value.dtype is DType.I32 and self._moves(value) and self._has_lanes(value)

    def integers(self, x: Expr) -> dict[Expr, tuple[Expr, tuple[Expr, ...]]]:
        """The largest parts of an expression that are an integer that changes in the loop, times at
        most two floats that do not: the integer and these floats."""
        factors: list[Expr] = []
        inner = x
        while isinstance(inner, Binary) and inner.op == "*" and not self._moves(inner.right):
            factors.insert(0, inner.right)
            inner = inner.left
        match inner:
            case Cast(total, DType.F32, "wrap") if len(factors) <= 2 and self.is_integer(total):
                return {x: (total, tuple(factors))}
        read = [part for part in held(x, PARTS) if part not in choices(x) or self._is_inside(part)]
        return {part: one for inner in read for part, one in self.integers(inner).items()}

    def _moves(self, x: Expr) -> bool:
        return self.name in indexed_by(x)

    def _has_lanes(self, value: Expr) -> bool:
        if not self._moves(value):
            return True
        match value:
            case Load():
                return value.dtype is DType.I32 and stride(value, self.name) == 1
            case Cast(Load() as load, DType.I32, "wrap") if load.dtype in BYTES:
                return stride(load, self.name) == 1
            case Binary(op, left, _) if op in INTEGERS and left.dtype is DType.I32:
                pass
            case Apply("min" | "max", (left, _)) if left.dtype is DType.I32:
                pass
            case Select():
                pass
            case _:
                return False
        inside = all(map(self._is_inside, choices(value)))
        return inside and all(map(self._has_lanes, held(value, PARTS)))

    def _is_inside(self, x: Expr) -> bool:
        """Whether all that an expression reads is in memory in every iteration."""
        places = (place for load in parts(x) if isinstance(load, Load) for place in _places(load))
        return all(place in self.stored or self._fits(*place) for place in places)

    def _fits(self, at: Dim, size: Dim) -> bool:
        known = at.symbols | size.symbols <= set(self.bounds)
        return known and prove_le(0, at, self.bounds) and prove_le(at + 1, size, self.bounds)


def _places(access: Load | Store) -> set[tuple[Dim, Dim]]:
    """The index on each axis, and the size of the axis."""
    return set(zip(access.index, access.buffer.shape, strict=True))


@dataclass(frozen=True, slots=True)
class _Strips:
    loop: For
    lanes: _Lanes
    declared: tuple[Stmt, ...]
    store: Store
    step: Dim

    def emit(self, w: Writer, finish: Callable[[_Strip], None]) -> None:
        name = self.loop.variable
        size = min(STRIP, greatest(self.loop.stop, w.bounds))
        with w.tiles((f"{name}_strip", f"{name}_width"), self.loop.stop, size) as (first, width):
            finish(_Strip(w, self, first, width, size))


@dataclass(frozen=True, slots=True)
class _Strip:
    """`width` iterations from `first` on, `size` at most. `marks`: the strips of values that locals
    stand for."""

    w: Writer
    strips: _Strips
    first: Dim
    width: Dim
    size: int
    marks: dict[Local, Buffer] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.strips.loop.variable

    @property
    def out(self) -> Load:
        return moved(self.strips.store, {self.name: self.first})

    def quantize(self, found: Quantized) -> None:
        """Bytes of floats."""
        w, declared = self.w, self.strips.declared
        if any(isinstance(one, Bind) for one in declared):
            strip = self._reserved("values", DType.F32)
            self._each(strip, found.x, declared)
            values = Load(strip, (ZERO,))
        else:
            values = self._values(self._converted(found.x))
        micro, given = operands(w, found, self.out.dtype)
        w.micro(
            micro, out=self.out, x=values, lines=ONE, count=self.width, line_step=ZERO,
            x_step=ZERO, step=self.strips.step, **given,
        )  # fmt: skip

    def narrow(self, cast: Cast) -> None:
        """Bytes of integers."""
        value = cast.value
        if cast.mode == "saturate":
            low, high = cast.dtype.limits
            value = apply("min", apply("max", value, low), high)
        self.w.micro(
            f"raot_narrow_strip_{suffix_of(cast.dtype)}", out=self.out,
            values=self._values(self._widened(value)), count=self.width, step=self.strips.step,
        )  # fmt: skip

    def floats(self, value: Expr) -> None:
        """Floats, some of which are integers."""
        if (whole := self.strips.lanes.integers(value).get(value)) is not None:
            self._scaled(*whole, out=self.out)
            return
        converted = self._converted(value)
        with self.w.range("lane", self.width) as lane:
            self._place((replace(self.strips.store, value=converted),), lane)

    def _converted(self, x: Expr) -> Expr:
        """An expression in which floats of integers are elements of strips."""
        found = self.strips.lanes.integers(x)
        marks = {part: self._floats(*factors) for part, factors in found.items()}
        return _marked(x, marks)

    def _floats(self, total: Expr, factors: tuple[Expr, ...]) -> Local:
        """A strip of floats of integers."""
        floats = self._reserved("floats", DType.F32)
        self._scaled(total, factors, Load(floats, (ZERO,)))
        return self._mark(floats)

    def _scaled(self, total: Expr, factors: tuple[Expr, ...], out: Load) -> None:
        """Integers times factors that are the same in all iterations."""
        w, sums = self.w, self._values(self._widened(total))
        scale, factor = (*factors, Lit(1.0, DType.F32), Lit(1.0, DType.F32))[:2]
        by = w.buffer("by", DType.F32, 3)
        limited = (factor, Lit(-inf, DType.F32), Lit(inf, DType.F32))
        w.add(*(Store(by, (Dim.of(n),), one) for n, one in enumerate(limited)))
        w.micro(
            "raot_scale_lines_f32", out=out, sums=sums, scale=in_memory(w, scale, "scale"),
            bias=in_memory(w, Lit(-0.0, DType.F32), "bias"), by=by, lines=ONE, count=self.width,
            line_step=ZERO, step=ONE, sum_line=ZERO, scale_step=ZERO, bias_step=ZERO,
        )  # fmt: skip

    def _widened(self, x: Expr) -> Expr:
        """An expression in which bytes are elements of strips of integers."""
        marks: dict[Expr, Local] = {}
        for part in dict.fromkeys(parts(x)):
            match part:
                case Cast(Load() as load, DType.I32, "wrap") if (
                    load.dtype in BYTES and stride(load, self.name) == 1
                ):
                    values = self._reserved("bytes", DType.I32)
                    first = moved(load, {self.name: self.first})
                    name = f"raot_widen_strip_{suffix_of(load.dtype)}"
                    self.w.micro(name, values=values, x=first, count=self.width)
                    marks[part] = self._mark(values)
        return _marked(x, marks)

    def _values(self, x: Expr) -> Load:
        """The first element of a strip of an expression, or of the array that it is."""
        if isinstance(x, Local) and x in self.marks:
            return Load(self.marks[x], (ZERO,))
        if isinstance(x, Load) and stride(x, self.name) == 1:
            return moved(x, {self.name: self.first})
        values = self._reserved("values", x.dtype)
        self._each(values, x)
        return Load(values, (ZERO,))

    def _each(self, values: Buffer, x: Expr, declared: tuple[Stmt, ...] = ()) -> None:
        with self.w.range("lane", self.width) as lane:
            self._place((*declared, Store(values, (lane,), x)), lane)

    def _place(self, body: tuple[Stmt, ...], lane: Dim) -> None:
        known: dict[Local, Expr] = {one: Load(b, (lane,)) for one, b in self.marks.items()}
        self.w.place(body, known, {self.name: self.first + lane})

    def _reserved(self, kind: str, dtype: DType) -> Buffer:
        return self.w.reserve(f"{self.name}_{kind}", dtype, REGISTER, self.size)

    def _mark(self, strip: Buffer) -> Local:
        mark = Local(strip.name, strip.dtype)
        self.marks[mark] = strip
        return mark


def _marked(x: Expr, marks: Mapping[Expr, Local]) -> Expr:
    return marks[x] if x in marks else mapped(x, PARTS, lambda part: _marked(part, marks))
