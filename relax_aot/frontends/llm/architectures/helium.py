# SPDX-License-Identifier: Apache-2.0
"""Helium (Kyutai): Llama, in which neighbors in a head are rotated together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import llama
from relax_aot.frontends.llm.config import Config

NAME, KIND = "HeliumForCausalLM", "helium"
LONGEST = 4096
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 20,
    "head_dim": 128,
    "rms_norm_eps": 1e-08,
    "rope_theta": 100000.0,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    return replace(llama.shape_of(config), output_bias=False, paired=True)
