# SPDX-License-Identifier: Apache-2.0
"""OLMo 2 (Walsh et al., arXiv:2501.00656): Llama, whose norms are behind attention and products
instead of in front of them, with queries and keys that are normalized over all heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Olmo2ForCausalLM", "olmo2"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {"rms_norm_eps": 1e-05}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    bias = config.flag("attention_bias")
    return replace(
        decoder.shape_of(config),
        input_bias=bias,
        output_bias=bias,
        head_norm=decoder.JOINT,
        input_norm=False,
        result_norm=True,
    )
