# SPDX-License-Identifier: Apache-2.0
"""StableLM (Bellagente et al., arXiv:2402.17834): Llama with centered norms, and heads rotated in
part; attention and products may read the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import share

NAME, KIND = "StableLmForCausalLM", "stablelm"
LONGEST = 4096
DEFAULTS: Mapping[str, Any] = {"num_key_value_heads": 32}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    return replace(
        decoder.shape_of(config, share(config, 0.25)),
        epsilon=config.number("layer_norm_eps", 1e-5),
        input_bias=config.flag("use_qkv_bias"),
        head_norm=decoder.SINGLE if config.flag("qk_layernorm") else None,
        head_norms="layernorm",
        centered=True,
        parallel=config.flag("use_parallel_residual"),
    )
