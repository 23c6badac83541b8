# SPDX-License-Identifier: Apache-2.0
"""What each object adds to an image, from the linker's map: GNU ld's or LLD's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_GNU_START = "Linker script and memory map"
_GNU_LINE = re.compile(
    r"^ (?P<section>\.[\w.$-]+|COMMON)\s+0x[0-9a-f]+\s+0x(?P<size>[0-9a-f]+) (?P<file>\S.*)$", re.M
)
_LLD_START = "     VMA"
_LLD_LINE = re.compile(
    r"^ *[0-9a-f]+ +[0-9a-f]+ +(?P<size>[0-9a-f]+) +\d+ {9}(?P<file>\S.*):\((?P<section>[^)]+)\)$",
    re.M,
)


@dataclass(frozen=True, slots=True)
class ObjectUsage:
    """Bytes that one object adds to the image. `owner`: model, support, harness, library
    (taken in by the model) or system."""

    name: str
    owner: str
    code: int
    constants: int
    data: int
    zeroed: int


def usage_of(text: str, family: str) -> tuple[ObjectUsage, ...]:
    """From the linker's map: input sections that were kept, by object file."""
    sizes: dict[str, dict[str, int]] = {}
    for section, size, file in _lld(text) if text.startswith(_LLD_START) else _gnu(text):
        kind = _kind(section)
        if kind is not None:
            of_file = sizes.setdefault(file, {})
            of_file[kind] = of_file.get(kind, 0) + size
    return tuple(
        ObjectUsage(
            name=Path(file).name,
            owner=_owner(file, family),
            code=of_file.get("code", 0),
            constants=of_file.get("constants", 0),
            data=of_file.get("data", 0),
            zeroed=of_file.get("zeroed", 0),
        )
        for file, of_file in sorted(sizes.items())
        if any(of_file.values())
    )


def _gnu(text: str) -> Iterator[tuple[str, int, str]]:
    """Section, bytes and object of each line."""
    kept = text[text.index(_GNU_START) :]
    # A long section name stands on a line of its own.
    kept = re.sub(r"^( \.\S+)\n\s+0x", r"\1 0x", kept, flags=re.M)
    for match in _GNU_LINE.finditer(kept):
        yield match["section"], int(match["size"], 16), match["file"]


def _lld(text: str) -> Iterator[tuple[str, int, str]]:
    """Strings that it joined are of no object: they count as the system's."""
    for match in _LLD_LINE.finditer(text):
        yield match["section"], int(match["size"], 16), match["file"]


def _kind(section: str) -> str | None:
    for prefix, kind in (
        (".text", "code"),
        (".vectors", "code"),
        (".rodata", "constants"),
        (".data", "data"),
        (".bss", "zeroed"),
        ("COMMON", "zeroed"),
    ):
        if section == prefix or section.startswith(prefix + "."):
            return kind
    return None


def _owner(file: str, family: str) -> str:
    """On Linux the harness itself needs much of the C library: there only libm is the model's."""
    for owner in ("model", "support", "harness"):
        if re.match(rf"{owner}\d+_", Path(file).name):
            return owner
    if family == "cortex_m" or "libm" in file:
        return "library"
    return "system"
