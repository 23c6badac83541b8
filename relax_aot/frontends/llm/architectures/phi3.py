# SPDX-License-Identifier: Apache-2.0
"""Phi-3 and Phi-4-mini (Abdin et al., arXiv:2404.14219): Llama with one tensor for queries, keys
and values, and one for both products of the gate; a part of each head may be rotated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import kind_of, parameters, share

NAME, KIND = "Phi3ForCausalLM", "phi3"
LONGEST = 4096
DEFAULTS: Mapping[str, Any] = {"rms_norm_eps": 1e-05, "original_max_position_embeddings": 4096}
LONG = ("su", "yarn")
"""Names of LongRoPE in files of Phi-3."""


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    given = parameters(config)
    if given is not None and kind_of(given) in LONG:
        own = {**given.fields, "rope_type": "longrope"}
        config = Config(config.file, {**config.fields, "rope_scaling": own})
    shape = decoder.shape_of(config, share(config, 1.0))
    return decoder.windowed_everywhere(config, shape)
