# SPDX-License-Identifier: Apache-2.0
"""Phi-1, Phi-1.5 and Phi-2 (Li et al., arXiv:2309.05463): attention and a product with GELU add to
the same rows; a part of each head is rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.layers import Net
from relax_aot.frontends.llm.rotary import share
from relax_aot.ir.graph import Var

NAME, KIND = "PhiForCausalLM", "phi"
LONGEST = 2048
DEFAULTS: Mapping[str, Any] = {}


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    config.only("qk_layernorm", False)
    config = config.filled(hidden_act="gelu_new")
    return replace(
        decoder.shape_of(config, share(config, 0.5)),
        epsilon=config.number("layer_norm_eps", 1e-5),
        input_bias=True,
        output_bias=True,
        centered=True,
        output="dense",
        last_norm="final_layernorm",
        head_bias=True,
        block=block,
    )


def block(net: Net, shape: decoder.Shape, x: Var, angles: decoder.Angles, number: int) -> Var:
    """One layer."""
    at = f"model.layers.{number}"
    y = decoder.norm(net, shape, x, f"{at}.input_layernorm")
    attended = decoder.attention(net, shape, y, angles, number)
    x, y = (net.leaving(one, number, at) for one in (x, y))
    y = net.linear(y, shape.hidden, f"{at}.mlp.fc1", bias=True)
    y = net.activated(y, shape.activation, f"{at}.mlp")
    y = net.linear(y, shape.width, f"{at}.mlp.fc2", bias=True)
    return net.call("add", x, net.call("add", attended, y, at=at), at=at)
