# SPDX-License-Identifier: Apache-2.0
"""Gemma 3 (Kamath et al., arXiv:2503.19786): Gemma 2 with windows in five of six layers,
normalized queries and keys, and positions of another base in layers with windows."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import gemma2
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import Rotation, scaled

NAME = "Gemma3ForCausalLM"
LONGEST = 131072
WHOLE, LOCAL = 1_000_000.0, 10_000.0
"""The bases of positions, where a file does not say them."""


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    config = config.filled(sliding_window=4096)
    shape = replace(gemma2.normalized(config), head_norm=True)
    every = config.size("sliding_window_pattern", 6)
    shape = decoder.windowed(config, shape, lambda number: (number + 1) % every != 0)
    layers = [replace(layer, rotation=int(layer.window is not None)) for layer in shape.layers]
    return replace(shape, layers=tuple(layers), rotations=_rotations(config, shape.heads.size))


def _rotations(config: Config, size: int) -> tuple[Rotation, Rotation]:
    """Of layers without and with windows."""
    both = config.part("rope_parameters")
    if both is None:
        theta = config.number("rope_theta", WHOLE), config.number("rope_local_base_freq", LOCAL)
        whole = scaled(config, size, theta[0], config.part("rope_scaling"))
        return whole, scaled(config, size, theta[1], None)
    parts = [both.part(name) or Config(both.file, {}) for name in (decoder.FULL, decoder.SLIDING)]
    whole, local = (
        scaled(config, size, part.number("rope_theta", theta), part)
        for part, theta in zip(parts, (WHOLE, LOCAL), strict=True)
    )
    return whole, local
