# SPDX-License-Identifier: Apache-2.0
"""Operators of the domain com.microsoft that ONNX Runtime's optimizer and exporters write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx import convolution, movement, normalization, products
from relax_aot.frontends.onnx.context import Handler, Node, Results, direct
from relax_aot.frontends.onnx.prepare import NEWEST
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import ONE, Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis
from relax_aot.ops.matmul_groups import GREATEST_GROUP
from relax_aot.ops.matmul_nbits import Packing, signed_weights

DOMAIN = "com.microsoft"
LIMITS = {
    f"{DOMAIN}.MatMulNBits": "no prepacked weights; g_idx in the order of the blocks",
    f"{DOMAIN}.GroupNorm": "a constant number of channels",
    f"{DOMAIN}.SkipGroupNorm": "a constant number of channels",
}


def as_standard(handler: Handler) -> Handler:
    """A handler of the default domain, for an operator that ONNX took over as it was."""
    return lambda node: handler(replace(node, opset=NEWEST))


# Activations


def gelu(node: Node, x: Var, approximate: str = "none") -> Var:
    return node.emit("gelu", x, approximate=approximate)


def _bias_gelu(approximate: str) -> Handler:
    return lambda node: gelu(node, _summed(node, node.arg(0), node.optional(1)), approximate)


def _bias_split_gelu(node: Node) -> Results:
    """The first half of the last axis times gelu of the second."""
    x = node.emit("add", node.arg(0), node.arg(1))
    axis, half = x.type.rank - 1, x.type.shape[-1] // 2
    node.require_equal(half * 2, x.type.shape[-1], "halves of a BiasSplitGelu")
    left, right = node.parts(x, axis, (half, half))
    return node.emit("mul", left, gelu(node, right))


def activated(node: Node, x: Var, name: str, values: list[float]) -> Var:
    """An activation by its name in a fused operator, with its parameters."""
    first, second = (*values, None, None)[:2]
    match name:
        case "":
            return x
        case "Relu":
            return node.emit("relu", x)
        case "Tanh" | "Sigmoid":
            return node.emit(name.lower(), x)
        case "LeakyRelu":
            return node.emit("leaky_relu", x, alpha=0.01 if first is None else first)
        case "HardSigmoid":
            alpha, beta = 0.2 if first is None else first, 0.5 if second is None else second
            return node.emit("hard_sigmoid", x, alpha=alpha, beta=beta)
        case "Clip" if first is not None and second is not None:
            return node.emit("clip", x, node.scalar(first, x), node.scalar(second, x))
    raise Refused(f"the activation {name} is not supported")


# Fused products


def _fused_conv(node: Node) -> Results:
    x, w, bias, other = node.arg(0), node.arg(1), node.optional(2), node.optional(3)
    y = convolution.convolve(node, x, w, bias)
    if other is not None:
        y = node.emit("add", y, other)
    values = [float(v) for v in node.attr("activation_params") or []]
    return activated(node, y, node.attr("activation", ""), values)


def _fused_gemm(node: Node) -> Results:
    y = products.HANDLERS["Gemm"](node)
    assert isinstance(y, Var)
    names = [n for n in ("activation_alpha", "activation_beta") if node.has(n)]
    return activated(node, y, node.attr("activation", ""), [float(node.attr(n)) for n in names])


def _fused_matmul(node: Node) -> Results:
    """alpha * A @ B, either with its last axes swapped; `transBatch` moves the first axis of a
    batch to the place before the last one beforehand."""
    sides = []
    for index, side in enumerate("AB"):
        x = node.arg(index)
        rank = x.type.rank
        perm = list(range(rank))
        if node.attr(f"transBatch{side}", 0) and rank > 2:
            perm = [*range(1, rank - 1), 0, rank - 1]
        if node.attr(f"trans{side}", 0) and rank > 1:
            perm[-2:] = perm[-1], perm[-2]
        moved = perm != list(range(rank))
        sides.append(node.emit("transpose", x, perm=tuple(perm)) if moved else x)
    y = node.emit("matmul", *sides)
    alpha = float(node.attr("alpha", 1.0))
    return y if alpha == 1.0 else node.emit("mul", y, node.scalar(alpha, y))


def _matmul_nbits(node: Node) -> Results:
    a, b, scales, zeros = node.arg(0), node.arg(1), node.arg(2), node.optional(3)
    bits, block = int(node.attr("bits", 4)), int(node.required("block_size"))
    columns, depth = int(node.required("N")), int(node.required("K"))
    if node.attr("weight_prepacked", 0):
        raise Refused("weights in the layout of one machine are not supported; export them plain")
    if bits not in (2, 4, 8) or block < 1 or depth < 1:
        raise ModelError(f"a MatMulNBits of {bits} bits, blocks of {block}, depth {depth}")
    blocks = -(-depth // block)
    if node.optional(4) is not None and (node.array(4) != np.arange(depth) // block).any():
        raise Refused("groups of columns in another order (g_idx) are not supported")
    node.require_equal(a.type.shape[-1], depth, "the depth of a MatMulNBits")
    groups = _constant_groups(node, a, (b, scales, zeros), Packing(bits=bits, block=block))
    if groups is not None:
        y = node.emit("matmul_groups", a, *groups, group=block)
        bias = node.optional(5)
        return y if bias is None else node.emit("add", y, bias)
    b = node.reshape(b, (Dim.of(columns), Dim.of(blocks), Dim.of(block * bits // 8)))
    scales = node.reshape(scales, (Dim.of(columns), Dim.of(blocks)))
    if zeros is not None:
        packed = zeros.type.dtype.is_int
        width = -(-blocks * bits // 8) if packed else blocks
        zeros = node.reshape(zeros, (Dim.of(columns), Dim.of(width)))
    y = node.emit("matmul_nbits", a, b, scales, zeros, bits=bits, block=block)
    bias = node.optional(5)
    return y if bias is None else node.emit("add", y, bias)


def _constant_groups(
    node: Node, a: Var, parts: tuple[Var, Var, Var | None], packing: Packing
) -> tuple[Var, Var] | None:
    """Weights without their zero points [k, column] and scales [group, column], where all are
    known and signed integers of as many bits hold the weights."""
    known = [None if part is None else node.builder.constant_data(part) for part in parts]
    missing = any(
        data is None and part is not None for part, data in zip(parts, known, strict=True)
    )
    if missing or packing.bits == 2 or a.type.dtype is not DType.F32:
        return None
    b, scales, zeros = known
    assert b is not None and scales is not None
    depth, columns = a.type.shape[-1].constant, int(node.required("N"))
    if zeros is not None and (zeros.dtype != np.uint8 or node.builder.shared.replaceable):
        return None
    weights = signed_weights(packing, b.reshape(columns, -1), zeros, depth)
    if weights is None or packing.block > GREATEST_GROUP:
        return None
    kind = DType.I8 if packing.bits == 8 else DType.I4
    return (
        node.constant(np.ascontiguousarray(weights.T).astype(kind.numpy)),
        node.constant(np.ascontiguousarray(scales.reshape(columns, -1).T)),
    )


# Normalizations


def _skip_norm(op: str, bias: int) -> Handler:
    """The sum of both (and a bias), normalized; the fourth result is the sum itself."""

    def handle(node: Node) -> Results:
        total = _summed(node, node.arg(0), node.arg(1), node.optional(bias))
        args = [node.arg(2), *(node.optional(index) for index in range(3, bias))]
        y = node.emit(op, total, *args, axis=-1, epsilon=node.attr("epsilon", 1e-12))
        if any(node.requested[1:3]):
            raise Refused("its mean and deviation (results 1 and 2) are not supported")
        return y, None, None, total

    return handle


def _summed(node: Node, *parts: Var | None) -> Var:
    given = [part for part in parts if part is not None]
    total = given[0]
    for part in given[1:]:
        total = node.emit("add", total, part)
    return total


def _rms_norm(node: Node) -> Results:
    if any(node.requested[1:]):
        raise Refused("its deviation (result 1) is not supported")
    x, scale = node.arg(0), node.arg(1)
    axis, epsilon = int(node.attr("axis", -1)), float(node.attr("epsilon", 1e-5))
    args = normalization.in_one_type(node, x, scale)
    y = node.emit("rms_norm", *args, axis=axis, epsilon=epsilon)
    return node.cast(y, scale.type.dtype)


def _embed_layer_norm(node: Node) -> Results:
    """The embeddings of words, places and segments, summed and normalized."""
    words, segments = node.arg(0), node.optional(1)
    table, places, kinds = node.arg(2), node.arg(3), node.optional(4)
    gamma, beta, mask, positions = node.arg(5), node.arg(6), node.optional(7), node.optional(8)
    batch, length = words.type.shape
    total = node.emit("gather", table, words, axis=0)
    if positions is not None:
        here = node.emit("gather", places, positions, axis=0)
    else:
        node.require_at_most(length, places.type.shape[0], "the length of position embeddings")
        here = node.part(places, 0, 0, length)
    total = node.emit("add", total, here)
    if segments is not None and kinds is not None:
        total = node.emit("add", total, node.emit("gather", kinds, segments, axis=0))
    epsilon = float(node.attr("epsilon", 1e-12))
    y = node.emit("layer_norm", total, gamma, beta, axis=-1, epsilon=epsilon)
    lengths: Var | None = None
    if node.requested[1:2] == [True]:
        if mask is None:
            lengths = node.emit("fill", shape=(batch,), value=0, dtype=words.type.dtype)
        else:
            lengths = node.emit("reduce", mask, kind="sum", axes=(1,), keepdims=False)
    return y, lengths, total


def _skip_group_norm(node: Node) -> Results:
    x, skip, bias = node.arg(0), node.arg(3), node.optional(4)
    if skip.type.rank == 2:
        n, channels = skip.type.shape
        skip = node.reshape(skip, (n, ONE, ONE, channels))
    total = _summed(node, x, skip, bias)
    return _grouped(node, total), total


def channels_first(node: Node, x: Var, work: Callable[[Var], Var]) -> Var:
    """What `work` makes of x with its channels before the spatial axes, in the order of x."""
    rank = x.type.rank
    y = work(node.emit("transpose", x, perm=(0, rank - 1, *range(1, rank - 1))))
    return node.emit("transpose", y, perm=(0, *range(2, rank), 1))


def _grouped(node: Node, x: Var) -> Var:
    def work(x: Var) -> Var:
        scale, bias = (node.cast(node.arg(index), x.type.dtype) for index in (1, 2))
        attrs = {"epsilon": node.attr("epsilon", 1e-5), "groups": int(node.required("groups"))}
        y = node.emit("group_norm", x, scale, bias, **attrs)
        return node.emit("swish", y, alpha=1.0) if node.required("activation") else y

    return channels_first(node, x, work) if node.attr("channels_last", 1) else work(x)


# Small things


def softmax_from(node: Node, x: Var, axis: int) -> Var:
    """softmax over the axes from `axis` on, taken as one."""
    shape = x.type.shape
    flat = node.reshape(x, (*shape[:axis], prod(shape[axis:], start=ONE)))
    return node.reshape(node.emit("softmax", flat, axis=axis), shape)


def _bias_softmax(node: Node) -> Results:
    x = node.emit("add", node.arg(0), node.arg(1))
    axis = normal_axis(int(node.attr("axis", 1)), x.type.rank)
    return softmax_from(node, x, axis)


def _bias_add(node: Node) -> Results:
    return _summed(node, node.arg(0), node.arg(1), node.arg(2))


_PLAIN: dict[str, Handler] = {
    "Gelu": direct("gelu", approximate="none"),
    "BiasGelu": _bias_gelu("none"),
    "FastGelu": _bias_gelu("tanh"),
    "QuickGelu": direct("swish", alpha=1.702),
    "BiasSplitGelu": _bias_split_gelu,
    "BiasSoftmax": _bias_softmax,
    "BiasAdd": _bias_add,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "MatMulNBits": _matmul_nbits,
    "SkipLayerNormalization": _skip_norm("layer_norm", bias=4),
    "SkipSimplifiedLayerNormalization": _skip_norm("rms_norm", bias=3),
    "EmbedLayerNormalization": _embed_layer_norm,
    "GroupNorm": lambda node: _grouped(node, node.arg(0)),
    "SkipGroupNorm": _skip_group_norm,
    "Pad": as_standard(movement.HANDLERS["Pad"]),
    "Trilu": as_standard(movement.HANDLERS["Trilu"]),
}
HANDLERS: dict[str, Handler] = {
    **{f"{DOMAIN}.{name}": handler for name, handler in _PLAIN.items()},
    # ONNX Runtime writes it into the default domain, which does not know it.
    "SimplifiedLayerNormalization": _rms_norm,
}
