# SPDX-License-Identifier: Apache-2.0
"""GPT-NeoX and Pythia (Black et al., arXiv:2204.06745; Biderman et al., arXiv:2304.01373):
attention and a product with GELU add to the same rows, each behind a centered norm; a part of each
head is rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import share

NAME, KIND = "GPTNeoXForCausalLM", "gpt_neox"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {"hidden_act": "gelu"}
NAMES = (
    (r"\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$", None),
    (r"^gpt_neox\.layers\.", "model.layers."),
    (r"^gpt_neox\.embed_in\.", f"{decoder.TABLE}."),
    (r"^gpt_neox\.final_layer_norm\.", "model.norm."),
    (r"^embed_out\.", f"{decoder.HEAD}."),
    (r"\.attention\.query_key_value\.", ".self_attn.qkv_proj."),
    (r"\.attention\.dense\.", ".self_attn.o_proj."),
    (r"\.mlp\.dense_h_to_4h\.", ".mlp.fc1."),
    (r"\.mlp\.dense_4h_to_h\.", ".mlp.fc2."),
)


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    part = config.number("rotary_pct", 0.25)
    config = decoder.without_shared_keys(
        config,
        rope_theta=config.number("rotary_emb_base", 10000.0),
        partial_rotary_factor=part,
    )
    bias = config.flag("attention_bias", default=True)
    parallel = config.flag("use_parallel_residual", default=True)
    return replace(
        decoder.shape_of(config, share(config, part)),
        epsilon=config.number("layer_norm_eps", 1e-5),
        names=NAMES,
        joined=True,
        input_bias=bias,
        output_bias=bias,
        mlp_bias=True,
        centered=True,
        plain=("fc1", "fc2"),
        parallel=parallel,
        parallel_norm=parallel,
    )
