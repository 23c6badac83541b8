# SPDX-License-Identifier: Apache-2.0
"""Attention in its forms, and what goes with it: rotary positions, caches, linear attention.

    scores = softcap(q k^T * scale), shut by masks, then softmax, then times v

Heads of queries that share one head of keys are an axis of their own, so that no key or value
is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results, dtype_of
from relax_aot.ir.dims import ONE, Dim, simplify
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType


@dataclass(frozen=True, slots=True)
class Form:
    """How scores are made into weights."""

    scale: float = 0.0
    """What scores are multiplied by; 0 stands for 1 / sqrt(size of a head)."""
    softcap: float = 0.0
    left: int = -1
    right: int = -1
    shift: Dim | int = 0
    """Keys that lie before the first query."""
    precision: DType | None = None
    """The type of the softmax, where it is another."""


@dataclass(frozen=True, slots=True)
class Attended:
    """The result [batch, heads, queries, size], and the scores at each stage."""

    result: Var
    stages: tuple[Var, ...]


def heads_apart(node: Node, x: Var, heads: int) -> Var:
    """[batch, time, heads * size] -> [batch, heads, time, size]."""
    if x.type.rank != 3 or heads < 1:
        raise ModelError(f"{heads} heads of {x.type}")
    batch, time, width = x.type.shape
    size = width // heads
    node.require_equal(size * heads, width, "the width of all heads")
    return node.emit("transpose", node.reshape(x, (batch, time, Dim.of(heads), size)),
                     perm=(0, 2, 1, 3))  # fmt: skip


def heads_joined(node: Node, x: Var) -> Var:
    """[batch, heads, time, size] -> [batch, time, heads * size]."""
    batch, heads, time, size = x.type.shape
    moved = node.emit("transpose", x, perm=(0, 2, 1, 3))
    return node.reshape(moved, (batch, time, heads * size))


def _scaled(node: Node, q: Var, scale: float) -> Var:
    """q times all of the scale. The standard multiplies both by its root in half precision, lest
    products overflow; products are of float32 here."""
    size = q.type.shape[-1]
    if scale or size.is_constant:
        factor = scale or size.constant**-0.5
        return q if factor == 1.0 else node.emit("mul", q, node.scalar(factor, q))
    wide = node.size_value(size, DType.F64 if q.type.dtype is DType.F64 else DType.F32)
    root = node.emit("reciprocal", node.emit("sqrt", wide))
    return node.emit("mul", q, node.cast(root, q.type.dtype))


def attend(
    node: Node,
    q: Var,
    k: Var,
    v: Var,
    form: Form,
    masks: list[Var],
    lengths: Var | None = None,
) -> Attended:
    """Masks broadcast over [batch, heads, queries, keys]: bool where a key may be seen, or
    numbers that are added. `lengths` says for each sample how many keys there are."""
    batch, heads, queries, size = q.type.shape
    kv_heads, keys = k.type.shape[1:3]
    whole = (batch, heads, queries, keys)
    for of_k, of_v in zip(k.type.shape[:3], v.type.shape[:3], strict=True):
        node.require_equal(of_k, of_v, "batch, heads and keys of an attention")
    node.require_equal(k.type.shape[0], batch, "the batch of an attention")
    turned = node.emit("transpose", k, perm=(0, 1, 3, 2))
    group = None
    if heads != kv_heads:
        group = simplify(heads // kv_heads, node.builder.bounds)
        node.require_equal(group * kv_heads, heads, "heads of queries for each head of keys")
        q = node.reshape(q, (batch, kv_heads, group, queries, size))
        turned = node.reshape(turned, (batch, kv_heads, ONE, size, keys))
        v = node.reshape(v, (batch, kv_heads, ONE, *v.type.shape[2:]))
    scores = node.emit("matmul", _scaled(node, q, form.scale), turned)
    stages = [scores]
    if form.softcap:
        cap = node.scalar(form.softcap, scores)
        scores = node.emit("mul", node.emit("tanh", node.emit("div", scores, cap)), cap)
    stages.append(scores)
    for mask in masks:
        scores = _masked(node, scores, mask, kv_heads, group)
    if lengths is not None or max(form.left, form.right) >= 0:
        window = {"shift": form.shift, "left": form.left, "right": form.right}
        scores = node.emit("attention_mask", scores, lengths, **window)
    stages.append(scores)
    if form.precision not in (None, q.type.dtype):
        scores = node.cast(scores, form.precision)
    weights = node.emit("softmax", scores, axis=-1, masked=True)
    weights = node.cast(weights, q.type.dtype)
    result = node.emit("matmul", weights, v)
    stages.append(weights)
    final = node.reshape(result, (batch, heads, queries, v.type.shape[-1]))
    return Attended(final, tuple(node.reshape(stage, whole) for stage in stages))


def _masked(node: Node, scores: Var, mask: Var, kv_heads: Dim, group: Dim | None) -> Var:
    if mask.type.rank > 4:
        raise ModelError(f"a mask of {mask.type}")
    if group is not None and mask.type.rank > 2:
        *front, heads, rows, columns = mask.type.shape
        parted = (ONE, ONE) if heads == ONE else (kv_heads, group)
        if heads != ONE:
            mask = node.broadcast(mask, (scores.type.shape[1] * scores.type.shape[2], ONE, ONE))
        mask = node.reshape(mask, (*front, *parted, rows, columns))
    if mask.type.dtype is DType.BOOL:
        return node.emit("where", mask, scores, node.scalar(-inf, scores))
    return node.emit("add", scores, node.cast(mask, scores.type.dtype))


def _attention(node: Node) -> Results:
    q, k, v = node.arg(0), node.arg(1), node.arg(2)
    flat = q.type.rank == 3
    if flat:
        counts = int(node.required("q_num_heads")), int(node.required("kv_num_heads"))
        q, k, v = (heads_apart(node, x, counts[i > 0]) for i, x in enumerate((q, k, v)))
    mask, lengths = node.optional(3), node.optional(6)
    past_key, past_value = node.optional(4), node.optional(5)
    if (past_key is None) != (past_value is None) or (lengths and past_key):
        raise ModelError("an Attention has half a past, or a past together with lengths")
    before = Dim.of(0)
    if past_key is not None and past_value is not None:
        before = past_key.type.shape[2]
        k = node.emit("concat", past_key, k, axis=2)
        v = node.emit("concat", past_value, v, axis=2)
    left, right = (int(node.attr(f"{side}_window_size", -1)) for side in ("left", "right"))
    if node.attr("is_causal", 0):
        right = 0
    precision = node.attr("softmax_precision", 0)
    form = Form(
        float(node.attr("scale", 0.0)), float(node.attr("softcap", 0.0)), left, right, before,
        dtype_of(precision, "attribute 'softmax_precision'") if precision else None,
    )  # fmt: skip
    masks = [] if mask is None else [_widened(node, mask, k.type.shape[2])]
    found = attend(node, q, k, v, form, masks, lengths)
    result = heads_joined(node, found.result) if flat else found.result
    mode = int(node.attr("qk_matmul_output_mode", 0))
    if mode not in range(4):
        raise ModelError(f"an Attention has the output mode {mode}")
    return result, k, v, found.stages[mode]


def _widened(node: Node, mask: Var, keys: Dim) -> Var:
    """A mask that is too short shuts the keys that it does not tell of."""
    if not mask.type.rank or not (mask.type.dtype.is_float or mask.type.dtype is DType.BOOL):
        raise ModelError(f"a mask of {mask.type}")
    length = mask.type.shape[-1]
    if node.builder.proves(length, "==", keys):
        return mask
    shut = node.constant_scalar(False if mask.type.dtype is DType.BOOL else -inf, mask.type.dtype)
    before = (0,) * mask.type.rank
    node.require_at_most(length, keys, "a mask of an Attention")
    return node.emit("pad", mask, shut, before=before, after=(*before[1:], keys - length),
                     mode="constant")  # fmt: skip


# Rotary positions


def rotated(node: Node, x: Var, cos: Var, sin: Var, *, interleaved: bool) -> Var:
    """x[..., size] turned by angles, whose sines and cosines broadcast over half of it."""
    *front, size = x.type.shape
    half = size // 2
    node.require_equal(half * 2, size, "a rotary embedding rotates pairs")
    if interleaved:
        pairs = node.reshape(x, (*front, half, Dim.of(2)))
        halves = node.parts(pairs, len(front) + 1, (ONE, ONE))
        first, second = (node.reshape(column, (*front, half)) for column in halves)
    else:
        first, second = node.parts(x, len(front), (half, half))
    real = node.emit("sub", node.emit("mul", cos, first), node.emit("mul", sin, second))
    imaginary = node.emit("add", node.emit("mul", sin, first), node.emit("mul", cos, second))
    if not interleaved:
        return node.emit("concat", real, imaginary, axis=len(front))
    columns = [node.reshape(part, (*front, half, ONE)) for part in (real, imaginary)]
    return node.reshape(node.emit("concat", *columns, axis=len(front) + 1), (*front, size))


def rotary(
    node: Node, x: Var, cos: Var, sin: Var, positions: Var | None, *, turned: int, interleaved: bool
) -> Var:
    """x[batch, heads, time, size]; of each head the first `turned` numbers, or all where 0.
    cos and sin are tables by position, or given for each sample and time."""
    if positions is not None:
        cos, sin = (node.emit("gather", table, positions, axis=0) for table in (cos, sin))
    # [batch, time, half] -> [batch, 1, time, half]
    cos, sin = (node.reshape(t, (t.type.shape[0], ONE, *t.type.shape[1:])) for t in (cos, sin))
    size = x.type.shape[3]
    if not turned or size == Dim.of(turned):
        return rotated(node, x, cos, sin, interleaved=interleaved)
    first, rest = node.parts(x, 3, (Dim.of(turned), size - turned))
    first = rotated(node, first, cos, sin, interleaved=interleaved)
    return node.emit("concat", first, rest, axis=3)


def _rotary_embedding(node: Node) -> Results:
    x = node.arg(0)
    flat = x.type.rank == 3
    apart = heads_apart(node, x, int(node.required("num_heads"))) if flat else x
    found = rotary(
        node, apart, node.arg(1), node.arg(2), node.optional(3),
        turned=int(node.attr("rotary_embedding_dim", 0)),
        interleaved=bool(node.attr("interleaved", 0)),
    )  # fmt: skip
    return heads_joined(node, found) if flat else found


# Caches and states


def _tensor_scatter(node: Node) -> Results:
    return node.emit(
        "cache_update", node.arg(0), node.arg(1), node.optional(2),
        axis=int(node.attr("axis", -2)), circular=node.attr("mode", "linear") == "circular",
    )  # fmt: skip


def _linear_attention(node: Node) -> Results:
    q, k, v = node.arg(0), node.arg(1), node.arg(2)
    heads, kv_heads = int(node.required("q_num_heads")), int(node.required("kv_num_heads"))
    rule = node.attr("update_rule", "gated_delta")
    decay, beta = node.optional(4), node.optional(5)
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise ModelError(f"a LinearAttention has the rule {rule!r}")
    if ("gated" in rule) != (decay is not None) or ("delta" in rule) != (beta is not None):
        raise ModelError(f"a LinearAttention of rule {rule!r} has other inputs than that needs")
    scale = float(node.attr("scale", 0.0))
    return node.emit_all(
        "linear_attention", q, k, v, node.optional(3), decay, beta,
        heads=heads, kv_heads=kv_heads, scale=scale,
    )  # fmt: skip


def _causal_conv(node: Node) -> Results:
    args = node.arg(0), node.arg(1), node.optional(2), node.optional(3)
    y, state = node.emit_all("causal_conv", *args)
    activation = node.attr("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise ModelError(f"a CausalConvWithState has the activation {activation!r}")
    return (y if activation == "none" else node.emit("swish", y, alpha=1.0)), state


HANDLERS: dict[str, Handler] = {
    "Attention": _attention,
    "RotaryEmbedding": _rotary_embedding,
    "TensorScatter": _tensor_scatter,
    "LinearAttention": _linear_attention,
    "CausalConvWithState": _causal_conv,
}
