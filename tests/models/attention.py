# SPDX-License-Identifier: Apache-2.0
"""Attention as exporters spell it: grouped queries, and queries on a memory of another length.

The plain, masked and causal forms are those of the encoder (encoder.py).
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx

from tests.models.onnx_text import Array, model_of, sizes


def grouped_attention(heads: int = 4, groups: int = 2, width: int = 6) -> onnx.ModelProto:
    """q: float[b, heads, n, width] on k, v: float[b, groups, n, width] -> y, shaped as q.

    Each group of queries shares one head of keys and values, which an Expand repeats.
    """
    repeat = heads // groups
    repeated = "\n".join(
        f"""
        {name}_deep = Unsqueeze({name}, two)
        {name}_shape = Concat <axis = 0> ({name}_size0, groups, repeat, {name}_size2, width)
        {name}_wide = Expand({name}_deep, {name}_shape)
        {name}_joined = Concat <axis = 0> ({name}_size0, heads, {name}_size2, width)
        {name}_all = Reshape({name}_wide, {name}_joined)"""
        for name in ("k", "v")
    )
    return model_of(
        f"grouped (float[b, {heads}, n, {width}] q, float[b, {groups}, n, {width}] k,"
        f" float[b, {groups}, n, {width}] v) => (float[b, {heads}, n, {width}] y)",
        f"""
        two = Constant <value = int64[1] {{2}}> ()
        groups = Constant <value = int64[1] {{{groups}}}> ()
        repeat = Constant <value = int64[1] {{{repeat}}}> ()
        heads = Constant <value = int64[1] {{{heads}}}> ()
        width = Constant <value = int64[1] {{{width}}}> ()
        {sizes("k", 0, 2)}
        {sizes("v", 0, 2)}
        {repeated}
        turned = Transpose <perm = [0, 1, 3, 2]> (k_all)
        scores = MatMul(q, turned)
        factor = Constant <value = float {{{1 / sqrt(width)}}}> ()
        scaled = Mul(scores, factor)
        chances = Softmax <axis = -1> (scaled)
        y = MatMul(chances, v_all)
        """,
        {},
    )


def cross_attention(width: int = 6) -> onnx.ModelProto:
    """q: float[b, n, width] on memory: float[b, m, width] -> y: float[b, n, width]."""
    return model_of(
        f"cross (float[b, n, {width}] q, float[b, m, {width}] memory) => (float[b, n, {width}] y)",
        f"""
        turned = Transpose <perm = [0, 2, 1]> (memory)
        scores = MatMul(q, turned)
        factor = Constant <value = float {{{sqrt(width)}}}> ()
        scaled = Div(scores, factor)
        chances = Softmax <axis = -1> (scaled)
        y = MatMul(chances, memory)
        """,
        {},
    )


def attend(q: Array, k: Array, v: Array) -> Array:
    """softmax(q k^T / sqrt(width)) v over the last two axes, in double precision."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / sqrt(q.shape[-1])
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(chances / chances.sum(-1, keepdims=True) @ v)
