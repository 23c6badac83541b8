# SPDX-License-Identifier: Apache-2.0
"""The compiler's own text form, at any level: ops, kernels, externs, or a mixture.

The bytes of large constants are next to the text: `model.npz` for `model.raot`, or
`constants.npz` for every text of the folder, by the constant's name or digest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from relax_aot.errors import RelaxAotError
from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.frontends.arrays import read_npz
from relax_aot.frontends.bounds import WrongBound
from relax_aot.frontends.growth import (
    check_windows,
    from_zero,
    with_growth,
    with_window_bounds,
)
from relax_aot.frontends.text.options import apply, named_axes
from relax_aot.frontends.text.parts import parts_of
from relax_aot.inference.refine import refine
from relax_aot.inference.requirements import complete
from relax_aot.ir import check
from relax_aot.ir.entries import Entries
from relax_aot.ir.graph import Array, Call, Module
from relax_aot.ir.parse import parse
from relax_aot.ir.text import is_stored, to_text
from relax_aot.microkernels import all_micro_kernels
from relax_aot.ops import deduce, former_names
from relax_aot.progress import note

SUFFIXES = (".raot",)
SHARED_DATA = "constants.npz"


def accepts(source: Any) -> bool:
    """A module that is loaded already. A text is given to `read`, or as a file: a string is the
    path of a model."""
    return isinstance(source, Module)


def load(source: Any, options: ImportOptions) -> Module:
    if isinstance(source, Module):
        return _again(source, options)
    path = Path(source)
    module = read(text_of(path), data_beside(path), options)
    return module if module.source else replace(module, source=path.name)


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None


def read(text: str, constants: Mapping[str, Array], options: ImportOptions) -> Module:
    """A sound module: it has bounds, its types are exact and those that ops deduce, and it
    states what its ops need of run-time sizes."""
    if parts_of(text):
        raise ModelError("this text is that of several entries: read it with parse_entries")
    parsed = current_names(parse(text, constants, all_micro_kernels()))

    def sound(chosen: ImportOptions) -> Module:
        module = with_growth(refine(apply(named_axes(parsed), chosen)), chosen.window)
        check.check(module, deduce)
        module = complete(module)
        check.check(module, deduce)
        return module

    options = with_window_bounds(options)
    module = from_zero(sound, options)
    if options.used is None:
        check_windows(options, [module])
    return module


def current_names(module: Module) -> Module:
    """With the present names of ops that older text calls otherwise; a warning names both."""
    former = former_names()
    old = {c.op for f in module.functions for c in f.body if c.op in former}
    for name in sorted(old):
        note(f"the op {name} is now called {former[name]}: the old name is read, not written")

    def renamed(call: Call) -> Call:
        return replace(call, op=former[call.op]) if call.op in old else call

    if not old:
        return module
    functions = tuple(replace(f, body=tuple(map(renamed, f.body))) for f in module.functions)
    return replace(module, functions=functions)


def _require_same_windows(module: Module, options: ImportOptions) -> None:
    """The sizes of a loaded module are simplified for its windows."""
    kept = {module.source_name(n): g.is_window * g.capacity for n, g in module.lengths.items()}
    for name, rows in options.window.items():
        if kept.get(name, rows) != rows:
            raise ModelError(
                f"--window {name}={rows}: the module was loaded without this window; load the model"
                " with it"
            )


def _again(module: Module, options: ImportOptions) -> Module:
    """A module that is loaded, with further options. Conditions that its bounds decided are
    gone, so that bounds can only be narrowed."""
    if not (options.bounds or options.fix or options.state or options.assume or options.window):
        return module
    _require_same_windows(module, options)
    for symbol in module.symbols:
        name = module.source_name(symbol.name)
        most = symbol.growth.capacity if symbol.growth else symbol.high
        low, high = options.bounds.get(name, (symbol.low, most))
        if not symbol.inner and not symbol.low <= low <= high <= most:
            if name in options.window and not options.state:
                check_windows(options, [module])
            raise WrongBound(
                f"{options.said(name, ends=True)}: the module was loaded for"
                f" {symbol.low}..{most}, which can only be narrowed; load the model with"
                f" this {'window' if name in options.window else 'bound'}"
            )
    module = with_growth(refine(apply(module, options)))
    check.check(module, deduce)
    module = complete(module)
    check.check(module, deduce)
    return module


def save(module: Module | Entries, path: str | os.PathLike[str]) -> Path:
    """Write the text to `path`, and the data of large constants to the .npz next to it: of several
    entries by their digests, each once."""
    target = Path(path)
    several = [one for _, one in module.modules] if isinstance(module, Entries) else []
    stored = {c.digest: c.data for one in several for c in one.constants if is_stored(c)}
    if isinstance(module, Module):
        stored = {c.name: c.data for c in module.constants if is_stored(c)}
    try:
        target.write_text(str(module), encoding="utf-8")
        if stored:
            write_data(target.with_suffix(".npz"), stored)
    except OSError as error:
        raise ModelError(f"cannot write {target}: {error.strerror}") from None
    return target


def write_data(path: Path, arrays: Mapping[str, Array]) -> None:
    # Names of constants may be parameters of savez, so they are not given as keywords.
    np.savez(path, allow_pickle=False, **{f"{KEY}{name}": data for name, data in arrays.items()})


def write_stages(stages: Sequence[tuple[str, Module | str]], folder: Path) -> None:
    """The result of each stage, by its name: modules as .raot files that compile again, and the
    data of their large constants."""
    data: dict[str, Array] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, (stage, value) in enumerate(stages, 1):
            suffix, text = ("txt", value) if isinstance(value, str) else ("raot", to_text(value))
            (folder / f"{number:02d}-{stage}.{suffix}").write_text(text, encoding="utf-8")
            if isinstance(value, Module):
                data |= {c.digest: c.data for c in value.constants if is_stored(c)}
        if data:
            write_data(folder / SHARED_DATA, data)
    except OSError as error:
        raise RelaxAotError(f"cannot write the dump into {folder}: {error.strerror}") from error


KEY = "%"


def data_beside(path: Path) -> dict[str, Array]:
    for candidate in (path.with_suffix(".npz"), path.with_name(SHARED_DATA)):
        if candidate.is_file():
            try:
                return {name.removeprefix(KEY): a for name, a in read_npz(candidate).items()}
            except ValueError as error:
                raise ModelError(f"cannot read {candidate} as .npz: {error}") from None
    return {}


__all__ = ["SHARED_DATA", "SUFFIXES", "accepts", "load", "read", "save", "write_data"]
