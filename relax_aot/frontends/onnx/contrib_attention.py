# SPDX-License-Identifier: Apache-2.0
"""Attention in the forms of the domain com.microsoft."""

from __future__ import annotations

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.attention import Form, attend, heads_apart, heads_joined, rotary
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.onnx.contrib import DOMAIN
from relax_aot.frontends.onnx.contrib_quantized import integer_to_float
from relax_aot.frontends.onnx.quantization import zero_point
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import ONE, Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType

LIMITS = {
    f"{DOMAIN}.Attention": "no rotary embedding; masks per sample or per key; no shared buffers",
    f"{DOMAIN}.MultiHeadAttention": "separate query, key and value; no shared buffers",
    f"{DOMAIN}.QAttention": "as com.microsoft.Attention; one zero point per tensor",
    f"{DOMAIN}.RotaryEmbedding": "no packed batches; scale 1",
}


def _rotary_embedding(node: Node) -> Results:
    """`position_ids` is a table, or one number: the place of the first of each sample."""
    if node.attr("is_packed_batching", 0):
        raise Refused("packed batches are not supported")
    if float(node.attr("scale", 1.0)) != 1.0:
        raise Refused("a scale other than 1 is not supported")
    x, positions, cos, sin = (node.arg(index) for index in range(4))
    turned = int(node.attr("rotary_embedding_dim", 0))
    flat = x.type.rank == 3
    apart = x
    if flat:
        heads = int(node.attr("num_heads", 0))
        if not heads:
            width, size = x.type.shape[2], cos.type.shape[1] * 2
            if turned or not width.is_constant or not size.is_constant:
                raise Refused("it needs the attribute num_heads")
            heads = width.constant // size.constant
        apart = heads_apart(node, x, heads)
    if positions.type.rank == 1:
        length = apart.type.shape[2]
        steps = node.emit("range", start=0, step=1, length=length, dtype=positions.type.dtype)
        positions = node.reshape(node.emit("add", steps, positions), (ONE, length))
    y = rotary(
        node, apart, cos, sin, positions,
        turned=turned, interleaved=bool(node.attr("interleaved", 0)),
    )  # fmt: skip
    return heads_joined(node, y) if flat else y


def _filter(node: Node, seen: Var, dtype: DType) -> Var:
    """What is added to scores: nothing where a key may be seen, else a large negative number."""
    shut = node.constant_scalar(float(node.attr("mask_filter_value", -10000.0)), dtype)
    return node.emit("where", seen, node.constant_scalar(0.0, dtype), shut)


def _mask(node: Node, mask: Var, keys: Dim, dtype: DType) -> Var:
    """[batch]: how many keys there are; [batch, keys] and more axes: 0 without a mask."""
    if mask.type.rank == 1:
        places = node.emit("range", start=0, step=1, length=keys, dtype=mask.type.dtype)
        ends = node.reshape(mask, (mask.type.shape[0], ONE, ONE, ONE))
        return _filter(node, node.emit("less", places, ends), dtype)
    batch, *middle, last = mask.type.shape
    node.require_equal(last, keys, "keys of a mask")
    wide = {0: (batch, ONE, ONE, last), 1: (batch, ONE, *middle, last)}.get(len(middle))
    shaped = mask if wide is None else node.reshape(mask, wide)
    return _filter(node, node.emit("cast", shaped, to=DType.BOOL, saturate=False), dtype)


def _masks(node: Node, index: int, bias: int | None, queries: Var, keys: Dim) -> list[Var]:
    mask, added = node.optional(index), None if bias is None else node.optional(bias)
    found = [] if added is None else [added]
    if mask is not None:
        if mask.type.rank == 1 and mask.type.shape[0] != queries.type.shape[0]:
            raise Refused(f"a mask {mask.type} of ends and starts is not supported")
        found.append(_mask(node, mask, keys, queries.type.dtype))
    return found


def _form(node: Node, before: Dim) -> Form:
    right = 0 if node.attr("unidirectional", 0) else -1
    return Form(float(node.attr("scale", 0.0)), right=right, shift=before)


def _attention(node: Node) -> Results:
    """Queries, keys and values by one product with weights side by side."""
    if node.attr("do_rotary", 0) or node.attr("past_present_share_buffer", 0):
        raise Refused("rotary embedding and shared buffers are not supported")
    whole = node.emit("matmul", node.arg(0), node.arg(1))
    if node.optional(2) is not None:
        whole = node.emit("add", whole, node.arg(2))
    return _attended(node, whole, 4, 5)


def _quantized_attention(node: Node) -> Results:
    """The same of quantized values, with one scale each, or one for each column of the weights."""
    if node.attr("do_rotary", 0) or node.attr("past_present_share_buffer", 0):
        raise Refused("rotary embedding and shared buffers are not supported")
    scales, zeros = (
        (node.arg(3), node.arg(4)),
        (zero_point(node, 6), zero_point(node, 7, weights=True)),
    )
    whole = integer_to_float(node, node.arg(0), node.arg(1), scales, zeros)
    return _attended(node, node.emit("add", whole, node.arg(2)), 8, None)


def _attended(node: Node, whole: Var, past_at: int, bias_at: int | None) -> Results:
    """[batch, time, queries, keys and values side by side] -> the result, and the new past."""
    heads = int(node.required("num_heads"))
    sizes = node.attr("qkv_hidden_sizes")
    width = whole.type.shape[2]
    parts = [Dim.of(int(n)) for n in sizes] if sizes else [width // 3] * 3
    q, k, v = (heads_apart(node, part, heads) for part in node.parts(whole, 2, parts))
    node.require_equal(sum(parts, Dim.of(0)), width, "the widths of queries, keys and values")
    past = node.optional(past_at)
    before = Dim.of(0)
    if past is not None:
        before = past.type.shape[3]
        k, v = (node.emit("concat", _half(node, past, i), x, axis=2) for i, x in enumerate((k, v)))
    mask_at = 3 if bias_at is not None else 5
    masks = _masks(node, mask_at, bias_at, q, k.type.shape[2])
    y = heads_joined(node, attend(node, q, k, v, _form(node, before), masks).result)
    if node.requested[1:2] != [True]:
        return y
    both = [node.reshape(part, (ONE, *part.type.shape)) for part in (k, v)]
    return y, node.emit("concat", *both, axis=0)


def _half(node: Node, past: Var, index: int) -> Var:
    return node.reshape(node.part(past, 0, index, 1), past.type.shape[1:])


def _multi_head_attention(node: Node) -> Results:
    q, k, v = node.arg(0), node.optional(1), node.optional(2)
    if k is None or v is None or q.type.rank != 3 or k.type.rank == 5:
        raise Refused("query, key and value must be separate; packed ones are not supported")
    if node.optional(8) is not None or node.optional(9) is not None:
        raise Refused("shared buffers (inputs 8 and 9) are not supported")
    heads = int(node.required("num_heads"))
    bias = node.optional(3)
    start = Dim.of(0)
    apart: list[Var] = []
    for x in (q, k, v):
        if x.type.rank == 4:
            # Keys and values of another sequence come with their heads apart, and unbiased.
            width = x.type.shape[1] * x.type.shape[3]
            apart.append(x)
        else:
            width = x.type.shape[2]
            if bias is not None:
                x = node.emit("add", x, node.part(bias, 0, start, width))
            apart.append(heads_apart(node, x, heads))
        start = start + width
    q, k, v = apart
    past_key, past_value = node.optional(6), node.optional(7)
    before = Dim.of(0)
    if past_key is not None and past_value is not None:
        before = past_key.type.shape[2]
        k = node.emit("concat", past_key, k, axis=2)
        v = node.emit("concat", past_value, v, axis=2)
    elif past_key is not None or past_value is not None:
        raise ModelError("a MultiHeadAttention has half a past")
    masks = _masks(node, 4, 5, q, k.type.shape[2])
    if any(node.requested[3:]):
        raise Refused("the scores (result 3) are not supported")
    y = attend(node, q, k, v, _form(node, before), masks).result
    return heads_joined(node, y), k, v


HANDLERS: dict[str, Handler] = {
    f"{DOMAIN}.RotaryEmbedding": _rotary_embedding,
    f"{DOMAIN}.Attention": _attention,
    f"{DOMAIN}.QAttention": _quantized_attention,
    f"{DOMAIN}.MultiHeadAttention": _multi_head_attention,
}
