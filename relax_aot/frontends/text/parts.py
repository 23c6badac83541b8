# SPDX-License-Identifier: Apache-2.0
"""The text of several entries: a line `entry NAME` before the text of each."""

from __future__ import annotations

import re
from pathlib import Path

from relax_aot.frontends import ModelError

_HEAD = re.compile(r"entry[ \t]+(\S+)[ \t]*(#.*)?")


def parts_of(text: str) -> dict[str, str]:
    """The text of each entry, on the lines on which it stands in the whole; nothing where the
    text is that of one module."""
    lines = text.splitlines()
    heads = [(n, found[1]) for n, line in enumerate(lines) if (found := _HEAD.fullmatch(line))]
    if not heads:
        return {}
    for number, line in enumerate(lines[: heads[0][0]], 1):
        if line.strip() and not line.lstrip().startswith("#"):
            raise ModelError(f"line {number}: this stands before the first entry: {line.strip()}")
    parts: dict[str, str] = {}
    ends = [*(n for n, _ in heads[1:]), len(lines)]
    for (start, name), end in zip(heads, ends, strict=True):
        if name in parts:
            raise ModelError(f"line {start + 1}: duplicate entry {name}")
        parts[name] = "\n" * (start + 1) + "\n".join(lines[start + 1 : end]) + "\n"
    return parts


def has_parts(path: Path) -> bool:
    """Whether a file is the text of several entries; False where it is no text."""
    try:
        return path.suffix == ".raot" and bool(parts_of(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError):
        return False
