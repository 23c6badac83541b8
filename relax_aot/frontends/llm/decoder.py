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
from itertools import product
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.llm.checkpoint import Checkpoint, Ordered, Transposed
from relax_aot.frontends.llm.config import MOST_LAYERS, Config
from relax_aot.frontends.llm.experts import Experts, mixed
from relax_aot.frontends.llm.layers import ACTIVATIONS, Heads, Net, Sight
from relax_aot.frontends.llm.rotary import FULL, SLIDING, Rotation, parameters, rotation
from relax_aot.ir.graph import Var

TABLE, PLACES, HEAD = "model.embed_tokens", "model.embed_positions", "lm_head"
"""The names of the tables of embeddings, of positions and of logits."""
ROWS = 1024
"""Of tables that are compared at a time."""
_COMPUTED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Old checkpoints hold frequencies that follow from the configuration."""


Angles = Sequence[tuple[Var, Var]]
"""Cosines and sines of each rotation."""
OUTER = ("proj", "proj.ALinear", "u_proj")
"""The ends of names of weights whose rows are numbers of heads."""
BEHIND = "post_attention_layernorm"
"""The name of the norm of the rows behind attention."""
RESULTS = (BEHIND, "pre_feedforward_layernorm", "post_feedforward_layernorm")
SHARED, SINGLE, JOINT = "shared", "single", "joint"
"""Norms of queries and keys: of each head by weights that heads share, of each head by weights of
its own, or of all heads together."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What may differ from layer to layer."""

    window: int | None = None
    """Attention sees so many tokens, the newest among them; None: all."""
    rotation: int | None = 0
    """Which rotation of the shape; None: queries and keys know no positions."""
    heads: Heads | None = None
    hidden: int | None = None
    """Where layers are of unequal widths; None: those of the shape."""
    experts: Experts | None = None
    """What is behind attention, if it is not one gated product."""


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
    input_cap: float | None = None
    """Numbers of queries, keys and values lie between this bound and its negative."""
    mlp_bias: bool = False
    head_norm: str | None = None
    """How queries and keys are normalized before they are rotated; None: not at all."""
    input_norm: bool = True
    """Whether the rows in front of attention and of the products behind it are normalized."""
    result_norm: bool = False
    """Whether the results of attention and of the products behind it are normalized."""
    norm_offset: float = 0.0
    """What is added to the weights of norms."""
    norm_parts: tuple[str, ...] = ("weight", "bias")
    """Which of them centered norms have."""
    norm_names: tuple[str, str, str] = RESULTS
    """Of the norms of the result of attention, of the rows behind it, and of the results of the
    products, where results are normalized."""
    head_norms: str = "norm"
    """What ends the names of the norms of queries and keys."""
    names: tuple[tuple[str, str | None], ...] = ()
    """What the file calls weights, as regular expressions, and their names here; None: not read."""
    transposed: bool = False
    """Whether products are stored with inputs as rows."""
    joined: bool = False
    """Whether one tensor holds queries, keys and values of one head after the other."""
    positions: int | None = None
    """How many rows of a table of positions, which are added to the embeddings, are in front of the
    first one; None: without such a table."""
    paired: bool = False
    """Whether neighbors in a head are rotated together, instead of numbers half a head apart."""
    activation: str = "silu"
    """One of ACTIVATIONS."""
    row_scale: float = 1.0
    """Of the rows of the table of embeddings."""
    result_scale: float = 1.0
    """Of what attention and the products behind it add to the rows."""
    logit_scale: float = 1.0
    score_scale: float | None = None
    """None: that of the size of heads."""
    score_cap: float | None = None
    logit_cap: float | None = None
    centered: bool = False
    """Norms subtract the mean."""
    output: str = "o_proj"
    """The name of the product behind attention."""
    last_norm: str = "norm"
    head_bias: bool = False
    """Whether logits have a bias."""
    plain: tuple[str, str] | None = None
    """The names of two products with an activation between them, in place of a gated product."""
    parallel: bool = False
    """Whether attention and the products read the same rows."""
    parallel_norm: bool = False
    """Whether these are normalized for the products by a norm of their own."""


def shape_of(config: Config, share: float = 1.0) -> Shape:
    """The fields that all architectures have, checked, with the defaults of the format. `share`:
    the part of each head that is rotated; 0: queries and keys know no positions."""
    config.only("hidden_act", *ACTIVATIONS)
    config.only("quantization_config")
    if share == 1:
        for at in (config, parameters(config) or config):
            at.only("partial_rotary_factor", 1, 1.0)
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
        layers=(Layer(rotation=0 if share else None),)
        * config.size("num_hidden_layers", most=MOST_LAYERS),
        heads=heads,
        epsilon=config.number("rms_norm_eps", 1e-6),
        rotations=(rotation(config, int(heads.size * share)),) if share else (),
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


def windowed_everywhere(config: Config, shape: Shape) -> Shape:
    """With windows in all layers; `layer_types` is not read, as in transformers."""
    fields = {name: value for name, value in config.fields.items() if name != "layer_types"}
    return windowed(Config(config.file, fields), shape, lambda _: True)


def without_scaling(config: Config) -> Config:
    """Without what it says of the scaling of positions."""
    return Config(config.file, {**config.fields, "rope_scaling": None, "rope_parameters": None})


def without_shared_keys(config: Config, **fields: Any) -> Config:
    """With other values of fields, for architectures that have as many heads of keys as of queries,
    and no size of heads of their own."""
    alone = {"num_key_value_heads": None, "head_dim": None}
    return Config(config.file, {**config.fields, **alone, **fields})


def rotated_by_windows(shape: Shape, rotations: tuple[Rotation, Rotation]) -> Shape:
    """With the first rotation in layers without windows, and the second one in others."""
    layers = [replace(layer, rotation=int(layer.window is not None)) for layer in shape.layers]
    return replace(shape, layers=tuple(layers), rotations=rotations)


def late_windows(config: Config, shape: Shape) -> Shape:
    """The windows of Qwen2 and Qwen3: of the last layers, if they are used."""
    first = config.count("max_window_layers", 28)
    return used_windows(config, shape, lambda number: number >= first)


def used_windows(config: Config, shape: Shape, slides: Callable[[int], bool]) -> Shape:
    """With windows, if the configuration says that they are used."""
    if not config.flag("use_sliding_window"):
        config = Config(config.file, {**config.fields, "sliding_window": None})
    return windowed(config, shape, slides)


def within(shape: Shape, context: int) -> Shape:
    """For so many tokens: windows that hide none of them are left out."""
    layers = tuple(
        replace(layer, window=None)
        if layer.window is not None and layer.window >= context
        else layer
        for layer in shape.layers
    )
    return replace(shape, layers=layers)


def separate(checkpoint: Checkpoint, shape: Shape) -> Shape:
    """With a table of logits of its own, if the checkpoint has one that differs from that of
    embeddings, although the configuration says that they are tied."""
    names = (f"{TABLE}.weight", f"{HEAD}.weight")
    if not shape.tied or not all(name in checkpoint.tensors for name in names):
        return shape
    first, second = (checkpoint.weights(name, (shape.words, shape.width)) for name in names)
    same = all(
        np.array_equal(first[start : start + ROWS], second[start : start + ROWS])
        for start in range(0, shape.words, ROWS)
    )
    return replace(shape, tied=same)


def divided(checkpoint: Checkpoint, shape: Shape) -> Checkpoint:
    """With a tensor for each product, where the checkpoint has one for several."""
    q, k = (count * shape.heads.size for count in (shape.heads.queries, shape.heads.keys))
    rows = {
        "self_attn.qkv_proj": {"self_attn.q_proj": q, "self_attn.k_proj": k, "self_attn.v_proj": k},
        "mlp.gate_up_proj": {"mlp.gate_proj": shape.hidden, "mlp.up_proj": shape.hidden},
    }
    for number, end in product(range(len(shape.layers)), ("weight", "bias")):
        at = f"model.layers.{number}"
        for name, parts in rows.items():
            whole = f"{at}.{name}.{end}"
            named = {f"{at}.{part}.{end}": size for part, size in parts.items()}
            checkpoint = checkpoint.divided(whole, named)
    return checkpoint


def arranged(checkpoint: Checkpoint, shape: Shape) -> Checkpoint:
    """With the names and orders of weights that the parts of the model have here."""
    checkpoint = checkpoint.renamed(shape.names)
    tensors = {**checkpoint.tensors}
    heads = shape.heads
    order = np.arange(3 * heads.queries * heads.size).reshape(heads.queries, 3, heads.size)
    for name, tensor in checkpoint.tensors.items():
        if shape.transposed and name.endswith(("proj.weight", "fc1.weight", "fc2.weight")):
            tensors[name] = Transposed(tensor)
        if shape.joined and "qkv_proj" in name:
            rows = tuple(order.swapaxes(0, 1).reshape(-1).tolist())
            tensors[name] = Ordered(tensor, rows, True)
    return halved(divided(replace(checkpoint, tensors=tensors), shape), shape)


def halved(checkpoint: Checkpoint, shape: Shape) -> Checkpoint:
    """With queries and keys whose numbers are in the order of halves, where neighbors are rotated
    together. Their products stay as they are, since both have one order."""
    if not shape.paired:
        return checkpoint
    size, rotated = shape.heads.size, 2 * len(shape.rotations[0].frequencies)
    order = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, size)]
    tensors = {**checkpoint.tensors}
    for number, letter in product(range(len(shape.layers)), "qk"):
        stem = f"model.layers.{number}.self_attn.{letter}_"
        names = {f"{outer}.{end}" for outer in OUTER for end in ("weight", "bias")}
        for end in sorted(names | {f"{shape.head_norms}.weight"}):
            whole = tensors.get(stem + end)
            if whole is not None and not isinstance(whole, Ordered):
                tensors[stem + end] = Ordered(whole, tuple(order), end in names)
    return replace(checkpoint, tensors=tensors)


def build(net: Net, shape: Shape, tokens: Var, *, every_row: bool) -> Var:
    """The logits of the last token, or of `every_row`."""
    table = net.matrix(f"{TABLE}.weight", shape.words, shape.width)
    angles = [net.rotation(one, "model.rotary_emb") for one in shape.rotations]
    if all(layer.window in net.windows for layer in shape.layers):
        net.counted()
    x = net.embedding(tokens, table, TABLE)
    x = net.scaled(x, shape.row_scale, TABLE)
    if shape.positions is not None:
        places = net.positions(PLACES, shape.longest, shape.width, shape.positions)
        x = net.call("add", x, places, at=PLACES)
    net.narrowed = None if every_row else len(shape.layers) - 1
    for number in range(len(shape.layers)):
        x = layer(net, shape, x, angles, number)
    x = norm(net, shape, x, f"model.{shape.last_norm}")
    if not shape.tied:
        table = net.matrix(f"{HEAD}.weight", shape.words, shape.width)
    bias = net.vector(f"{HEAD}.bias", shape.words) if shape.head_bias else None
    logits = net.scaled(net.product(x, table, HEAD, bias), shape.logit_scale, HEAD)
    return net.capped(logits, shape.logit_cap, HEAD)


def ignored(shape: Shape, name: str) -> bool:
    """Weights of the checkpoint that the model does not read."""
    return (shape.tied and name == f"{HEAD}.weight") or _COMPUTED.fullmatch(name) is not None


def norm(net: Net, shape: Shape, x: Var, at: str) -> Var:
    """The rows, normalized by the weights of `at`."""
    if shape.centered:
        return net.layer_norm(x, shape.epsilon, at, shape.norm_parts, shape.norm_offset)
    return net.rms_norm(x, shape.epsilon, at, shape.norm_offset)


def layer(net: Net, shape: Shape, x: Var, angles: Angles, number: int) -> Var:
    """The rows behind the layer with a number that are read, from the rows [n, width] in front of
    it."""
    at = f"model.layers.{number}"
    y = norm(net, shape, x, f"{at}.input_layernorm") if shape.input_norm else x
    first, before, last = shape.norm_names if shape.result_norm else ("", BEHIND, "")
    attended = _result(net, shape, attention(net, shape, y, angles, number), at, first)
    x, y = (net.leaving(one, number, at) for one in (x, y))
    if shape.parallel:
        if shape.parallel_norm:
            y = norm(net, shape, x, f"{at}.{BEHIND}")
        y = _result(net, shape, _products(net, shape, y, number), at, last)
        return net.call("add", x, net.call("add", attended, y, at=at), at=at)
    x = net.call("add", x, attended, at=at)
    y = norm(net, shape, x, f"{at}.{before}") if shape.input_norm else x
    y = _result(net, shape, _products(net, shape, y, number), at, last)
    return net.call("add", x, y, at=at)


def _result(net: Net, shape: Shape, y: Var, at: str, name: str) -> Var:
    """What a part of a layer adds to the rows. `name`: of the norm of its result, if it has one."""
    if name:
        y = norm(net, shape, y, f"{at}.{name}")
    return net.scaled(y, shape.result_scale, at)


def _products(net: Net, shape: Shape, y: Var, number: int) -> Var:
    """What is behind attention: one gated product or a plain one, or a mixture of gated ones."""
    at, own = f"model.layers.{number}", shape.layers[number]
    experts = own.experts
    if experts is None:
        form = _gated if shape.plain is None else _plain
        return form(net, shape, y, own.hidden or shape.hidden, f"{at}.mlp")
    at = f"{at}.{experts.at}"
    found = mixed(net, experts, shape.activation, y, at)
    if not experts.shared:
        return found
    all_take = _gated(net, shape, y, experts.shared, f"{at}.shared_expert")
    share = net.call("sigmoid", net.linear(y, 1, f"{at}.shared_expert_gate"), at=at)
    return net.call("add", found, net.call("mul", share, all_take, at=at), at=at)


def _gated(net: Net, shape: Shape, y: Var, hidden: int, at: str) -> Var:
    """A gated product (Shazeer, arXiv:2002.05202)."""
    gate = net.linear(y, hidden, f"{at}.gate_proj", bias=shape.mlp_bias)
    up = net.linear(y, hidden, f"{at}.up_proj", bias=shape.mlp_bias)
    y = net.call("mul", net.activated(gate, shape.activation, at), up, at=at)
    return net.linear(y, shape.width, f"{at}.down_proj", bias=shape.mlp_bias)


def _plain(net: Net, shape: Shape, y: Var, hidden: int, at: str) -> Var:
    """A product, the activation, and a product."""
    assert shape.plain is not None
    inner, outer = (f"{at}.{name}" for name in shape.plain)
    y = net.activated(net.linear(y, hidden, inner, bias=shape.mlp_bias), shape.activation, at)
    return net.linear(y, shape.width, outer, bias=shape.mlp_bias)


def attention(net: Net, shape: Shape, y: Var, angles: Angles, number: int) -> Var:
    """Attention of the rows that are read behind it to those that the caches hold, and to each
    other."""
    at, own = f"model.layers.{number}.self_attn", shape.layers[number]
    heads = own.heads or shape.heads

    def projected(letter: str, count: int, y: Var = y) -> Var:
        found = net.linear(y, count * heads.size, f"{at}.{letter}_proj", bias=shape.input_bias)
        if shape.head_norm == JOINT and letter != "v":
            found = norm(net, shape, found, f"{at}.{letter}_{shape.head_norms}")
        if shape.input_cap is not None:
            found = net.bounded(found, shape.input_cap, at)
        return net.reshape(found, y.type.shape[0], count, heads.size, at=f"{at}.{letter}_proj")

    def rotated(letter: str, count: int, y: Var = y) -> Var:
        x = projected(letter, count, y)
        if shape.head_norm == SHARED:
            x = norm(net, shape, x, f"{at}.{letter}_{shape.head_norms}")
        if shape.head_norm == SINGLE:
            x = net.head_norms(x, shape.epsilon, f"{at}.{letter}_{shape.head_norms}")
        if own.rotation is None:
            return x
        cos, sin = angles[own.rotation]
        if y is leaving:
            cos, sin = (net.leaving(one, number, at) for one in (cos, sin))
        return net.rotated(x, (cos, sin), f"{at}.{letter}_rotated")

    leaving = net.leaving(y, number, at)
    q, k = rotated("q", heads.queries, leaving), rotated("k", heads.keys)
    past = net.kept(own.window)
    keys = net.cached(k, f"k{number}", (1, 2, 0), f"{at}.keys", past)
    v = projected("v", heads.keys)
    values = net.cached(v, f"v{number}", (1, 0, 2), f"{at}.values", past)
    scale = heads.size**-0.5 if shape.score_scale is None else shape.score_scale
    sight = Sight(scale, own.window, shape.score_cap)
    found = net.attention(q, keys, values, heads, sight, at)
    return net.linear(found, shape.width, f"{at}.{shape.output}", bias=shape.output_bias)
