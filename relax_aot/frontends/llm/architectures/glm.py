# SPDX-License-Identifier: Apache-2.0
"""GLM-4 of 2024 (GLM team, arXiv:2406.12793): Llama with one tensor for both products of the gate;
neighbors in the first half of a head are rotated together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import share

NAME, KIND = "GlmForCausalLM", "glm"
LONGEST = 131072
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 128,
    "rms_norm_eps": 1.5625e-07,
    "attention_bias": True,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    shape = decoder.shape_of(config, share(config, 0.5))
    return replace(shape, input_bias=config.flag("attention_bias"), paired=True)
