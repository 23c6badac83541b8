# SPDX-License-Identifier: Apache-2.0
"""Parameters, constants and known values of a function, and folding while it is built."""

from __future__ import annotations

from typing import Any

import numpy as np

from relax_aot.inference import float_sizes
from relax_aot.inference.sizes import Sizes
from relax_aot.ir.dims import Bounds, Dim, interval
from relax_aot.ir.graph import Condition, Constant, Var
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops import all_ops, has
from relax_aot.ops._op import Array, Trait, depends_on_sizes

FOLD_BUDGET_BYTES = 64 * 1024 * 1024
"""Folding never makes a constant larger than this (a splat is free)."""

ENCODED_BYTES = 512
"""Constants of bytes or of half precision, greater than this, are not unfolded into wider types at
once."""

KNOWN_LIMIT = 4096
"""Integer values of more elements than this take no part in shape arithmetic."""

EVALUATED_LIMIT = 64
"""Values of more elements than this are data: they are not evaluated for the sake of sizes."""

EXACT = (DType.I64, DType.I32, DType.BOOL)
"""Element types that take part in shape arithmetic: narrower integers would wrap."""


class Values(Sizes):
    """What is known of the values of a function: constants, integers as sizes, quotients."""

    def param(self, name: str, type_: TensorType) -> Var:
        var = Var(self.unique(name), type_)
        self.params.append(var)
        return var

    def constant(self, name: str, data: Array) -> Var:
        """A constant; equal data under one type is stored once, unless it may be replaced."""
        type_ = TensorType(DType.of(data.dtype), tuple(Dim.of(int(n)) for n in data.shape))
        constant = Constant(name, type_, data)
        key = (str(type_), constant.digest)
        if self.shared.replaceable or key not in self.shared.by_digest:
            constant = Constant(self.unique(name), type_, data)
            self.shared.constants[constant.name] = constant
            self.shared.by_digest[key] = constant.var
        return self.shared.by_digest[key]

    def constant_data(self, var: Var) -> Array | None:
        """The data of a constant."""
        constant = self.shared.constants.get(var.name)
        return None if constant is None else np.asarray(constant.data)

    def known(self, var: Var) -> Array | None:
        """The value as an array of objects (int, float, bool, Dim, Condition), where known."""
        constant = self.shared.constants.get(var.name)
        if constant is not None:
            return constant.data.astype(object) if constant.data.size <= KNOWN_LIMIT else None
        if var.type.elements == Dim.of(0) and all(size.is_constant for size in var.type.shape):
            return np.empty([size.constant for size in var.type.shape], object)
        return self.shared.known.get(var.name)

    def numeric(self, var: Var) -> Array | None:
        """The value as a plain array, where it is a constant."""
        constant = self.shared.constants.get(var.name)
        return None if constant is None else constant.data

    def measured(self, var: Var) -> Array | None:
        """A float value as an array of quotients of sizes, where known (float_sizes.py)."""
        data = self.numeric(var)
        if data is not None:
            return float_sizes.of_constant(data) if data.size <= KNOWN_LIMIT else None
        return self.shared.measured.get(var.name)

    def dims(self, var: Var) -> tuple[Dim, ...] | None:
        """The elements of a known integer value as sizes, flattened."""
        value = self.known(var)
        if value is None or any(isinstance(v, float | Condition) for v in value.flat):
            return None
        return tuple(v if isinstance(v, Dim) else Dim.of(int(v)) for v in value.flat)

    def know(self, var: Var, value: Array) -> None:
        """State the value of an integer parameter or call (an object array)."""
        self.shared.known[var.name] = value

    # Folding

    def _fold(
        self,
        op: str,
        args: tuple[Var | None, ...],
        attrs: dict[str, Any],
        types: tuple[TensorType, ...],
        name: str,
    ) -> tuple[Var, ...] | None:
        """Evaluate now where all arguments are constants and the result is small."""
        record = all_ops()[op]
        values = [None if a is None else self.numeric(a) for a in args]
        absent = any(v is None and a is not None for v, a in zip(values, args, strict=True))
        if absent or any(depends_on_sizes(v) for v in attrs.values()):
            return None
        if any(not t.bytes.is_constant or t.bytes.constant > FOLD_BUDGET_BYTES for t in types):
            return None
        if not args and (op != "fill" or types[0].elements.constant > KNOWN_LIMIT):
            return None  # one number fills it, which readers see as it is
        if op == "dequantize" and args[0] is not None and args[0].type.dtype.bytes == 1:
            return None
        if any(_encodes(a, t) for a in args for t in types):
            return None
        if has(op, Trait.CONTRACTION) and _grows(args, types[0]):
            return None
        try:
            with np.errstate(all="ignore"):
                results = record.reference(*values, **attrs)
        except IndexError:
            # A constant index out of range: the call stays, and ends the run with a status.
            return None
        results = results if isinstance(results, tuple) else (results,)
        return tuple(
            self.constant(name, np.asarray(r, t.dtype.numpy).reshape([int(d) for d in t.shape]))
            for r, t in zip(results, types, strict=True)
        )

    def learn(
        self, op: str, args: tuple[Var | None, ...], attrs: dict[str, Any], outs: tuple[Var, ...]
    ) -> None:
        """Shape arithmetic: the value of a small result, where it can be told."""
        if len(outs) != 1:
            return
        (out,) = outs
        elements = out.type.elements
        if not elements.is_constant or elements.constant > KNOWN_LIMIT:
            return
        if not all(size.is_constant for size in out.type.shape):
            return  # no elements, in a shape that depends on sizes
        if out.type.dtype in (*EXACT, *float_sizes.EXACT_BELOW):
            self._follow(op, args, attrs, out)
        if out.name not in self.shared.known and out.name not in self.shared.measured:
            self._evaluate(op, args, attrs, out)

    def _follow(
        self, op: str, args: tuple[Var | None, ...], attrs: dict[str, Any], out: Var
    ) -> None:
        """The value as an expression of sizes."""
        record = all_ops()[op]
        from_float = op == "cast" and args[0] is not None and args[0].type.dtype.is_float
        if out.type.dtype.is_float or from_float:
            self._measure(op, args, attrs, out)
            return
        if record.symbolic is None:
            return
        if op in ("shape_of", "size_of"):
            values: list[Array | None] = [np.array(args[0].type.shape + (0,), object)[:-1]]  # type: ignore[union-attr]
        else:
            values = [None if a is None else self.known(a) for a in args]
            if any(v is None and a is not None for v, a in zip(values, args, strict=True)):
                return
        try:
            result = record.symbolic(self.bounds, *values, **attrs)
        except IndexError:
            return
        if result is not None:
            result = self.accepted(result)
            if _fits(result, out.type.dtype, self.bounds):
                self.know(out, result.reshape([d.constant for d in out.type.shape]))

    def _evaluate(
        self, op: str, args: tuple[Var | None, ...], attrs: dict[str, Any], out: Var
    ) -> None:
        """The value where all arguments are known numbers: a size may be the root of a size, and
        quantization takes float arithmetic of sizes for activations."""
        if not args or any(depends_on_sizes(attr) for attr in attrs.values()):
            return
        if any(a is not None and not self._small(a) for a in (*args, out)):
            return
        values = [None if a is None else self._numbers(a) for a in args]
        if any(v is None and a is not None for v, a in zip(values, args, strict=True)):
            return
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(all_ops()[op].reference(*values, **attrs))
        except IndexError:
            return
        if out.type.dtype.is_float:
            measured = float_sizes.of_constant(result)
            if measured is not None:
                self.shared.measured[out.name] = measured
        elif not out.type.dtype.is_stored_float:
            self.know(out, result.astype(object))

    def _small(self, var: Var) -> bool:
        return var.type.elements.is_constant and var.type.elements.constant <= EVALUATED_LIMIT

    def _numbers(self, var: Var) -> Array | None:
        """The value as a plain array, where it is known and depends on no size."""
        data = self.numeric(var)
        if data is not None:
            return data
        if var.type.dtype.is_float:
            return float_sizes.numbers(self.measured(var), var.type.dtype)
        found = self.dims(var)
        if found is None or not all(size.is_constant for size in found):
            return None
        shape = [size.constant for size in var.type.shape]
        return np.array([size.constant for size in found], var.type.dtype.numpy).reshape(shape)

    def _measure(
        self, op: str, args: tuple[Var | None, ...], attrs: dict[str, Any], out: Var
    ) -> None:
        """The same through floats, and back to integers."""
        values: list[Array] = []
        for arg in args:
            value = None
            if arg is not None:
                value = self.measured(arg) if arg.type.dtype.is_float else self.known(arg)
            if value is None:
                return
            values.append(value)
        dtype, symbolic = out.type.dtype, all_ops()[op].symbolic
        try:
            result = float_sizes.follow(op, values, attrs, dtype, self.bounds, symbolic)
        except IndexError:
            return
        if result is None:
            return
        result = self.accepted(result).reshape([size.constant for size in out.type.shape])
        if dtype.is_float:
            self.shared.measured[out.name] = result
        elif dtype in (DType.I32, DType.I64) and _fits(result, dtype, self.bounds):
            self.know(out, result)


def _fits(value: Array, dtype: DType, bounds: Bounds) -> bool:
    """Whether no integer leaves its element type: what would wrap is not known."""
    if not dtype.is_int:
        return True
    least, most = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    for number in np.asarray(value, object).flat:
        if isinstance(number, Condition):
            continue
        low, high = interval(Dim.of(number), bounds)
        if low < least or high > most:
            return False
    return True


def _grows(args: tuple[Var | None, ...], result: TensorType) -> bool:
    """A product that is larger than its factors: its readers may multiply by these instead, which
    is decided when they are known (transforms/reassociate.py)."""
    factors = sum(arg.type.bytes.constant for arg in args if arg is not None)
    return result.bytes.constant > max(factors, ENCODED_BYTES)


def _encodes(arg: Var | None, result: TensorType) -> bool:
    """The argument is the small form of a large constant, say of quantized weights, or of weights
    of half precision. Whether it stays so is decided when its readers are known
    (transforms/fold_constants.py)."""
    if arg is None or not arg.type.bytes.is_constant:
        return False
    if arg.type.dtype.bytes > 1 and not arg.type.dtype.is_half:
        return False
    return ENCODED_BYTES < arg.type.bytes.constant < result.bytes.constant
