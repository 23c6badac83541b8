# SPDX-License-Identifier: Apache-2.0
"""Objects of a `tokenizer.json`, each field checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.bounds import printable

SHOWN = 80
MOST_PARTS = 16


def shown(value: Any) -> str:
    text = printable(str(value)[: SHOWN + 1])
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


@dataclass(frozen=True, slots=True)
class Part:
    """An object of the file; `where` names it in messages."""

    where: str
    fields: Mapping[str, Any]

    @property
    def type(self) -> str:
        return self.text("type")

    def text(self, name: str, default: str | None = None) -> str:
        value = self.fields.get(name)
        value = default if value is None else value
        if not isinstance(value, str) or not _is_unicode(value):
            raise self.wrong(name, "a text")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.fields.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def number(self, name: str, least: int = 0, most: int = 2**31 - 1) -> int:
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, f"a number from {least} to {most}")
        return value

    def values(self, name: str) -> list[Any]:
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def object(self, name: str) -> Part:
        return part(self.fields.get(name), f"{self.where}, {shown(name)}")

    def maybe(self, name: str) -> Part | None:
        return None if self.fields.get(name) is None else self.object(name)

    def steps(self, name: str) -> list[Part]:
        """The component `name`: none, one, or those of a Sequence."""
        found = self.maybe(name)
        if found is None:
            return []
        if found.type != "Sequence":
            return [found]
        inside = {"pre_tokenizer": "pretokenizers", "post_processor": "processors"}
        listed = inside.get(name, f"{name}s")
        values = found.values(listed)
        if len(values) > MOST_PARTS:
            raise self.wrong(name, f"a sequence of at most {MOST_PARTS}")
        return [part(v, f"{found.where}, {listed}[{i}]") for i, v in enumerate(values)]

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse a field that has another value; it may be missing or null."""
        value = self.fields.get(name)
        if value is not None and not any(value is one or value == one for one in allowed):
            listed = " or ".join(map(repr, allowed)) or "null"
            raise UnsupportedError(
                f"{self.where}: {name}={shown(value)} is not supported, only {listed}"
            )

    def wrong(self, name: str, expected: str) -> ModelError:
        return ModelError(
            f"{self.where}: {name} is {shown(self.fields.get(name))}, expected {expected}"
        )

    def unsupported(self, known: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.where}: {shown(self.type)} is not supported; supported: {known}"
        )


def part(value: Any, where: str) -> Part:
    if not isinstance(value, dict):
        raise ModelError(f"{where} is {shown(value)}, expected an object")
    return Part(where, value)


def _is_unicode(text: str) -> bool:
    """JSON can contain halves of surrogate pairs."""
    return not any("\ud800" <= char <= "\udfff" for char in text)
