# SPDX-License-Identifier: Apache-2.0
"""Factors of a product on matrix units that are decoded from bytes: `(byte - zero point) * scale`,
rounded to half precision.

A thread loads eight neighbors at once while the matrices before are multiplied, decodes them as
pairs, and stores them in the other half of shared memory (decode.cuh). The zero point and the scale
are one for all eight, as those of a group of steps, or neighbors too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relax_aot.ir.axes import LANES
from relax_aot.ir.dim_expr import FloorDiv
from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, dim_min, row_major, simplify
from relax_aot.ir.loops import Binary, Buffer, Cast, Expr, For, If, Load, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import BYTES, moved, number_of, stride
from relax_aot.scheduling.devices.copies import (
    VECTOR,
    Known,
    Pair,
    Side,
    reserved_tile,
)
from relax_aot.scheduling.devices.operands import At, Product, below, extent, split
from relax_aot.scheduling.writer import Writer


@dataclass(frozen=True, slots=True)
class Decoding:
    """`zero` is a number or a load of a byte. Without a scale, bytes less zeros are the values."""

    byte: Load
    zero: Load | int = 0
    scale: Load | None = None

    @property
    def others(self) -> tuple[Load, ...]:
        return tuple(one for one in (self.zero, self.scale) if isinstance(one, Load))


def decoding_of(value: Expr) -> Decoding | None:
    """How a value of half precision is decoded from bytes, if it is."""
    inner = _widened(value)
    match inner:
        case Binary("*", left, right):
            for one, other in ((left, right), (right, left)):
                number, scale = _integer(_widened(one)), _widened(other)
                if number is not None and isinstance(scale, Load) and scale.dtype is DType.F16:
                    return replace(number, scale=scale)
            return None
        case _:
            return _integer(inner)


def _widened(expr: Expr) -> Expr:
    """Without casts of floats; those to half precision round at last, or once before."""
    while isinstance(expr, Cast) and expr.dtype in (DType.F16, DType.F32) and expr.mode == "wrap":
        expr = expr.value
    return expr


def _integer(expr: Expr) -> Decoding | None:
    """Bytes, less their zero points."""
    match expr:
        case Load() if expr.dtype in BYTES:
            return Decoding(expr)
        case Cast(Load() as load, DType.I32, "wrap") if load.dtype in BYTES:
            return Decoding(load)
        case Binary("-", left, right) if expr.dtype not in BYTES:
            byte, zero, number = _byte(left), _byte(right), number_of(right)
            if byte is None:
                return None
            if number is not None:
                low, high = byte.dtype.limits
                return Decoding(byte, number) if low <= number <= high else None
            return None if zero is None else Decoding(byte, zero)
        case _:
            return None


def _byte(expr: Expr) -> Load | None:
    """A byte in a wider type."""
    found = _integer(_widened(expr))
    return found.byte if found is not None and found == Decoding(found.byte) else None


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
    def _loads(self) -> tuple[Load, ...]:
        return self._form.byte, *self._form.others

    def _step(self, load: Load) -> int:
        """How far an operand moves with each element of a chunk."""
        loop = (self.product.steps if self.rows else self.loops)[-1]
        return 0 if _is_one(load, loop) else 1

    def _width(self, load: Load) -> int:
        return VECTOR if self._step(load) else 1

    def opened(self, w: Writer, warp: Dim, threads: int, batch: At, first: Dim) -> Side:
        count = ceildiv(self.count, threads)
        parts = tuple(
            w.reserve("operand", load.dtype, "lane", LANES, count, self._width(load))
            for load in self._loads
        )
        zero = self._form.zero
        widths = (VECTOR, *([self._width(zero)] if isinstance(zero, Load) else []))
        results = tuple(w.reserve("decoded", self.kind, "lane", LANES, size) for size in widths)
        return replace(self, parts=parts, results=results)

    def copy(
        self, w: Writer, thread: Dim, threads: int, batch: At, half: Dim, first: Pair,
        *, lane: Dim = ZERO, known: Known | None = None, whole: bool = False,
    ) -> None:  # fmt: skip
        """Nothing: `fetch` and `put` do it."""

    def fetch(
        self, w: Writer, thread: Dim, threads: int, batch: At, first: Pair, *, lane: Dim,
        whole: bool = False,
    ) -> None:  # fmt: skip
        """Loads operands to registers. Those behind the last line or step are of another one."""
        ends = (extent(self.loops), extent(self.product.steps))
        with self.chunks(w, thread, threads) as (e, place, far):
            line, step = (own + start for own, start in zip(place, first, strict=True))
            exact = simplify(ends[0] % self.lines, w.bounds) == 0
            if not exact:
                line = w.named("last", dim_min(line, ends[0] - (1 if self.rows else VECTOR)))
            if whole or simplify(ends[1] % self.steps, w.bounds) == 0:
                at = self.steps_at(w, place[1], step)
            else:
                last = ends[1] - (VECTOR if self.rows else 1)
                at = split(w, self.product.steps, w.named("last", dim_min(step, last)))
            at = {**batch, **split(w, self.loops, line), **at}
            for load, part in zip(self._loads, self.parts, strict=True):
                own, to = moved(load, at), part[(lane, e, ZERO)]
                if not self._step(load):
                    w.add(Store(part, to.index, own))
                elif load.dtype.is_float:
                    w.micro(f"raot_load8_{load.dtype.value}", to=to, **{"from": own})
                else:
                    ahead = ZERO
                    if whole and stride(load, self.product.steps[-1].variable) is not None:
                        factor = replace(self, load=load)  # as one that is in memory
                        parts = (exact, True)
                        at_first, ahead = factor.element(w, batch, line, place, far, first, parts)
                        own = moved(load, at_first)
                    ahead = w.named("ahead", ahead)
                    w.micro(f"raot_load8_{load.dtype.value}", to=to, ahead=ahead, **{"from": own})

    def put(
        self, w: Writer, thread: Dim, threads: int, half: Dim, first: Pair, *, lane: Dim,
        whole: bool = False,
    ) -> None:  # fmt: skip
        """Stores the values of what `fetch` loaded, and zeros behind the last step."""
        total = extent(self.product.steps)
        with self.chunks(w, thread, threads) as (e, place, _):
            values, *_ = self.results
            with w.block() as decoded:
                self._decode(w, (lane, e))
            if whole or simplify(total % self.steps, w.bounds) == 0:
                w.add(*decoded)
            else:
                with w.block() as zeros, w.range("s", VECTOR) as s:
                    w.add(Store(values, (lane, s), self.fill))
                w.add(If(below(first[1] + place[1], total), tuple(decoded), tuple(zeros)))
            to = self.shared[self.place(half, *place)]
            w.micro(f"raot_put8_{self.kind.value}", to=to, **{"from": values[(lane, ZERO)]})

    def _decode(self, w: Writer, own: Pair) -> None:
        (byte, *others), form = self.parts, self._form
        zero = form.zero if isinstance(form.zero, int) else 0
        kind, x = byte.dtype.value, self.results[0][(own[0], ZERO)]
        w.micro(f"raot_widen8_{kind}", zero=zero, to=x, **{"from": byte[(*own, ZERO)]})
        for load, part in zip(form.others, others, strict=True):
            step, by = self._step(load), part[(*own, ZERO)]
            if load == form.zero:
                by = self._zeros(w, by, step)
            way = "subtract" if load == form.zero else "multiply"
            w.micro(f"raot_{way}8_f16", x=x, by=by, step=step)

    def _zeros(self, w: Writer, zero: Load, step: int) -> Load:
        """Zero points in half precision."""
        zeros = self.results[1][(zero.index[0], ZERO)]
        if step:
            w.micro(f"raot_widen8_{zero.dtype.value}", zero=0, to=zeros, **{"from": zero})
        else:
            w.add(Store(zeros.buffer, zeros.index, Cast(Cast(zero, DType.F32), self.kind)))
        return zeros


def decoded_side(
    w: Writer, product: Product, load: Load, kind: DType, size: tuple[int, int], name: str
) -> Decoded | None:
    """The side of a factor that is decoded in vectors, if it is. Reserves shared memory."""
    loops = product.rows if load == product.found.left else product.columns
    decoding, axes = _decoded(product, load, loops, w.bounds)
    if decoding is None or not axes:
        return None
    rows = axes[0] == product.steps
    shared = reserved_tile(w, name, kind, size, rows=rows)
    return Decoded(
        name, product, load, loops, *size, rows, VECTOR, shared, decoding=decoding
    )  # fmt: skip


def is_decoded(product: Product, load: Load, loops: tuple[For, ...], bounds: Bounds) -> bool:
    """Whether a factor is decoded in vectors."""
    return bool(_decoded(product, load, loops, bounds)[1])


def _decoded(
    product: Product, load: Load, loops: tuple[For, ...], bounds: Bounds
) -> tuple[Decoding | None, list[tuple[For, ...]]]:
    """The decoding of a factor, and the axes along which it is done in vectors."""
    computed = product.found.computed_at(load)
    if computed is None or computed.fetched or load.dtype is not DType.F16 or not loops:
        return None, []
    form = decoding_of(computed.value)
    if form is None or load == product.padded:
        return None, []
    return form, [
        own
        for own in (product.steps, loops)
        if own[-1].start == 0
        and product.divides(VECTOR, own[-1].extent, bounds)
        and _are_neighbors(product, form.byte, own[-1], bounds)
        and all(
            _is_one(one, own[-1]) or _are_neighbors(product, one, own[-1], bounds)
            for one in form.others
        )
    ]


def _are_neighbors(product: Product, load: Load, loop: For, bounds: Bounds) -> bool:
    """Whether eight iterations of a loop from each multiple of that on load aligned neighbors."""
    rest = row_major(load.index, load.buffer.shape) - Dim.of(loop.variable)
    return stride(load, loop.variable) == 1 and product.divides(VECTOR, rest, bounds)


def _is_one(load: Load, loop: For) -> bool:
    """Whether a load is the same for eight iterations of a loop from each multiple of that on."""
    name = loop.variable
    atoms = [
        atom
        for dim in load.index
        for _, monomial in dim.terms
        for atom, _ in monomial
        if name in Dim(((1, ((atom, 1),)),)).symbols
    ]
    return all(
        isinstance(atom, FloorDiv)
        and atom.numerator == Dim.of(name)
        and atom.denominator.is_constant
        and atom.denominator.constant % VECTOR == 0
        for atom in atoms
    )
