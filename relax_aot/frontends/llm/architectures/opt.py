# SPDX-License-Identifier: Apache-2.0
"""OPT (Zhang et al., arXiv:2205.01068): attention and a product with ReLU behind centered norms; a
row of a table for each position is added to the embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "OPTForCausalLM", "opt"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {}
NAMES = (
    (r"^model\.decoder\.", "model."),
    (r"^decoder\.", "model."),
    (r"^model\.final_layer_norm\.", "model.norm."),
    (r"\.self_attn_layer_norm\.", ".input_layernorm."),
    (r"\.final_layer_norm\.", f".{decoder.BEHIND}."),
    (r"\.self_attn\.out_proj\.", ".self_attn.o_proj."),
    (r"^(model\.layers\.\d+)\.fc", r"\1.mlp.fc"),
)


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    config = decoder.without_shared_keys(
        config,
        intermediate_size=config.size("ffn_dim", 3072),
        hidden_act=config.fields.get("activation_function") or "relu",
    ).filled(tie_word_embeddings=True)
    config.only("do_layer_norm_before", True)
    config.only("_remove_final_layer_norm", False)
    config.only("layer_norm_elementwise_affine", True)
    config.only("word_embed_proj_dim", config.size("hidden_size"))
    bias = config.flag("enable_bias", default=True)
    return replace(
        decoder.shape_of(config, 0),
        epsilon=1e-5,
        names=NAMES,
        positions=2,
        input_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        centered=True,
        plain=("fc1", "fc2"),
    )
