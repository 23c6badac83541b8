# SPDX-License-Identifier: Apache-2.0
"""Phi-3 and Phi-4-mini (Abdin et al., arXiv:2404.14219): Llama with one tensor for queries, keys
and values, and one for both products of the gate; a part of each head may be rotated."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.frontends.llm import decoder
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.rotary import kind_of, parameters, share

NAME = "Phi3ForCausalLM"
LONGEST = 4096
LONG = ("longrope", "su", "yarn")
"""Names of LongRoPE in files of Phi-3."""
ORIGINAL, WHOLE = "original_max_position_embeddings", "max_position_embeddings"


def shape_of(config: Config) -> decoder.Shape:
    """What the configuration says. Texts up to the original context take the short factors of
    LongRoPE, longer ones others, for keys in the caches, too: the context ends there."""
    given, longest = parameters(config), config.size(WHOLE)
    if given is not None and kind_of(given) in LONG:
        original = (given if ORIGINAL in given else config).size(ORIGINAL, 4096)
        own = {**given.fields, "rope_type": "longrope", ORIGINAL: original, WHOLE: longest}
        config = Config(config.file, {**config.fields, "rope_parameters": own})
        longest = min(longest, original)
    shape = replace(decoder.shape_of(config, share(config, 1.0)), longest=longest)
    return decoder.windowed(config, shape, lambda _: True)
