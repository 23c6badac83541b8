# SPDX-License-Identifier: Apache-2.0
"""Qwen3 (Yang et al., arXiv:2505.09388): Llama, with queries and keys that are normalized."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME = "Qwen3ForCausalLM"
LONGEST = 32768


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    bias = config.flag("attention_bias")
    shape = replace(decoder.shape_of(config), input_bias=bias, output_bias=bias, head_norm=True)
    return decoder.late_windows(config, shape)
