# SPDX-License-Identifier: Apache-2.0
"""Gemma 3 (Kamath et al., arXiv:2503.19786): Gemma 2 with windows in five of six layers,
normalized queries and keys, and positions of another base in layers with windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import gemma2
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import Rotation, scaled

NAME, KIND = "Gemma3ForCausalLM", "gemma3_text"
LONGEST = 131072
DEFAULTS: Mapping[str, Any] = {"num_key_value_heads": 4, "sliding_window": 4096}
WHOLE, LOCAL = 1_000_000.0, 10_000.0
"""The bases of positions, where a file does not say them."""


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    positions = {"rope_scaling": None, "rope_parameters": None}
    plain = Config(config.file, {**config.fields, **positions})
    # As in transformers, which does not read attn_logit_softcapping here.
    shape = replace(gemma2.normalized(plain), head_norm=True, score_cap=None)
    every = config.size("sliding_window_pattern", 6)
    shape = decoder.windowed(config, shape, lambda number: (number + 1) % every != 0)
    layers = [replace(layer, rotation=int(layer.window is not None)) for layer in shape.layers]
    return replace(shape, layers=tuple(layers), rotations=_rotations(config, shape.heads.size))


def _rotations(config: Config, size: int) -> tuple[Rotation, Rotation]:
    """Of layers without and with windows."""
    both = config.part("rope_parameters") or Config(config.file, {})
    whole, local = (
        both.part(name) or Config(both.file, {}) for name in (decoder.FULL, decoder.SLIDING)
    )
    scaling = config.part("rope_scaling")
    if scaling is not None:
        whole = Config(scaling.file, {**whole.fields, **scaling.fields})
    for part in (whole, local):
        part.only("partial_rotary_factor", 1, 1.0)
    bases = config.number("rope_theta", WHOLE), config.number("rope_local_base_freq", LOCAL)
    first, second = (
        scaled(config, size, part.number("rope_theta", theta), part)
        for part, theta in zip((whole, local), bases, strict=True)
    )
    return first, second
