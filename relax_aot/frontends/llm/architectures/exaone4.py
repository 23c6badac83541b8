# SPDX-License-Identifier: Apache-2.0
"""EXAONE 4 (LG AI Research, arXiv:2507.11407): Llama with norms behind attention and products
instead of in front of them, normalized queries and keys, and windows in three of four layers;
queries and keys of the fourth are not rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Exaone4ForCausalLM", "exaone4"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 32,
    "rms_norm_eps": 1e-05,
    "sliding_window": 4096,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    shape = replace(
        decoder.shape_of(config), head_norm=decoder.SHARED, input_norm=False, result_norm=True
    )

    def slides(number: int) -> bool:
        return (number + 1) % config.size("sliding_window_pattern", 4) != 0

    shape = decoder.windowed(config, shape, slides)
    if "sliding_window" not in config:
        return shape
    layers = [
        layer if layer.window is not None else replace(layer, rotation=None)
        for layer in shape.layers
    ]
    return replace(shape, layers=tuple(layers))
