# SPDX-License-Identifier: Apache-2.0
"""Mixtral (Jiang et al., arXiv:2401.04088): Mistral with a mixture of experts in each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.experts import Experts

NAME, KIND = "MixtralForCausalLM", "mixtral"
LONGEST = 131072
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    count = config.size("num_local_experts")
    experts = Experts(
        count=count,
        chosen=config.size("num_experts_per_tok", most=count),
        hidden=config.size("intermediate_size"),
        normalized=True,
        at="block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
    shape = decoder.windowed_everywhere(config, decoder.shape_of(config))
    return replace(shape, layers=tuple(replace(one, experts=experts) for one in shape.layers))
