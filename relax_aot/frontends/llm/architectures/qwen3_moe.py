# SPDX-License-Identifier: Apache-2.0
"""Qwen3-MoE (Yang et al., arXiv:2505.09388): Qwen3 with a mixture of experts."""

from __future__ import annotations

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import qwen2_moe, qwen3
from relax_aot.frontends.llm.config import Config

NAME = "Qwen3MoeForCausalLM"
LONGEST = 32768


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    return qwen2_moe.with_experts(config, qwen3.shape_of(config), qwen2_moe.experts_in(config))
