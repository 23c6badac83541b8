# SPDX-License-Identifier: Apache-2.0
"""OLMo 3 (Ai2): OLMo 2 with windows in three of four layers, whose positions are not scaled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import olmo2
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import by_windows

NAME, KIND = "Olmo3ForCausalLM", "olmo3"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {"rms_norm_eps": 1e-05, "sliding_window": 4096}
BASE = 500_000.0
"""Of positions, where a file does not say it."""


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    shape = olmo2.shape_of(decoder.without_scaling(config))
    shape = decoder.windowed(config, shape, lambda number: (number + 1) % 4 != 0)
    # As in transformers, where a base that stands alone is that of layers without windows.
    rotations = by_windows(config, shape.heads.size, config.number("rope_theta", BASE), BASE)
    return decoder.rotated_by_windows(shape, rotations)
