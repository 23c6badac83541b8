# SPDX-License-Identifier: Apache-2.0
"""Qwen1.5-MoE and Qwen2-MoE (Yang et al., arXiv:2407.10671): Qwen2 with a mixture of experts, and
one that all tokens take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.experts import Experts

NAME, KIND = "Qwen2MoeForCausalLM", "qwen2_moe"
LONGEST = 32768
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 16,
    "sliding_window": 4096,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    shape = replace(decoder.shape_of(config), input_bias=config.flag("qkv_bias", default=True))
    last = config.count("max_window_layers", 28)
    shape = decoder.used_windows(config, shape, lambda number: number % 2 == 0 and number < last)
    experts = replace(experts_in(config), shared=config.size("shared_expert_intermediate_size"))
    return with_experts(config, shape, experts)


def experts_in(config: Config) -> Experts:
    """What Qwen2-MoE and Qwen3-MoE share."""
    # Qwen3-MoE of version 5 has another name for it.
    count = config.size("num_local_experts" if "num_local_experts" in config else "num_experts")
    return Experts(
        count=count,
        chosen=config.size("num_experts_per_tok", most=count),
        hidden=config.size("moe_intermediate_size"),
        normalized=config.flag("norm_topk_prob"),
        at="mlp",
        names=("gate_proj", "up_proj", "down_proj"),
    )


def with_experts(config: Config, shape: decoder.Shape, experts: Experts) -> decoder.Shape:
    """With a mixture in each layer, or in each of so many, but not in those of a list."""
    every, listed = config.size("decoder_sparse_step", 1), config.fields.get("mlp_only_layers")
    if listed is not None and not isinstance(listed, list):
        raise config.wrong("mlp_only_layers", "a list of layers")
    layers = [
        replace(one, experts=experts)
        if (number + 1) % every == 0 and number not in (listed or ())
        else one
        for number, one in enumerate(shape.layers)
    ]
    return replace(shape, layers=tuple(layers))
