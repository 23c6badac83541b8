# SPDX-License-Identifier: Apache-2.0
"""Llama (Touvron et al., arXiv:2302.13971; Grattafiori et al., arXiv:2407.21783), and models that
are written as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "LlamaForCausalLM", "llama"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    bias = config.flag("attention_bias")
    return replace(
        decoder.shape_of(config),
        input_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
    )
