# SPDX-License-Identifier: Apache-2.0
"""quantize and dequantize around the calls that are to work on quantized values.

What comes out is a QDQ module; transforms/integers makes integer
calls of it. A value that such a call reads is coded where it is made, so that no float of it
has to be kept. Between a contraction and its relu, clip or bias nothing is coded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Constant, Module, Var, attrs_of
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops import conv_transpose, elementwise_unary, has
from relax_aot.ops._op import Array, Trait
from relax_aot.ops.qarithmetic import KINDS as PAIRS
from relax_aot.quantization.ranges import Range
from relax_aot.quantization.values import (
    Step,
    bias_codes,
    channel_codes,
    channel_scales,
    encoded,
    step_of,
)

FOLLOWERS = ("relu", "clip")
FORMULAS = frozenset(op.name for op in elementwise_unary.OPS)


@dataclass
class _Facts:
    """Which calls are to be quantized, and how their constants are used."""

    module: Module
    ranges: Mapping[str, Range]
    kept: Collection[str]
    symmetric: bool
    constants: dict[str, Constant] = field(default_factory=dict)
    body: list[Call] = field(default_factory=list)
    seen: dict[str, Var] = field(default_factory=dict)
    """What stands for a value from here on."""
    steps: dict[str, Step] = field(default_factory=dict)
    """The quantization of a value, by its name."""
    quantized: list[str] = field(default_factory=list)
    readers: dict[str, list[Call]] = field(default_factory=dict)
    makers: dict[str, Call] = field(default_factory=dict)

    def numeric(self, value: Var | None) -> Array | None:
        found = None if value is None else self.constants.get(value.name)
        return None if found is None else np.asarray(found.data)

    def is_quantized(self, call: Call) -> bool:
        """Whether a call is to work on quantized values."""
        if len(call.outs) != 1 or call.out.type.dtype is not DType.F32:
            return False
        if call.out.name in self.kept or call.out.name not in self.ranges:
            return False
        if has(call.op, Trait.CONTRACTION):
            return self._contraction(call)
        if call.op in PAIRS:
            return any(self.numeric(arg) is None for arg in call.inputs)
        if call.op == "div":
            return self.factor_of(call) is not None
        if call.op == "reduce":
            return call.attr("kind") == "mean"
        known = has(call.op, Trait.QUANTIZABLE) or call.op in FORMULAS
        return known and call.out.type.rank > 0

    def _contraction(self, call: Call) -> bool:
        attrs: dict[str, Any] = dict(call.attrs)
        if call.op in ("conv", "conv_transpose"):
            return self.numeric(call.args[1]) is not None
        if call.op == "gemm":
            plain = attrs["alpha"] == 1.0 and attrs["beta"] == 1.0 and not attrs["trans_a"]
            return plain and self.numeric(call.args[1]) is not None
        ranks = [arg.type.rank for arg in call.inputs]
        return min(ranks) >= 2

    def follows(self, call: Call) -> bool:
        """Whether a call limits, or adds a bias to, sums that no other call reads."""
        activations = [arg for arg in call.inputs if self.numeric(arg) is None]
        if len(activations) != 1 or not self.is_quantized(call):
            return False
        (value,) = activations
        maker = self.makers.get(value.name)
        alone = len(self.readers.get(value.name, ())) == 1 and value not in self.module.main.results
        if maker is None or not alone or not self.is_quantized(maker):
            return False
        if call.op in FOLLOWERS:
            return has(maker.op, Trait.CONTRACTION) or maker.op in (*PAIRS, "div")
        if self.factor_of(call) is not None:
            return has(maker.op, Trait.CONTRACTION)
        return call.op == "add" and maker.op == "matmul" and self.bias_of(call) is not None

    def factor_of(self, call: Call) -> float | None:
        """A positive number that all elements are multiplied by, or divided."""
        numbers = [n for n in map(self.numeric, call.inputs) if n is not None and n.size == 1]
        if call.op not in ("mul", "div") or len(numbers) != 1:
            return None
        if call.op == "div" and self.numeric(call.inputs[1]) is None:
            return None
        found = float(numbers[0].reshape(-1)[0])
        return found if np.isfinite(found) and found > 0 else None

    def bias_of(self, call: Call) -> Var | None:
        """A constant with one number for each column."""
        for arg in call.inputs:
            data = self.numeric(arg)
            columns = call.out.type.shape[-1:]
            if data is not None and arg.type.shape == columns and data.size > 1:
                return arg
        return None

    def wants(self, value: Var) -> bool:
        """Whether anybody reads quantized values of it."""
        for call in self.readers.get(value.name, ()):
            if has(call.op, Trait.MOVES) and call.inputs[0].name == value.name:
                if any(self.wants(out) for out in call.outs):
                    return True
            elif self.is_quantized(call) and not self.follows(call):
                return True
        return False


class _Insertion(_Facts):
    """The module under construction."""

    def run(self) -> Module:
        main = self.module.main
        self.constants = dict(self.module.constant_table)
        for call in main.body:
            for out in call.outs:
                self.makers[out.name] = call
            for arg in call.inputs:
                self.readers.setdefault(arg.name, []).append(call)
        for param in main.params:
            self.coded(param, "input")
        for call in main.body:
            self.call(call)
        function = replace(main, body=tuple(self.body))
        return replace(
            self.module,
            functions=(function, *self.module.functions[1:]),
            constants=tuple(self.constants.values()),
        )

    def call(self, call: Call) -> None:
        # Branches and bodies read what is around them by its name.
        seen = {} if call.bodies else self.seen
        args: tuple[Var | None, ...] = tuple(
            None if arg is None else seen.get(arg.name, arg) for arg in call.args
        )
        if has(call.op, Trait.MOVES) and call.inputs[0].name in self.steps:
            self.body.append(replace(call, args=args))
            self.steps[call.out.name] = self.steps[call.inputs[0].name]
            return
        if self.is_quantized(call):
            self.quantized.append(call.out.name)
            args = self.operands(call, args)
        self.body.append(replace(call, args=args))
        for out in call.outs:
            self.coded(out, call.origin)

    def operands(self, call: Call, args: tuple[Var | None, ...]) -> tuple[Var | None, ...]:
        if has(call.op, Trait.CONTRACTION):
            return self.contraction(call, args)
        if call.op in PAIRS and self.follows(call):
            return self.late_bias(call, args)
        if call.op in PAIRS:
            return tuple(self.constant_codes(call, arg) for arg in args)
        return args

    def coded(self, value: Var, origin: str) -> None:
        """The value's quantized values, and the numbers that they stand for, where anybody wants
        them."""
        if value.type.dtype is not DType.F32 or value.name in self.constants:
            return
        if value.name not in self.ranges or not self.wants(value):
            return
        maker = self.makers.get(value.name)
        soft = maker is not None and maker.op == "softmax"
        covered = Range(0.0, 255 / 256) if soft else self.ranges[value.name]
        step = step_of(covered, symmetric=self.symmetric)
        scale = self.constant(f"{value.name}.step", np.asarray(step.scale))
        zero = self.constant(f"{value.name}.zero_point", np.asarray(step.zero, np.int8))
        codes = Var(f"{value.name}.q", TensorType(DType.I8, value.type.shape))
        numbers = Var(f"{value.name}.dq", value.type)
        attrs: dict[str, Any] = {"precision": DType.F32, "saturate": True, "to": DType.I8}
        self.body.append(Call((codes,), "quantize", (value, scale, zero), attrs_of(attrs), origin))
        decode = attrs_of({"to": DType.F32})
        self.body.append(Call((numbers,), "dequantize", (codes, scale, zero), decode, origin))
        self.seen[value.name] = numbers
        self.steps[value.name] = step

    def constant(self, name: str, data: Array) -> Var:
        type_ = TensorType(DType.of(data.dtype), tuple(Dim.of(int(n)) for n in data.shape))
        self.constants[name] = Constant(name, type_, data)
        return Var(name, type_)

    def decoded(self, name: str, codes: Array, scale: Array, axis: int | None, call: Call) -> Var:
        attrs: dict[str, Any] = {"to": DType.F32} | ({} if axis is None else {"axis": axis})
        stored = self.constant(f"{name}.quantized", codes)
        scales = self.constant(f"{name}.scale", scale)
        out = Var(f"{name}.dq", TensorType(DType.F32, stored.type.shape))
        self.body.append(Call((out,), "dequantize", (stored, scales), attrs_of(attrs), call.origin))
        return out

    def contraction(self, call: Call, args: tuple[Var | None, ...]) -> tuple[Var | None, ...]:
        x, w = call.inputs[0], call.inputs[1]
        weights, step = self.numeric(w), self.steps.get(x.name)
        if weights is None or step is None:
            return args
        places = _places(call, weights)
        axis, channels = places.axis, places.of_channels
        bias = (*call.args, None)[2]
        numbers = self.numeric(bias)
        per_channel = numbers is not None and numbers.shape == channels.shape
        name = f"{call.out.name}.weights"
        added = numbers if per_channel else self._bias_that_follows(call)
        scales = channel_scales(weights, axis, places.largest(added), step)
        stored = self.decoded(name, channel_codes(weights, scales, axis), scales, axis, call)
        scales = scales[channels]
        rest = args[2:]
        if per_channel and numbers is not None:
            rest = (self._bias(call, numbers, step, scales),)
        return (args[0], stored, *rest)

    def _bias(self, call: Call, numbers: Array, step: Step, scales: Array) -> Var:
        steps = (float(step.scale) * scales.astype(np.float64)).astype(np.float32)
        codes = bias_codes(numbers, steps)
        return self.decoded(f"{call.out.name}.bias", codes, steps, 0, call)

    def _bias_that_follows(self, call: Call) -> Array | None:
        for reader in self.readers.get(call.out.name, ()):
            if reader.op == "add" and self.follows(reader):
                return self.numeric(self.bias_of(reader))
        return None

    def late_bias(self, call: Call, args: tuple[Var | None, ...]) -> tuple[Var | None, ...]:
        """The bias that follows a product, in steps of its sums."""
        bias = self.bias_of(call)
        if bias is None:
            return args
        (value,) = (arg for arg in call.inputs if self.numeric(arg) is None)
        product = self.makers[value.name]
        stored = self.constants.get(f"{product.out.name}.weights.scale")
        step, numbers = self.steps.get(product.inputs[0].name), self.numeric(bias)
        if stored is None or step is None or numbers is None:
            return args
        placed = self._bias(call, numbers, step, np.asarray(stored.data))
        return tuple(placed if arg == bias else arg for arg in args)

    def constant_codes(self, call: Call, arg: Var | None) -> Var | None:
        """A constant of several numbers as quantized values; one number is part of a formula."""
        data = self.numeric(arg)
        if data is None or data.size == 1 or arg is None:
            return arg
        step = step_of(
            Range(min(float(data.min()), 0.0), max(float(data.max()), 0.0)), symmetric=True
        )
        name = f"{call.out.name}.{arg.name}"
        return self.decoded(name, encoded(data, step), np.asarray(step.scale), None, call)


@dataclass(frozen=True, slots=True)
class _Places:
    """The axis of weights that scales lie along, and the place of each output channel on it."""

    axis: int
    of_channels: Array

    def largest(self, bias: Array | None) -> Array | None:
        """The largest magnitude of a bias among the channels of each place."""
        if bias is None:
            return None
        found = np.zeros(int(self.of_channels.max(initial=-1)) + 1, bias.dtype)
        np.maximum.at(found, self.of_channels, np.abs(bias))
        return found


def _places(call: Call, weights: Array) -> _Places:
    if call.op == "conv_transpose":
        group, (inputs, filters) = _whole(call.attr("group")), weights.shape[:2]
        axis = conv_transpose.scale_axis(inputs, group)
        places = np.arange(weights.shape[axis])
        return _Places(axis, conv_transpose.by_channel(places, axis, group, filters))
    transposed = call.op == "gemm" and bool(call.attr("trans_b"))
    axis = 0 if call.op == "conv" or transposed else weights.ndim - 1
    return _Places(axis, np.arange(weights.shape[axis]))


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


@dataclass(frozen=True, slots=True)
class Inserted:
    module: Module
    quantized: tuple[str, ...]
    """Results of the calls that work on quantized values."""
    steps: Mapping[str, Step]


def insert(
    module: Module, ranges: Mapping[str, Range], kept: Collection[str], *, symmetric: bool
) -> Inserted:
    work = _Insertion(module, ranges, kept, symmetric)
    made = work.run()
    return Inserted(made, tuple(work.quantized), work.steps)
