# SPDX-License-Identifier: Apache-2.0
"""Qwen3 (Yang et al., arXiv:2505.09388): Llama, with queries and keys that are normalized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Qwen3ForCausalLM", "qwen3"
LONGEST = 32768
DEFAULTS: Mapping[str, Any] = {"num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    return decoder.late_windows(config, normalized(config))


def normalized(config: Config) -> decoder.Shape:
    """What Qwen3 and Qwen3-MoE share."""
    bias = config.flag("attention_bias")
    shape = decoder.shape_of(config)
    return replace(shape, input_bias=bias, output_bias=bias, head_norm=decoder.SHARED)
