# SPDX-License-Identifier: Apache-2.0
"""UNIDIRECTIONAL_SEQUENCE_LSTM of integers: sums of gates have 12 bits of fraction, cells 9 to 15.

The two forms differ in their arithmetic. That of i8 is the one of TensorFlow Lite, whose sigmoid
and tanh are those of gemmlowp; that of i16, which TensorFlow Lite for Microcontrollers alone has,
takes them from a table, and rounds products of gates twice.

Source: tensorflow/lite/kernels/unidirectional_sequence_lstm.cc and lstm_eval.cc;
tensorflow/lite/micro/kernels/lstm_eval.h and lstm_eval_common.cc.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import log2

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.context import Node, Results
from relax_aot.frontends.tflite.fixed_point import multiplier
from relax_aot.frontends.tflite.lstm_inputs import (
    BIASES,
    CELL,
    CELL_STATE,
    FORGET,
    INPUT,
    NORMS,
    OUTPUT,
    PEEPHOLES,
    PROJECTION,
    PROJECTION_BIAS,
    RECURRENT,
    SEEN,
    STATE,
    WEIGHTS,
)
from relax_aot.frontends.tflite.model import Array
from relax_aot.frontends.tflite.rescaling import scaled
from relax_aot.inference.loops import Iterations, close_loop, open_iteration
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._fixed_gates import sigmoid_words

I8, I16, I32, I64 = DType.I8, DType.I16, DType.I32, DType.I64
ORDER = (INPUT, FORGET, OUTPUT, CELL)
"""The order of gates in rows of sums."""
GATE_BITS = 12
"""Of fraction, in sums of gates."""
HIDDEN = 4
"""The intermediate tensor with the scale of the hidden state."""


def integer_lstm(node: Node) -> Results:
    layer = _layer(node)
    time_first = bool(node.number("time_major"))
    x, h0, c0 = (node.arg(index) for index in (0, STATE, CELL_STATE))
    if x.type.rank != 3:
        raise ModelError(f"its input is {x.type}, expected three axes")
    x = x if time_first else node.emit("transpose", x, perm=(1, 0, 2))
    steps, batch, width = x.type.shape
    units, cells = (node.arg(RECURRENT + OUTPUT).type.shape[axis] for axis in (1, 0))
    for state in (h0, c0):
        if state.type.rank == 2:
            node.require_equal(batch, state.type.shape[0], "a batch as large as that of its states")
    h, c = node.reshape(h0, (batch, units)), node.reshape(c0, (batch, cells))
    _, start = node.single(node.tensor(STATE))
    h = _shifted(node, h, start)
    rows = node.reshape(x, (steps * batch, width))
    before = [
        node.reshape(layer.scaled_sums(node, rows, gate), (steps, batch, cells))
        for gate in layer.gates
    ]

    iteration = open_iteration(node.builder, node.result_name, steps)
    inner, body = copy(node), node.builder.branch(node.builder.unique(f"{node.result_name}_body"))
    inner.builder = body
    params = [
        Var(node.builder.unique(f"{node.result_name}.{name}"), state.type)
        for name, state in (("hidden", h), ("cell", c))
    ]
    states = layer.states(inner, params[0])
    sums = {}
    for gate, part, state in zip(layer.gates, before, states, strict=True):
        row = inner.reshape(inner.part(part, 0, iteration, 1), (batch, cells))
        total = inner.emit("add", inner.cast(row, I32), inner.cast(state, I32))
        sums[gate] = _narrow(inner, total, I16)
    hidden, cell = layer.step(inner, sums, params[1])

    names = [f"{node.result_name}_{name}" for name in ("hidden", "cell", "rows")]
    iterations = Iterations(str(iteration), steps, conditional=False, capped=False)
    last, kept, y = close_loop(
        node.builder, body, iterations, [h, c], params, [hidden, cell, hidden], (), names,
        node.origin,
    )  # fmt: skip
    node.keep(STATE, node.reshape(_shifted(node, last, -start), h0.type.shape))
    node.keep(CELL_STATE, node.reshape(kept, c0.type.shape))
    return y if time_first else node.emit("transpose", y, perm=(1, 0, 2))


def _layer(node: Node) -> _Layer:
    """What the file says of the layer, checked."""
    if any(node.has(index) for index in range(NORMS, NORMS + 4)):
        raise Refused("an integer LSTM with layer normalization is not supported")
    if node.number("diagonal") or node.activation() != "TANH":
        raise Refused("an integer LSTM with diagonal weights or without tanh is not supported")
    wide = node.arg(0).type.dtype is I16
    peepholes = [node.has(PEEPHOLES + place) for place in SEEN.values()]
    gates = ORDER if node.has(WEIGHTS + INPUT) else ORDER[1:]
    if wide and (gates != ORDER or any(peepholes) or node.has(PROJECTION)):
        raise Refused("an LSTM of i16 with coupled gates, peepholes or projection is not supported")
    scale, zero = node.single(node.tensor(CELL_STATE))
    places = -round(log2(scale))
    if zero or abs(log2(scale) + places) >= 1e-3 or not 9 <= places <= 15:
        raise Refused(f"the scale {scale} of its cells must be a power of 2, 2^-15 to 2^-9")
    units, cells = (node.arg(RECURRENT + OUTPUT).type.shape[axis] for axis in (1, 0))
    if units != cells and (any(peepholes) or not node.has(PROJECTION)):
        raise Refused(f"an LSTM with {cells} cells and {units} units is not supported")
    if any(peepholes[1:]) and not all(peepholes[gates != ORDER :]):
        raise ModelError("some of its gates have no peepholes")
    hidden = node.tensor(STATE)
    if not wide:
        if len(node.operator.intermediates) != 5 or -1 in node.operator.intermediates:
            raise ModelError("it needs five intermediate tensors")
        hidden = node.graph.tensors[node.operator.intermediates[HIDDEN]]
    return _Layer(wide, gates, places, scale, *node.single(hidden), any(peepholes))


def _shifted(node: Node, h: Var, by: int) -> Var:
    """Hidden states begin with their zero point, but memory with zeros: it holds the differences
    from the zero point, modulo 256."""
    if not by:
        return h
    moved = node.emit("add", node.cast(h, I32), node.scalar(by, I32))
    return node.cast(moved, h.type.dtype)


def _added(node: Node, x: Var, y: Var) -> Var:
    """The sum of i16, saturated."""
    return _narrow(node, node.emit("add", node.cast(x, I32), node.cast(y, I32)), I16)


def _narrow(node: Node, x: Var, to: DType, most: int = 0) -> Var:
    """i32 in the limits of a type, or from -most to most."""
    ends = (-most, most) if most else to.limits
    return node.cast(node.emit("clip", x, *(node.scalar(end, I32) for end in ends)), to)


@dataclass(frozen=True, slots=True)
class _Layer:
    """Its gates, bits of fraction of cells, and the quantization of hidden states."""

    wide: bool
    gates: tuple[int, ...]
    places: int
    cell_scale: float
    scale: float
    zero: int
    peepholes: bool

    def scaled_sums(self, node: Node, rows: Var, gate: int) -> Var:
        """Products of inputs by the weights of a gate, and its bias, in i16."""
        scale, zero = node.single(node.tensor(0))
        w, bias = _weights(node, WEIGHTS + gate), _weights(node, BIASES + gate)
        total = self.product(node, rows, w, bias, zero)
        return _requantized(node, total, self.gate_scale(node, WEIGHTS + gate, scale), I16)

    def states(self, node: Node, h: Var) -> list[Var]:
        """Products of states by the weights of each gate: in i32 where only the sum with those of
        inputs is saturated."""
        scale, zero = node.single(node.tensor(STATE))
        indices = [RECURRENT + gate for gate in self.gates]
        scales = [self.gate_scale(node, index, scale) for index in indices]
        matrices = [_weights(node, index) for index in indices]
        if self.wide:
            return [
                _requantized(node, self.product(node, h, w, None, zero), own, I16)
                for w, own in zip(matrices, scales, strict=True)
            ]
        total = self.product(node, h, np.concatenate(matrices), None, zero)
        parts = node.parts(total, 1, [Dim.of(len(w)) for w in matrices])
        return [scaled(node, part, 0, own) for part, own in zip(parts, scales, strict=True)]

    def gate_scale(self, node: Node, index: int, scale: float) -> float:
        own, none = node.single(node.tensor(index))
        if none:
            raise Refused("an LSTM whose weights have zero points is not supported")
        return float(np.float32(own) * np.float32(scale)) * 2.0**GATE_BITS

    def product(self, node: Node, rows: Var, w: Array, bias: Array | None, zero: int) -> Var:
        """sum((rows - zero) * w) + bias: the zero point goes into the bias."""
        if self.wide and zero:
            raise Refused("an LSTM of i16 with zero points is not supported")
        moved = -zero * w.astype(np.int64).sum(axis=1) + (0 if bias is None else bias)
        kind = np.int64 if self.wide else np.int32
        return node.emit(
            "matmul_integer", rows, node.constant(w.T, "weights"), None, None,
            node.constant(moved.astype(kind), "bias"),
        )  # fmt: skip

    def step(self, node: Node, parts: dict[int, Var], c: Var) -> tuple[Var, Var]:
        """The hidden state and the cells after a step, from the sums of gates."""
        forget = self.gate(node, parts, FORGET, c)
        if INPUT in parts:
            enter = self.gate(node, parts, INPUT, c)
        else:
            one = node.scalar(2**15 - 1, I32)
            enter = node.cast(node.emit("sub", one, node.cast(forget, I32)), I16)
        fresh = self.function(node, parts[CELL], "tanh", 15 - GATE_BITS)
        kept = self.cell_product(node, forget, c, 15, 2.0**-15)
        new = self.cell_product(node, enter, fresh, 30 - self.places, 2.0**-30 / self.cell_scale)
        cell = _added(node, kept, new)
        clip = np.float32(node.option("cell_clip"))
        if clip > 0:
            most = int(min(float(clip / np.float32(self.cell_scale)), 32767.0))
            cell = _narrow(node, node.cast(cell, I32), I16, most) if most else cell
        leave = self.gate(node, parts, OUTPUT, cell)
        shown = self.function(node, cell, "tanh", 15 - self.places)
        if self.wide:
            return self.mul(node, leave, shown, 2.0**-30 / self.scale, self.zero), cell
        scale = float(np.float32(2.0**-30 / self.scale))
        projected = node.has(PROJECTION)
        total = scaled(node, _wide_product(node, leave, shown), 0, scale)
        zero = -self.zero if projected else self.zero
        if zero:
            total = node.emit("add", total, node.scalar(zero, I32))
        hidden = _narrow(node, total, I8)
        return (self.projected(node, hidden) if projected else hidden), cell

    def projected(self, node: Node, hidden: Var) -> Var:
        (own, none), (after, zero) = (
            node.single(node.tensor(index)) for index in (PROJECTION, STATE)
        )
        if none:
            raise Refused("an LSTM whose weights have zero points is not supported")
        f32 = np.float32
        w = _weights(node, PROJECTION)
        scale = float(f32(own) * f32(self.scale) / f32(after))
        bias = _weights(node, PROJECTION_BIAS) if node.has(PROJECTION_BIAS) else None
        y = _requantized(node, self.product(node, hidden, w, bias, -self.zero), scale, I8, zero)
        clip = f32(node.option("proj_clip"))
        if clip > 0:
            most = int(min(float(clip / f32(node.single(node.result())[0])), 127.0))
            y = _narrow(node, node.cast(y, I32), I8, most) if most else y
        return y

    def gate(self, node: Node, parts: dict[int, Var], gate: int, c: Var) -> Var:
        sums = parts[gate]
        if self.peepholes:
            index = PEEPHOLES + SEEN[gate]
            own, none = node.single(node.tensor(index))
            if none or node.arg(index).type.dtype is not I16:
                raise Refused("an integer LSTM needs peepholes of i16 without zero points")
            scale = float(np.float32(2.0 ** (GATE_BITS - self.places) * own))
            seen = scaled(node, _wide_product(node, node.arg(index), c), 0, scale)
            sums = _narrow(node, node.emit("add", node.cast(sums, I32), seen), I16)
        return self.function(node, sums, "sigmoid", 15 - GATE_BITS)

    def function(self, node: Node, x: Var, function: str, bits: int) -> Var:
        if not self.wide:
            return node.emit("fixed_gate", x, function=function, bits=bits)
        table = node.constant(sigmoid_words(), "table")
        left = bits - (15 - GATE_BITS)
        factor, shift = (3 << left, 0) if left >= 0 else (3, -left)
        return node.emit("table_gate", x, table, function=function, factor=factor, shift=shift)

    def cell_product(self, node: Node, x: Var, y: Var, places: int, scale: float) -> Var:
        if self.wide:
            return self.mul(node, x, y, scale, 0)
        return node.cast(node.emit("fixed_divide", _wide_product(node, x, y), places=places), I16)

    def mul(self, node: Node, x: Var, y: Var, scale: float, zero: int) -> Var:
        factor, shift = multiplier(scale)
        return node.emit(
            "fixed_mul", x, y, zeros=(0, 0, zero), factor=factor, shift=shift, limits=I16.limits
        )


def _requantized(node: Node, total: Var, scale: float, to: DType, zero: int = 0) -> Var:
    factor, shift = multiplier(scale)
    rounding = "tflite"
    if total.type.dtype is I32 and shift < 0:
        rounding, shift = "twice", -1 - shift
    return node.emit(
        "requantize", total, node.scalar(factor, I32), node.scalar(zero, to) if zero else None,
        node.scalar(shift, I32), to=to, axis=1, rounding=rounding,
    )  # fmt: skip


def _wide_product(node: Node, x: Var, y: Var) -> Var:
    return node.emit("mul", node.cast(x, I32), node.cast(y, I32))


def _weights(node: Node, index: int) -> Array:
    found = node.builder.numeric(node.arg(index))
    if found is None:
        raise Refused("an integer LSTM needs constant weights")
    return found
