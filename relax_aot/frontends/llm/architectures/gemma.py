# SPDX-License-Identifier: Apache-2.0
"""Gemma (Mesnard et al., arXiv:2403.08295): Llama with scaled embeddings, norms whose weights are
stored less 1, and a gate by GELU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.layers import ACTIVATIONS

NAME, KIND = "GemmaForCausalLM", "gemma"
LONGEST = 8192
DEFAULTS: Mapping[str, Any] = {"num_key_value_heads": 16}
TANH = "gelu_pytorch_tanh"


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    kind = config.fields.get("hidden_act")
    # Early files say "gelu", but their models were trained with the approximation by tanh.
    activation = TANH if kind in (None, "gelu") else kind
    return family(Config(config.file, {**config.fields, "hidden_activation": activation}))


def family(config: Config) -> decoder.Shape:
    """What Gemma, Gemma 2 and Gemma 3 share."""
    config = config.filled(head_dim=256, hidden_activation=TANH, tie_word_embeddings=True)
    config.only("hidden_activation", *ACTIVATIONS)
    shape, bias = decoder.shape_of(config), config.flag("attention_bias")
    return replace(
        shape,
        input_bias=bias,
        output_bias=bias,
        activation=config.fields["hidden_activation"],
        norm_offset=1.0,
        row_scale=shape.width**0.5,
    )
