# SPDX-License-Identifier: Apache-2.0
"""Architectures of language models, one file each: NAME, as in `architectures` of `config.json`,
KIND, as in `model_type`, LONGEST, the tokens of a model whose file says no number
(`max_position_embeddings`), DEFAULTS, the values of other fields that a file does not name, and
`shape_of`. Defaults and meanings are those of `transformers` 5."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import cache
from types import ModuleType

from relax_aot.frontends import UnsupportedError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.decoder import Shape


@cache
def architectures() -> dict[str, ModuleType]:
    """Every architecture by its name."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    files = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {file.NAME: file for file in files}


PER_LAYER = ("num_attention_heads", "num_key_value_heads", "intermediate_size")
"""What layers may have of their own. Weights say it, too."""


def _require_widths_alone(config: Config) -> None:
    """Refuse other fields that some layers have of their own."""
    layers = config.part("per_layer_config") or Config(config.file, {})
    for number in layers.fields:
        own = layers.part(number) or layers
        strange = [name for name in own.fields if own is not layers and name not in PER_LAYER]
        if strange:
            raise UnsupportedError(
                f"{layers.file}: layer {printable(number)} has its own {printable(strange[0])};"
                f" supported are {', '.join(PER_LAYER)}"
            )


def shape_of(config: Config) -> Shape:
    """What a configuration says, by the architecture that it names."""
    known = architectures()
    given = config.fields.get("architectures")
    names = given if isinstance(given, list) else []
    found = next((known[name] for name in names if isinstance(name, str) and name in known), None)
    if found is None:
        said = printable(", ".join(map(str, names))) or "none"
        raise UnsupportedError(
            f"{config.file}: its architecture is {said}; supported are {', '.join(known)}"
        )
    config.only("model_type", found.KIND)
    config.only("is_causal", True)
    config.only("is_encoder_decoder", False)
    config.only("use_bidirectional_attention", False)
    _require_widths_alone(config)
    config = config.missing(**found.DEFAULTS).filled(max_position_embeddings=found.LONGEST)
    shape: Shape = found.shape_of(config)
    # With LongRoPE, longer texts have other frequencies, for keys in the caches, too.
    ends = [one.longest for one in shape.rotations if one.longest is not None]
    return replace(shape, longest=min([shape.longest, *ends]))
