# SPDX-License-Identifier: Apache-2.0
"""Qwen3-MoE (Yang et al., arXiv:2505.09388): Qwen3 with a mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import qwen2_moe, qwen3
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Qwen3MoeForCausalLM", "qwen3_moe"
LONGEST = 32768
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    config.only("layer_types")
    shape = decoder.used_windows(config, qwen3.normalized(config), lambda _: True)
    return qwen2_moe.with_experts(config, shape, qwen2_moe.experts_in(config))
