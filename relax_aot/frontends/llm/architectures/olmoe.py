# SPDX-License-Identifier: Apache-2.0
"""OLMoE (Muennighoff et al., arXiv:2409.02060): Llama with queries and keys that are normalized
over all heads, and a mixture of experts in each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import qwen2_moe
from relax_aot.frontends.llm.config import Config

NAME, KIND = "OlmoeForCausalLM", "olmoe"
LONGEST = 4096
DEFAULTS: Mapping[str, Any] = {
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "rms_norm_eps": 1e-05,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    bias, shape = config.flag("attention_bias"), decoder.shape_of(config)
    fields = {**config.fields, "moe_intermediate_size": shape.hidden}
    experts = qwen2_moe.experts_in(Config(config.file, fields))
    layers = tuple(replace(one, experts=experts) for one in shape.layers)
    return replace(
        shape,
        input_bias=bias,
        output_bias=bias,
        input_cap=config.limit("clip_qkv"),
        head_norm=decoder.JOINT,
        layers=layers,
    )
