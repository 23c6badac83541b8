# SPDX-License-Identifier: Apache-2.0
"""Model file -> Module. One folder per format, found by listing; and those of other packages
(`relax_aot.frontends`: a module with SUFFIXES, accepts and load)."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from relax_aot.errors import RelaxAotError
from relax_aot.ir.graph import Module
from relax_aot.plugins import Plugin, usable, with_problems


class ModelError(RelaxAotError):
    """A model that cannot be read, or that lacks what an option names."""


GREATEST_FILE = 2**31 - 1
"""Protocol buffers end here, and FlatBuffers; larger ONNX models keep their weights outside."""


def file_bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > GREATEST_FILE:
            raise ModelError(f"cannot read {path}: {size} bytes; a model's file has at most 2 GiB")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(f"cannot read {path}: {reason}") from None


class UnsupportedError(RelaxAotError):
    """Everything in a model that cannot be compiled, all at once."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What a user says about a model, by the names of the source model.

    bounds: lowest and highest value of each symbol, both included.
    fix: inputs that become constants: a number, an array, or text of one.
    state: input -> output that are one state buffer.
    assume: relations between symbols, such as `n <= 2*m`, checked on entry.
    window: how many rows growing states keep, by the symbol of their length.
    replaceable: code is to fit other weights of the same graph.
    used: for one entry of several, whose options are those of all: what it lacks is passed
        over, and what of `bounds`, `fix` and `assume` it has is added here.
    """

    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    fix: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    assume: tuple[str, ...] = ()
    replaceable: bool = False
    used: set[str] | None = None
    window: Mapping[str, int] = field(default_factory=dict)

    def said(self, name: str, *, ends: bool = False) -> str:
        """The option that gives a symbol its bound, for messages; `ends` adds the range."""
        if name in self.window:
            return f"--window {name}={self.window[name]}"
        low, high = self.bounds[name]
        return f"the bound {name}={low}..{high}" if ends else f"the bound {name}"


Frontend = ModuleType | SimpleNamespace
"""A value with SUFFIXES, accepts and load."""


@dataclass(frozen=True, slots=True)
class Formats:
    """Frontends, and the problems of plugins whose frontends are missing."""

    frontends: tuple[Frontend, ...]
    problems: tuple[str, ...]


@cache
def formats() -> Formats:
    """Every frontend, sorted by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)
    found: list[Frontend] = [importlib.import_module(f"{__name__}.{name}") for name in names]
    ours = [suffix for frontend in found for suffix in frontend.SUFFIXES]
    others = usable("frontends", _frontend_of, ours)
    return Formats((*found, *others.values), others.problems)


def _frontend_of(plugin: Plugin) -> tuple[tuple[str, ...], Frontend]:
    value = plugin.value
    for needed in ("SUFFIXES", "accepts", "load"):
        if not hasattr(value, needed):
            raise plugin.fail(f"a frontend has SUFFIXES, accepts and load; {needed} is missing")
    if isinstance(value.SUFFIXES, str) or not all(isinstance(s, str) for s in value.SUFFIXES):
        raise plugin.fail(f"SUFFIXES is a tuple of strings, got {value.SUFFIXES!r}")

    def load(source: Any, options: ImportOptions) -> Module:
        module = plugin.guarded("load", value.load)(source, options)
        if not isinstance(module, Module):
            raise plugin.fail(f"load returned {type(module).__name__}, not a Module")
        named = module.source or not isinstance(source, str | os.PathLike)
        return module if named else replace(module, source=Path(source).name)

    suffixes = tuple(value.SUFFIXES)
    return suffixes, SimpleNamespace(
        SUFFIXES=suffixes, accepts=plugin.guarded("accepts", value.accepts), load=load
    )


def load(source: Any, options: ImportOptions) -> Module:
    """A path is read by the frontend of its suffix; anything else by the one that takes it."""
    frontend = _of_path(Path(source)) if isinstance(source, str | os.PathLike) else _of(source)
    from relax_aot.frontends.growth import check_windows, from_zero, with_window_bounds

    options = with_window_bounds(options)
    module = from_zero(lambda chosen: frontend.load(source, chosen), options)
    if options.used is None:
        check_windows(options, [module])
    return module


def _of_path(path: Path) -> Frontend:
    found = formats()
    for frontend in found.frontends:
        if path.suffix.lower() in frontend.SUFFIXES:
            return frontend
    if not path.exists():
        raise ModelError(f"cannot read {path}: No such file or directory")
    known = ", ".join(suffix for frontend in found.frontends for suffix in frontend.SUFFIXES)
    what = f"its suffix {path.suffix!r}" if path.suffix else "a name without a suffix"
    message = f"cannot tell the format of {path} from {what}; known are {known}"
    if path.suffix.lower() in (".gguf", ".safetensors") or (path / "config.json").is_file():
        message += "; language models are compiled by `relax-aot llm`, in Python rx.load_llm"
    if path.suffix.lower() in (".pt", ".pth", ".pt2"):
        message += "; models of PyTorch are exported to ONNX first (docs/how-to/pytorch.md)"
    raise ModelError(with_problems(message, found.problems))


def _of(source: object) -> Frontend:
    found = formats()
    for frontend in found.frontends:
        if frontend.accepts(source):
            return frontend
    message = f"expected a path or a model, got {type(source).__name__}"
    raise ModelError(with_problems(message, found.problems))
