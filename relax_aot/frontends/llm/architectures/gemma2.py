# SPDX-License-Identifier: Apache-2.0
"""Gemma 2 (Riviere et al., arXiv:2408.00118): Gemma with windows in every other layer, bounded
scores and logits, and norms behind attention and products, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import gemma
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Gemma2ForCausalLM", "gemma2"
LONGEST = 8192
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    shape = normalized(config)
    return decoder.windowed(config, shape, lambda number: number % 2 == 0)


def normalized(config: Config) -> decoder.Shape:
    """What Gemma 2 and Gemma 3 share."""
    return replace(
        gemma.family(config),
        result_norm=True,
        score_scale=config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        score_cap=config.limit("attn_logit_softcapping"),
        logit_cap=config.limit("final_logit_softcapping"),
    )
