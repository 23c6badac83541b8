# SPDX-License-Identifier: Apache-2.0
"""GPT-2 (Radford et al., 2019): attention and a product with GELU behind centered norms; a row of a
table for each position is added to the embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "GPT2LMHeadModel", "gpt2"
LONGEST = 1024
DEFAULTS: Mapping[str, Any] = {}
FIELDS = {
    "n_embd": "hidden_size", "n_positions": "max_position_embeddings",
    "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
}  # fmt: skip
"""Names of fields, and what other architectures call them."""
NAMES = (
    (r"\.attn\.(bias|masked_bias)$", None),
    (r"^transformer\.", ""),
    (r"^h\.", "model.layers."),
    (r"^wte\.", f"{decoder.TABLE}."),
    (r"^wpe\.", f"{decoder.PLACES}."),
    (r"^ln_f\.", "model.norm."),
    (r"\.ln_1\.", ".input_layernorm."),
    (r"\.ln_2\.", f".{decoder.BEHIND}."),
    (r"\.attn\.c_attn\.", ".self_attn.qkv_proj."),
    (r"\.attn\.c_proj\.", ".self_attn.o_proj."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
)


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    own = {ours: config.fields[name] for name, ours in FIELDS.items() if name in config}
    config = Config(config.file, {**config.fields, **own})
    config = decoder.without_shared_keys(
        config,
        intermediate_size=config.size("n_inner", 4 * config.size("hidden_size")),
        hidden_act=config.fields.get("activation_function") or "gelu_new",
    ).filled(tie_word_embeddings=True)
    config.only("add_cross_attention", False)
    config.only("scale_attn_by_inverse_layer_idx", False)
    scaled = config.flag("scale_attn_weights", default=True)
    return replace(
        decoder.shape_of(config, 0),
        epsilon=config.number("layer_norm_epsilon", 1e-5),
        names=NAMES,
        transposed=True,
        positions=0,
        score_scale=None if scaled else 1.0,
        input_bias=True,
        output_bias=True,
        mlp_bias=True,
        centered=True,
        plain=("fc1", "fc2"),
    )
