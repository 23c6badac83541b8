# SPDX-License-Identifier: Apache-2.0
"""Operators with a state that outlives the call."""

from __future__ import annotations

from copy import copy

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.activation import activated
from relax_aot.frontends.tflite.context import Handler, Node, Results
from relax_aot.frontends.tflite.fixed_point import multiplier
from relax_aot.frontends.tflite.hybrid import scaled_products
from relax_aot.frontends.tflite.integer_lstm import integer_lstm
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
from relax_aot.frontends.tflite.rescaling import coded, scaled
from relax_aot.inference.loops import Iterations, close_loop, open_iteration
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType

LIMITS: dict[str, str] = {
    "SVDF": "f32; quantized i8 with an i16 state",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "f32 and f32 with weights of i8, both without"
    " projection; quantized i8, and i16 as TensorFlow Lite for Microcontrollers has it; without"
    " normalization",
}


# SVDF


def _svdf(node: Node) -> Results:
    """Rank-one filters over time: each input is one number per filter, the newest in a memory of
    the last ones, which a second weight per filter and step sums up."""
    x, features, time = node.arg(0), node.arg(1), node.arg(2)
    bias, state = node.optional(3), node.arg(4)
    rank = node.number("rank")
    filters, memory = time.type.shape
    if rank < 1 or not filters.is_constant or filters.constant % rank:
        raise ModelError(f"its rank {rank} does not divide {filters} filters")
    floats = x.type.dtype.is_float
    if x.type.dtype is not features.type.dtype or not (floats or x.type.dtype is DType.I8):
        kinds = f"{x.type.dtype.value} with weights of {features.type.dtype.value}"
        raise Refused(f"SVDF of {kinds} is not supported")
    if floats:
        newest = node.emit("gemm", x, features, None, trans_b=True)
    else:
        newest = _filtered_codes(node, x, features)
    batch = x.type.shape[0]
    last = node.reshape(state, (batch, filters, memory))
    kept = node.part(last, 2, 1, memory - 1)
    after = node.emit("concat", kept, node.reshape(newest, (batch, filters, 1)), axis=2)
    node.keep(4, node.reshape(after, state.type.shape))
    wide = DType.F32 if floats else DType.I32
    product = node.emit("mul", node.cast(after, wide), node.cast(time, wide))
    sums = node.emit("reduce", product, kind="sum", axes=(2,), keepdims=False)
    units = node.reshape(sums, (batch, filters // rank, rank))
    total = node.emit("reduce", units, kind="sum", axes=(2,), keepdims=False)
    if bias is not None:
        total = node.emit("add", total, bias)
    if floats:
        return activated(node, total, node.activation())
    (state_scale, _), (time_scale, _), (y_scale, _) = node.singles(4, 2)
    return coded(node, scaled(node, total, 0, state_scale * time_scale / y_scale))


def _filtered_codes(node: Node, x: Var, features: Var) -> Var:
    (x_scale, x_zero), (w_scale, _), (state_scale, _) = (
        node.single(node.tensor(index)) for index in (0, 1, 4)
    )
    columns = node.emit("transpose", features, perm=(1, 0))
    zero = node.scalar(x_zero, DType.I8) if x_zero else None
    total = node.emit("matmul_integer", x, columns, zero, None, None)
    factor, shift = (
        node.scalar(part, DType.I32) for part in multiplier(x_scale * w_scale / state_scale)
    )
    return node.emit(
        "requantize", total, factor, None, shift, to=DType.I16, axis=1, rounding="tflite"
    )


# LSTM

ORDER = (INPUT, OUTPUT, FORGET, CELL)
"""The order of gates in our op."""


def _lstm(node: Node) -> Results:
    x = node.arg(0)
    kind = node.arg(WEIGHTS + FORGET).type.dtype
    if x.type.dtype in (DType.I8, DType.I16) and kind is DType.I8:
        return integer_lstm(node)
    if not x.type.dtype.is_float or not (kind.is_float or kind is DType.I8):
        kinds = f"{x.type.dtype.value} with weights of {kind.value}"
        raise Refused(f"an LSTM of {kinds} is not supported")
    extras = [PROJECTION, PROJECTION_BIAS, *range(NORMS, NORMS + 4)]
    if any(node.has(index) for index in extras):
        raise Refused("an LSTM with projection or layer normalization is not supported")
    if not node.has(WEIGHTS + INPUT) or node.number("diagonal"):
        raise Refused("an LSTM whose gates are coupled or diagonal is not supported")
    if node.activation() != "TANH":
        raise Refused(f"an LSTM with the activation {node.activation()} is not supported")
    if kind is DType.I8:
        return _hybrid_lstm(node)
    time_first = bool(node.number("time_major"))
    hidden = node.arg(RECURRENT + OUTPUT).type.shape[1]
    parts = [
        node.emit("concat", *(node.arg(first + gate) for gate in ORDER), axis=0)
        for first in (WEIGHTS, RECURRENT, BIASES)
    ]
    w, r, b = (node.reshape(part, (1, *part.type.shape)) for part in parts)
    zeros = node.emit("fill", shape=b.type.shape, value=0.0, dtype=DType.F32)
    bias = node.emit("concat", b, zeros, axis=1)
    h0, c0 = (node.arg(index) for index in (STATE, CELL_STATE))
    states = [node.reshape(state, (1, *state.type.shape)) for state in (h0, c0)]
    steps = x if time_first else node.emit("transpose", x, perm=(1, 0, 2))
    y, h, c = node.emit_all(
        "lstm", steps, w, r, bias, None, *states, _peepholes(node),
        hidden=hidden.constant, direction="forward", activations=("sigmoid", "tanh", "tanh"),
        cell_clip=float(node.option("cell_clip")),
    )  # fmt: skip
    node.keep(STATE, node.reshape(h, h0.type.shape))
    node.keep(CELL_STATE, node.reshape(c, c0.type.shape))
    seq, _, batch, width = y.type.shape
    y = node.reshape(y, (seq, batch, width))
    return y if time_first else node.emit("transpose", y, perm=(1, 0, 2))


def _hybrid_lstm(node: Node) -> Results:
    """Rows of the input and of the state of each step are quantized by their own ranges."""
    x, gates = node.arg(0), (INPUT, FORGET, CELL, OUTPUT)
    time_first = bool(node.number("time_major"))
    h0, c0 = (node.arg(index) for index in (STATE, CELL_STATE))
    batch, hidden = h0.type.shape
    x = x if time_first else node.emit("transpose", x, perm=(1, 0, 2))
    steps, width = x.type.shape[0], x.type.shape[2]
    b = node.emit("concat", *(node.arg(BIASES + gate) for gate in gates), axis=0)
    rows = node.reshape(x, (steps * batch, width))
    before = node.emit("add", _by_gates(node, node, rows, WEIGHTS), b)
    before = node.reshape(before, (steps, batch, hidden * 4))

    iteration = open_iteration(node.builder, node.result_name, steps)
    inner, body = copy(node), node.builder.branch(node.builder.unique(f"{node.result_name}_body"))
    inner.builder = body
    h, c = params = [
        Var(node.builder.unique(f"{node.result_name}.{name}"), state.type)
        for name, state in (("hidden", h0), ("cell", c0))
    ]
    row = inner.reshape(inner.part(before, 0, iteration, 1), (batch, hidden * 4))
    sums = inner.emit("add", row, _by_gates(node, inner, h, RECURRENT))
    parts = list(inner.parts(sums, 1, [hidden] * 4))
    own, forget = (
        inner.emit("sigmoid", _seen(inner, parts[gate], gate, c)) for gate in (INPUT, FORGET)
    )
    new = inner.emit("mul", own, inner.emit("tanh", parts[CELL]))
    cell = inner.emit("add", inner.emit("mul", forget, c), new)
    clip = float(node.option("cell_clip"))
    if clip > 0:
        ends = [inner.scalar(end, DType.F32) for end in (-clip, clip)]
        cell = inner.emit("clip", cell, *ends)
    shown = inner.emit("sigmoid", _seen(inner, parts[OUTPUT], OUTPUT, cell))
    out = inner.emit("mul", shown, inner.emit("tanh", cell))

    names = [f"{node.result_name}_{name}" for name in ("hidden", "cell", "rows")]
    iterations = Iterations(str(iteration), steps, conditional=False, capped=False)
    last, kept, y = close_loop(
        node.builder, body, iterations, [h0, c0], params, [out, cell, out], (), names, node.origin
    )
    node.keep(STATE, last)
    node.keep(CELL_STATE, kept)
    return y if time_first else node.emit("transpose", y, perm=(1, 0, 2))


def _by_gates(outer: Node, node: Node, rows: Var, first: int) -> Var:
    """Products of rows by the weights of all gates, each of which has a scale."""
    parts = [outer.arg(first + gate) for gate in range(4)]
    if any(part.type.dtype is not DType.I8 for part in parts):
        raise Refused("an LSTM with both quantized and float weights is not supported")
    scales = [outer.single(outer.tensor(first + gate)) for gate in range(4)]
    if any(zero for _, zero in scales):
        raise Refused("an LSTM whose weights have zero points is not supported")
    w = outer.emit("transpose", outer.emit("concat", *parts, axis=0), perm=(1, 0))
    each = np.repeat(np.array([s for s, _ in scales], np.float32), parts[0].type.shape[0].constant)
    symmetric = not outer.number("asymmetric")
    return scaled_products(node, "matmul_integer", rows, w, each, symmetric=symmetric)


def _seen(node: Node, sums: Var, gate: int, cell: Var) -> Var:
    """The sums of a gate that sees the cell through its peephole."""
    index = PEEPHOLES + SEEN[gate]
    if not node.has(index):
        return sums
    weights = node.arg(index)
    if not weights.type.dtype.is_float:
        scale = node.scalar(node.single(node.tensor(index))[0], DType.F32)
        weights = node.emit("mul", node.cast(weights, DType.F32), scale)
    return node.emit("add", sums, node.emit("mul", weights, cell))


def _peepholes(node: Node) -> Var | None:
    """In our op's order: input, output, forget."""
    first = PEEPHOLES
    if not node.has(first):
        return None
    parts = [node.arg(index) for index in (first, first + 2, first + 1)]
    whole = node.emit("concat", *parts, axis=0)
    return node.reshape(whole, (1, *whole.type.shape))


HANDLERS: dict[str, Handler] = {
    "SVDF": _svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}
