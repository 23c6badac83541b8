# SPDX-License-Identifier: Apache-2.0
"""Operators of signal processing."""

from __future__ import annotations

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results, dtype_of
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import Dim, dim_max
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

LIMITS = {
    "MelWeightMatrix": "both edges of the bands inside the spectrum",
}


def _dft(node: Node) -> Results:
    x = node.arg(0)
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    if onesided:
        node.require_equal(x.type.shape[-1], 2 if inverse else 1, "parts of a onesided DFT")
    if node.opset < 20:
        axis = int(node.attr("axis", 1))
    elif node.optional(2) is None:
        axis = -2
    elif node.builder.numeric(node.arg(2)) is None:
        return _dft_along(node, x, node.arg(2), inverse, onesided)
    else:
        axis = node.integer(2)
    axis = normal_axis(axis, x.type.rank)
    size = x.type.shape[axis]
    length = (size - 1) * 2 if inverse and onesided else size
    if node.optional(1) is not None:
        length = _length(node, 1, "length")
    return node.emit("dft", x, axis=axis, length=length, inverse=inverse, onesided=onesided)


def _length(node: Node, index: int, name: str, most: Dim | None = None) -> Dim:
    """A size from an input: known, or a symbol; the largest size of the signal bounds it."""
    var = node.arg(index)
    known = node.builder.dims(var)
    if known is not None:
        return known[0]
    if most is None:
        return node.size_of(var, 0, int(node.attr("axis", 1)), None, 1)
    return node.named_size(var, 0, name, most, 1)


def _dft_along(node: Node, x: Var, along: Var, inverse: bool, onesided: bool) -> Results:
    """Along a dynamic axis, which shapes the result where sizes change."""
    signal = x.type.shape[:-1]
    given = None
    if node.optional(1) is not None:
        known = node.builder.dims(node.arg(1))
        if known is None:
            raise Refused("its length and its axis both come from data; make one a constant")
        given = known[0]
    lengths = [given or ((n - 1) * 2 if inverse and onesided else n) for n in signal]
    counts = [n // 2 + 1 if onesided and not inverse else n for n in lengths]
    last = Dim.of(1 if onesided and inverse else 2)
    shape = []
    for axis, (size, count) in enumerate(zip(signal, counts, strict=True)):
        if size == count:
            shape.append(size)
            continue
        place = node.emit("mod", node.cast(along, DType.I64), node.constant(np.array(x.type.rank)))
        here = node.emit("equal", place, node.constant(np.array(axis)))
        sizes = [node.size_value(n, DType.I64) for n in (count, size)]
        found = node.emit("where", here, *sizes)
        shape.append(node.size_of(found, 0, axis, dim_max(size, count)))
    return node.emit(
        "dft", x, along, axis=0, length=given or 0, inverse=inverse, onesided=onesided,
        shape=(*shape, last),
    )  # fmt: skip


def _stft(node: Node) -> Results:
    signal, window = node.arg(0), node.optional(2)
    if window is not None and window.type.rank != 1:
        raise ModelError(f"a window of {window.type}")
    if signal.type.rank == 2:  # a real signal, as PyTorch's exporter writes it
        signal = node.reshape(signal, (*signal.type.shape, Dim.of(1)))
    whole = signal.type.shape[1]
    if node.optional(3) is not None:
        length = _length(node, 3, "length", whole)
    else:
        length = window.type.shape[0] if window is not None else whole
    known = node.builder.dims(node.arg(1))
    if known is not None:
        step = known[0]
    else:
        # A step beyond the signal gives one frame, as any other that long.
        most = whole - length + 1
        value = node.cast(node.arg(1), DType.I64)
        value = node.emit("min", value, node.size_value(most, DType.I64))
        step = node.named_size(value, 0, "step", most, 1)
    for number in (step, length):
        if not node.builder.proves(1, "<=", number):
            node.require_at_most(1, number, "a step and a length of an STFT")
    frames = node.emit("frame", signal, window, step=step, length=length)
    onesided = bool(node.attr("onesided", 1))
    if onesided:
        node.require_equal(signal.type.shape[-1], 1, "parts of a onesided STFT")
    return node.emit("dft", frames, axis=2, length=length, onesided=onesided)


def _mel_weight_matrix(node: Node) -> Results:
    """Triangles over the bins of a spectrum, evenly apart on the mel scale."""
    values = [node.arg(index) for index in range(5)]
    bins, length = values[:2]
    two, one = (node.constant(np.array(n, np.int64)) for n in (2, 1))
    half = node.emit("div", node.cast(length, DType.I64), two)
    sizes = []
    for axis, value in enumerate((node.emit("add", half, one), bins)):
        known = node.builder.dims(value)
        sizes.append(known[0] if known else node.size_of(value, 0, axis, None, 1))
    dtype = dtype_of(node.attr("output_datatype", 1), "attribute 'output_datatype'")
    kind = dtype if dtype.is_float or dtype.is_int else DType.F32
    whole = [node.cast(value, DType.I64) for value in (length, values[2])]
    edges = [node.cast(value, DType.F64) for value in values[3:]]
    y = node.emit("mel_weights", *whole, *edges, rows=sizes[0], bins=sizes[1])
    return node.cast(y, kind)


HANDLERS: dict[str, Handler] = {
    "DFT": _dft,
    "STFT": _stft,
    "MelWeightMatrix": _mel_weight_matrix,
}
