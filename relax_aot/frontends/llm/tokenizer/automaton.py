# SPDX-License-Identifier: Apache-2.0
"""Trees of patterns -> tables of deterministic automata, which find the match of backtracking.

First the program of a virtual machine with alternatives in order (Thompson, Pike), then states that
are lists of its positions in that order, cut behind the first that matches (Cox, "Regular
Expression Matching in the Wild"). `raot/pattern.h` describes the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends import UnsupportedError
from relax_aot.frontends.llm.tokenizer.regex import (
    MOST_INSTRUCTIONS,
    Ahead,
    Choice,
    Node,
    One,
    Repeat,
    Sequence,
)

MOST_STATES = 2000
MOST_STEPS = 2_000_000
"""Instructions that are followed while the table is made, which takes some seconds; patterns of
checkpoints take less than 10,000."""


@dataclass(frozen=True, slots=True)
class _Split:
    """Go on at each of these, in order."""

    targets: tuple[int, ...]


_MATCH = _Split(())
_Instruction = One | Ahead | _Split


@dataclass
class _Program:
    """Instructions; after One and Ahead, the next one follows at `targets`."""

    where: str
    instructions: list[_Instruction] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    steps: int = 0

    def add(self, instruction: _Instruction, target: int = -1) -> int:
        if len(self.instructions) >= MOST_INSTRUCTIONS:
            raise UnsupportedError(
                f"{self.where}: the pattern takes more than {MOST_INSTRUCTIONS} instructions"
            )
        self.instructions.append(instruction)
        self.targets.append(target)
        return len(self.instructions) - 1

    def node(self, node: Node, then: int) -> int:
        """Add the instructions of a node that go on at `then`; return where they begin."""
        match node:
            case One() | Ahead():
                return self.add(node, then)
            case Sequence(parts):
                for part in reversed(parts):
                    then = self.node(part, then)
                return then
            case Choice(parts):
                return self.add(_Split(tuple(self.node(part, then) for part in parts)))
            case Repeat():
                return self.repeat(node, then)

    def repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self.add(_MATCH)
            body = self.node(node.part, loop)
            self.instructions[loop] = _Split((then, body) if node.lazy else (body, then))
            start = loop
        else:
            start = then
            for _ in range(node.most - node.least):
                body = self.node(node.part, start)
                start = self.add(_Split((then, body) if node.lazy else (body, then)))
        for _ in range(node.least):
            before, start = start, self.node(node.part, start)
            if start == before:  # Nothing, which nested repetitions would add for years.
                break
        return start


def table_of(node: Node, classes: list[list[bool]], where: str) -> NDArray[np.uint16]:
    """The table [states, classes + 1] of a pattern: 2 * next state + whether a match ends before
    the code point. `classes` say for each class which sets contain it."""
    program = _Program(where)
    match = program.add(_MATCH)
    start = program.node(node, match)
    states: dict[tuple[int, ...], int] = {(): 0, (start,): 1}
    rows: list[list[int]] = []
    waiting = [(), (start,)]
    while len(rows) < len(waiting):
        row = []
        for contained in (*classes, None):
            after, matched = _step(program, match, waiting[len(rows)], contained)
            if after not in states:
                states[after] = len(states)
                waiting.append(after)
            row.append(2 * states[after] + matched)
        rows.append(row)
        if len(waiting) > MOST_STATES:
            raise UnsupportedError(f"{where}: the pattern takes more than {MOST_STATES} states")
        if program.steps > MOST_STEPS:
            raise UnsupportedError(f"{where}: the pattern takes more than {MOST_STEPS} steps")
    if any(entry & 1 for entry in rows[1]):
        raise UnsupportedError(f"{where}: the pattern matches the empty text")
    return np.array(rows, np.uint16)


def _step(
    program: _Program, match: int, state: tuple[int, ...], contained: list[bool] | None
) -> tuple[tuple[int, ...], bool]:
    """The state behind a code point of a class, or behind the end of the text, and whether a match
    ends before it. Alternatives behind a match are dropped."""
    seen: set[int] = set()
    after: dict[int, None] = {}
    for entry in state:
        stack = [entry]
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            program.steps += 1
            if at == match:
                return tuple(after), True
            instruction = program.instructions[at]
            match instruction:
                case One(number):
                    if contained is not None and contained[number]:
                        after.setdefault(program.targets[at])
                case Ahead(number, negated):
                    if (contained is not None and contained[number]) != negated:
                        stack.append(program.targets[at])
                case _Split(targets):
                    stack.extend(reversed(targets))
    return tuple(after), False


def matches_everywhere(table: NDArray[np.uint16]) -> bool:
    """Whether every code point alone is a match, whatever follows it: no text is left over."""
    return all(bool((table[entry >> 1] & 1).all()) for entry in table[1, :-1].tolist())
