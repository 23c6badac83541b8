# SPDX-License-Identifier: Apache-2.0
"""The call of a kernel as C: its arguments, and its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from relax_aot.emit.contexts import RunContext
from relax_aot.ir.loops import Kernel
from relax_aot.planning.steps import Step


class Kind(Enum):
    """What an argument of a kernel is."""

    SIZE = "size"
    POINTER = "pointer"
    NUMBER = "number"
    TEAM = "team"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its C text, and the type and name that the kernel declares for it."""

    kind: Kind
    text: str
    type: str
    name: str
    root: str = ""
    """The storage root that a pointer refers to."""

    @property
    def is_table(self) -> bool:
        """The text is the initializer of a struct, which is passed by its address."""
        return self.text.startswith("{")


@dataclass(frozen=True, slots=True)
class KernelCall:
    """The C function of a kernel with its arguments, in C's order."""

    c_name: str
    layer: str
    """The name in profiles."""
    fallible: bool
    arguments: tuple[Argument, ...]

    def lines(self, texts: Sequence[str], pad: str) -> Iterator[str]:
        """The call with `texts` as arguments, and the end of the caller where it fails."""
        values: list[str] = []
        tables: list[str] = []
        for argument, text in zip(self.arguments, texts, strict=True):
            if text.startswith("{"):
                tables += table(argument.type, argument.name, text)
            values.append(f"&{argument.name}" if text.startswith("{") else text)
        if tables:
            # Each call has numbers of its own, in a block of their own.
            yield f"{pad}{{"
            pad += "    "
            yield from (f"{pad}{line}" for line in tables)
        call = f"{self.c_name}({', '.join(values)})"
        if self.fallible:
            yield f"{pad}RAOT_PROFILE({self.layer}, status = {call});"
            yield from refused("status != RAOT_OK", "status", pad)
        else:
            yield f"{pad}RAOT_PROFILE({self.layer}, {call});"
        if tables:
            yield f"{pad.removesuffix('    ')}}}"


def kernel_call(context: RunContext, step: Step) -> KernelCall:
    """The call of a step, with the names that the statements of a run use."""
    kernel = step.callee
    assert isinstance(kernel, Kernel)
    text = context.kernels[kernel.name]
    given = [
        *((Kind.SIZE, context.symbols[symbol], "") for symbol in text.symbols),
        *((Kind.POINTER, context.values[root], root) for root in (*step.args, *step.outs)),
        *((Kind.NUMBER, value, "") for value in text.arguments),
        *([(Kind.TEAM, "memory->team", "")] if text.has_team else []),
    ]
    arguments = []
    for (kind, value, root), parameter in zip(given, context.parameters(kernel), strict=True):
        type_, name = re.split(r"(?<=[ *])(?=\w+$)", parameter.replace("restrict ", ""))
        arguments.append(Argument(kind, value, type_.strip(), name, root))
    return KernelCall(text.c_name, text.layer, kernel.fallible, tuple(arguments))


def table(type_: str, name: str, text: str) -> list[str]:
    """The declaration of a struct of numbers."""
    return f"static {type_.removesuffix('*')}{name} = {text}".split("\n")


def refused(condition: str, status: str, pad: str) -> Iterator[str]:
    """The end of a function with a status."""
    yield f"{pad}if ({condition}) {{"
    yield f"{pad}    return {status};"
    yield f"{pad}}}"
