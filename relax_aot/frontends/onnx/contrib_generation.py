# SPDX-License-Identifier: Apache-2.0
"""What exporters of language models write in the domain com.microsoft: attention over a cache
with fewer heads of keys than of queries, and rows of a table that stays quantized."""

from __future__ import annotations

import numpy as np

from relax_aot.frontends.onnx.attention import Form, attend, heads_apart, heads_joined, rotary
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.onnx.contrib import DOMAIN
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import ONE, Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

LIMITS = {
    f"{DOMAIN}.GroupQueryAttention": "the cache grows (no shared buffer) and is not quantized",
    f"{DOMAIN}.GatherBlockQuantized": "blocks along the last axis; 4 or 8 bits",
}


def _group_query_attention(node: Node) -> Results:
    """Sample b has `seqlens_k[b] + 1` keys with the new ones: these are written behind the ones
    that it had, and query i sees all up to its own place."""
    for name in ("smooth_softmax", "qk_output", "k_quant_type", "v_quant_type"):
        if node.attr(name, 0) not in (0, "NONE"):
            raise Refused(f"the attribute {name} is not supported")
    if any(node.optional(index) is not None for index in range(11, node.count)):
        raise Refused("sinks and quantized caches (inputs from 11 on) are not supported")
    heads, kv_heads = int(node.required("num_heads")), int(node.required("kv_num_heads"))
    q, k, v = _heads(node, heads, kv_heads)
    past_key, past_value = node.optional(3), node.optional(4)
    batch, _, new, _ = q.type.shape
    old = Dim.of(0) if past_key is None else past_key.type.shape[2]
    _require_growth(node, old + new)
    # Whoever has fewer keys than the longest has them in front.
    ends = node.cast(node.reshape(node.arg(5), (batch,)), DType.I64)
    starts = node.emit("sub", ends, node.size_value(new - 1, DType.I64))
    starts = node.emit("max", starts, node.constant(np.array(0)))
    steps = node.emit("range", start=0, step=1, length=new, dtype=DType.I64)
    places = node.emit("add", node.reshape(starts, (batch, ONE)), steps)
    if node.attr("do_rotary", 0):
        positions = node.optional(9)
        q, k = (
            rotary(
                node, x, node.arg(7), node.arg(8), places if positions is None else positions,
                turned=0, interleaved=bool(node.attr("rotary_interleaved", 0)),
            )
            for x in (q, k)
        )  # fmt: skip
    if past_key is not None and past_value is not None:
        k = _grown(node, past_key, k, starts)
        v = _grown(node, past_value, v, starts)
    keys = node.emit("range", start=0, step=1, length=old + new, dtype=DType.I64)
    here = node.reshape(places, (batch, ONE, new, ONE))
    masks = [node.emit("less_equal", keys, here)]
    window = int(node.attr("local_window_size", -1))
    if window >= 0:
        first = node.emit("sub", here, node.constant(np.array(window - 1)))
        masks.append(node.emit("less_equal", first, keys))
    if node.optional(10) is not None:
        masks.append(node.arg(10))
    form = Form(float(node.attr("scale", 0.0)), float(node.attr("softcap", 0.0)))
    return heads_joined(node, attend(node, q, k, v, form, masks).result), k, v


def _heads(node: Node, heads: int, kv_heads: int) -> tuple[Var, Var, Var]:
    """Queries, keys and values with their heads apart; they may come side by side."""
    q, k, v = node.arg(0), node.optional(1), node.optional(2)
    if k is None or v is None:
        size = q.type.shape[2] // (heads + 2 * kv_heads)
        node.require_equal(
            size * (heads + 2 * kv_heads), q.type.shape[2], "the width of packed heads"
        )
        q, k, v = node.parts(q, 2, [size * count for count in (heads, kv_heads, kv_heads)])
    pairs = ((q, heads), (k, kv_heads), (v, kv_heads))
    q, k, v = (heads_apart(node, x, count) for x, count in pairs)
    return q, k, v


def _require_growth(node: Node, longest: Dim) -> None:
    total = node.arg(6)
    known = node.builder.dims(total)
    size = known[0] if known else node.named_size(total, 0, "total", longest)
    node.require_equal(size, longest, "the total length of a cache that grows")


def _grown(node: Node, past: Var, new: Var, starts: Var) -> Var:
    """The cache with room for the new rows, and these in their places."""
    nothing = node.constant_scalar(0.0, past.type.dtype)
    after = (0, 0, new.type.shape[2], 0)
    room = node.emit("pad", past, nothing, before=(0,) * 4, after=after, mode="constant")
    return node.emit("cache_update", room, new, starts, axis=2)


def _gather_block_quantized(node: Node) -> Results:
    """Rows of a table whose quantized values have one scale, and zero point, for each block."""
    data, indices, scales, zeros = node.arg(0), node.arg(1), node.arg(2), node.optional(3)
    rank, bits = data.type.rank, int(node.attr("bits", 4))
    axis = normal_axis(int(node.attr("gather_axis", 0)), rank)
    if normal_axis(int(node.attr("quantize_axis", 1)), rank) != rank - 1 or axis == rank - 1:
        raise Refused("blocks along another axis than the last are not supported")
    if bits not in (4, 8):
        raise Refused(f"quantized values of {bits} bits are not supported")
    packed = data.type.dtype is DType.U8
    quantized, scale = (node.emit("gather", x, indices, axis=axis) for x in (data, scales))
    zero = None if zeros is None else node.emit("gather", zeros, indices, axis=axis)
    if packed:
        quantized = _unpacked(node, quantized, bits)
        if zero is None:
            zero = node.emit("fill", shape=scale.type.shape, value=1 << (bits - 1), dtype=DType.U8)
        else:
            zero = _unpacked(node, zero, bits, scale.type.shape[-1])
    attrs = {"axis": quantized.type.rank - 1, "block": int(node.attr("block_size", 128))}
    return node.emit("dequantize", quantized, scale, zero, to=scale.type.dtype, **attrs)


def _unpacked(node: Node, x: Var, bits: int, count: Dim | None = None) -> Var:
    """Two numbers of each byte, the low half first; of them the first `count`."""
    if bits == 8:
        return x
    four, low = (node.constant(np.array(n, np.uint8)) for n in (4, 15))
    halves = node.emit("bitwise_and", x, low), node.emit("shift_right", x, four)
    *front, last = x.type.shape
    apart = [node.reshape(half, (*front, last, ONE)) for half in halves]
    whole = node.reshape(node.emit("concat", *apart, axis=len(front) + 1), (*front, last * 2))
    if count is None or count == last * 2:
        return whole
    return node.part(whole, len(front), 0, count)


HANDLERS: dict[str, Handler] = {
    f"{DOMAIN}.GroupQueryAttention": _group_query_attention,
    f"{DOMAIN}.GatherBlockQuantized": _gather_block_quantized,
}
