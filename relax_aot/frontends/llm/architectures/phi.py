# SPDX-License-Identifier: Apache-2.0
"""Phi-1, Phi-1.5 and Phi-2 (Li et al., arXiv:2309.05463): attention and a product with GELU add to
the same rows; a part of each head is rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import share

NAME, KIND = "PhiForCausalLM", "phi"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    config = config.filled(hidden_act="gelu_new")
    return replace(
        decoder.shape_of(config, share(config, 0.5)),
        epsilon=config.number("layer_norm_eps", 1e-5),
        input_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_norm=decoder.SHARED if config.flag("qk_layernorm") else None,
        head_norms="layernorm",
        centered=True,
        output="dense",
        last_norm="final_layernorm",
        head_bias=True,
        plain=("fc1", "fc2"),
        parallel=True,
    )
