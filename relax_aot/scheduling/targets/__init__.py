"""What schedules ask of a target, one file per instruction set.

Each file has a `TARGET`; `find` takes the one whose features the board has, the most
demanding first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules


@dataclass(frozen=True, slots=True)
class Target:
    """`needs`: features of a board; `families`: those it is made for, empty for all;
    `integers`: the extension that integer contractions use, if any.

    `registers` hold one float each; a load reaches `reach` bytes from its pointer;
    `pointers` can be kept at once; `block` operations at most stand in an unrolled block;
    `code` bytes of blocks make a model count as twice as slow. Where there are vectors, the
    micro-kernel is given tiles of `rows` rows (0: no tiles), and `panel` bytes at most of an
    image are gathered for it, a multiple of `lanes` columns; `strip` bytes of one that is
    convolved by channel (0: none). `compact`: one function for all convolutions rather than
    fast loops for each.
    """

    name: str
    needs: tuple[str, ...]
    registers: int
    pointers: int
    reach: int
    block: int
    code: int
    families: tuple[str, ...] = ()
    rows: int = 0
    panel: int = 0
    lanes: int = 8
    strip: int = 0
    integers: str = ""
    compact: bool = False


def all_targets() -> tuple[Target, ...]:
    """The most demanding first."""
    names = sorted(module.name for module in iter_modules(__path__))
    found = [import_module(f"{__name__}.{name}").TARGET for name in names]
    return tuple(sorted(found, key=lambda target: (-len(target.needs), not target.families)))


def find(family: str, features: Iterable[str]) -> Target:
    has = set(features)
    return next(
        target
        for target in all_targets()
        if has.issuperset(target.needs) and (not target.families or family in target.families)
    )
