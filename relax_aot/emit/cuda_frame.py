# SPDX-License-Identifier: Apache-2.0
"""The words that the launches of a run on a GPU share, besides those that each run has."""

from __future__ import annotations

from dataclasses import dataclass, field

from relax_aot.emit.contexts import RunContext
from relax_aot.emit.cuda_control import FIRST_WORD, MOST_WORDS
from relax_aot.errors import RelaxAotError
from relax_aot.planning.steps import Branch, Define, Repeat, walk_steps


class TooManyLaunches(RelaxAotError):
    """A loop with more iterations than a graph can have launches."""


@dataclass(slots=True)
class Slots:
    """Words of the frame: sizes from data by symbol, and conditions by the node they belong to."""

    sizes: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    firsts: dict[str, int] = field(default_factory=dict)
    """Of the first rows of windows."""
    nodes: dict[int, int] = field(default_factory=dict)
    """The first word of a branch or loop."""
    count: int = FIRST_WORD

    @classmethod
    def of(cls, context: RunContext) -> Slots:
        slots = cls()
        for field_ in context.interface.all_lengths:
            slots.lengths[field_.source] = slots._more(1)
        for field_ in context.interface.windows:
            slots.firsts[field_.source] = slots._more(1)
        for node in walk_steps(context.plan.program.nodes):
            match node:
                case Define():
                    slots._size(node.symbol)
                case Branch():
                    slots.nodes[id(node)] = slots._more(2)
                    for size in node.sizes:
                        slots._size(size.symbol)
                case Repeat():
                    loop = node.loop
                    slots.nodes[id(node)] = slots._more(1 + len(loop.sizes))
                    for name in (loop.turn, *(row[0] for row in loop.sizes), loop.count):
                        if name:
                            slots._size(name)
                case _:
                    pass
        if slots.count > MOST_WORDS:
            raise TooManyLaunches(
                f"a run has {slots.count} data-dependent sizes and conditions; at most"
                f" {MOST_WORDS} are supported on a GPU"
            )
        return slots

    def _size(self, symbol: str) -> None:
        if symbol not in self.sizes:
            self.sizes[symbol] = self._more(1)

    def _more(self, words: int) -> int:
        first, self.count = self.count, self.count + words
        return first
