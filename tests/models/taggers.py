# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks that label each element of sequences of any length."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.onnx_text import Array, Weights, model_of, random_weights, sizes

WORDS, EMBEDDED, HIDDEN, TAGS = 40, 10, 7, 5
FEATURES = 6


def lstm_tagger(seed: int = 0) -> onnx.ModelProto:
    """words: int64[batch, n] -> tags: float[batch, n, 5]: a bidirectional LSTM over embeddings.

    The first states are zeros of a shape that asks for the size of the batch.
    """
    return model_of(
        f"lstm_tagger (int64[batch, n] words) => (float[batch, n, {TAGS}] tags)",
        f"""
        embedded = Gather <axis = 0> (embedding, words)
        steps = Transpose <perm = [1, 0, 2]> (embedded)
        {sizes("steps", 1)}
        both = Constant <value = int64[1] {{2}}> ()
        hidden = Constant <value = int64[1] {{{HIDDEN}}}> ()
        first_shape = Concat <axis = 0> (both, steps_size1, hidden)
        first = ConstantOfShape <value = float[1] {{0.0}}> (first_shape)
        states, last, last_cell = LSTM <hidden_size = {HIDDEN}, direction = "bidirectional">
            (steps, weight, recurrence, bias, , first, first)
        turned = Transpose <perm = [0, 2, 1, 3]> (states)
        joined_shape = Constant <value = int64[3] {{0, 0, -1}}> ()
        joined = Reshape <allowzero = 0> (turned, joined_shape)
        product = MatMul(joined, out_weight)
        logits = Add(out_bias, product)
        chances = LogSoftmax <axis = 2> (logits)
        tags = Transpose <perm = [1, 0, 2]> (chances)
        """,
        random_weights(
            np.random.default_rng(seed),
            embedding=(WORDS, EMBEDDED),
            weight=(2, 4 * HIDDEN, EMBEDDED),
            recurrence=(2, 4 * HIDDEN, HIDDEN),
            bias=(2, 8 * HIDDEN),
            out_weight=(2 * HIDDEN, TAGS),
            out_bias=(TAGS,),
        ),
    )


def lstm_tagger_forward(w: Weights, words: Array) -> dict[str, Array]:
    steps = w["embedding"][words].swapaxes(0, 1)
    ahead = _lstm(steps, w["weight"][0], w["recurrence"][0], w["bias"][0])
    back = _lstm(steps[::-1], w["weight"][1], w["recurrence"][1], w["bias"][1])[::-1]
    logits = np.concatenate([ahead, back], axis=2) @ w["out_weight"] + w["out_bias"]
    tags = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
    return {"tags": tags.swapaxes(0, 1)}


def gru_tagger(seed: int = 0) -> onnx.ModelProto:
    """frames: float[n, batch, 6], state: float[1, batch, 7] -> tags: float[n, batch, 5], stateN.

    Two GRUs, the second backwards and in ONNX's own form of the reset; the state of the first
    carries over from call to call.
    """
    return model_of(
        f"gru_tagger (float[n, batch, {FEATURES}] frames, float[1, batch, {HIDDEN}] state)"
        f" => (float[n, batch, {TAGS}] tags, float[1, batch, {HIDDEN}] stateN)",
        f"""
        one = Constant <value = int64[1] {{1}}> ()
        ahead4, stateN = GRU <hidden_size = {HIDDEN}, linear_before_reset = 1>
            (frames, weight1, recurrence1, bias1, , state)
        ahead = Squeeze(ahead4, one)
        back4, back_last = GRU <hidden_size = {HIDDEN}, direction = "reverse">
            (ahead, weight2, recurrence2, bias2)
        back = Squeeze(back4, one)
        joined = Concat <axis = -1> (ahead, back)
        product = MatMul(joined, out_weight)
        logits = Add(product, out_bias)
        tags = Sigmoid(logits)
        """,
        random_weights(
            np.random.default_rng(seed),
            weight1=(1, 3 * HIDDEN, FEATURES),
            recurrence1=(1, 3 * HIDDEN, HIDDEN),
            bias1=(1, 6 * HIDDEN),
            weight2=(1, 3 * HIDDEN, HIDDEN),
            recurrence2=(1, 3 * HIDDEN, HIDDEN),
            bias2=(1, 6 * HIDDEN),
            out_weight=(2 * HIDDEN, TAGS),
            out_bias=(TAGS,),
        ),
    )


def gru_tagger_forward(w: Weights, frames: Array, state: Array) -> dict[str, Array]:
    ahead = _gru(frames, w["weight1"][0], w["recurrence1"][0], w["bias1"][0], state[0], True)
    none = np.zeros_like(state[0])
    back = _gru(ahead[::-1], w["weight2"][0], w["recurrence2"][0], w["bias2"][0], none, False)
    logits = np.concatenate([ahead, back[::-1]], axis=2) @ w["out_weight"] + w["out_bias"]
    return {"tags": _sigmoid(logits), "stateN": ahead[-1:]}


def _lstm(x: Array, w: Array, r: Array, b: Array) -> Array:
    """States after each step; gates in ONNX's order: input, output, forget, cell."""
    h = np.zeros((x.shape[1], r.shape[1]))
    c = np.zeros_like(h)
    states = []
    for step in x:
        gates = step @ w.T + h @ r.T + b.reshape(2, -1).sum(axis=0)
        i, o, f, new = np.split(gates, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(new)
        h = _sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states)


def _gru(x: Array, w: Array, r: Array, b: Array, h: Array, reset_after: bool) -> Array:
    """States after each step; gates in ONNX's order: update, reset, new."""
    wz, wr, wn = np.split(w, 3)
    rz, rr, rn = np.split(r, 3)
    bz, br, bn, cz, cr, cn = np.split(b, 6)
    states = []
    for step in x:
        z = _sigmoid(step @ wz.T + bz + h @ rz.T + cz)
        reset = _sigmoid(step @ wr.T + br + h @ rr.T + cr)
        past = reset * (h @ rn.T + cn) if reset_after else (reset * h) @ rn.T + cn
        h = (1 - z) * np.tanh(step @ wn.T + bn + past) + z * h
        states.append(h)
    return np.stack(states)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))
