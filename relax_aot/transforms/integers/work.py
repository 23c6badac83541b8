# SPDX-License-Identifier: Apache-2.0
"""A function under rewriting, and what is known of its quantized values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.dims import Bounds, Dim, Relation
from relax_aot.ir.graph import Attr, Call, Constant, Var, attrs_of
from relax_aot.ir.names import unused_name
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops import all_ops, deduce
from relax_aot.ops._op import depends_on_sizes

Array = NDArray[Any]
EIGHT = (DType.I8, DType.U8)
MOST = 2**31 - 1
"""Sums of products fit 32 bits."""


def attributes(call: Call) -> dict[str, Any]:
    return dict(call.attrs)


Names = tuple[str, str]


def names_of(call: Call) -> Names:
    """The scale and the zero point of a quantize or dequantize, by name."""
    scale, zero = ("" if arg is None else arg.name for arg in (*call.args, None)[1:3])
    return scale, zero


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized value: the real number is (stored value - zero) * scale.

    `scale` is in float64 and as exact as it is known; it has one element, or one for each index
    of `axis`.
    """

    var: Var
    scale: Array
    zero: Array
    axis: int | None = None
    source: Names = ("", "")
    """The names of the constants that scale and zero point came from."""

    @property
    def plain(self) -> bool:
        """An 8-bit value with one scale and zero point."""
        return self.var.type.dtype in EIGHT and self.axis is None

    @property
    def one_scale(self) -> float:
        return float(self.scale.reshape(-1)[0])

    @property
    def one_zero(self) -> int:
        return int(self.zero.reshape(-1)[0])


@dataclass
class Work:
    """Calls so far, by the values they make."""

    constants: dict[str, Constant]
    bounds: Bounds
    names: set[str]
    assumptions: list[Relation]
    """On sizes whose bounds may be raised: they become checks."""
    results: frozenset[str]
    replaceable: bool = False
    """Whether the calls are to be the same whatever weights, scales and zero points are."""
    calls_floats: bool = False
    """Whether arithmetic of floats is a call."""
    compact: bool = False
    """Whether constants are to be small."""
    body: list[Call] = field(default_factory=list)
    made: dict[str, Call] = field(default_factory=dict)
    scales: dict[str, Array] = field(default_factory=dict)
    """Scales of sums in float64, by the name of the dequantized value."""
    sources: dict[str, Names] = field(default_factory=dict)
    """Where scales and zero points came from, by the name of a value that was dequantized later."""
    reach: dict[str, int | Array] = field(default_factory=dict)
    """The greatest possible sum, or that of each channel, by the name of the sums."""
    by_digest: dict[tuple[str, str], Var] = field(default_factory=dict)

    def maker(self, value: Var | None) -> Call | None:
        return None if value is None else self.made.get(value.name)

    def numeric(self, value: Var | None) -> Array | None:
        found = None if value is None else self.constants.get(value.name)
        return None if found is None or found.absent else np.asarray(found.data)

    def dequantized(self, value: Var | None) -> Quantized | None:
        """What a float is dequantized from, where scales and zero points are known."""
        call = self.maker(value)
        if call is None or call.op != "dequantize" or value is None:
            return None
        attrs = attributes(call)
        args = (*call.args, None)
        scale, zero = self.numeric(args[1]), self.numeric(args[2])
        known = scale is not None and (args[2] is None or zero is not None)
        stored = call.inputs[0]
        if not known or scale is None or value.type.dtype is not DType.F32:
            return None
        if stored.type.dtype not in (*EIGHT, DType.I32, DType.I16, DType.U16):
            return None
        several = scale.size > 1 or (zero is not None and zero.size > 1)
        axis = int(attrs.get("axis", 1)) if several else None
        if several and attrs.get("block", 0):
            return None
        if axis is not None and axis < 0:
            axis += stored.type.rank
        zero = np.zeros((), np.int64) if zero is None else zero.astype(np.int64)
        exact = self.scales.get(value.name, scale.astype(np.float64))
        if not (np.isfinite(exact).all() and (exact != 0).all()):
            return None
        return Quantized(stored, exact, zero, axis, self.sources.get(value.name, names_of(call)))

    def constant(self, wanted: str, data: Array) -> Var:
        """Equal data under one type is stored once."""
        data = np.asarray(data)
        type_ = TensorType(DType.of(data.dtype), tuple(Dim.of(int(n)) for n in data.shape))
        made = Constant(wanted, type_, data)
        key = (str(type_), made.digest)
        if self.replaceable or key not in self.by_digest:
            made = replace(made, name=self.fresh(wanted))
            self.constants[made.name] = made
            self.by_digest[key] = made.var
        return self.by_digest[key]

    def fresh(self, wanted: str) -> str:
        name = unused_name(wanted, self.names)
        self.names.add(name)
        return name

    def emit(
        self,
        op: str,
        *args: Var | None,
        like: Call,
        out: Var | None = None,
        name: str = "",
        **attrs: Any,
    ) -> Var:
        """Add a call in place of `like` or of a part of it. Constants are evaluated now."""
        given: Mapping[str, Attr] = dict(attrs_of(attrs))
        types = deduce(op, [None if arg is None else arg.type for arg in args], given)
        assert types is not None, op
        (type_,) = types
        folded = None if out is not None else self._folded(op, args, given, type_)
        if folded is not None:
            return self.constant(name or like.outs[0].name, folded)
        if out is None:
            out = Var(self.fresh(name or f"{like.outs[0].name}.quantized"), type_)
        assert out.type.dtype is type_.dtype, f"{op}: {type_} in the place of {out.type}"
        self.add(Call((out,), op, args, attrs_of(attrs), like.origin))
        return out

    def add(self, call: Call) -> None:
        self.body.append(call)
        for out in call.outs:
            self.made[out.name] = call

    def _folded(
        self, op: str, args: tuple[Var | None, ...], attrs: Mapping[str, Attr], type_: TensorType
    ) -> Array | None:
        if op == "dequantize" or any(depends_on_sizes(value) for value in attrs.values()):
            return None
        values = [self.numeric(arg) for arg in args]
        if not args or any(v is None and a is not None for v, a in zip(values, args, strict=True)):
            return None
        # Larger weights are rearranged at run time.
        if not type_.bytes.is_constant or type_.bytes.constant > 16 * 2**20:
            return None
        result = all_ops()[op].reference(*values, **attrs)
        shape = [int(size) for size in type_.shape]
        return np.asarray(result, type_.dtype.numpy).reshape(shape)

    def dequantize(
        self,
        like: Call,
        out: Var | None,
        stored: Var,
        scale: Array,
        zero: Array,
        axis: int | None,
        source: Names | None = None,
    ) -> Var:
        """Add the dequantize that makes `out`; the scale is kept in float64 as well."""
        single = self.constant(f"{stored.name}.scale", scale.astype(np.float32))
        point = None
        if zero.any():
            point = self.constant(f"{stored.name}.zero", zero.astype(stored.type.dtype.numpy))
        attrs = {} if axis is None else {"axis": axis}
        made = self.emit(
            "dequantize", stored, single, point, like=like, out=out,
            name=f"{stored.name}.numbers", to=DType.F32, **attrs,
        )  # fmt: skip
        self.scales[made.name] = np.asarray(scale, np.float64)
        if source is not None:
            self.sources[made.name] = source
        return made
