# SPDX-License-Identifier: Apache-2.0
"""Cohere Command R (Cohere): attention and the gated product read the same centered rows; neighbors
in a head are rotated together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "CohereForCausalLM", "cohere"
LONGEST = 8192
DEFAULTS: Mapping[str, Any] = {"tie_word_embeddings": True, "rope_theta": 500000.0}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    norms = decoder.SINGLE if config.flag("use_qk_norm") else None
    return replace(parallel(config), head_norm=norms)


def parallel(config: Config) -> decoder.Shape:
    """What Command R and Command R7B share."""
    bias = config.flag("attention_bias")
    return replace(
        decoder.shape_of(config),
        epsilon=config.number("layer_norm_eps", 1e-5),
        input_bias=bias,
        output_bias=bias,
        centered=True,
        norm_parts=("weight",),
        parallel=True,
        paired=True,
        logit_scale=config.number("logit_scale", 0.0625),
    )
