"""Model file -> Module. One folder per format, found by listing."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relax_aot.errors import RelaxAotError
from relax_aot.ir.graph import Module


class ModelError(RelaxAotError):
    """A model file that cannot be read."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What a user says about a model, by the names of the source model."""

    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    fix: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    assume: tuple[str, ...] = ()


def load(source: Any, options: ImportOptions) -> Module:
    """A path is read by the frontend of its suffix; anything else by the one that takes it."""
    formats = [
        importlib.import_module(f"{__name__}.{info.name}")
        for info in pkgutil.iter_modules(__path__)
        if info.ispkg
    ]
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        for frontend in formats:
            if path.suffix.lower() in frontend.SUFFIXES:
                return _module(frontend.load(path, options))
        known = sorted(suffix for frontend in formats for suffix in frontend.SUFFIXES)
        raise ModelError(f"{path}: no frontend reads {path.suffix!r}; known are {known}")
    for frontend in formats:
        if frontend.accepts(source):
            return _module(frontend.load(source, options))
    raise ModelError(f"no frontend takes a {type(source).__name__}")


def _module(value: object) -> Module:
    assert isinstance(value, Module)
    return value
