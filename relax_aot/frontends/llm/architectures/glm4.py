# SPDX-License-Identifier: Apache-2.0
"""GLM-4 of 2025 (Z.ai): GLM with norms of the results of attention and products, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import glm
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Glm4ForCausalLM", "glm4"
LONGEST = 131072
DEFAULTS: Mapping[str, Any] = glm.DEFAULTS


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    return replace(
        glm.shape_of(config),
        result_norm=True,
        norm_names=("post_self_attn_layernorm", decoder.BEHIND, "post_mlp_layernorm"),
    )
