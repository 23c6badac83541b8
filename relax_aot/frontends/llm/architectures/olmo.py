# SPDX-License-Identifier: Apache-2.0
"""OLMo (Groeneveld et al., arXiv:2402.00838): Llama with centered norms without weights; queries,
keys and values may be bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "OlmoForCausalLM", "olmo"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    bias = config.flag("attention_bias")
    return replace(
        decoder.shape_of(config),
        epsilon=1e-5,
        input_bias=bias,
        output_bias=bias,
        input_cap=config.limit("clip_qkv"),
        centered=True,
        norm_parts=(),
    )
