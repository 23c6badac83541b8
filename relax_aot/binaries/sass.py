# SPDX-License-Identifier: Apache-2.0
"""The machine code of NVIDIA GPUs, as `nvdisasm -c` prints it: instructions and loops.

A loop is what lies between a label and a branch back to it (docs.nvidia.com/cuda/cuda-binary-
utilities lists the instructions). The branch to itself at the end of a function is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:\{ )?(@!?U?P\w+ )?([A-Z][\w.]*)(.*)")
_LABEL = re.compile(r"(\.L_x?_?\w+):")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_FUNCTION = re.compile(r"\.text\.(\S+):")


@dataclass(frozen=True, slots=True)
class Instruction:
    """`opcode` has all its parts: `LDG.E.128`. `target`: the label that a branch names."""

    opcode: str
    guard: str
    target: str

    @property
    def base(self) -> str:
        return self.opcode.partition(".")[0]


@dataclass(frozen=True, slots=True)
class DeviceLoop:
    """`depth`: loops around it."""

    instructions: tuple[Instruction, ...]
    depth: int
    innermost: bool

    @property
    def mix(self) -> Counter[str]:
        """How often each instruction is there, by its name without parts."""
        return Counter(instruction.base for instruction in self.instructions)

    def share(self, *names: str) -> float:
        """The part of the instructions that have one of these names."""
        return sum(self.mix[name] for name in names) / len(self.instructions)


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The instructions of a kernel, functions that it calls included."""

    name: str
    instructions: tuple[Instruction, ...]
    loops: tuple[DeviceLoop, ...]

    def with_part(self, *parts: str) -> tuple[Instruction, ...]:
        """Those whose opcode has all these parts: `LDG` and `128`."""
        return tuple(one for one in self.instructions if {*parts} <= {*one.opcode.split(".")})

    @property
    def hottest(self) -> DeviceLoop | None:
        """The innermost loop with most loops around it; of several, the longest."""
        inner = [loop for loop in self.loops if loop.innermost]
        return max(inner, key=lambda loop: (loop.depth, len(loop.instructions)), default=None)


def read_sass(text: str) -> Mapping[str, DeviceCode]:
    """By the names of kernels."""
    parts = _FUNCTION.split(text)
    return {name: _code(name, body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def _code(name: str, body: str) -> DeviceCode:
    labels: dict[str, int] = {}
    instructions: list[Instruction] = []
    for line in body.split("\n"):
        if found := _LABEL.match(line):
            labels[found[1]] = len(instructions)
        elif found := _INSTRUCTION.match(line):
            target = _TARGET.search(found[4]) if found[3].startswith("BRA") else None
            guard = (found[2] or "").strip()
            instructions.append(Instruction(found[3], guard, target[1] if target else ""))
        elif line.startswith("//---") and instructions:
            break
    spans = dict[int, int]()
    for start, end in _backward(instructions, labels):
        spans[start] = max(spans.get(start, 0), end)
    return DeviceCode(name, tuple(instructions), tuple(_loops(instructions, spans)))


def _backward(
    instructions: list[Instruction], labels: Mapping[str, int]
) -> Iterator[tuple[int, int]]:
    for at, instruction in enumerate(instructions):
        start = labels.get(instruction.target, at)
        if start < at:
            yield start, at + 1


def _loops(instructions: list[Instruction], spans: Mapping[int, int]) -> Iterator[DeviceLoop]:
    for start, end in sorted(spans.items()):
        others = [(s, e) for s, e in spans.items() if (s, e) != (start, end)]
        depth = sum(s <= start and end <= e for s, e in others)
        innermost = not any(start <= s and e <= end for s, e in others)
        yield DeviceLoop(tuple(instructions[start:end]), depth, innermost)
