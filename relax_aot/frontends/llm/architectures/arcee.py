# SPDX-License-Identifier: Apache-2.0
"""Arcee (AFM): Llama with a product with a squared ReLU in place of a gated one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import llama
from relax_aot.frontends.llm.config import Config

NAME, KIND = "ArceeForCausalLM", "arcee"
LONGEST = 4096
DEFAULTS: Mapping[str, Any] = {"hidden_act": "relu2", "rms_norm_eps": 1e-05}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    return replace(llama.shape_of(config), plain=("up_proj", "down_proj"))
