# SPDX-License-Identifier: Apache-2.0
"""The lines of one C function as they are written, without scalars that no line reads.

An index can vanish when it is printed: as part of a sum, or along an axis without elements.
Compilers warn of what then only gets a value.
"""

from __future__ import annotations

import re
from collections import Counter

_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_COMMENT = re.compile(r"/\*.*?\*/")


class Lines:
    """Names are those of one scope: no two scalars share one."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._definitions: dict[str, set[int]] = {}

    def add(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def define(self, depth: int, name: str, text: str) -> None:
        """A line that gives a value to a scalar and does nothing else."""
        self._definitions.setdefault(name, set()).add(len(self._lines))
        self.add(depth, text)

    def text(self) -> str:
        words = [_WORD.findall(_COMMENT.sub("", line)) for line in self._lines]
        uses = Counter(word for line in words for word in line)
        definitions = dict(self._definitions)
        removed: set[int] = set()
        while True:
            unread = [
                name
                for name, own in definitions.items()
                if uses[name] == sum(words[at].count(name) for at in own)
            ]
            if not unread:
                break
            for name in unread:
                for at in definitions.pop(name):
                    uses.subtract(words[at])
                    removed.add(at)
        return "\n".join(line for at, line in enumerate(self._lines) if at not in removed)
