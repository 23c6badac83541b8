# SPDX-License-Identifier: Apache-2.0
"""SmolLM3: Llama, in which some layers have no rotary positions (Yang et al., arXiv:2501.18795)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "SmolLM3ForCausalLM", "smollm3"
LONGEST = 32768
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 4,
    "rope_theta": 2000000.0,
    "tie_word_embeddings": True,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says: every fourth layer knows no positions, or those of a list."""
    bias = config.flag("attention_bias")
    shape = replace(
        decoder.shape_of(config),
        input_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
    )
    every = config.size("no_rope_layer_interval", 4)
    listed = config.each("no_rope_layers", len(shape.layers), 0, 1)
    rotates = listed or [(number + 1) % every != 0 for number in range(len(shape.layers))]
    layers = [
        layer if rotated else replace(layer, rotation=None)
        for layer, rotated in zip(shape.layers, rotates, strict=True)
    ]
    shape = replace(shape, layers=tuple(layers))
    uses = config.flag("use_sliding_window")
    return decoder.windowed(config, shape, lambda number: uses and not rotates[number])
