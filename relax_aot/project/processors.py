# SPDX-License-Identifier: Apache-2.0
"""A program for this machine runs on others: code for several processors, chosen while it runs.

Each file includes `<name>.c`, with other names for its public functions, and is compiled with the
flags of its processors; `CMakeLists.txt` has them. A folder of their own keeps them from builds
that compile every file next to the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.emit.render import render
from relax_aot.emit.view import ModelView
from relax_aot.project.board import Board

FOLDER = "x86_64"


@dataclass(frozen=True, slots=True)
class Processors:
    """Processors with the same instructions. `features` are names of GCC and Clang, for flags and
    for the test while running."""

    name: str
    title: str
    features: tuple[str, ...]

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(f"-m{feature}" for feature in self.features)

    @property
    def flags(self) -> str:
        """As a list of CMake."""
        return ";".join(self.options)

    @property
    def command(self) -> str:
        """As words of a command line."""
        return " ".join(self.options)


@dataclass(frozen=True, slots=True)
class FunctionView:
    """A public function, and what it is called in the code for some processors."""

    name: str
    other: str
    declaration: str
    arguments: str


@dataclass(frozen=True, slots=True)
class KindView:
    """The code for some processors, or for any."""

    processors: Processors
    functions: tuple[FunctionView, ...]


@dataclass(frozen=True, slots=True)
class CaseView:
    processors: str
    function: str


@dataclass(frozen=True, slots=True)
class ChoiceView:
    """A public function that calls the code for the processor that it runs on."""

    plain: FunctionView
    cases: tuple[CaseView, ...]
    any: str


_AVX2 = ("avx2", "fma")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni")
PROCESSORS = (
    Processors("avx512", "AVX-512 with VNNI", (*_AVX2, *_AVX512)),
    Processors("avx2", "AVX2 and FMA", _AVX2),
)
"""The fastest first."""
_ANY = Processors("any", "any processor", ())


def processors_of(board: Board) -> tuple[Processors, ...]:
    return PROCESSORS if board.family == "host" else ()


def processor_files(board: Board, model: ModelView) -> dict[str, bytes]:
    """The C files for each kind of processors, and the one that chooses."""
    kinds = [_view(model, one) for one in processors_of(board)]
    files = {
        kind.processors.name: render("project/processors.c.j2", model=model, kind=kind)
        for kind in kinds
    }
    if kinds:
        files["dispatch"] = render(
            "project/dispatch.c.j2", model=model, kinds=kinds, any=(_view(model, _ANY),),
            choices=_choices(model, kinds),
        )  # fmt: skip
    return {f"{FOLDER}/{model.name}_{end}.c": text.encode() for end, text in files.items()}


def _choices(model: ModelView, kinds: Sequence[KindView]) -> tuple[ChoiceView, ...]:
    choices = []
    named = zip(_functions(model, ""), _view(model, _ANY).functions, strict=True)
    for number, (plain, any_) in enumerate(named):
        cases = [CaseView(k.processors.name, k.functions[number].other) for k in kinds]
        choices.append(ChoiceView(plain, tuple(cases), any_.other))
    return tuple(choices)


def _view(model: ModelView, processors: Processors) -> KindView:
    return KindView(processors, _functions(model, f"_{processors.name}"))


def _functions(model: ModelView, suffix: str) -> tuple[FunctionView, ...]:
    """Names that follow the bounds, as those of the plain functions do."""
    found = []
    for one in model.functions:
        other = f"{one.name}{suffix}"
        other = f"{model.prefix}_NAMED({other})" if model.renaming else other
        found.append(FunctionView(one.name, other, one.declaration, one.arguments))
    return tuple(found)
