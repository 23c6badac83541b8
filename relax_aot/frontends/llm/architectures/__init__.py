# SPDX-License-Identifier: Apache-2.0
"""Architectures of language models, one file each: NAME, as in `config.json`, `shape_of`, and
LONGEST, the tokens of a model whose file says no number (`max_position_embeddings`), by the
configurations of `transformers` 5."""

from __future__ import annotations

import importlib
import pkgutil
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
    shape: Shape = found.shape_of(config.filled(max_position_embeddings=found.LONGEST))
    return shape
