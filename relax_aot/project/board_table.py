# SPDX-License-Identifier: Apache-2.0
"""Tables of a board file, read with a message for every way to be wrong."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax_aot.errors import RelaxAotError

_SIZE = re.compile(r"([1-9][0-9]*)([KMG]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class BoardError(RelaxAotError):
    """A board that does not exist, or whose file is wrong."""


@dataclass(frozen=True, slots=True)
class Table:
    """A TOML table that knows where it stands, for messages."""

    path: Path
    where: str
    data: dict[str, Any]

    def fail(self, key: str, expected: str) -> BoardError:
        value = f"got {self.data[key]!r}" if key in self.data else "it is missing"
        return BoardError(f"{self.path}: {self.where}{key}: expected {expected}; {value}")

    def only(self, *known: str) -> None:
        for key in self.data:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise BoardError(f"{self.path}: {self.where}{key}: unknown key; {hint}")

    def text(self, key: str) -> str:
        value = self.data.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.fail(key, "a text that is not empty")
        return value.strip()

    def optional_text(self, key: str) -> str:
        return self.text(key) if key in self.data else ""

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self.data.get(key)
        if value not in choices:
            raise self.fail(key, f"one of {', '.join(choices)}")
        return str(value)

    def texts(self, key: str, choices: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self.data.get(key, [])
        good = isinstance(value, list) and all(isinstance(v, str) and v for v in value)
        if not good or (choices is not None and not set(value) <= set(choices)):
            what = "texts" if choices is None else f"some of {', '.join(choices)}"
            raise self.fail(key, f"a list of {what}")
        return tuple(value)

    def size(self, key: str) -> int:
        """Bytes: a positive integer, or a text such as "64K" or "4M"."""
        value = self.data.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise self.fail(key, 'bytes as a positive integer or a text such as "64K"')
        return int(match[1]) * _UNITS[match[2]]

    def count(self, key: str) -> int:
        value = self.data.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.fail(key, "a whole number from 1 on")
        return value

    def number(self, key: str) -> int:
        value = self.data.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.fail(key, "a whole number from 0 on")
        return value

    def counts(self, key: str) -> tuple[int, ...]:
        value = self.data.get(key)
        good = isinstance(value, list) and all(type(v) is int and v > 0 for v in value)
        if not good:
            raise self.fail(key, "a list of whole numbers from 1 on")
        assert isinstance(value, list)
        return tuple(value)

    def positive(self, key: str) -> float:
        value = self.data.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise self.fail(key, "a number above 0")
        return float(value)

    def address(self, key: str) -> int:
        value = self.data.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
            raise self.fail(key, "an address from 0 to 0xffffffff")
        return value

    def flag(self, key: str) -> bool:
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise self.fail(key, "true or false")
        return value

    def table(self, key: str) -> Table:
        value = self.data.get(key)
        if not isinstance(value, dict):
            raise self.fail(key, f"a table [{key}]")
        return Table(self.path, f"{self.where}{key}.", value)

    def tables(self, key: str) -> tuple[Table, ...]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self.fail(key, f"tables [[{key}]]")
        return tuple(Table(self.path, f"{key}[{i}].", v) for i, v in enumerate(value))
