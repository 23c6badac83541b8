# SPDX-License-Identifier: Apache-2.0
"""ERNIE 4.5 without experts (Baidu): Llama, in which neighbors in a head are rotated together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Ernie4_5ForCausalLM", "ernie4_5"
LONGEST = 131072
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 128,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    bias = config.flag("use_bias")
    shape = decoder.shape_of(config)
    return replace(shape, input_bias=bias, output_bias=bias, mlp_bias=bias, paired=True)
