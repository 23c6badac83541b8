# SPDX-License-Identifier: Apache-2.0
"""The fields of a `config.json`, each checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.bounds import printable

GREATEST_SIZE = 2**24
"""Of a width, a vocabulary or a context: larger ones are errors of the file."""
MOST_LAYERS = 2**12
LEAST_NUMBER, GREATEST_NUMBER = map(float, (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


@dataclass(frozen=True, slots=True)
class Config:
    """An object of the file; `file` names it in messages."""

    file: str
    fields: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def filled(self, **defaults: Any) -> Config:
        """With these values of fields that are not there."""
        given = {name: value for name, value in self.fields.items() if value is not None}
        return Config(self.file, {**defaults, **given})

    def missing(self, **defaults: Any) -> Config:
        """With these values of fields that the file does not name; one that is null stays null."""
        return Config(self.file, {**defaults, **self.fields})

    def size(self, name: str, default: int | None = None, most: int = GREATEST_SIZE) -> int:
        """A size of at least 1."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.wrong(name, f"a number from 1 to {most}")
        return value

    def count(self, name: str, default: int) -> int:
        """A number of at least 0."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.wrong(name, "a number of at least 0")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number."""
        value = self._value(name, default)
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not LEAST_NUMBER <= value <= GREATEST_NUMBER:
            raise self.wrong(name, "a positive number of float32")
        return float(value)

    def limit(self, name: str) -> float | None:
        """A positive number, if it is there."""
        return self.number(name) if name in self else None

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def each(self, name: str, count: int, *allowed: Any) -> list[Any] | None:
        """A list with one of the allowed values for each of `count` layers; None if it is not
        there."""
        values = self.fields.get(name)
        if values is None:
            return None
        if not isinstance(values, list) or len(values) < count:
            raise self.wrong(name, f"a list of {count}")
        strange = [one for one in values[:count] if one not in allowed]
        if strange:
            listed = " or ".join(map(str, allowed))
            raise UnsupportedError(
                f"{self.file}: {name} has {_shown(strange[0])}, which is not supported, only"
                f" {listed}"
            )
        return values[:count]

    def part(self, name: str) -> Config | None:
        """An object in this one."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Config(f"{self.file}, {printable(name)}", value)

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse a field with a value that is not compiled; it may be missing."""
        if name in self and self.fields[name] not in allowed:
            listed = " or ".join(map(str, allowed)) or "nothing"
            raise UnsupportedError(
                f"{self.file}: {name}={_shown(self.fields[name])} is not supported, only {listed}"
            )

    def _value(self, name: str, default: float | None) -> Any:
        value = self.fields.get(name)
        if value is None and default is None:
            raise ModelError(f"{self.file} has no field {name}")
        return default if value is None else value

    def wrong(self, name: str, expected: str) -> ModelError:
        return ModelError(
            f"{self.file}: {printable(name)} is {_shown(self.fields.get(name))},"
            f" expected {expected}"
        )


def _shown(value: Any) -> str:
    return printable(str(value)[:200])
