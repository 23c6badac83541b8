# SPDX-License-Identifier: Apache-2.0
"""What checkpoints compute, written from the papers and independent of ops: one token after
another, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.frontends.llm.checkpoints import LLAMA3, Array, Llama

EPSILON = 1e-5
Weights = Mapping[str, Array]


@dataclass
class Caches:
    """Of a layer."""

    stored: Callable[[Array], Array]
    keys: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)


def whole(rows: Array) -> Array:
    return rows


def logits(model: Llama, tokens: Sequence[int], stored: Callable[[Array], Array] = whole) -> Array:
    """The logits of every token, [n, words]. `stored`: what caches keep of keys and values of a
    token, [heads, size]."""
    style = model.style
    w = _whole(model)
    table = w["model.embed_tokens.weight"]
    caches = [Caches(stored) for _ in range(model.layers)]
    found = []
    for place, token in enumerate(tokens):
        x = table[token] * style.embedding_scale
        if style.positions is not None:
            x = x + w["model.embed_positions.weight"][style.positions + place]
        for number in range(model.layers):
            at = f"model.layers.{number}"
            y = _normalized(model, w, f"{at}.{style.before[0]}", x) if style.before[0] else x
            attended = _attention(model, w, number, y, place, caches[number])
            if style.apart:
                y = _normalized(model, w, f"{at}.{style.before[1]}", x)
            if style.after[0]:
                attended = _normalized(model, w, f"{at}.{style.after[0]}", attended)
            x = x + attended * style.result_scale
            if not style.parallel:
                y = _normalized(model, w, f"{at}.{style.before[1]}", x) if style.before[1] else x
            y = _behind(model, w, number, y)
            if style.after[1]:
                y = _normalized(model, w, f"{at}.{style.after[1]}", y)
            x = x + y * style.result_scale
        y = _normalized(model, w, f"model.{style.last_norm}", x)
        y = table @ y if model.tied else _linear(w, "lm_head", y)
        found.append(_capped(y * style.logit_scale, style.logit_cap))
    return np.array(found)


def _whole(model: Llama) -> Weights:
    """The weights, those of low rank as products."""
    w = {name: array.astype(np.float64) for name, array in model.tensors.items()}
    outer, inner = (f"{end}.weight" for end in model.style.factors)
    for name in [name for name in w if name.endswith(outer)]:
        stem = name.removesuffix(outer)
        w[f"{stem}_proj.weight"] = w[name] @ w[stem + inner]
    return w


def _attention(
    model: Llama,
    w: Weights,
    number: int,
    y: Array,
    place: int,
    caches: Caches,
) -> Array:
    at, style = f"model.layers.{number}.self_attn", model.style
    if style.fused:
        heads = _linear(w, f"{at}.qkv_proj", y).reshape(-1, model.size)
        q, k, v = np.split(heads, [model.queries, model.queries + model.keys])
    else:
        q, k, v = (_linear(w, f"{at}.{c}_proj", y).reshape(-1, model.size) for c in "qkv")
    if style.input_cap is not None:
        q, k, v = (np.clip(rows, -style.input_cap, style.input_cap) for rows in (q, k, v))
    if model.norms:
        q, k = (
            _heads_normalized(model, w, f"{at}.{letter}_{style.norm}", rows)
            for rows, letter in ((q, "q"), (k, "k"))
        )
    if number not in style.still:
        q, k = (_rotated(model, x, place, number) for x in (q, k))
    keys, values = caches.keys, caches.values
    keys.append(caches.stored(k))
    values.append(caches.stored(v))
    window = style.windows[number] if style.windows else None
    first = 0 if window is None else max(0, len(keys) - window)
    scale = model.size**-0.5 if style.query_scale is None else style.query_scale
    results = []
    for query in range(len(q)):
        shared = query // (len(q) // len(k))
        k_rows = np.array([row[shared] for row in keys[first:]])
        scores = _capped(k_rows @ q[query] * scale, style.score_cap)
        share = np.exp(scores - scores.max())
        v_rows = np.array([row[shared] for row in values[first:]])
        results.append(share / share.sum() @ v_rows)
    return _linear(w, f"{at}.{style.output}", np.concatenate(results))


def _heads_normalized(model: Llama, w: Weights, name: str, rows: Array) -> Array:
    match model.style.head_norm:
        case "joint":
            return _normalized(model, w, name, rows.reshape(-1)).reshape(rows.shape)
        case "single":
            named = [(f"{name}.norms.{one}", row) for one, row in enumerate(rows)]
        case "stacked":
            unit = np.array([(row - row.mean()) / np.sqrt(row.var() + EPSILON) for row in rows])
            return np.asarray(unit * w[f"{name}.weight"])
        case _:
            named = [(name, row) for row in rows]
    return np.array([_normalized(model, w, name, row) for name, row in named])


def _behind(model: Llama, w: Weights, number: int, y: Array) -> Array:
    """One gated product, or the experts of the token by their shares."""
    at, mixture = f"model.layers.{number}", model.style.mixture
    if mixture is None or number in mixture.without:
        return _products(model, w, f"{at}.mlp", y)
    at = f"{at}.{mixture.at}"
    likely = np.exp(_linear(w, f"{at}.gate", y))
    likely /= likely.sum()
    chosen = np.argsort(-likely)[: mixture.chosen]
    total = likely[chosen].sum() if mixture.normalized else 1
    found = np.zeros_like(y)
    for one in chosen:
        gate, up, down = (f"{at}.experts.{one}.{name}" for name in mixture.names)
        hidden = _activated(model, _linear(w, gate, y)) * _linear(w, up, y)
        found += likely[one] / total * _linear(w, down, hidden)
    if mixture.shared:
        share = 1 / (1 + np.exp(-_linear(w, f"{at}.shared_expert_gate", y)))
        found += share * _products(model, w, f"{at}.shared_expert", y)
    return found


def _products(model: Llama, w: Weights, at: str, y: Array) -> Array:
    if model.style.plain is not None:
        inner, outer = model.style.plain
        return _linear(w, f"{at}.{outer}", _activated(model, _linear(w, f"{at}.{inner}", y)))
    if model.style.gate_fused:
        gate, up = np.split(_linear(w, f"{at}.gate_up_proj", y), 2)
    else:
        gate, up = (_linear(w, f"{at}.{name}_proj", y) for name in ("gate", "up"))
    return _linear(w, f"{at}.down_proj", _activated(model, gate) * up)


def _activated(model: Llama, x: Array) -> Array:
    match model.style.activation:
        case "silu":
            return np.asarray(x / (1 + np.exp(-x)))
        case "quick_gelu":
            return np.asarray(x / (1 + np.exp(-1.702 * x)))
        case "relu2":
            return np.asarray(np.maximum(x, 0) ** 2)
        case "relu":
            return np.maximum(x, 0)
        case "gelu":
            return np.asarray(x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(x * (1 + np.tanh(inner)) / 2)


def _capped(x: Array, cap: float | None) -> Array:
    return x if cap is None else np.asarray(cap * np.tanh(x / cap))


def _linear(w: Weights, name: str, x: Array) -> Array:
    y = w[f"{name}.weight"] @ x
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def _normalized(model: Llama, w: Weights, name: str, x: Array) -> Array:
    scale = w.get(f"{name}.weight", 1 - model.style.offset) + model.style.offset
    if model.style.centered:
        x = x - x.mean()
        return np.asarray(x / np.sqrt(x.var() + EPSILON) * scale + w.get(f"{name}.bias", 0))
    return np.asarray(x / np.sqrt(np.mean(x * x) + EPSILON) * scale)


def _rotated(model: Llama, x: Array, place: int, layer: int) -> Array:
    """Each pair of numbers, neighbors or half of those that are rotated apart, is a complex number
    that is multiplied."""
    size = model.style.rotated or model.size
    half = size // 2
    windowed = bool(model.style.windows) and model.style.windows[layer] is not None
    local = model.style.local_theta if windowed else None
    steps, factor = zip(*[_frequency(model, i, size, local) for i in range(half)], strict=True)
    first, second = (x[:, :half], x[:, half:size])
    if model.style.neighbors:
        first, second = (x[:, :size:2], x[:, 1:size:2])
    pairs = (first + 1j * second) * np.exp(1j * place * np.array(steps)) * np.array(factor)
    if model.style.neighbors:
        rotated = np.stack([pairs.real, pairs.imag], axis=2).reshape(len(x), size)
        return np.concatenate([rotated, x[:, size:]], axis=1)
    return np.concatenate([pairs.real, pairs.imag, x[:, size:]], axis=1)


def _frequency(model: Llama, number: int, size: int, local: float | None) -> tuple[float, float]:
    """The angle of one step, and the factor of the result."""
    if local is not None:
        return float(local ** (-2 * number / size)), 1.0
    theta = model.fields["rope_theta"]
    plain = float(theta ** (-2 * number / size))
    scaling = model.config.get("rope_scaling")
    if scaling is None or scaling.get("type") == "dynamic":
        return plain, 1.0
    if scaling.get("rope_type") == "linear":
        return plain / float(scaling["factor"]), 1.0
    if scaling.get("rope_type") == "yarn":
        return _yarn(scaling, plain, number, size, theta)
    if scaling.get("type") == "longrope":
        ratio = model.fields["max_position_embeddings"] / 200
        factor = math.sqrt(1 + math.log(ratio) / math.log(200))
        return plain / scaling["short_factor"][number], factor
    wavelength = 2 * np.pi / plain
    low, high = (64 / LLAMA3[f"{end}_freq_factor"] for end in ("low", "high"))  # type: ignore[operator]
    if wavelength < high:
        return plain, 1.0
    if wavelength > low:
        return plain / 8, 1.0
    smooth = (64 / wavelength - 1) / 3
    return float((1 - smooth) * plain / 8 + smooth * plain), 1.0


def _yarn(
    scaling: Mapping[str, float], plain: float, number: int, size: int, theta: float
) -> tuple[float, float]:
    """Equations 16 to 22 of the paper, with the bounds of pairs rounded to whole pairs outwards."""
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = (
        size * math.log(context / (cycles * 2 * math.pi)) / (2 * math.log(theta))
        for cycles in (32, 1)
    )
    low, high = max(math.floor(low), 0), min(math.ceil(high), size - 1)
    ramp = min(max((number - low) / (high - low), 0), 1)
    return (1 - ramp) * plain + ramp * plain / factor, 0.1 * math.log(factor) + 1
