# SPDX-License-Identifier: Apache-2.0
"""Ministral (Mistral AI): Mistral, in which layers may see all tokens."""

from __future__ import annotations

from relax_aot.frontends.llm.architectures import mistral

NAME, KIND = "MinistralForCausalLM", "ministral"
LONGEST = 131072
DEFAULTS = mistral.DEFAULTS

shape_of = mistral.shape_of
