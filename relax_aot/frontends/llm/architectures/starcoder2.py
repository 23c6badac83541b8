# SPDX-License-Identifier: Apache-2.0
"""StarCoder 2 (Lozhkov et al., arXiv:2402.19173): Llama with centered norms, biases, and a product
with GELU in place of a gated one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config

NAME, KIND = "Starcoder2ForCausalLM", "starcoder2"
LONGEST = 4096
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    bias = config.flag("use_bias", default=True)
    shape = replace(
        decoder.shape_of(config),
        epsilon=config.number("norm_epsilon", 1e-5),
        input_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        centered=True,
        plain=("c_fc", "c_proj"),
    )
    return decoder.windowed_everywhere(config, shape)
