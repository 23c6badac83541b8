# SPDX-License-Identifier: Apache-2.0
"""A transformer encoder with symbolic batch and length, as PyTorch's exporter writes it.

`encoder` makes the ONNX model, `encoder_forward` says in NumPy what it computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, sqrt
from typing import Literal

import numpy as np
import onnx

from tests.models.onnx_text import Array, Weights, model_of, random_weights, sizes

EPSILON = 1e-5
MASKED = -1e4
"""What a mask adds to the scores of keys that must not be seen."""

_erf = np.vectorize(erf, otypes=[np.float64])


@dataclass(frozen=True, slots=True)
class Variant:
    """Differences between encoders, except their sizes."""

    norm: Literal["pre", "post"] = "pre"
    mask: bool = False
    """A further input `mask: float[batch, n]`, added to the scores of each key."""
    causal: bool = False
    """No position sees a later one."""


PLAIN = Variant()


def encoder(
    width: int = 256,
    heads: int = 4,
    layers: int = 4,
    hidden: int = 1024,
    seed: int = 0,
    variant: Variant = PLAIN,
) -> onnx.ModelProto:
    """x: float[batch, n, width] -> y: float[batch, n, width]."""
    parts = [_causal_mask()] if variant.causal else []
    parts += [_key_mask()] if variant.mask else []
    value = "x"
    for layer in range(layers):
        text, value = _layer(f"l{layer}", value, width, heads, variant)
        parts.append(text)
    last = f"LayerNormalization <axis = -1, epsilon = {EPSILON}> ({value}, end_scale, end_bias)"
    parts.append(f"y = {last}" if variant.norm == "pre" else f"y = Identity({value})")
    mask = ", float[batch, n] mask" if variant.mask else ""
    signature = f"encoder (float[batch, n, {width}] x{mask}) => (float[batch, n, {width}] y)"
    weights = encoder_weights(width, layers, hidden, seed)
    if variant.norm == "post":
        del weights["end_scale"], weights["end_bias"]
    return model_of(signature, "\n".join(parts), weights)


def encoder_weights(width: int, layers: int, hidden: int, seed: int) -> Weights:
    """Random weights by the names that the model gives them."""
    rng = np.random.default_rng(seed)
    weights: Weights = {}
    for layer in range(layers):
        p = f"l{layer}"
        for part in ("query", "key", "value", "out"):
            weights |= random_weights(
                rng, **{f"{p}_{part}_weight": (width, width), f"{p}_{part}_bias": (width,)}
            )
        weights |= random_weights(
            rng,
            **{
                f"{p}_up_weight": (width, hidden),
                f"{p}_up_bias": (hidden,),
                f"{p}_down_weight": (hidden, width),
                f"{p}_down_bias": (width,),
            },
        )
        weights |= _norm_weights(rng, f"{p}_norm1", width) | _norm_weights(rng, f"{p}_norm2", width)
    return weights | _norm_weights(rng, "end", width)


def _norm_weights(rng: np.random.Generator, name: str, width: int) -> Weights:
    scale = rng.uniform(0.5, 1.5, width).astype(np.float32)
    return {f"{name}_scale": scale} | random_weights(rng, **{f"{name}_bias": (width,)})


# As ONNX text


def _causal_mask() -> str:
    """`causal`: float[n, n], 0 where a position may be seen and -inf where it is later."""
    return f"""{sizes("x", 1)}
        causal_shape = Concat <axis = 0> (x_size1, x_size1)
        causal_ones = ConstantOfShape <value = float[1] {{1.0}}> (causal_shape)
        causal_seen = Trilu <upper = 0> (causal_ones)
        causal_zero = Constant <value = float {{0.0}}> ()
        causal_never = Constant <value = float {{-inf}}> ()
        causal_later = Equal(causal_seen, causal_zero)
        causal = Where(causal_later, causal_never, causal_zero)"""


def _key_mask() -> str:
    """`keys`: float[batch, 1, 1, n]."""
    return """
        keys_axes = Constant <value = int64[2] {1, 2}> ()
        keys = Unsqueeze(mask, keys_axes)"""


def _layer(p: str, x: str, width: int, heads: int, variant: Variant) -> tuple[str, str]:
    """One layer on the value `x`, and the name of its result."""
    if variant.norm == "pre":
        lines = [_norm(f"{p}_norm1", x), _attention(p, f"{p}_norm1", width, heads, variant)]
        lines += [f"{p}_middle = Add({x}, {p}_out)", _norm(f"{p}_norm2", f"{p}_middle")]
        lines += [_feed_forward(p, f"{p}_norm2"), f"{p}_end = Add({p}_middle, {p}_down)"]
        return "\n".join(lines), f"{p}_end"
    lines = [_attention(p, x, width, heads, variant), f"{p}_sum1 = Add({x}, {p}_out)"]
    lines += [_norm(f"{p}_norm1", f"{p}_sum1"), _feed_forward(p, f"{p}_norm1")]
    lines += [f"{p}_sum2 = Add({p}_norm1, {p}_down)", _norm(f"{p}_norm2", f"{p}_sum2")]
    return "\n".join(lines), f"{p}_norm2"


def _norm(name: str, x: str) -> str:
    arguments = f"({x}, {name}_scale, {name}_bias)"
    return f"{name} = LayerNormalization <axis = -1, epsilon = {EPSILON}> {arguments}"


def _linear(name: str, x: str) -> str:
    return f"""
        {name}_product = MatMul({x}, {name}_weight)
        {name} = Add({name}_bias, {name}_product)"""


def _attention(p: str, x: str, width: int, heads: int, variant: Variant) -> str:
    """`<p>_out` from `x`: heads split and joined through the sizes of each value."""
    split = "\n".join(
        f"""{_linear(f"{p}_{part}", x)}{sizes(f"{p}_{part}", 0, 1)}
        {p}_{part}_rest = Constant <value = int64[2] {{{heads}, {width // heads}}}> ()
        {p}_{part}_view = Concat <axis = 0> ({p}_{part}_size0, {p}_{part}_size1, {p}_{part}_rest)
        {p}_{part}_heads = Reshape({p}_{part}, {p}_{part}_view)
        {p}_{part}_turned = Transpose <perm = {perm}> ({p}_{part}_heads)"""
        for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
    )
    masks = (["keys"] if variant.mask else []) + (["causal"] if variant.causal else [])
    names = [f"{p}_scaled", *(f"{p}_plus_{mask}" for mask in masks)]
    added = "".join(
        f"\n        {after} = Add({before}, {mask})"
        for before, after, mask in zip(names, names[1:], masks, strict=False)
    )
    return f"""{split}
        {p}_scores = MatMul({p}_query_turned, {p}_key_turned)
        {p}_root = Constant <value = float {{{sqrt(width // heads)}}}> ()
        {p}_scaled = Div({p}_scores, {p}_root){added}
        {p}_chances = Softmax <axis = -1> ({names[-1]})
        {p}_mixed = MatMul({p}_chances, {p}_value_turned)
        {p}_back = Transpose <perm = [0, 2, 1, 3]> ({p}_mixed){sizes(f"{p}_back", 0, 1)}
        {p}_back_rest = Constant <value = int64[1] {{{width}}}> ()
        {p}_back_view = Concat <axis = 0> ({p}_back_size0, {p}_back_size1, {p}_back_rest)
        {p}_joined = Reshape({p}_back, {p}_back_view)
        {_linear(f"{p}_out", f"{p}_joined")}"""


def _feed_forward(p: str, x: str) -> str:
    """`<p>_down`: two linear layers around a GELU by erf."""
    return f"""{_linear(f"{p}_up", x)}
        {p}_root2 = Constant <value = float {{{sqrt(2.0)}}}> ()
        {p}_one = Constant <value = float {{1.0}}> ()
        {p}_half = Constant <value = float {{0.5}}> ()
        {p}_div = Div({p}_up, {p}_root2)
        {p}_erf = Erf({p}_div)
        {p}_erf1 = Add({p}_erf, {p}_one)
        {p}_double = Mul({p}_up, {p}_erf1)
        {p}_gelu = Mul({p}_double, {p}_half)
        {_linear(f"{p}_down", f"{p}_gelu")}"""


# In NumPy


def encoder_forward(
    weights: Weights, x: Array, heads: int, variant: Variant = PLAIN, mask: Array | None = None
) -> Array:
    """What the model computes, in double precision."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x = x.astype(np.float64)
    batch, n, width = x.shape
    hide = np.zeros((1, 1, 1, n)) if mask is None else mask.astype(np.float64)[:, None, None]
    if variant.causal:
        hide = hide + np.triu(np.full((n, n), -np.inf), 1)

    def linear(name: str, value: Array) -> Array:
        return np.asarray(value @ w[f"{name}_weight"] + w[f"{name}_bias"])

    def norm(name: str, value: Array) -> Array:
        centered = value - value.mean(-1, keepdims=True)
        deviation = np.sqrt((centered**2).mean(-1, keepdims=True) + EPSILON)
        return np.asarray(centered / deviation * w[f"{name}_scale"] + w[f"{name}_bias"])

    def attention(p: str, value: Array) -> Array:
        q, k, v = (
            linear(f"{p}_{part}", value).reshape(batch, n, heads, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(-1, -2) / sqrt(width // heads) + hide
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        return linear(f"{p}_out", (chances @ v).transpose(0, 2, 1, 3).reshape(x.shape))

    def feed_forward(p: str, value: Array) -> Array:
        up = linear(f"{p}_up", value)
        return linear(f"{p}_down", 0.5 * up * (1.0 + _erf(up / sqrt(2.0))))

    for layer in range(sum(name.endswith("_up_bias") for name in w)):
        p = f"l{layer}"
        if variant.norm == "pre":
            x = x + attention(p, norm(f"{p}_norm1", x))
            x = x + feed_forward(p, norm(f"{p}_norm2", x))
        else:
            x = norm(f"{p}_norm1", x + attention(p, x))
            x = norm(f"{p}_norm2", x + feed_forward(p, x))
    return norm("end", x) if variant.norm == "pre" else x
