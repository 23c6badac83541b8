# SPDX-License-Identifier: Apache-2.0
"""Qwen2 (Yang et al., arXiv:2407.10671): Llama, with a bias of queries, keys and values."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME = "Qwen2ForCausalLM"
LONGEST = 32768


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    shape = replace(decoder.shape_of(config), input_bias=True)
    return decoder.late_windows(config, shape)
