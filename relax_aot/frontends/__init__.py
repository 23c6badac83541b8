"""Model file -> Module. One folder per format, found by listing; and those of other packages
(`relax_aot.frontends`: a module with SUFFIXES, accepts and load)."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from relax_aot.errors import RelaxAotError
from relax_aot.ir.graph import Module
from relax_aot.plugins import OURS, plugins, refuse_twice


class ModelError(RelaxAotError):
    """A model that cannot be read, or that lacks what an option names."""


class UnsupportedError(RelaxAotError):
    """Everything in a model that cannot be compiled, all at once."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What a user says about a model, by the names of the source model.

    bounds: lowest and highest value of each symbol, both included.
    fix: inputs that become constants: a number, an array, or text of one.
    state: input -> output that are one state buffer.
    assume: relations between symbols, such as `n <= 2*m`, checked on entry.
    used: for one entry of several, whose options are those of all: what it lacks is passed
        over, and what of `bounds`, `fix` and `assume` it has is added here.
    """

    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    fix: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    assume: tuple[str, ...] = ()
    used: set[str] | None = None


@cache
def formats() -> tuple[ModuleType, ...]:
    """Every frontend, sorted by name: a package with SUFFIXES, accepts and load."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)
    found = tuple(importlib.import_module(f"{__name__}.{name}") for name in names)
    suffixes = [(suffix, OURS) for frontend in found for suffix in frontend.SUFFIXES]
    for plugin in plugins("frontends"):
        for needed in ("SUFFIXES", "accepts", "load"):
            if not hasattr(plugin.value, needed):
                raise plugin.fail(f"a frontend has SUFFIXES, accepts and load; {needed} is missing")
        suffixes += [(suffix, plugin.origin) for suffix in plugin.value.SUFFIXES]
        found += (plugin.value,)
    refuse_twice(suffixes)
    return found


def load(source: Any, options: ImportOptions) -> Module:
    """A path is read by the frontend of its suffix; anything else by the one that takes it."""
    frontend = _of_path(Path(source)) if isinstance(source, str | os.PathLike) else _of(source)
    module: Module = frontend.load(source, options)
    return module


def _of_path(path: Path) -> ModuleType:
    for frontend in formats():
        if path.suffix.lower() in frontend.SUFFIXES:
            return frontend
    known = ", ".join(suffix for frontend in formats() for suffix in frontend.SUFFIXES)
    what = f"its suffix {path.suffix!r}" if path.suffix else "a name without a suffix"
    raise ModelError(f"cannot tell the format of {path} from {what}; known are {known}")


def _of(source: object) -> ModuleType:
    for frontend in formats():
        if frontend.accepts(source):
            return frontend
    raise ModelError(f"expected a path or a model, got {type(source).__name__}")
