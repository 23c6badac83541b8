# SPDX-License-Identifier: Apache-2.0
"""Factors of a product on matrix units that are decoded from bytes: `(byte - zero point) * scale`,
rounded to half precision.

A thread loads eight or four neighbors at once while the matrices before are multiplied, decodes
them as pairs, and stores them in the other half of shared memory (decode.cuh). The zero point and
the scale are one for all of them, as those of a group of steps, or neighbors too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.axes import LANES
from relax_aot.ir.dim_expr import FloorDiv, Mod
from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, dim_min, row_major, simplify
from relax_aot.ir.loops import (
    Binary,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Lit,
    Load,
    Local,
    Store,
    index_dims,
    parts,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import BYTES, moved, number_of, stride
from relax_aot.scheduling.devices.copies import Pair, Side, reserved_tile
from relax_aot.scheduling.devices.nibbles import EIGHT, nibble_of, word_at
from relax_aot.scheduling.devices.operands import At, Product, below, extent, split
from relax_aot.scheduling.devices.vectors import BYTES as BYTES_AT_ONCE
from relax_aot.scheduling.devices.vectors import VECTOR
from relax_aot.scheduling.devices.window_tables import Known
from relax_aot.scheduling.writer import Writer


@dataclass(frozen=True, slots=True)
class Part:
    """What a value is decoded from: a byte, 4 bits or a scale. `load` reads one element for each;
    of packed weights, that is an array that does not exist."""

    value: Expr
    load: Load

    @property
    def packed(self) -> bool:
        return self.load != self.value and self.load.dtype is DType.U4

    @property
    def dtype(self) -> DType:
        """Of registers."""
        if not self.load.dtype.is_stored_int:
            return self.load.dtype
        return DType.I8 if self.load.dtype.is_signed else DType.U8

    def one(self, at: At) -> Expr:
        """The element at some iterations, in the type of registers."""
        value = substitute_in(self.value, {**at})
        stored = value.dtype.is_stored_int
        return Cast(Cast(value, DType.I32), self.dtype) if stored else value


@dataclass(frozen=True, slots=True)
class Decoding:
    """Bytes, or weights of 4 bits, less a number and a zero point. Without a scale, these are the
    values."""

    byte: Part
    number: int = 0
    zero: Part | None = None
    scale: Part | None = None

    @property
    def others(self) -> tuple[Part, ...]:
        return tuple(one for one in (self.zero, self.scale) if one is not None)

    @property
    def kind(self) -> str:
        """In names of micro-kernels."""
        return self.byte.load.dtype.value

    @property
    def zero_in_range(self) -> bool:
        """Whether the sum of the number and the zero point is a value of the bytes."""
        if self.zero is None:
            return False
        low, high = _limits(self.zero.value)
        least, most = self.byte.load.dtype.limits
        return least <= self.number + low and self.number + high <= most

    def is_exact(self, kind: DType) -> bool:
        """Whether a type has all differences: bfloat16 those of 4 bits alone."""
        few = self.byte.packed and (self.zero is None or self.zero_in_range)
        return kind is DType.F16 or few

    def whole_zero(self, at: At) -> Expr:
        """The sum of the number and the zero point at some iterations."""
        assert self.zero is not None
        zero = Cast(substitute_in(self.zero.value, {**at}), DType.I32)
        return Binary("+", zero, Lit(self.number, DType.I32)) if self.number else zero


def decoding_of(value: Expr, step: str) -> Decoding | None:
    """How a value of half precision is decoded, if it is. `step`: the variable along which weights
    of 4 bits are packed."""
    kind = value.dtype
    inner = _widened(value, kind)
    found = None
    match inner:
        case Binary("*", left, right):
            for one, other in ((left, right), (right, left)):
                number, scale = _integer(_widened(one, kind), step, kind), _widened(other, kind)
                if number is not None and isinstance(scale, Load) and scale.dtype is kind:
                    found = replace(number, scale=Part(scale, scale))
        case _:
            found = _integer(inner, step, kind)
    return found if found is not None and found.is_exact(kind) else None


def _widened(expr: Expr, kind: DType) -> Expr:
    """Without casts of floats; those to half precision round at last, or once before."""
    while isinstance(expr, Cast) and expr.dtype in (kind, DType.F32) and expr.mode == "wrap":
        expr = expr.value
    return expr


def _integer(expr: Expr, step: str, kind: DType) -> Decoding | None:
    """Bytes, less their zero points."""
    match expr:
        case Cast(inner, DType.I32, "wrap"):
            byte = _byte(inner, step)
            return None if byte is None else Decoding(byte)
        case Binary("-", left, right) if expr.dtype not in BYTES:
            found = _integer(_widened(left, kind), step, kind)
            zero = _zero(_widened(right, kind))
            if found is None or found.zero is not None:
                return None
            if isinstance(zero, int):
                low, high = found.byte.load.dtype.limits
                known = low <= found.number + zero <= high
                return replace(found, number=found.number + zero) if known else None
            return None if zero is None else replace(found, zero=zero)
        case _:
            byte = _byte(expr, step)
            return None if byte is None else Decoding(byte)


def _byte(expr: Expr, step: str) -> Part | None:
    if isinstance(expr, Load) and expr.dtype in BYTES:
        return Part(expr, expr)
    packed = nibble_of(expr, step)
    return None if packed is None else Part(expr, packed)


def _zero(expr: Expr) -> Part | int | None:
    """A zero point: a number, a byte or 4 bits."""
    if (number := number_of(expr)) is not None:
        return number
    if isinstance(expr, Lit) and isinstance(expr.value, float) and expr.value.is_integer():
        return int(expr.value)
    inner = expr.value if isinstance(expr, Cast) and expr.dtype is DType.I32 else expr
    loads = [part for part in parts(inner) if isinstance(part, Load)]
    fits = inner.dtype in (*BYTES, DType.I4, DType.U4)
    return Part(inner, loads[0]) if fits and len(loads) == 1 else None


def _limits(value: Expr) -> tuple[int, int]:
    """Of an integer; a mask is known."""
    match value:
        case Binary("&", _, Lit(int(mask))):
            return 0, mask
        case _:
            low, high = value.dtype.limits
            return int(low), int(high)


@dataclass(frozen=True, slots=True)
class Decoded(Side):
    """`parts`: in registers of a lane, for each of its chunks: bytes, and zero points and scales
    that are loads. `results`: of the chunk that is decoded, values and zero points in half
    precision."""

    decoding: Decoding | None = None
    parts: tuple[Buffer, ...] = ()
    results: tuple[Buffer, ...] = ()

    @property
    def _form(self) -> Decoding:
        assert self.decoding is not None
        return self.decoding

    @property
    def _parts(self) -> tuple[Part, ...]:
        return self._form.byte, *self._form.others

    @property
    def _tail(self) -> str:
        """Of names of micro-kernels for other types than the first."""
        return "" if self.kind is DType.F16 else f"_{self.kind.value}"

    def _step(self, part: Part) -> int:
        """How far an operand moves with each element of a chunk."""
        loop = (self.product.steps if self.rows else self.loops)[-1]
        return 0 if is_one(part.value, loop) else 1

    def _width(self, part: Part) -> int:
        if part.packed:
            return EIGHT // 2
        return self.vector if self._step(part) else 1

    def _is_whole_zero(self, part: Part) -> bool:
        """Whether one zero point for a chunk is subtracted along with the number."""
        return part is self._form.zero and not self._step(part) and self._form.zero_in_range

    def opened(self, w: Writer, warp: Dim, threads: int, batch: At, first: Dim) -> Side:
        count = ceildiv(self.count, threads)
        parts = tuple(
            w.reserve(
                "operand", DType.I32 if self._is_whole_zero(part) else part.dtype,
                "lane", LANES, count, self._width(part),
            )
            for part in self._parts
        )  # fmt: skip
        zero = self._form.zero
        some = zero is not None and not self._is_whole_zero(zero)
        widths = (self.vector, *([self._width(zero)] if zero is not None and some else []))
        results = tuple(w.reserve("decoded", self.kind, "lane", LANES, size) for size in widths)
        return replace(self, parts=parts, results=results)

    def copy(
        self, w: Writer, thread: Dim, threads: int, batch: At, half: Dim, first: Pair,
        *, lane: Dim = ZERO, known: Known | None = None, whole: bool = False,
    ) -> None:  # fmt: skip
        """Nothing: `fetch` and `put` do it."""

    def fetch(
        self, w: Writer, thread: Dim, threads: int, batch: At, first: Pair, *, lane: Dim,
        numbers: frozenset[str] = frozenset(), whole: bool = False,
    ) -> None:  # fmt: skip
        """Loads operands to registers. Those behind the last line or step are of another one.
        `numbers`: the variables of loops that compilers unroll."""
        ends = (extent(self.loops), extent(self.product.steps))
        with self.chunks(w, thread, threads) as (e, place, far):
            line, step = (own + start for own, start in zip(place, first, strict=True))
            exact = simplify(ends[0] % self.lines, w.bounds) == 0
            if not exact:
                line = w.named("last", dim_min(line, ends[0] - (1 if self.rows else self.vector)))
            if whole or simplify(ends[1] % self.steps, w.bounds) == 0:
                at = self.steps_at(w, place[1], step)
            else:
                last = ends[1] - (self.vector if self.rows else 1)
                at = split(w, self.product.steps, w.named("last", dim_min(step, last)))
            at = {**batch, **split(w, self.loops, line), **at}
            for part, registers in zip(self._parts, self.parts, strict=True):
                load, to = part.load, registers[(lane, e, ZERO)]
                own = moved(load, at)
                if self._is_whole_zero(part):
                    w.add(Store(registers, to.index, self._form.whole_zero(at)))
                elif not self._step(part):
                    w.add(Store(registers, to.index, part.one(at)))
                elif load.dtype.is_float:
                    apart = {"ahead": ZERO, "near": ZERO} if self.vector < VECTOR else {}
                    name = f"raot_load{self.vector}_{load.dtype.value}"
                    w.micro(name, to=to, **apart, **{"from": own})
                else:
                    ahead = ZERO
                    if whole and stride(load, self.product.steps[-1].variable) is not None:
                        factor = replace(self, load=load)  # as one that is in memory
                        ends_with = (exact, True)
                        at_first, ahead = factor.element(
                            w, batch, line, place, far, first, ends_with
                        )
                        own = moved(load, at_first)
                    count, near = self.vector, self._near(ahead, numbers, w.bounds)
                    if part.packed:
                        own, ahead, near, count = word_at(own), ahead // 2, near // 2, EIGHT
                    w.micro(
                        f"raot_load{count}_{load.dtype.value}", to=to,
                        ahead=w.named("ahead", ahead - near), near=near, **{"from": own},
                    )  # fmt: skip

    def put(
        self, w: Writer, thread: Dim, threads: int, half: Dim, first: Pair, *, lane: Dim,
        whole: bool = False,
    ) -> None:  # fmt: skip
        """Stores the values of what `fetch` loaded, and zeros behind the last step."""
        total = extent(self.product.steps)
        with self.chunks(w, thread, threads) as (e, place, _):
            values, *_ = self.results
            with w.block() as decoded:
                self._decode(w, (lane, e), place[1])
            if whole or simplify(total % self.steps, w.bounds) == 0:
                w.add(*decoded)
            else:
                with w.block() as zeros, w.range("s", self.vector) as s:
                    w.add(Store(values, (lane, s), self.fill))
                w.add(If(below(first[1] + place[1], total), tuple(decoded), tuple(zeros)))
            to = self.shared[self.place(half, *place)]
            name = f"raot_put{self.vector}_{self.kind.value}"
            w.micro(name, to=to, **{"from": values[(lane, ZERO)]})

    def _decode(self, w: Writer, own: Pair, place: Dim) -> None:
        """`place`: that of the first step."""
        (byte, *others), form = self.parts, self._form
        x, given = self.results[0][(own[0], ZERO)], {"from": byte[(*own, ZERO)]}
        part_of_word = {}
        if form.byte.packed and self.vector < EIGHT:
            part_of_word = {"part": w.named("part", place % EIGHT // self.vector)}
        pairs = [
            (part, registers[(*own, ZERO)])
            for part, registers in zip(form.others, others, strict=True)
        ]
        whole = [by for part, by in pairs if self._is_whole_zero(part)]
        if whole:
            name = f"raot_widen{self.vector}_by_{form.kind}{self._tail}"
            w.micro(name, to=x, zero=whole[0], **part_of_word, **given)
        else:
            name = f"raot_widen{self.vector}_{form.kind}{self._tail}"
            w.micro(name, to=x, zero=form.number, **part_of_word, **given)
        for part, by in pairs:
            step = self._step(part)
            if part is form.scale:
                w.micro(f"raot_multiply{self.vector}_{self.kind.value}", x=x, by=by, step=step)
            elif not whole:
                by = self._zeros(w, by, step)
                w.micro(f"raot_subtract{self.vector}_f16", x=x, by=by, step=step)

    def _zeros(self, w: Writer, zero: Load, step: int) -> Load:
        """Zero points in half precision."""
        zeros = self.results[1][(zero.index[0], ZERO)]
        if step:
            name = f"raot_widen{self.vector}_{zero.dtype.value}"
            w.micro(name, zero=0, to=zeros, **{"from": zero})
        else:
            w.add(Store(zeros.buffer, zeros.index, Cast(Cast(zero, DType.F32), self.kind)))
        return zeros


def decoded_side(
    w: Writer, product: Product, load: Load, kind: DType, size: tuple[int, int], name: str,
    threads: int,
) -> Decoded | None:  # fmt: skip
    """The side of a factor that is decoded in vectors, if it is: of four elements where a thread
    has no eight. Reserves shared memory."""
    loops = product.rows if load == product.found.left else product.columns
    decoding, axes = _decoded(product, load, loops, w.bounds)
    if decoding is None or not axes:
        return None
    rows = axes[0] == product.steps
    shared = reserved_tile(w, name, kind, size, rows=rows)
    width = VECTOR if size[0] * size[1] >= VECTOR * threads else VECTOR // 2
    return Decoded(name, product, load, loops, *size, rows, width, shared, decoding=decoding)


def is_decoded(product: Product, load: Load, loops: tuple[For, ...], bounds: Bounds) -> bool:
    """Whether a factor is decoded in vectors."""
    return bool(_decoded(product, load, loops, bounds)[1])


def decoded_along_steps(
    product: Product, load: Load, loops: tuple[For, ...], bounds: Bounds
) -> tuple[Decoding, int] | None:
    """How a factor is decoded along its steps, and how many elements a thread loads at once, if it
    is, with one zero point and scale for eight of them."""
    form, axes = _decoded(product, load, loops, bounds)
    steps = product.steps[-1]
    if form is None or product.steps not in axes or load.dtype is not DType.F16:
        return None
    if not all(is_one(part.value, steps) for part in form.others):
        return None
    byte = form.byte
    rest = row_major(byte.load.index, byte.load.buffer.shape) - Dim.of(steps.variable)
    width = 2 * BYTES_AT_ONCE if byte.packed else BYTES_AT_ONCE
    aligned = all(product.divides(width, size, bounds) for size in (steps.extent, rest))
    return form, width if aligned else VECTOR


def _decoded(
    product: Product, load: Load, loops: tuple[For, ...], bounds: Bounds
) -> tuple[Decoding | None, list[tuple[For, ...]]]:
    """The decoding of a factor, and the axes along which it is done in vectors."""
    computed = product.found.computed_at(load)
    if computed is None or computed.fetched or not load.dtype.is_half or not loops:
        return None, []
    form = decoding_of(computed.value, product.steps[-1].variable)
    if form is None or load == product.padded:
        return None, []
    return form, [
        own
        for own in (product.steps, loops)
        if own[-1].start == 0
        and product.divides(VECTOR, own[-1].extent, bounds)
        and _are_neighbors(product, form.byte.load, own[-1], bounds)
        and (load.dtype is DType.F16 or form.zero is None or is_one(form.zero.value, own[-1]))
        and all(
            is_one(one.value, own[-1])
            or (one.load == one.value and _are_neighbors(product, one.load, own[-1], bounds))
            for one in form.others
        )
    ]


def _are_neighbors(product: Product, load: Load, loop: For, bounds: Bounds) -> bool:
    """Whether eight iterations of a loop from each multiple of that on load aligned neighbors."""
    rest = row_major(load.index, load.buffer.shape) - Dim.of(loop.variable)
    return stride(load, loop.variable) == 1 and product.divides(VECTOR, rest, bounds)


def is_one(value: Expr, loop: For, count: int = VECTOR) -> bool:
    """Whether a value is the same for so many iterations of a loop from each multiple on."""
    dims = index_dims(Declare(Local("_", value.dtype), value))
    return all(_is_steady(dim, loop.variable, count) for dim in dims)


def _is_steady(dim: Dim, name: str, count: int) -> bool:
    atoms = [atom for _, monomial in dim.terms for atom, _ in monomial]
    for atom in (one for one in atoms if name in Dim.of(one).symbols):
        if not isinstance(atom, FloorDiv | Mod):
            return False
        whole = atom.denominator.is_constant and atom.denominator.constant % count == 0
        if isinstance(atom, FloorDiv) and atom.numerator == Dim.of(name) and whole:
            continue
        if not all(_is_steady(one, name, count) for one in (atom.numerator, atom.denominator)):
            return False
    return True
