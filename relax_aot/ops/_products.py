# SPDX-License-Identifier: Apache-2.0
"""Ops that sum products of x and filters w: of elements as they are, and of quantized values less
their zero points, summed in the bias's type, 32 or 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    must_fit,
    must_not_exceed,
    require,
)
from relax_aot.ops._window import Axes

Tap = Callable[[At, At], Expr]
"""The product at a place of x and one of w."""
Samples = Callable[[np.random.Generator], list[Sample]]

NARROW = (DType.I8, DType.U8)


@dataclass(frozen=True, slots=True)
class Form:
    """How products are summed, whatever they are: deduce(attrs, x, w, b?), nest(attrs, k, x, w, b,
    y, tap) and reference(attrs, x, w), which knows no bias and rounds nothing."""

    name: str
    record: type[Any]
    axes: Axes
    deduce: Callable[..., TensorType]
    nest: Callable[..., None]
    reference: Callable[..., Array]
    channels: Callable[..., tuple[Dim, Dim]] | None = None
    """channels(attrs, x, w): two numbers of channels that must be equal."""
    former: str = ""
    """The name of older text."""
    per_filter: bool = False
    """Zero points of w may be one per filter; x is of bytes, and sums are of 32 bits."""

    def plain(self, samples: Samples, traits: Trait = Trait.NONE) -> Op:
        """Of elements: x, w, b?"""

        def lower(
            attrs: Any, k: KernelBuilder, x: Buffer, w: Buffer, b: Buffer | None, y: Buffer
        ) -> None:
            def tap(place: At, weight: At) -> Expr:
                return binary("*", x[place], w[weight])

            self.nest(attrs, k, x, w, b, y, tap)

        return Op(
            self.name, self.deduce, lower, self._reference, samples, conditions=self._conditions,
            former=(self.former,) if self.former else (), traits=traits, record=self.record,
        )  # fmt: skip

    def integer(self, samples: Samples, traits: Trait = Trait.NONE) -> Op:
        """Of quantized values: x, w, x_zero?, w_zero?, b?"""
        return Op(
            f"{self.name}_integer", self._integer_type, self._integer_lower,
            self._integer_reference, samples, conditions=self._integer_conditions,
            former=(f"{self.former}_integer",) if self.former else (), traits=traits,
            record=self.record, quantization={"x_zero": code_limits, "w_zero": code_limits},
        )  # fmt: skip

    def _conditions(
        self, attrs: Any, x: TensorType, w: TensorType, b: TensorType | None = None
    ) -> list[Condition]:
        y = self.deduce(attrs, x, w)
        sizes = y.shape[self.axes.space]
        conditions = [must_not_exceed(0, n, f"{self.name}'s output size") for n in sizes]
        if self.channels is not None:
            conditions.append(must_equal(*self.channels(attrs, x, w), f"{self.name}'s channels"))
        return conditions + must_fit(b, [y.shape[self.axes.channels]], f"{self.name}'s bias")

    def _reference(self, attrs: Any, x: Array, w: Array, b: Array | None = None) -> Array:
        wide = np.float64 if is_float(x) else x.dtype
        y = self.reference(attrs, x.astype(wide), w.astype(wide))
        if b is not None:
            y = np.moveaxis(np.moveaxis(y, self.axes.channels, -1) + b, -1, self.axes.channels)
        return y.astype(x.dtype)

    def _integer_type(
        self,
        attrs: Any,
        x: TensorType,
        w: TensorType,
        x_zero: TensorType | None = None,
        w_zero: TensorType | None = None,
        b: TensorType | None = None,
    ) -> TensorType:
        what = f"{self.name}_integer"
        kinds = NARROW if self.per_filter else (*NARROW, DType.I16)
        sums = (DType.I32,) if self.per_filter else (DType.I32, DType.I64)
        fits = x.dtype in kinds and w.dtype in NARROW
        which = "bytes" if self.per_filter else "bytes, or x of i16"
        require(fits, f"{what} needs {which}, got {x} and {w}")
        for part, zero, many in ((x, x_zero, False), (w, w_zero, self.per_filter)):
            same = zero is None or (
                zero.dtype is part.dtype
                and (zero.elements == Dim.of(1) or (many and zero.rank == 1))
            )
            require(same, f"{what}: {part} with the zero point {zero}")
        require(b is None or b.dtype in sums, f"{what}: bias {b}")
        found = self.deduce(attrs, x, TensorType(x.dtype, w.shape), None)
        # Products of 16-bit values fill 32 bits at once, so they are summed in 64.
        wide = DType.I64 if x.dtype is DType.I16 else DType.I32
        return TensorType(wide if b is None else b.dtype, found.shape)

    def _integer_conditions(
        self,
        attrs: Any,
        x: TensorType,
        w: TensorType,
        x_zero: TensorType | None = None,
        w_zero: TensorType | None = None,
        b: TensorType | None = None,
    ) -> list[Condition]:
        conditions = self._conditions(attrs, x, TensorType(x.dtype, w.shape), b)
        if w_zero is not None and w_zero.elements != Dim.of(1):
            why = f"{self.name}_integer's zero points"
            conditions.append(must_equal(w_zero.shape[0], w.shape[0], why))
        return conditions

    def _integer_lower(
        self,
        attrs: Any,
        k: KernelBuilder,
        x: Buffer,
        w: Buffer,
        x_zero: Buffer | None,
        w_zero: Buffer | None,
        b: Buffer | None,
        y: Buffer,
    ) -> None:
        def tap(place: At, weight: At) -> Expr:
            left, right = _less(x[place], x_zero, place[0]), _less(w[weight], w_zero, weight[0])
            product = binary("*", left, right)
            return product if y.dtype is DType.I32 else Cast(product, y.dtype)

        self.nest(attrs, k, x, w, b, y, tap)

    def _integer_reference(
        self,
        attrs: Any,
        x: Array,
        w: Array,
        x_zero: Array | None = None,
        w_zero: Array | None = None,
        b: Array | None = None,
    ) -> Array:
        wide = b.dtype if b is not None else np.int64 if x.dtype == np.int16 else np.int32
        left, right = x.astype(wide), w.astype(wide)
        if x_zero is not None:
            left = left - x_zero.reshape(()).astype(wide)
        if w_zero is not None:
            right = right - w_zero.astype(wide).reshape(-1, *[1] * (w.ndim - 1))
        return self._reference(attrs, left, right, b)


def _less(value: Expr, zero: Buffer | None, filter_: Dim) -> Expr:
    """A quantized value minus its zero point, which may be that of a filter."""
    number = Cast(value, DType.I32)
    if zero is None:
        return number
    one = zero.type.elements == Dim.of(1)
    return number - Cast(zero[(Dim.of(0),) * zero.rank if one else (filter_,)], DType.I32)
