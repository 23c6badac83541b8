# SPDX-License-Identifier: Apache-2.0
"""Nemotron-3 and 4, Minitron (Parmar et al., arXiv:2402.16819): Llama with centered norms, whose
weights are stored less 1, heads rotated in part, and a product with a squared ReLU in place of a
gated one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import share

NAME, KIND = "NemotronForCausalLM", "nemotron"
LONGEST = 4096
DEFAULTS: Mapping[str, Any] = {"hidden_act": "relu2"}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    bias = config.flag("attention_bias")
    return replace(
        decoder.shape_of(config, share(config, 0.5)),
        epsilon=config.number("norm_eps", 1e-5),
        input_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        centered=True,
        norm_offset=1.0,
        plain=("up_proj", "down_proj"),
    )
