"""Convolution with channels first (NCHW), in any number of spatial axes.

conv_integer takes 8-bit operands less their zero points, and sums in 32 bits; padding stands
for the zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    Trait,
    code_limits,
    is_float,
    must_equal,
    must_not_exceed,
    require,
)
from relax_aot.ops._window import Sizes, output_sizes, window, windows_of


def _type(
    x: TensorType,
    w: TensorType,
    b: TensorType | None = None,
    *,
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    group: int,
) -> TensorType:
    require(x.rank >= 3 and w.rank == x.rank, f"conv needs x and w of one rank, got {x} and {w}")
    require(x.dtype is w.dtype, f"conv needs equal element types, got {x} and {w}")
    channels, per_group = x.shape[1], w.shape[1]
    if channels.is_constant and per_group.is_constant:
        fits = channels == per_group * group
        require(fits, f"conv: {channels} channels are not {group} groups of {per_group}")
    require(
        not w.shape[0].is_constant or w.shape[0].constant % group == 0,
        f"conv: {w.shape[0]} filters are not a multiple of {group} groups",
    )
    spatial = output_sizes(x.shape[2:], w.shape[2:], strides, pads, dilations)
    return TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial))


def _conditions(
    x: TensorType, w: TensorType, b: TensorType | None = None, **attrs: Any
) -> list[Condition]:
    sizes = output_sizes(
        x.shape[2:], w.shape[2:], attrs["strides"], attrs["pads"], attrs["dilations"]
    )
    conditions = [must_not_exceed(0, size, "conv's output size") for size in sizes]
    conditions.append(must_equal(x.shape[1], w.shape[1] * attrs["group"], "conv's channels"))
    if b is not None:
        conditions.append(must_equal(b.shape[0], w.shape[0], "conv's bias"))
    return conditions


def _lower(
    k: KernelBuilder,
    x: Buffer,
    w: Buffer,
    *rest: Buffer | None,
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    group: int,
) -> None:
    *optional, y = rest
    b = optional[0] if optional else None
    assert y is not None

    def tap(place: At, weight: At) -> Expr:
        return binary("*", x[place], w[weight])

    _nest(k, x, w, b, y, tap, strides=strides, pads=pads, dilations=dilations, group=group)


def _nest(
    k: KernelBuilder,
    x: Buffer,
    w: Buffer,
    b: Buffer | None,
    y: Buffer,
    tap: Callable[[At, At], Expr],
    *,
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    group: int,
) -> None:
    per_group = w.shape[1]
    filters = w.shape[0] // group
    start = 0.0 if y.dtype.is_float else 0
    groups = [y.shape[0], group, filters] if group > 1 else [y.shape[0], w.shape[0]]
    with k.loops(*groups) as outer:
        if group > 1:
            image, part, filter_ = outer
            channel = k.let("channel", part * filters + filter_)
            first = k.let("first", part * per_group)
        else:
            image, channel = outer
            first = Dim.of(0)
        with k.loops(*y.shape[2:]) as at:
            total = k.local("total", y.dtype, start if b is None else b[(channel,)])
            with k.loops(per_group) as (c,):
                taps = window(k, at, x.shape[2:], w.shape[2:], strides, pads, dilations)
                with taps as (offset, place):
                    added = tap((image, first + c, *place), (channel, c, *offset))
                    k.assign(total, total + added)
            k.store(y[(image, channel, *at)], total)


def _reference(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> Array:
    spatial = x.ndim - 2
    sizes = output_sizes(
        tuple(Dim.of(n) for n in x.shape[2:]), w.shape[2:], strides, pads, dilations
    )
    outputs = [size.constant for size in sizes]
    wide = x.astype(np.float64) if is_float(x) else x
    # Cut what negative rests of the padding leave out, then view the windows.
    view = windows_of(wide, w.shape[2:], strides, pads, dilations, 0, outputs)
    n, filters = x.shape[0], w.shape[0]
    grouped = view.reshape(n, group, x.shape[1] // group, *outputs, *w.shape[2:])
    weights = w.astype(wide.dtype).reshape(group, filters // group, *w.shape[1:])
    letters = "uvwxyz"
    out_axes, tap_axes = letters[:spatial], letters[3 : 3 + spatial]
    y = np.einsum(f"ngc{out_axes}{tap_axes},gfc{tap_axes}->ngf{out_axes}", grouped, weights)
    y = y.reshape(n, filters, *outputs)
    if b is not None:
        y = y + b.reshape(1, -1, *[1] * spatial)
    return np.asarray(y).astype(x.dtype)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def normal(*shape: int) -> Array:
        return np.asarray(rng.normal(size=shape)).astype(np.float32)

    def case(x: Array, w: Array, b: Array | None, **attrs: Any) -> Sample:
        rank = x.ndim - 2
        usual = {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank}
        return Sample((x, w, b), {**usual, "group": 1, **attrs}, symbolic=False)

    return [
        case(normal(1, 3, 7), normal(4, 3, 3), normal(4)),
        case(normal(2, 3, 7), normal(4, 3, 3), None, pads=(1, 2), strides=(2,)),
        case(normal(1, 2, 9), normal(3, 2, 3), normal(3), dilations=(2,), pads=(2, 2)),
        case(normal(1, 2, 5, 6), normal(4, 2, 3, 2), normal(4), pads=(1, 0, 1, 1)),
        case(normal(1, 4, 6, 5), normal(4, 1, 3, 3), normal(4), group=4, pads=(1, 1, 1, 1)),
        case(normal(1, 4, 6, 5), normal(6, 2, 3, 3), None, group=2, strides=(2, 3)),
        case(normal(1, 2, 3, 4, 5), normal(3, 2, 2, 2, 2), None),
        case(normal(1, 1, 2), normal(1, 1, 5), None, pads=(4, 4)),
        case(normal(0, 2, 5), normal(3, 2, 3), normal(3)),
    ]


EIGHT = (DType.I8, DType.U8)


def _integer_type(
    x: TensorType,
    w: TensorType,
    x_zero: TensorType | None = None,
    w_zero: TensorType | None = None,
    b: TensorType | None = None,
    **attrs: Any,
) -> TensorType:
    require(x.dtype in EIGHT and w.dtype in EIGHT, f"conv_integer needs bytes, got {x} and {w}")
    for part, zero in ((x, x_zero), (w, w_zero)):
        same = zero is None or zero.dtype is part.dtype
        require(same, f"conv_integer: {part} with the zero point {zero}")
    require(x_zero is None or x_zero.elements == Dim.of(1), f"conv_integer: zero point {x_zero}")
    one = w_zero is None or w_zero.elements == Dim.of(1) or w_zero.rank == 1
    require(one, f"conv_integer: zero point {w_zero}")
    require(b is None or b.dtype is DType.I32, f"conv_integer: bias {b}")
    shape = _type(x, TensorType(x.dtype, w.shape), None, **attrs).shape
    return TensorType(DType.I32, shape)


def _integer_conditions(
    x: TensorType,
    w: TensorType,
    x_zero: TensorType | None = None,
    w_zero: TensorType | None = None,
    b: TensorType | None = None,
    **attrs: Any,
) -> list[Condition]:
    conditions = _conditions(x, w, b, **attrs)
    if w_zero is not None and w_zero.elements != Dim.of(1):
        conditions.append(must_equal(w_zero.shape[0], w.shape[0], "conv_integer's zero points"))
    return conditions


def _integer_lower(
    k: KernelBuilder, x: Buffer, w: Buffer, *rest: Buffer | None, **attrs: Any
) -> None:
    *optional, y = rest
    x_zero, w_zero, b = (*optional, None, None, None)[:3]
    assert y is not None

    def less(value: Expr, zero: Buffer | None, channel: Dim) -> Expr:
        wide = Cast(value, DType.I32)
        if zero is None:
            return wide
        one = zero.type.elements == Dim.of(1)
        place = (Dim.of(0),) * zero.rank if one else (channel,)
        return wide - Cast(zero[place], DType.I32)

    def tap(place: At, weight: At) -> Expr:
        left, right = less(x[place], x_zero, place[1]), less(w[weight], w_zero, weight[0])
        return binary("*", left, right)

    _nest(k, x, w, b, y, tap, **attrs)


def _integer_reference(
    x: Array,
    w: Array,
    x_zero: Array | None = None,
    w_zero: Array | None = None,
    b: Array | None = None,
    **attrs: Any,
) -> Array:
    left, right = x.astype(np.int32), w.astype(np.int32)
    if x_zero is not None:
        left = left - x_zero.reshape(()).astype(np.int32)
    if w_zero is not None:
        right = right - w_zero.astype(np.int32).reshape(-1, *[1] * (w.ndim - 1))
    return _reference(left, right, b, **attrs)


def _integer_samples(rng: np.random.Generator) -> list[Sample]:
    def random(kind: type, *shape: int) -> Array:
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max + 1, shape).astype(kind)

    def case(*args: Array | None, **attrs: Any) -> Sample:
        assert args[0] is not None
        rank = args[0].ndim - 2
        usual = {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank}
        return Sample(args, {**usual, "group": 1, **attrs}, symbolic=False)

    u8, i8 = np.uint8, np.int8
    return [
        case(random(u8, 1, 3, 7), random(i8, 4, 3, 3), random(u8), random(i8)),
        case(random(u8, 2, 3, 7), random(u8, 4, 3, 3), random(u8, 1), random(u8, 4), pads=(1, 2)),
        case(random(i8, 1, 4, 6, 5), random(i8, 4, 1, 3, 3), random(i8), None,
             rng.integers(-999, 999, 4).astype(np.int32), group=4, pads=(1, 1, 1, 1)),
        case(random(i8, 1, 2, 5, 6), random(i8, 3, 2, 3, 2), strides=(2, 1)),
    ]  # fmt: skip


OPS = (
    Op("conv", _type, _lower, _reference, _samples, conditions=_conditions,
       traits=Trait.CONTRACTION),
    Op(
        "conv_integer", _integer_type, _integer_lower, _integer_reference, _integer_samples,
        conditions=_integer_conditions, rules=(_type,), traits=Trait.QUANTIZED,
        quantization={"x_zero": code_limits, "w_zero": code_limits},
    ),
)  # fmt: skip
