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
from relax_aot.frontends.llm.rotary import by_windows

NAME, KIND = "Gemma3ForCausalLM", "gemma3_text"
LONGEST = 131072
DEFAULTS: Mapping[str, Any] = {"num_key_value_heads": 4, "sliding_window": 4096}
WHOLE, LOCAL = 1_000_000.0, 10_000.0
"""The bases of positions, where a file does not say them."""


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    shape = gemma2.normalized(decoder.without_scaling(config))
    # As in transformers, which does not read attn_logit_softcapping here.
    shape = replace(shape, head_norm=decoder.SHARED, score_cap=None)
    every = config.size("sliding_window_pattern", 6)
    shape = decoder.windowed(config, shape, lambda number: (number + 1) % every != 0)
    bases = config.number("rope_theta", WHOLE), config.number("rope_local_base_freq", LOCAL)
    return decoder.rotated_by_windows(shape, by_windows(config, shape.heads.size, *bases))
