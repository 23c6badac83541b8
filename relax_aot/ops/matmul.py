# SPDX-License-Identifier: Apache-2.0
"""Matrix products: matmul with NumPy batching, gemm with scales, and matmul_integer, which
subtracts zero points, accumulates in 32 bits and optionally adds a bias per column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Broadcast,
    Op,
    Sample,
    Trait,
    broadcast,
    broadcast_conditions,
    code_limits,
    is_float,
    must_equal,
    must_fit,
    require,
    require_one_type,
    spread,
)
from relax_aot.ops._samples import integers, normals


def _matmul_type(a: TensorType, b: TensorType) -> TensorType:
    require(a.dtype is b.dtype, f"matmul needs equal element types, got {a} and {b}")
    require(a.rank >= 1 and b.rank >= 1, f"matmul needs matrices or vectors, got {a} and {b}")
    inner_a, inner_b = _inner(a, b)
    both = inner_a.is_constant and inner_b.is_constant
    require(not both or inner_a == inner_b, f"matmul needs equal inner sizes, got {a} and {b}")
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1] if a.rank > 1 else ()
    columns = b.shape[-1:] if b.rank > 1 else ()
    return TensorType(a.dtype, batch + rows + columns)


def _inner(a: TensorType, b: TensorType) -> tuple[Dim, Dim]:
    return a.shape[-1], b.shape[-2] if b.rank > 1 else b.shape[0]


def _matmul_conditions(a: TensorType, b: TensorType) -> list[Condition]:
    left, right = TensorType(a.dtype, a.shape[:-2]), TensorType(b.dtype, b.shape[:-2])
    inner = _inner(a, b)
    return [must_equal(*inner, "matmul's inner sizes"), *broadcast_conditions(left, right)]


def _matmul_broadcasts(*_types: TensorType | None) -> tuple[Broadcast, ...]:
    return (Broadcast((0, 1), core=2),)


def _matmul_lower(k: KernelBuilder, a: Buffer, b: Buffer, c: Buffer) -> None:
    _products(k, a, b, c, lambda left, right: binary("*", a[left], b[right]))


def _products(
    k: KernelBuilder,
    a: Buffer,
    b: Buffer,
    c: Buffer,
    product: Callable[[At, At], Expr],
    bias: Buffer | None = None,
) -> None:
    batch_rank = c.rank - (a.rank > 1) - (b.rank > 1)
    with k.loops(*c.shape) as at:
        batch, rest = at[:batch_rank], at[batch_rank:]
        row = rest[:1] if a.rank > 1 else ()
        column = rest[-1:] if b.rank > 1 else ()
        a_batch, b_batch = spread(batch, a.shape[:-2]), spread(batch, b.shape[:-2])
        start = 0.0 if c.dtype.is_float else 0
        total = k.local("total", c.dtype, start if bias is None else bias[column])
        with k.loops(a.shape[-1]) as j:
            k.assign(total, total + product(a_batch + row + j, b_batch + j + column))
        k.store(c[at], total)


def _matmul_reference(a: Array, b: Array) -> Array:
    wide = np.float64 if is_float(a) else a.dtype
    return np.asarray(np.matmul(a.astype(wide), b.astype(wide))).astype(a.dtype)


MATMUL = Op(
    "matmul",
    _matmul_type,
    _matmul_lower,
    _matmul_reference,
    lambda rng: [
        Sample((normals(rng)(3, 5), normals(rng)(5, 4))),
        Sample((normals(rng)(2, 3, 5), normals(rng)(5, 4))),
        Sample((normals(rng)(2, 1, 3, 5), normals(rng)(4, 5, 6))),
        Sample((normals(rng)(5), normals(rng)(5, 4))),
        Sample((normals(rng)(3, 5), normals(rng)(5))),
        Sample((normals(rng)(5), normals(rng)(5))),
        Sample((normals(rng)(3, 0), normals(rng)(0, 4))),
        Sample((rng.integers(-9, 9, (3, 5)).astype(np.int32),
                rng.integers(-9, 9, (5, 2)).astype(np.int32))),
    ],
    conditions=_matmul_conditions, broadcasts=_matmul_broadcasts,
    traits=Trait.CONTRACTION | Trait.WIDENS
)  # fmt: skip


def _gemm_shapes(attrs: Gemm, a: TensorType, b: TensorType) -> tuple[Dim, Dim, Dim, Dim]:
    require(a.rank == 2 and b.rank == 2, f"gemm needs matrices, got {a} and {b}")
    m, k = a.shape[::-1] if attrs.trans_a else a.shape
    k2, n = b.shape[::-1] if attrs.trans_b else b.shape
    return m, k, k2, n


@dataclass(frozen=True, kw_only=True)
class Gemm:
    alpha: float = 1.0
    beta: float = 1.0
    trans_a: bool = False
    trans_b: bool = False


def _gemm_type(
    attrs: Gemm, a: TensorType, b: TensorType, c: TensorType | None = None
) -> TensorType:
    require(a.dtype is b.dtype, f"gemm needs equal element types, got {a} and {b}")
    m, inner_a, inner_b, n = _gemm_shapes(attrs, a, b)
    both = inner_a.is_constant and inner_b.is_constant
    require(not both or inner_a == inner_b, f"gemm needs equal inner sizes, got {a} and {b}")
    if c is not None:
        require_one_type("gemm", a, c)
        require(c.rank <= 2, f"gemm's third argument must broadcast to a matrix, got {c}")
    return TensorType(a.dtype, (m, n))


def _gemm_conditions(
    attrs: Gemm, a: TensorType, b: TensorType, c: TensorType | None = None
) -> list[Condition]:
    m, inner_a, inner_b, n = _gemm_shapes(attrs, a, b)
    conditions = [must_equal(inner_a, inner_b, "gemm's inner sizes")]
    if c is not None:
        conditions += broadcast_conditions(c, TensorType(a.dtype, (m, n)))
    return conditions


def _gemm_broadcasts(
    attrs: Gemm, a: TensorType, b: TensorType, c: TensorType | None = None
) -> tuple[Broadcast, ...]:
    m, _, _, n = _gemm_shapes(attrs, a, b)
    return (Broadcast((2,), target=(m, n)),) if c is not None else ()


def _gemm_lower(
    attrs: Gemm, k: KernelBuilder, a: Buffer, b: Buffer, c: Buffer | None, y: Buffer
) -> None:
    depth = a.shape[0] if attrs.trans_a else a.shape[1]
    float_ = y.dtype.is_float
    with k.loops(*y.shape) as at:
        i, j = at[:1], at[1:]
        total = k.local("total", y.dtype, 0.0 if float_ else 0)
        with k.loops(depth) as p:
            left = a[p + i] if attrs.trans_a else a[i + p]
            right = b[j + p] if attrs.trans_b else b[p + j]
            k.assign(total, total + binary("*", left, right))
        value: Expr = total
        if attrs.alpha != 1.0:
            value = binary("*", value, attrs.alpha if float_ else int(attrs.alpha))
        if c is not None and attrs.beta != 0.0:
            addend: Expr = c[spread(at, c.shape)]
            if attrs.beta != 1.0:
                addend = binary("*", addend, attrs.beta if float_ else int(attrs.beta))
            value = binary("+", value, addend)
        k.store(y[at], value)


def _gemm_reference(attrs: Gemm, a: Array, b: Array, c: Array | None = None) -> Array:
    wide = np.float64 if is_float(a) else a.dtype
    left = (a.T if attrs.trans_a else a).astype(wide)
    right = (b.T if attrs.trans_b else b).astype(wide)
    value = left @ right * (attrs.alpha if is_float(a) else int(attrs.alpha))
    if c is not None:
        value = value + c.astype(wide) * (attrs.beta if is_float(a) else int(attrs.beta))
    return np.asarray(value).astype(a.dtype)


GEMM = Op(
    "gemm",
    _gemm_type,
    _gemm_lower,
    _gemm_reference,
    lambda rng: [
        Sample((normals(rng)(3, 5), normals(rng)(5, 4), normals(rng)(4))),
        Sample((normals(rng)(5, 3), normals(rng)(4, 5), normals(rng)(3, 1)),
               {"trans_a": True, "trans_b": True, "alpha": 0.5, "beta": 2.0}),
        Sample((normals(rng)(3, 5), normals(rng)(5, 4), None)),
    ],
    conditions=_gemm_conditions, broadcasts=_gemm_broadcasts,
    traits=Trait.CONTRACTION | Trait.WIDENS, record=Gemm
)  # fmt: skip


WIDTHS = (DType.I8, DType.U8, DType.I16)
"""Element types of operands; products with i16 are summed in 64 bits unless the bias says 32."""


def _integer_type(
    a: TensorType,
    b: TensorType,
    a_zero: TensorType | None = None,
    b_zero: TensorType | None = None,
    bias: TensorType | None = None,
) -> TensorType:
    for x, zero in ((a, a_zero), (b, b_zero)):
        require(x.dtype in WIDTHS, f"matmul_integer needs bytes or i16, got {x}")
        fits = zero is None or (
            zero.dtype is x.dtype
            and (zero.elements == Dim.of(1) or (x.rank > 1 and zero.rank in (1, x.rank)))
        )
        require(fits, f"matmul_integer: {x} with the zero point {zero}")
    sums = DType.I64 if DType.I16 in (a.dtype, b.dtype) else DType.I32
    sums = sums if bias is None else bias.dtype
    columns = bias is None or (sums in (DType.I32, DType.I64) and bias.rank == 1 and b.rank > 1)
    require(columns, f"matmul_integer: bias {bias} with {b}")
    return TensorType(sums, _matmul_type(a, TensorType(a.dtype, b.shape)).shape)


def _integer_conditions(
    a: TensorType,
    b: TensorType,
    a_zero: TensorType | None = None,
    b_zero: TensorType | None = None,
    bias: TensorType | None = None,
) -> list[Condition]:
    conditions = _matmul_conditions(a, b)
    if bias is not None:
        conditions.append(must_equal(bias.shape[0], b.shape[-1], "matmul_integer's bias"))
    for zero, x, axis in ((a_zero, a, -2), (b_zero, b, -1)):
        if zero is not None and zero.elements != Dim.of(1):
            conditions += must_fit(zero, _zero_shape(zero, x, axis), "matmul_integer's zero points")
    return conditions


def _zero_shape(zero: TensorType, x: TensorType, axis: int) -> tuple[Dim, ...]:
    """That of zero points per row or column of x."""
    if zero.rank <= 1:
        return x.shape[axis:][:1]
    summed = x.rank - 3 - axis
    return (*x.shape[:summed], Dim.of(1), *x.shape[summed + 1 :])


def _integer_broadcasts(
    a: TensorType,
    b: TensorType,
    a_zero: TensorType | None = None,
    b_zero: TensorType | None = None,
    _bias: TensorType | None = None,
) -> tuple[Broadcast, ...]:
    """Zero points too: a vector with a dynamic size may be one number."""
    zeros = ((2, a_zero, a, -2), (3, b_zero, b, -1))
    return (
        *_matmul_broadcasts(),
        *(
            Broadcast((number,), target=_zero_shape(zero, x, axis))
            for number, zero, x, axis in zeros
            if zero is not None and zero.rank == 1 and x.rank > 1
        ),
    )


def _integer_lower(
    k: KernelBuilder,
    a: Buffer,
    b: Buffer,
    a_zero: Buffer | None,
    b_zero: Buffer | None,
    bias: Buffer | None,
    c: Buffer,
) -> None:
    def less(x: Buffer, at: At, zero: Buffer | None, axis: int) -> Expr:
        """One zero point, one per row of a or column of b, or the same per matrix."""
        wide = Cast(x[at], DType.I32)
        if zero is None:
            return wide
        if zero.type.elements == Dim.of(1):
            place: At = (Dim.of(0),) * zero.rank
        elif zero.rank == 1:
            place = (at[axis],)
        else:
            place = spread(at, zero.shape)
        return wide - Cast(zero[place], DType.I32)

    def product(left: At, right: At) -> Expr:
        found = binary("*", less(a, left, a_zero, -2), less(b, right, b_zero, -1))
        return found if c.dtype is DType.I32 else Cast(found, c.dtype)

    _products(k, a, b, c, product, bias)


def _integer_reference(
    a: Array,
    b: Array,
    a_zero: Array | None = None,
    b_zero: Array | None = None,
    bias: Array | None = None,
) -> Array:
    wide = np.int64 if np.int16 in (a.dtype, b.dtype) else np.int32
    wide = wide if bias is None else bias.dtype.type
    left, right = a.astype(wide), b.astype(wide)
    if a_zero is not None:
        column = a_zero.ndim == 1 and a_zero.size != 1
        left = left - (a_zero[:, None] if column else a_zero).astype(wide)
    if b_zero is not None:
        right = right - b_zero.astype(wide)
    product = np.matmul(left, right)
    return np.asarray(product if bias is None else product + bias)


def _integer_samples(rng: np.random.Generator) -> list[Sample]:
    random = integers(rng)

    def bias(size: int) -> Array:
        return rng.integers(-9999, 9999, size).astype(np.int32)

    u8, i8, i16 = np.uint8, np.int8, np.int16
    return [
        Sample((random(i16, 3, 5), random(i8, 5, 4), None, None, bias(4).astype(np.int64))),
        Sample((random(i16, 2, 3, 5), random(i16, 2, 5, 4))),
        Sample((random(u8, 3, 5), random(i8, 5, 4))),
        Sample((random(u8, 3, 5), random(u8, 5, 4), random(u8), random(u8, 4))),
        Sample((random(i8, 3, 5), random(i8, 5, 4), random(i8, 3), random(i8, 1))),
        Sample((random(i8, 2, 3, 5), random(i8, 5, 4), random(i8, 2, 3, 1), None)),
        Sample((random(u8, 2, 3, 5), random(i8, 2, 5, 4), None, random(i8, 2, 1, 4))),
        Sample((random(i8, 5), random(i8, 5, 4), random(i8), random(i8))),
        Sample((random(i8, 3, 5), random(i8, 5, 4), random(i8), None, bias(4))),
        Sample((random(u8, 2, 3, 5), random(i8, 5, 4), random(u8), None, bias(4))),
    ]


MATMUL_INTEGER = Op(
    "matmul_integer",
    _integer_type,
    _integer_lower,
    _integer_reference,
    _integer_samples,
    conditions=_integer_conditions,
    broadcasts=_integer_broadcasts,
    traits=Trait.QUANTIZED,
    quantization={"a_zero": code_limits, "b_zero": code_limits},
)

OPS = (MATMUL, GEMM, MATMUL_INTEGER)
