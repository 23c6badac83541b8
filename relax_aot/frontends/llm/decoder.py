# SPDX-License-Identifier: Apache-2.0
"""The form that most architectures share, of which each is a variation (Llama: Touvron et al.,
arXiv:2302.13971), with the names of weights that Hugging Face gives them.

Each layer adds to the rows: attention with rotary positions of the normalized rows, and a gated
product of the normalized rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from relax_aot.frontends import ModelError
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.layers import ACTIVATIONS, Heads, Net, Sight
from relax_aot.frontends.llm.rotary import Rotation, rotation
from relax_aot.ir.graph import Var

MOST_LAYERS = 2**12
FULL, SLIDING = "full_attention", "sliding_attention"
"""The types of layers by their names in `layer_types`."""

_COMPUTED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Old checkpoints hold frequencies that follow from the configuration."""


Angles = Sequence[tuple[Var, Var]]
"""Cosines and sines of each rotation."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What may differ from layer to layer."""

    window: int | None = None
    """Attention sees so many tokens, the newest among them; None: all."""
    rotation: int | None = 0
    """Which rotation of the shape; None: queries and keys know no positions."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a configuration says. An architecture changes the fields in which it differs."""

    words: int
    width: int
    hidden: int
    layers: tuple[Layer, ...]
    heads: Heads
    epsilon: float
    rotations: tuple[Rotation, ...]
    tied: bool
    longest: int
    """The number of tokens that the model was trained for."""
    input_bias: bool = False
    """Whether queries, keys and values have a bias."""
    output_bias: bool = False
    """Whether the result of attention has one."""
    mlp_bias: bool = False
    head_norm: bool = False
    """Whether queries and keys are normalized before they are rotated."""
    result_norm: bool = False
    """Whether the results of attention and of the products behind it are normalized."""
    norm_offset: float = 0.0
    """What is added to the weights of norms."""
    activation: str = "silu"
    """One of ACTIVATIONS."""
    row_scale: float = 1.0
    """Of the rows of the table of embeddings."""
    score_scale: float | None = None
    """None: that of the size of heads."""
    score_cap: float | None = None
    logit_cap: float | None = None


def shape_of(config: Config) -> Shape:
    """The fields that all architectures have, checked, with the defaults of the format."""
    config.only("hidden_act", *ACTIVATIONS)
    config.only("quantization_config")
    config.only("partial_rotary_factor", 1, 1.0)
    width, queries = config.size("hidden_size"), config.size("num_attention_heads")
    keys = config.size("num_key_value_heads", queries)
    if queries % keys:
        raise ModelError(f"{config.file}: {queries} heads of queries for {keys} heads of keys")
    if "head_dim" not in config and width % queries:
        raise ModelError(f"{config.file}: hidden_size {width} for {queries} heads, and no head_dim")
    heads = Heads(queries, keys, config.size("head_dim", max(width // queries, 1)))
    return Shape(
        words=config.size("vocab_size"),
        width=width,
        hidden=config.size("intermediate_size"),
        layers=(Layer(),) * config.size("num_hidden_layers", most=MOST_LAYERS),
        heads=heads,
        epsilon=config.number("rms_norm_eps", 1e-6),
        rotations=(rotation(config, heads.size),),
        tied=config.flag("tie_word_embeddings"),
        longest=config.size("max_position_embeddings"),
        activation=config.fields.get("hidden_act") or "silu",
    )


def windowed(config: Config, shape: Shape, slides: Callable[[int], bool]) -> Shape:
    """With windows in the layers that `layer_types` names, or without it in those that slide."""
    types = config.each("layer_types", len(shape.layers), FULL, SLIDING)
    if "sliding_window" not in config:
        if types is not None and SLIDING in types:
            raise ModelError(f"{config.file} has no field sliding_window")
        return shape
    window = config.size("sliding_window")
    layers: Sequence[Layer] = [
        replace(layer, window=window)
        if (slides(number) if types is None else types[number] == SLIDING)
        else layer
        for number, layer in enumerate(shape.layers)
    ]
    return replace(shape, layers=tuple(layers))


def late_windows(config: Config, shape: Shape) -> Shape:
    """The windows of Qwen2 and Qwen3: of the last layers, if they are used."""
    if not config.flag("use_sliding_window"):
        return shape
    first = config.fields.get("max_window_layers", 28)
    if isinstance(first, bool) or not isinstance(first, int):
        raise config.wrong("max_window_layers", "a number of layers")
    return windowed(config, shape, lambda number: number >= first)


def within(shape: Shape, context: int) -> Shape:
    """For so many tokens: windows that hide none of them are left out."""
    layers = tuple(
        replace(layer, window=None)
        if layer.window is not None and layer.window >= context
        else layer
        for layer in shape.layers
    )
    return replace(shape, layers=layers)


def build(net: Net, shape: Shape, tokens: Var, *, every_row: bool) -> Var:
    """The logits of the last token, or of `every_row`."""
    table = net.matrix("model.embed_tokens.weight", shape.words, shape.width)
    angles = [net.rotation(one, "model.rotary_emb") for one in shape.rotations]
    x = net.embedding(tokens, table, "model.embed_tokens")
    if shape.row_scale != 1.0:
        x = net.times(x, shape.row_scale, "model.embed_tokens")
    for number in range(len(shape.layers)):
        x = _layer(net, shape, x, angles, number)
    if not every_row:
        x = net.last_row(x, "model.norm")
    x = _norm(net, shape, x, "model.norm")
    if not shape.tied:
        table = net.matrix("lm_head.weight", shape.words, shape.width)
    return net.capped(net.product(x, table, "lm_head"), shape.logit_cap, "lm_head")


def ignored(shape: Shape, name: str) -> bool:
    """Weights of the checkpoint that the model does not read."""
    return (shape.tied and name == "lm_head.weight") or _COMPUTED.fullmatch(name) is not None


def _norm(net: Net, shape: Shape, x: Var, at: str) -> Var:
    return net.rms_norm(x, shape.epsilon, at, shape.norm_offset)


def _layer(net: Net, shape: Shape, x: Var, angles: Angles, number: int) -> Var:
    at = f"model.layers.{number}"
    y = _attention(net, shape, _norm(net, shape, x, f"{at}.input_layernorm"), angles, number)
    if shape.result_norm:
        y = _norm(net, shape, y, f"{at}.post_attention_layernorm")
    x = net.call("add", x, y, at=at)
    before = "pre_feedforward_layernorm" if shape.result_norm else "post_attention_layernorm"
    y = _gated(net, shape, _norm(net, shape, x, f"{at}.{before}"), f"{at}.mlp")
    if shape.result_norm:
        y = _norm(net, shape, y, f"{at}.post_feedforward_layernorm")
    return net.call("add", x, y, at=at)


def _gated(net: Net, shape: Shape, y: Var, at: str) -> Var:
    """A gated product (Shazeer, arXiv:2002.05202)."""
    gate = net.linear(y, shape.hidden, f"{at}.gate_proj", bias=shape.mlp_bias)
    up = net.linear(y, shape.hidden, f"{at}.up_proj", bias=shape.mlp_bias)
    y = net.call("mul", net.activated(gate, shape.activation, at), up, at=at)
    return net.linear(y, shape.width, f"{at}.down_proj", bias=shape.mlp_bias)


def _attention(net: Net, shape: Shape, y: Var, angles: Angles, number: int) -> Var:
    at, heads = f"model.layers.{number}.self_attn", shape.heads
    layer = shape.layers[number]

    def projected(letter: str, count: int) -> Var:
        found = net.linear(y, count * heads.size, f"{at}.{letter}_proj", bias=shape.input_bias)
        return net.reshape(found, net.rows, count, heads.size, at=f"{at}.{letter}_proj")

    def rotated(letter: str, count: int) -> Var:
        x = projected(letter, count)
        if shape.head_norm:
            x = _norm(net, shape, x, f"{at}.{letter}_norm")
        if layer.rotation is None:
            return x
        return net.rotated(x, angles[layer.rotation], f"{at}.{letter}_rotated")

    q, k = rotated("q", heads.queries), rotated("k", heads.keys)
    k = net.call("transpose", k, at=f"{at}.keys", perm=(1, 2, 0))
    k = net.cached(k, f"k{number}", 2, f"{at}.keys")
    v = net.cached(projected("v", heads.keys), f"v{number}", 0, f"{at}.values")
    scale = heads.size**-0.5 if shape.score_scale is None else shape.score_scale
    sight = Sight(scale, layer.window, shape.score_cap)
    found = net.attention(q, k, v, heads, sight, at)
    return net.linear(found, shape.width, f"{at}.o_proj", bias=shape.output_bias)
