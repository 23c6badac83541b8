# SPDX-License-Identifier: Apache-2.0
"""Seed-OSS (ByteDance): Llama with biases of queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import llama
from relax_aot.frontends.llm.config import Config

NAME, KIND = "SeedOssForCausalLM", "seed_oss"
LONGEST = 524288
DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attention_bias": True,
}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    return replace(llama.shape_of(config), output_bias=config.flag("attention_out_bias"))
