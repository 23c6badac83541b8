# SPDX-License-Identifier: Apache-2.0
"""The form that most architectures share, of which each is a variation (Llama: Touvron et al.,
arXiv:2302.13971), with the names of weights that Hugging Face gives them.

Each layer adds to the rows: attention with rotary positions of the normalized rows, and a gated
product of the normalized rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from relax_aot.frontends import ModelError
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.layers import Heads, Net
from relax_aot.frontends.llm.rotary import frequencies
from relax_aot.ir.graph import Var
from relax_aot.ops._op import Array

_COMPUTED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Old checkpoints hold frequencies that follow from the configuration."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a configuration says. An architecture changes the fields in which it differs."""

    words: int
    width: int
    hidden: int
    layers: int
    heads: Heads
    epsilon: float
    frequencies: Array
    tied: bool
    longest: int
    """The number of tokens that attention sees, and that the model was trained for."""
    input_bias: bool = False
    """Whether queries, keys and values have a bias."""
    output_bias: bool = False
    """Whether the result of attention has one."""
    mlp_bias: bool = False
    head_norm: bool = False
    """Whether queries and keys are normalized before they are rotated."""


def shape_of(config: Config) -> Shape:
    """The fields that all architectures have, checked, with the defaults of the format."""
    config.only("hidden_act", "silu")
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
        layers=config.size("num_hidden_layers"),
        heads=heads,
        epsilon=config.number("rms_norm_eps", 1e-6),
        frequencies=frequencies(config, heads.size),
        tied=config.flag("tie_word_embeddings"),
        longest=config.size("max_position_embeddings"),
    )


def seen(config: Config, shape: Shape) -> int:
    """The number of tokens for which a sliding window hides none."""
    return min(shape.longest, config.size("sliding_window", shape.longest))


def build(net: Net, shape: Shape, tokens: Var, *, every_row: bool) -> Var:
    """The logits of the last token, or of `every_row`."""
    table = net.matrix("model.embed_tokens.weight", shape.words, shape.width)
    rotation = net.rotation(shape.frequencies, "model.rotary_emb")
    x = net.embedding(tokens, table, "model.embed_tokens")
    for number in range(shape.layers):
        x = _layer(net, shape, x, rotation, number)
    if not every_row:
        x = net.last_row(x, "model.norm")
    x = net.rms_norm(x, shape.epsilon, "model.norm")
    if not shape.tied:
        table = net.matrix("lm_head.weight", shape.words, shape.width)
    return net.product(x, table, "lm_head")


def ignored(shape: Shape, name: str) -> bool:
    """Weights of the checkpoint that the model does not read."""
    return (shape.tied and name == "lm_head.weight") or _COMPUTED.fullmatch(name) is not None


def _layer(net: Net, shape: Shape, x: Var, rotation: tuple[Var, Var], number: int) -> Var:
    at = f"model.layers.{number}"
    y = net.rms_norm(x, shape.epsilon, f"{at}.input_layernorm")
    x = net.call("add", x, _attention(net, shape, y, rotation, number), at=at)
    y = net.rms_norm(x, shape.epsilon, f"{at}.post_attention_layernorm")
    gate = net.linear(y, shape.hidden, f"{at}.mlp.gate_proj", bias=shape.mlp_bias)
    up = net.linear(y, shape.hidden, f"{at}.mlp.up_proj", bias=shape.mlp_bias)
    y = net.gated(gate, up, f"{at}.mlp")
    y = net.linear(y, shape.width, f"{at}.mlp.down_proj", bias=shape.mlp_bias)
    return net.call("add", x, y, at=at)


def _attention(net: Net, shape: Shape, y: Var, rotation: tuple[Var, Var], number: int) -> Var:
    at, heads = f"model.layers.{number}.self_attn", shape.heads

    def projected(letter: str, count: int) -> Var:
        found = net.linear(y, count * heads.size, f"{at}.{letter}_proj", bias=shape.input_bias)
        return net.reshape(found, net.rows, count, heads.size, at=f"{at}.{letter}_proj")

    def rotated(letter: str, count: int) -> Var:
        x = projected(letter, count)
        if shape.head_norm:
            x = net.rms_norm(x, shape.epsilon, f"{at}.{letter}_norm")
        return net.rotated(x, rotation, f"{at}.{letter}_rotated")

    q, k = rotated("q", heads.queries), rotated("k", heads.keys)
    k = net.call("transpose", k, at=f"{at}.keys", perm=(1, 2, 0))
    k = net.cached(k, f"k{number}", 2, f"{at}.keys")
    v = net.cached(projected("v", heads.keys), f"v{number}", 0, f"{at}.values")
    found = net.attention(q, k, v, heads, at)
    return net.linear(found, shape.width, f"{at}.o_proj", bias=shape.output_bias)
