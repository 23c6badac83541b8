# SPDX-License-Identifier: Apache-2.0
"""Parsers of the common command-line options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from numpy.typing import NDArray

from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.arrays import read_npz
from relax_aot.frontends.bounds import checked_range
from relax_aot.frontends.text.parts import has_parts
from relax_aot.quantization.choice import CLI, choice_of
from relax_aot.verify.compare import Tolerance

Array = NDArray[Any]
T = TypeVar("T")


class UsageError(RelaxAotError):
    """An invalid option."""


def options_of(
    bound: Sequence[str],
    fix: Sequence[str],
    state: Sequence[str],
    assume: Sequence[str],
    window: Sequence[str] = (),
    optimize: str = "speed",
    name: str | None = None,
    extern: Sequence[str] = (),
    library: Sequence[str] = (),
    weights: str = "auto",
    quantize: str | None = None,
    calibrate: Sequence[str] = (),
    calibration: str = "minmax",
    activations: str = "asymmetric",
    keep_float: Sequence[str] = (),
    *,
    check: bool = False,
    stepwise: bool = False,
    offsets: str = "static",
    numerics: str = "blocked",
    reassociate: bool = False,
    functions: str = "auto",
    threads: int = 1,
    emit: str = "auto",
    annotate: bool = False,
) -> Options:
    choice = choice_of(
        quantize, calibration, tuple(keep_float), activations == "symmetric", bool(calibrate), CLI
    )
    return Options(
        bounds=_by_name("--bound", map(parse_bound, bound)),
        fix=_by_name("--fix", (_pair(text, "--fix", "sr=16000") for text in fix)),
        state=_by_name("--state", (_pair(text, "--state", "state=stateN") for text in state)),
        assume=tuple(assume),
        window=_by_name("--window", map(_window, window)),
        optimize=optimize,
        name=name,
        externs=tuple(extern),
        libraries=tuple(library),
        weights=weights,
        quantize=choice,
        calibrate=read_inputs(calibrate, "--calibrate"),
        check=check,
        stepwise=stepwise,
        offsets=offsets,
        numerics=numerics,
        reassociate=reassociate,
        functions=functions,
        threads=threads,
        emit=emit,
        annotate=annotate,
    )


def _by_name(option: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return the values of a repeatable option; two for one name are an error."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise UsageError(f"{option} {name}: given twice with different values; remove one")
    return found


def parse_bound(text: str) -> tuple[str, tuple[int, int]]:
    """Parse `n=128` (1..128) or `n=4..128`."""
    name, value = _pair(text, "--bound", "n=128")
    low, dots, high = value.partition("..")
    try:
        ends = (int(low), int(high)) if dots else (1, int(low))
    except ValueError:
        raise UsageError(
            f"--bound {text}: expected an integer or low..high, such as n=128 or n=4..128"
        ) from None
    return name, checked_range(name, *ends, text)


def _window(text: str) -> tuple[str, int]:
    name, value = _pair(text, "--window", "m=128")
    try:
        return name, int(value)
    except ValueError:
        raise UsageError(f"--window {text}: expected an integer, such as m=128") from None


def entries_of(models: Sequence[str]) -> dict[str, str] | Path | None:
    """Return the files of `prefill=a.onnx decode=b.onnx` by entry, or the file of a text with
    several entries; None for one model, also if its file name contains `=`."""
    if len(models) == 1 and ("=" not in models[0] or Path(models[0]).exists()):
        return Path(models[0]) if has_parts(Path(models[0])) else None
    entries: dict[str, str] = {}
    for text in models:
        name, sign, path = text.partition("=")
        if not sign or not name or not path:
            raise UsageError(
                f"{text}: several models must be entries with names, such as"
                " prefill=prefill.onnx decode=decode.onnx"
            )
        if name in entries:
            raise UsageError(f"{text}: duplicate entry {name}; choose another name")
        entries[name] = path
    return entries


def one_model(context: click.Context, _parameter: object, models: Sequence[str]) -> str:
    """Return the model of a command that does not support several entries."""
    if len(models) == 1 and entries_of(models) is None:
        return models[0]
    raise UsageError(
        f"{context.command.name} accepts one model, not several entries: run it for each model"
        " separately"
    )


def require_use(needed: str, *options: str) -> None:
    """Refuse these options of the running command, which need the absent option `needed`."""
    context = click.get_current_context()
    for option in options:
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{option} needs {needed}")


def tolerance_of(rtol: float | None, atol: float | None) -> Tolerance | None:
    """Return the tolerance of --rtol and --atol, or None for the error model."""
    if rtol is None and atol is None:
        return None
    usual = Tolerance()
    return Tolerance(usual.rtol if rtol is None else rtol, usual.atol if atol is None else atol)


def parse_at(text: str) -> dict[str, int]:
    """Parse `n=77,m=3`."""
    pairs = []
    for part in text.split(","):
        name, value = _pair(part.strip(), "--at", "n=77")
        try:
            pairs.append((name, int(value)))
        except ValueError:
            raise UsageError(f"--at {text}: {value!r} is not an integer") from None
    return _by_name("--at", pairs)


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        raise UsageError(f"{option} {text}: expected NAME=VALUE, such as {option} {example}")
    return name, value


def read_inputs(texts: Sequence[str], option: str = "--inputs") -> dict[str, Array]:
    """Read `FILE.npz` (inputs by name) and `x=FILE.npz:key`."""
    arrays: dict[str, Array] = {}
    for text in texts:
        name, sign, rest = text.partition("=")
        if sign and ":" in rest:
            path, _, key = rest.rpartition(":")
            stored = _npz(Path(path), f"{option} {text}")
            if key not in stored:
                raise UsageError(
                    f"{option} {text}: {path} has no key {key!r}; keys are {sorted(stored)}"
                )
            arrays[name] = stored[key]
        else:
            arrays |= _npz(Path(text), f"{option} {text}")
    return arrays


def _npz(path: Path, text: str) -> dict[str, Array]:
    try:
        return read_npz(path)
    except ValueError as error:
        raise UsageError(f"{text}: cannot read {path} as .npz: {error}") from None
