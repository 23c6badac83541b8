# SPDX-License-Identifier: Apache-2.0
"""Mixtral (Jiang et al., arXiv:2401.04088): Mistral with a mixture of experts in each layer."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.experts import Experts

NAME = "MixtralForCausalLM"
LONGEST = 131072


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    config = config.filled(num_local_experts=8, num_experts_per_tok=2)
    count = config.size("num_local_experts")
    experts = Experts(
        count=count,
        chosen=config.size("num_experts_per_tok", most=count),
        hidden=config.size("intermediate_size"),
        normalized=True,
        at="block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
    shape = decoder.windowed(config, decoder.shape_of(config), lambda _: True)
    return replace(shape, layers=tuple(replace(one, experts=experts) for one in shape.layers))
