# SPDX-License-Identifier: Apache-2.0
"""Ministral (Mistral AI): Mistral, in which layers may see all tokens."""

from __future__ import annotations

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.architectures import mistral
from relax_aot.frontends.llm.config import Config

NAME, KIND = "MinistralForCausalLM", "ministral"
LONGEST = 131072
DEFAULTS = mistral.DEFAULTS


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says."""
    return decoder.windowed(config, decoder.shape_of(config), lambda _: True)
