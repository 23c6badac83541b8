# SPDX-License-Identifier: Apache-2.0
"""Arguments of the Python interface: each is checked by kind before anything is done with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from relax_aot.errors import RelaxAotError


class WrongArgument(RelaxAotError):
    """An argument of another kind than the function takes."""


def _wrong(name: str, wanted: str, value: object) -> WrongArgument:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return WrongArgument(f"{name} must be {wanted}, got {shown} ({type(value).__name__})")


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(name, "a string", value)
    return value


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, "True or False", value)
    return value


def number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _wrong(name, "an integer", value)
    return int(value)


def path(name: str, value: object) -> str | os.PathLike[str]:
    if not isinstance(value, str | os.PathLike):
        raise _wrong(name, "a path", value)
    if "\0" in os.fspath(value):
        raise _wrong(name, "a path without null characters", value)
    return value


def texts(name: str, value: object) -> tuple[str, ...]:
    """Several strings. One string alone is a mistake: its characters would be meant."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _wrong(name, "a list of strings", value)
    return tuple(text(f"each of {name}", one) for one in value)


def paths(name: str, value: object) -> tuple[str | os.PathLike[str], ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _wrong(name, "a list of paths", value)
    return tuple(path(f"each of {name}", one) for one in value)


def prefix(value: object) -> bytes | tuple[int, ...] | None:
    """What texts begin with: text, or tokens."""
    if value is None or isinstance(value, str):
        return None if value is None else value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes) or not isinstance(value, Sequence | np.ndarray):
        raise _wrong("prefix", "a string or a list of tokens", value)
    return tuple(number("each token of prefix", one) for one in value)


def named(name: str, value: object) -> Mapping[str, Any]:
    """A mapping by names; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _wrong(name, "a mapping by name", value)
    return value


def named_texts(name: str, value: object) -> Mapping[str, str]:
    return {key: text(f"{name}[{key!r}]", one) for key, one in named(name, value).items()}


def kind(name: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    if not isinstance(value, kinds):
        raise _wrong(name, wanted, value)
