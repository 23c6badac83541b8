# SPDX-License-Identifier: Apache-2.0
"""dft: discrete Fourier transform along one axis; frame: overlapping frames of a signal.

A complex number is the last axis: real part, imaginary part; where its size is 1 there is no
imaginary part. The signal is cut, or filled up with zeros, to `length`. Forwards `onesided`
gives the lower half of the spectrum, which tells all of a real signal; backwards it takes such
a half and gives a real signal. Sines and cosines come from a table of one period that each call
fills: `length` of each, not `length` squared. A length that is known is halved as often as it
can be; one that is a symbol once, where it is even.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Select, apply, binary
from relax_aot.ir.types import DType, TensorType, shape_of
from relax_aot.ops._op import Array, Op, Sample, must_fit, must_not_exceed, normal_axis, require
from relax_aot.ops._samples import normals
from relax_aot.ops.gather import wrapped_index

Sizes = Sequence[int | Dim]


@dataclass(frozen=True, kw_only=True)
class Dft:
    axis: int = 1
    length: int | Dim
    inverse: bool = False
    onesided: bool = False
    shape: Sizes = ()


def _type(attrs: Dft, x: TensorType, along: TensorType | None = None) -> TensorType:
    require(x.dtype.is_float and x.rank >= 2, f"dft needs a float signal, got {x}")
    parts = x.shape[-1]
    known = not parts.is_constant or parts in (Dim.of(1), Dim.of(2))
    require(known, f"dft: the last size is 1 or 2, not {parts}")
    at = normal_axis(attrs.axis, x.rank)
    require(at < x.rank - 1, "dft along the axis of real and imaginary parts")
    if along is not None:
        last = Dim.of(1 if attrs.onesided and attrs.inverse else 2)
        sizes = shape_of(*attrs.shape) or (*x.shape[:-1], last)
        require(
            len(sizes) == x.rank and sizes[-1] == last, f"dft of {x} does not give {attrs.shape}"
        )
        return TensorType(x.dtype, sizes)
    size = Dim.of(attrs.length)
    half = attrs.onesided and not attrs.inverse
    count = size // 2 + 1 if half else size
    last = Dim.of(1 if attrs.onesided and attrs.inverse else 2)
    return TensorType(x.dtype, (*x.shape[:at], count, *x.shape[at + 1 : -1], last))


def _conditions(attrs: Dft, x: TensorType, along: TensorType | None = None) -> list[Condition]:
    parts = x.shape[-1]
    found = [must_not_exceed(1, parts, "parts of a number"), must_not_exceed(parts, 2, "parts")]
    # Along an axis from data 0 stands for the length that the axis asks for.
    if along is None or Dim.of(attrs.length) != Dim.of(0):
        found.append(must_not_exceed(1, Dim.of(attrs.length), "length of a dft"))
    return found


def _lower(attrs: Dft, k: KernelBuilder, x: Buffer, along: Buffer | None, y: Buffer) -> None:
    if along is None:
        at = normal_axis(attrs.axis, x.rank)
        _nest(attrs, k, x, y, at, Dim.of(attrs.length))
        return
    # -1 is the axis of the parts, and no axis of the signal.
    chosen = wrapped_index(k, "axis", along[(Dim.of(0),) * along.rank], Dim.of(x.rank))
    kept = k.index("kept", Index(chosen), 0, x.rank - 2)
    for number in range(x.rank - 1):
        folded = attrs.onesided and attrs.inverse
        turn = (x.shape[number] - 1) * 2 if folded else x.shape[number]
        whole = turn if Dim.of(attrs.length) == Dim.of(0) else Dim.of(attrs.length)
        with k.when(binary("==", kept, number)):
            if not folded:
                _nest(attrs, k, x, y, number, whole)
                continue
            # Of one element there is no half: no length could be told from it.
            valid = k.index("valid", Index(dim_min(whole, 1)) - 1, 0, 0)
            if whole == Dim.of(0):
                k.store(y[(valid,) * y.rank], Lit(0.0, y.dtype))
            else:
                _nest(attrs, k, x, y, number, whole, valid)


def _nest(
    attrs: Dft,
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    axis: int,
    length: Dim,
    part_from: Dim | int = 0,
) -> None:
    inverse, onesided = attrs.inverse, attrs.onesided
    wide = DType.F64 if x.dtype is DType.F64 else DType.F32
    table = k.scratch("table", wide, (length, 2))
    row = k.scratch("row", wide, (length, 2))
    _fill_table(k, table, length, inverse)
    with k.loops(*y.shape[:axis], *y.shape[axis + 1 : -1]) as at:
        ends = at[:axis], at[axis:]
        _fill_row(k, x, row, ends, length, folded=onesided and inverse)
        result = _Result(y, *ends, part_from, x.shape[-1], length, inverse)
        if length.is_constant:
            _transform(k, row, table, result, length, _halvings(length.constant))
            return
        with k.when(binary("==", length % 2, 0)):
            _transform(k, row, table, result, length, 1)
        with k.otherwise():
            _transform(k, row, table, result, length, 0)


def _halvings(length: int) -> int:
    """How often a length can be halved."""
    return (length & -length).bit_length() - 1


@dataclass(frozen=True, slots=True)
class _Result:
    """Where the parts of a transformed row go."""

    y: Buffer
    before: At
    after: At
    part_from: Dim | int
    given: Dim
    """Parts of a number of the signal."""
    length: Dim
    inverse: bool

    @property
    def count(self) -> Dim:
        return self.y.shape[len(self.before)]

    @property
    def parts(self) -> int:
        return self.y.shape[-1].constant

    def store(self, k: KernelBuilder, place: Dim, part: int, value: Expr) -> None:
        if self.inverse:
            value = binary("/", value, Cast(Index(self.length), value.dtype))
        if part == 1 and self.given != Dim.of(2):
            # Of a real signal the ends of the half are real: no rounding may say otherwise.
            end = binary("==", place, 0) | binary("==", place * 2, self.length)
            real = end if self.given.is_constant else end & binary("<", self.given, 2)
            value = Select(real, Lit(0.0, value.dtype), value)
        y = self.y
        where = y[(*self.before, place, *self.after, Dim.of(self.part_from) + part)]
        k.store(where, value if y.dtype is value.dtype else Cast(value, y.dtype))


def _fill_row(
    k: KernelBuilder, x: Buffer, row: Buffer, ends: tuple[At, At], length: Dim, *, folded: bool
) -> None:
    """The signal as complex numbers, cut or filled up; the half that is not there is the
    conjugate of the half that is."""
    wide, parts = row.dtype, x.shape[-1]
    before, after = ends
    size = x.shape[len(before)]

    def load(place: Dim, part: int) -> Expr:
        if part == 1 and parts == Dim.of(1):
            return Lit(0.0, wide)
        value: Expr = x[(*before, place, *after, Dim.of(part))]
        value = value if x.dtype is wide else Cast(value, wide)
        if part == 0 or parts.is_constant:
            return value
        return Select(binary("<", part, parts), value, Lit(0.0, wide))

    if folded or size != length:
        with k.loops(length, 2) as at:
            k.store(row[at], Lit(0.0, wide))
    taken = dim_min(size, length // 2 + 1 if folded else length)
    with k.loops(taken) as (place,):
        for part in (0, 1):
            k.store(row[(place, Dim.of(part))], load(place, part))
    if not folded:
        return
    with k.loops(dim_min(taken, (length + 1) // 2) - 1) as (place,):
        mirrored = length - 1 - place
        k.store(row[(mirrored, Dim.of(0))], load(place + 1, 0))
        k.store(row[(mirrored, Dim.of(1))], -load(place + 1, 1))


def _transform(
    k: KernelBuilder, row: Buffer, table: Buffer, result: _Result, length: Dim, halvings: int
) -> None:
    """Halves of halves by sums and differences, what is left then term by term."""
    wide = row.dtype
    for number in range(halvings):
        _halve(k, row, table, length, 2**number)
    blocks = 2**halvings
    size = length // blocks
    with k.loops(result.count) as (place,):
        start = _reversed(place, halvings) * size
        if size == Dim.of(1):
            for part in range(result.parts):
                result.store(k, place, part, row[(start, Dim.of(part))])
            return
        sums = [k.local(name, wide, 0.0) for name in ("real", "imaginary")[: result.parts]]
        turn = k.let("turn", place // blocks * blocks)
        with k.loops(size) as (t,):
            re, im = (row[(start + t, Dim.of(part))] for part in (0, 1))
            turned = (t * turn) % length
            cos, sin = (table[(turned, Dim.of(part))] for part in (0, 1))
            products: tuple[Expr, ...] = (re * cos - im * sin, re * sin + im * cos)
            for total, product in zip(sums, products, strict=False):
                k.assign(total, total + product)
        for part, total in enumerate(sums):
            result.store(k, place, part, total)


def _halve(k: KernelBuilder, row: Buffer, table: Buffer, length: Dim, blocks: int) -> None:
    """Each of `blocks` parts of the row becomes the one whose transform has its even places, and
    the one whose transform has its odd places."""
    half = length // (2 * blocks)
    with k.loops(blocks, half) as (block, j):
        low = block * (length // blocks) + j
        high = low + half
        a = [k.local(name, row.dtype, row[(low, Dim.of(i))]) for i, name in enumerate(("re", "im"))]
        b = [row[(high, Dim.of(i))] for i in (0, 1)]
        re, im = (
            k.local(name, row.dtype, left - right)
            for name, left, right in zip(("re_apart", "im_apart"), a, b, strict=True)
        )
        for i, left in enumerate(a):
            k.store(row[(low, Dim.of(i))], left + b[i])
        cos, sin = (table[(j * blocks, Dim.of(i))] for i in (0, 1))
        k.store(row[(high, Dim.of(0))], re * cos - im * sin)
        k.store(row[(high, Dim.of(1))], re * sin + im * cos)


def _reversed(place: Dim, bits: int) -> Dim:
    """The lowest bits of a place in the opposite order: the part of the row that has it."""
    terms = [place // 2**bit % 2 * 2 ** (bits - 1 - bit) for bit in range(bits)]
    return sum(terms, Dim.of(0))


def _fill_table(k: KernelBuilder, table: Buffer, length: Dim, inverse: bool) -> None:
    """cos and sin of each part of the circle, from its first eighth only: so what is 0 or 1
    is so exactly, and what cancels in theory cancels."""
    wide = table.dtype
    whole = Index(length)
    with k.loops(length) as (step,):
        lower = binary("<", length, step * 2)
        half = k.local("half", DType.I64, Select(lower, Index(length - step), Index(step)))
        left = k.local("left", DType.BOOL, whole < half * 4)
        quarter = k.local("quarter", DType.I64, Select(left, whole - half * 2, half * 2))
        steep = k.local("steep", DType.BOOL, whole < quarter * 4)
        eighth = k.local("eighth", DType.I64, Select(steep, whole - quarter * 2, quarter * 2))
        share = binary("/", Cast(eighth, wide), Cast(whole, wide))
        angle = k.local("angle", wide, binary("*", Lit(pi / 2, wide), share))
        cos = k.local("cosine", wide, apply("cos", angle))
        sin = k.local("sine", wide, apply("sin", angle))
        across = k.local("across", wide, Select(steep, sin, cos))
        up = k.local("up", wide, Select(steep, cos, sin))
        k.store(table[(step, Dim.of(0))], Select(left, -across, across))
        turned = Select(lower, -up, up) if inverse else Select(lower, up, -up)
        k.store(table[(step, Dim.of(1))], turned)


def _reference(attrs: Dft, x: Array, along: Array | None = None) -> Array:
    axis, length = attrs.axis, int(attrs.length)
    if along is not None:
        axis = int(along.reshape(()))
        folded = attrs.onesided and attrs.inverse
        length = length or ((x.shape[axis] - 1) * 2 if folded else x.shape[axis])
    at = normal_axis(axis, x.ndim)
    wide = x.astype(np.float64)
    signal = wide[..., 0] + (1j * wide[..., 1] if x.shape[-1] == 2 else 0)
    if attrs.onesided and attrs.inverse:
        return np.fft.irfft(signal, n=length, axis=at)[..., None].astype(x.dtype)
    function = np.fft.ifft if attrs.inverse else np.fft.fft
    found = function(signal, n=length, axis=at)
    if attrs.onesided:
        found = found.take(range(length // 2 + 1), axis=at)
    return np.stack([found.real, found.imag], axis=-1).astype(x.dtype)


def _near(x: Array, *rest: Array, symbolic: bool = False, **attrs: object) -> Sample:
    sizes = ("length",) if symbolic else ()
    return Sample((x, *rest), attrs, sizes, (2,), symbolic, rtol=1e-5, atol=1e-5)


def _samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)

    def case(x: Array, *rest: Array, length: int = 1, **attrs: object) -> Sample:
        return _near(x, *rest, symbolic=True, length=length, **attrs)

    real, both = normal(3, 9, 5, 1), normal(3, 9, 5, 2)
    return [
        case(real, axis=1, length=9),
        case(both, axis=-2, length=5),
        case(both, axis=0, length=3, inverse=True),
        case(real, axis=1, length=9, onesided=True),
        case(normal(2, 8, 1), axis=1, length=8, onesided=True),
        case(normal(3, 5, 2), axis=1, length=8, onesided=True, inverse=True),
        case(normal(3, 5, 2), axis=1, length=9, onesided=True, inverse=True),
        case(real, axis=1, length=16),
        case(both, axis=1, length=7),
        case(normal(3, 5, 2), axis=1, length=6, onesided=True, inverse=True),
        *(case(both, np.array(axis), length=0, inverse=axis < 0) for axis in (0, 1, -2)),
        _near(real, np.array(1), length=0, onesided=True, shape=(3, 5, 5, 2)),
        _near(both, np.array(-2), length=0, onesided=True, inverse=True, shape=(3, 9, 8, 1)),
        _near(both, np.array(0), length=6, shape=(6, 9, 5, 2)),
        Sample((both,), {"axis": 1, "length": 9}, rtol=1e-4, atol=1e-4),
        Sample((normal(3, 7, 1),), {"axis": 1, "length": 7}, rtol=1e-4, atol=1e-4),
        Sample((rng.normal(size=(2, 7, 2)),), {"axis": 1, "length": 7}, symbolic=False),
    ]


# frame


def _frame_type(
    x: TensorType, window: TensorType | None = None, *, step: int | Dim, length: int | Dim
) -> TensorType:
    require(x.rank == 3 and x.dtype.is_float, f"frame needs a signal of rank 3, got {x}")
    fits = window is None or (window.rank == 1 and window.dtype is x.dtype)
    require(fits, f"frame of {x} with the window {window}")
    frames = (x.shape[1] - Dim.of(length)) // Dim.of(step) + 1
    return TensorType(x.dtype, (x.shape[0], frames, Dim.of(length), x.shape[2]))


def _frame_conditions(
    x: TensorType, window: TensorType | None = None, *, step: int | Dim, length: int | Dim
) -> list[Condition]:
    return [
        must_not_exceed(Dim.of(length), x.shape[1], "a frame of a signal"),
        must_not_exceed(1, Dim.of(step), "a step between frames"),
        must_not_exceed(0, Dim.of(length), "a frame"),
        *must_fit(window, (length,), "the window of a frame"),
    ]


def _frame_lower(
    k: KernelBuilder,
    x: Buffer,
    window: Buffer | None,
    y: Buffer,
    *,
    step: int | Dim,
    length: int | Dim,
) -> None:
    with k.loops(*y.shape) as at:
        batch, frame, place, part = at
        value: Expr = x[(batch, frame * Dim.of(step) + place, part)]
        if window is not None:
            value = binary("*", value, window[(place,)])
        k.store(y[at], value)


def _frame_reference(x: Array, window: Array | None = None, *, step: int, length: int) -> Array:
    count = (x.shape[1] - int(length)) // int(step) + 1
    starts = np.arange(count) * int(step)
    frames = x[:, starts[:, None] + np.arange(int(length))[None, :]]
    return frames if window is None else frames * window[:, None]


def _frame_samples(rng: np.random.Generator) -> list[Sample]:
    x, window = rng.normal(size=(2, 11, 1)), rng.normal(size=(4,))
    x, window = x.astype(np.float32), window.astype(np.float32)
    return [
        Sample((x,), {"step": 3, "length": 5}, ("step", "length")),
        Sample((x, window), {"step": 2, "length": 4}, ("length",)),
        Sample((x,), {"step": 3, "length": 11}),
    ]


OPS = (
    Op("dft", _type, _lower, _reference, _samples, conditions=_conditions, record=Dft),
    Op(
        "frame", _frame_type, _frame_lower, _frame_reference, _frame_samples,
        conditions=_frame_conditions,
    ),
)  # fmt: skip
