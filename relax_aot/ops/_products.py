"""Ops that sum products of x and w with channels as the last axis: of elements as they are, and
of quantized values less their zero points, summed in the bias's type, 32 or 64 bits."""

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
    code_limits,
    require,
)

Tap = Callable[[At, At], Expr]
"""The product at a place of x and one of w."""
Samples = Callable[[np.random.Generator], list[Sample]]

NARROW = (DType.I8, DType.U8)


@dataclass(frozen=True, slots=True)
class Form:
    """How products are summed, whatever they are: deduce(x, w, b), conditions(x, w, b),
    nest(k, x, w, b, y, tap) and reference(x, w, b), each with the op's attributes."""

    name: str
    deduce: Callable[..., TensorType]
    conditions: Callable[..., list[Condition]]
    nest: Callable[..., None]
    reference: Callable[..., Array]
    former: str
    """The name of older text."""

    def plain(self, samples: Samples) -> Op:
        """Of elements: x, w, b?"""

        def lower(
            k: KernelBuilder, x: Buffer, w: Buffer, *rest: Buffer | None, **attrs: Any
        ) -> None:
            *optional, y = rest

            def tap(place: At, weight: At) -> Expr:
                return binary("*", x[place], w[weight])

            self.nest(k, x, w, optional[0] if optional else None, y, tap, **attrs)

        return Op(
            self.name, self.deduce, lower, self.reference, samples, conditions=self.conditions,
            former=(self.former,), rules=(self.deduce, self.nest),
        )  # fmt: skip

    def integer(self, samples: Samples) -> Op:
        """Of quantized values: x, w, x_zero?, w_zero?, b?"""
        return Op(
            f"{self.name}_integer", self._integer_type, self._integer_lower,
            self._integer_reference, samples, conditions=self._integer_conditions,
            former=(f"{self.former}_integer",), rules=(self.deduce, self.nest),
            quantization={"x_zero": code_limits, "w_zero": code_limits},
        )  # fmt: skip

    def _integer_type(
        self,
        x: TensorType,
        w: TensorType,
        x_zero: TensorType | None = None,
        w_zero: TensorType | None = None,
        b: TensorType | None = None,
        **attrs: Any,
    ) -> TensorType:
        what = f"{self.name}_integer"
        fits = x.dtype in (*NARROW, DType.I16) and w.dtype in NARROW
        require(fits, f"{what} needs bytes, or x of i16, got {x} and {w}")
        for part, zero in ((x, x_zero), (w, w_zero)):
            same = zero is None or (zero.dtype is part.dtype and zero.elements == Dim.of(1))
            require(same, f"{what}: {part} with the zero point {zero}")
        require(b is None or b.dtype in (DType.I32, DType.I64), f"{what}: bias {b}")
        found = self.deduce(x, TensorType(x.dtype, w.shape), None, **attrs)
        # Products of 16-bit values fill 32 bits at once, so they are summed in 64.
        wide = DType.I64 if x.dtype is DType.I16 else DType.I32
        return TensorType(wide if b is None else b.dtype, found.shape)

    def _integer_conditions(
        self,
        x: TensorType,
        w: TensorType,
        x_zero: TensorType | None = None,
        w_zero: TensorType | None = None,
        b: TensorType | None = None,
        **attrs: Any,
    ) -> list[Condition]:
        return self.conditions(x, w, b, **attrs)

    def _integer_lower(
        self, k: KernelBuilder, x: Buffer, w: Buffer, *rest: Buffer | None, **attrs: Any
    ) -> None:
        *optional, y = rest
        x_zero, w_zero, b = (*optional, None, None, None)[:3]
        assert y is not None

        def tap(place: At, weight: At) -> Expr:
            product = binary("*", _less(x[place], x_zero), _less(w[weight], w_zero))
            return product if y.dtype is DType.I32 else Cast(product, y.dtype)

        self.nest(k, x, w, b, y, tap, **attrs)

    def _integer_reference(
        self,
        x: Array,
        w: Array,
        x_zero: Array | None = None,
        w_zero: Array | None = None,
        b: Array | None = None,
        **attrs: Any,
    ) -> Array:
        wide = b.dtype if b is not None else np.int64 if x.dtype == np.int16 else np.int32
        left, right = x.astype(wide), w.astype(wide)
        if x_zero is not None:
            left = left - x_zero.reshape(()).astype(wide)
        if w_zero is not None:
            right = right - w_zero.reshape(()).astype(wide)
        return self.reference(left, right, b, **attrs)


def _less(value: Expr, zero: Buffer | None) -> Expr:
    """A quantized value minus its zero point."""
    number = Cast(value, DType.I32)
    return number if zero is None else number - Cast(zero[(Dim.of(0),) * zero.rank], DType.I32)
