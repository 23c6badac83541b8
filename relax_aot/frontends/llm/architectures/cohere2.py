# SPDX-License-Identifier: Apache-2.0
"""Cohere Command R7B and Command A (Cohere, arXiv:2504.00698): Command R with windows in three of
four layers; queries and keys of the fourth are not rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import cohere
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Cohere2ForCausalLM", "cohere2"
LONGEST = 8192
DEFAULTS: Mapping[str, Any] = {"tie_word_embeddings": True, "sliding_window": 4096}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    shape = cohere.parallel(config)
    every = config.size("sliding_window_pattern", 4)
    shape = decoder.windowed(config, shape, lambda number: (number + 1) % every != 0)
    layers = [
        layer if layer.window is not None else replace(layer, rotation=None)
        for layer in shape.layers
    ]
    return replace(shape, layers=tuple(layers))
