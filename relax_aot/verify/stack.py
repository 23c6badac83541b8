"""The worst case of the stack, from the compiler's own figures.

GCC writes, with `-fcallgraph-info=su`, the frame of each function and whom it calls
(`.ci` files). The deepest path from a root is the bound. Functions of the C and compiler
libraries come without figures; each counts `LIBRARY_BYTES`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from relax_aot.errors import RelaxAotError

LIBRARY_BYTES = 64
_NODE = re.compile(r'^node: \{ title: "([^"]*)" label: "([^"]*)"', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"', re.MULTILINE)
_BYTES = re.compile(r"(\d+) bytes \((static|dynamic|dynamic,bounded)\)")


class StackError(RelaxAotError):
    """There is no bound: a function is missing, recursive, or has a frame of any size."""


@dataclass(frozen=True, slots=True)
class StackBound:
    """`path` leads from the root to the deepest frame. `exact` is False where a library
    function without figures lies on it."""

    bytes: int
    path: tuple[str, ...]
    exact: bool


def worst_stack(ci_files: Sequence[Path], root: str) -> StackBound:
    """The deepest path from the function `root`."""
    frames: dict[str, int] = {}
    calls: dict[str, list[str]] = {}
    for path in sorted(ci_files):
        text = path.read_text()
        for title, label in _NODE.findall(text):
            found = _BYTES.search(label)
            if found is None:
                continue
            if found.group(2) == "dynamic":
                raise StackError(f"{_plain(title)} has a frame whose size only run time knows")
            frames[title] = int(found.group(1))
        for source, target in _EDGE.findall(text):
            calls.setdefault(source, []).append(target)
    titles = {_plain(title): title for title in frames}
    if root not in titles:
        raise StackError(f"no stack figures for {root}; was it compiled with -fcallgraph-info=su?")
    active: list[str] = []

    @cache
    def deepest(title: str) -> tuple[int, tuple[str, ...], bool]:
        if title in active:
            raise StackError(f"{_plain(title)} calls itself")
        known = titles.get(_plain(title), title)
        if known not in frames:
            return LIBRARY_BYTES, (_plain(title),), False
        active.append(title)
        below = max((deepest(callee) for callee in calls.get(known, ())), default=(0, (), True))
        active.pop()
        return frames[known] + below[0], (_plain(title), *below[1]), below[2]

    total, path_, exact = deepest(titles[root])
    return StackBound(total, path_, exact)


def _plain(title: str) -> str:
    """`file.c:name` -> `name`."""
    return title.rpartition(":")[2]
