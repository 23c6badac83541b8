# SPDX-License-Identifier: Apache-2.0
"""Products of floats by quantized weights become `matmul_groups`, which decodes bytes as it reads.

Scales multiply sums instead of weights. Where weights minus their zero points leave 8 bits, what
is missing multiplies the sums of the rows of the left operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Var
from relax_aot.ir.types import DType
from relax_aot.ops.matmul_groups import GREATEST_GROUP
from relax_aot.transforms.integers.work import EIGHT, Array, Work, attributes

FOUR = (DType.I4, DType.U4)
LARGER = 2
"""How much larger than weights, on average, the missing part of zero points may be: roundings of
its product with a sum count as much as those of so many weights."""
TILED = 128
"""Rows of weights with the same scales, where tiles decode them and constants may be larger."""
EXAMPLES = (
    Example(
        why="floats by weights of bytes, with a scale for each column",
        before="""
            symbol n in 1..8
            const %w: i8[3, 2] = [1, -2, 3, 4, -5, 6]
            const %s: f32[2] = [0.5, 0.25]
            func @main(%x: f32[n, 3]) {
              %b: f32[3, 2] = dequantize(%w, %s) {axis=1, to=f32}
              %y: f32[n, 2] = matmul(%x, %b)
              return %y
            }""",
        after="""
            ...
            const %y.scales: f32[1, 2] = [0.5, 0.25]
            ...
              %y: f32[n, 2] = matmul_groups(%x, %w, %y.scales) {group=3}
              return %y
            }""",
    ),
    Example(
        why="a weight minus its zero point has more than 8 bits",
        before="""
            symbol n in 1..8
            const %w: u8[3, 2] = [0, 9, 3, 4, 255, 6]
            const %s: f32[] = [0.5]
            const %z: u8[] = [120]
            func @main(%x: f32[n, 3]) {
              %b: f32[3, 2] = dequantize(%w, %s, %z) {to=f32}
              %y: f32[n, 2] = matmul(%x, %b)
              return %y
            }""",
        after="""
            ...
            const %y.weights: i8[3, 2] = [-128, -111, -125, -116, 127, -114]
            const %y.scales: f32[1, 2] = [0.5, 0.5]
            const %y.shifts: f32[2] = [4.0, 0.0]
            ...
              %y.rows: f32[n, 1] = reduce(%x) {axes=[1], keepdims=true, kind="sum"}
              %y.rest: f32[n, 2] = mul(%y.rows, %y.shifts)
              %y.sums: f32[n, 2] = matmul_groups(%x, %y.weights, %y.scales) {group=3}
              %y: f32[n, 2] = add(%y.sums, %y.rest)
              return %y
            }""",
    ),
    Example(
        why="scales along the reduction axis",
        before="""
            symbol n in 1..8
            const %w: i8[3, 2] = [1, -2, 3, 4, -5, 6]
            const %s: f32[3] = [0.5, 0.25, 1.0]
            func @main(%x: f32[n, 3]) {
              %b: f32[3, 2] = dequantize(%w, %s) {axis=0, to=f32}
              %y: f32[n, 2] = matmul(%x, %b)
              return %y
            }""",
    ),
)


@dataclass(frozen=True)
class _Weights:
    """Stored values by row and column. Each group of rows has its scales and zero points."""

    var: Var
    codes: Array
    scale: Array
    zero: Array
    group: int
    symmetric: bool
    """No zero points, and signed."""
    in_blocks: bool
    """Whether groups differ."""

    @property
    def ragged(self) -> bool:
        return self.in_blocks and len(self.codes) % self.group != 0

    def rows(self, of_groups: Array) -> Array:
        """Numbers of groups for each row."""
        return np.repeat(of_groups, self.group, axis=0)[: len(self.codes)]


def product(work: Work, call: Call) -> bool:
    """matmul and gemm by constant weights."""
    attrs = attributes(call)
    x, bias = call.args[0], (*call.args, None)[2]
    other = attrs.get("trans_a", False) or attrs.get("alpha", 1.0) != 1.0
    if other or (bias is not None and attrs.get("beta", 1.0) != 1.0):
        return False
    w = _weights(work, call.args[1], bool(attrs.get("trans_b", False)))
    if x is None or w is None or x.type.dtype is not DType.F32:
        return False
    stored = _stored(work, w)
    if stored is None:
        return False
    _in_groups(work, call, x, w, *stored, bias)
    return True


def _weights(work: Work, value: Var | None, transposed: bool) -> _Weights | None:
    """What a matrix is dequantized from; None where it is not, or where groups are none of rows."""
    maker = work.maker(value)
    if maker is not None and maker.op == "transpose" and maker.out.type.rank == 2:
        swaps = tuple(attributes(maker)["perm"]) == (1, 0)
        transposed, maker = transposed != swaps, work.maker(maker.args[0])
    if maker is None or maker.op != "dequantize" or maker.out.type.dtype is not DType.F32:
        return None
    attrs, args = attributes(maker), (*maker.args, None)
    var = maker.inputs[0]
    codes, scale, zero = work.numeric(var), work.numeric(args[1]), work.numeric(args[2])
    if codes is None or scale is None or (args[2] is not None and zero is None):
        return None
    if var.type.dtype not in (*EIGHT, *FOUR) or codes.ndim != 2 or codes.size == 0:
        return None
    zero = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64)
    axis, block = int(attrs.get("axis", 1)) % 2, int(attrs.get("block", 0))
    rows = 1 if transposed else 0
    depth, columns = codes.shape[rows], codes.shape[1 - rows]
    parts = []
    for part in (scale.astype(np.float64), zero):
        if part.size == 1:
            parts.append(part.reshape(1, 1))
        elif part.ndim == 2 and block and axis == rows:
            parts.append(part.T if transposed else part)
        elif part.ndim == 1 and axis != rows:
            parts.append(part.reshape(1, -1))
        else:
            return None
    of_blocks = any(len(part) > 1 for part in parts)
    group = block if of_blocks else min(depth, GREATEST_GROUP if work.compact else TILED)
    if group > GREATEST_GROUP:
        return None
    shape = (ceil(depth / group), columns)
    signed = var.type.dtype in (DType.I8, DType.I4)
    codes = np.asarray((codes.T if transposed else codes).astype(np.int64))
    scale, zero = (np.broadcast_to(part, shape) for part in parts)
    return _Weights(var, codes, scale, zero, group, signed and args[2] is None, of_blocks)


def _in_groups(
    work: Work, call: Call, x: Var, w: _Weights, dtype: DType, less: Array, bias: Var | None
) -> None:
    name = call.out.name
    stored = (w.codes - w.rows(less)).astype(dtype.numpy)
    same = w.var.type.dtype is dtype and np.array_equal(stored, np.asarray(work.numeric(w.var)))
    weights = w.var if same else work.constant(f"{name}.weights", stored)
    scales = work.constant(f"{name}.scales", w.scale.astype(np.float32))
    terms = [] if bias is None else [bias]
    if less is not w.zero:
        terms.insert(0, _rest(work, call, x, w, ((less - w.zero) * w.scale).astype(np.float32)))
    outs = [*[None] * len(terms), call.out]
    sums = work.emit(
        "matmul_groups", x, weights, scales, like=call, out=outs[0], name=f"{name}.sums",
        group=w.group,
    )  # fmt: skip
    for term, out in zip(terms, outs[1:], strict=True):
        sums = work.emit("add", sums, term, like=call, out=out, name=f"{name}.shifted")


def _stored(work: Work, w: _Weights) -> tuple[DType, Array] | None:
    """The type that is stored, and what is subtracted before: the zero points, or the nearest
    numbers with which weights fit. None where blocks of rows have no sums, where what is missing is
    more than `LARGER` times the weights of a column on average, so that results would be less
    exact, and where other weights, which are to have the same calls, may be so."""
    four = w.var.type.dtype in FOUR
    if work.replaceable:
        return (DType.I4 if four else DType.I8, w.zero) if w.symmetric else None
    values = w.codes - w.rows(w.zero)
    kinds = (DType.I4, DType.I8) if four else (DType.I8,)
    for kind in kinds if w.ragged else kinds[:1]:
        low, high = kind.limits
        if low <= values.min() and values.max() <= high:
            return kind, w.zero
    if w.ragged:
        return None
    low, high = kinds[0].limits
    parts = len(w.zero) if w.in_blocks else 1
    of_groups = w.codes.reshape(parts, -1, w.codes.shape[1])
    less = np.clip(w.zero, of_groups.max(axis=1) - high, of_groups.min(axis=1) - low)
    usual = np.abs(values).reshape(of_groups.shape).mean(axis=1)
    missing = (np.abs(less - w.zero) * w.scale)[:parts].sum(axis=0)
    return (
        (kinds[0], less)
        if (missing <= LARGER * (usual * w.scale[:parts]).sum(axis=0)).all()
        else None
    )


def _rest(work: Work, call: Call, x: Var, w: _Weights, shifts: Array) -> Var:
    """Sums of rows of x, or of groups of them, times `shifts`."""
    name, outer = call.out.name, x.type.shape[:-1]
    if not w.in_blocks:
        rows = work.emit(
            "reduce", x, like=call, name=f"{name}.rows", kind="sum", axes=(len(outer),),
            keepdims=bool(outer),
        )  # fmt: skip
        row = work.constant(f"{name}.shifts", shifts[0])
        return work.emit("mul", rows, row, like=call, name=f"{name}.rest")
    split = (*outer, Dim.of(len(shifts)), Dim.of(w.group))
    parts = work.emit("reshape", x, like=call, name=f"{name}.parts", shape=split)
    sums = work.emit(
        "reduce", parts, like=call, name=f"{name}.rows", kind="sum", axes=(len(outer) + 1,),
        keepdims=False,
    )  # fmt: skip
    rows = work.constant(f"{name}.shifts", shifts)
    return work.emit("matmul", sums, rows, like=call, name=f"{name}.rest")
