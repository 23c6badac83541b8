# SPDX-License-Identifier: Apache-2.0
"""Qwen2 (Yang et al., arXiv:2407.10671): Llama, with a bias of queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Qwen2ForCausalLM", "qwen2"
LONGEST = 32768
DEFAULTS: Mapping[str, Any] = {"num_key_value_heads": 32, "sliding_window": 4096}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    shape = replace(decoder.shape_of(config), input_bias=True)
    return decoder.late_windows(config, shape)
