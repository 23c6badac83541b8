# SPDX-License-Identifier: Apache-2.0
"""Mistral (Jiang et al., arXiv:2310.06825): Llama, whose attention sees a window of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "MistralForCausalLM", "mistral"
LONGEST = 131072
DEFAULTS: Mapping[str, Any] = {"num_key_value_heads": 8, "sliding_window": 4096}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says; types of layers count, as in `AutoConfig` of transformers."""
    return decoder.windowed(config, decoder.shape_of(config), lambda _: True)
