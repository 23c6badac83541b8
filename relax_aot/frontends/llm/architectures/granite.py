# SPDX-License-Identifier: Apache-2.0
"""Granite 3 (IBM): Llama with multipliers of embeddings, scores, results of layers and logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import llama
from relax_aot.frontends.llm.config import Config

NAME, KIND = "GraniteForCausalLM", "granite"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    return replace(
        llama.shape_of(config),
        row_scale=config.number("embedding_multiplier", 1.0),
        score_scale=config.number("attention_multiplier", 1.0),
        result_scale=config.number("residual_multiplier", 1.0),
        logit_scale=1 / config.number("logits_scaling", 1.0),
    )
