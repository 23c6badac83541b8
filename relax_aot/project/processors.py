# SPDX-License-Identifier: Apache-2.0
"""A program for hosts and 64-bit Arm Linux moves between machines: code for several processors,
chosen while it runs.

Each file includes `<name>.c`, with other names for its public functions, and is compiled with the
flags of its processors; `CMakeLists.txt` has them. A folder of their own keeps them from builds
that compile every file next to the header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.render import render
from relax_aot.emit.view import ModelView
from relax_aot.project.board import Board


@dataclass(frozen=True, slots=True)
class Test:
    """A condition in C that a program tests while it runs, what it includes for it, and the
    functions that it calls."""

    condition: str
    header: str = ""
    functions: str = ""


@dataclass(frozen=True, slots=True)
class Processors:
    """Processors with the same instructions: the compiler's options for them, what C
    tests while running, and the macro that our headers ask for them (none: any C profits)."""

    name: str
    title: str
    options: tuple[str, ...]
    tests: tuple[Test, ...]
    macro: bytes = b""

    @property
    def flags(self) -> str:
        """As a list of CMake."""
        return ";".join(self.options)

    @property
    def command(self) -> str:
        """As words of a command line."""
        return " ".join(self.options)

    @property
    def without(self) -> str:
        """The macro that says that the compiler does not know the options."""
        return f"RAOT_WITHOUT_{self.name.upper()}"


@dataclass(frozen=True, slots=True)
class Architecture:
    """What `CMakeLists.txt` calls it, and its processors, the fastest first."""

    folder: str
    title: str
    condition: str
    native: str
    """The option that compiles for the processor of this machine."""
    kinds: tuple[Processors, ...]

    def used_by(self, headers: Mapping[str, bytes]) -> Architecture | None:
        """With the processors that C with these headers profits from."""
        kinds = [k for k in self.kinds if any(k.macro in text for text in headers.values())]
        return replace(self, kinds=tuple(kinds)) if kinds else None

    @property
    def test_headers(self) -> tuple[str, ...]:
        return self._of_tests(lambda test: test.header)

    @property
    def test_functions(self) -> tuple[str, ...]:
        return self._of_tests(lambda test: test.functions)

    def _of_tests(self, part: Callable[[Test], str]) -> tuple[str, ...]:
        """What is not empty, once each."""
        parts = dict.fromkeys(part(test) for kind in self.kinds for test in kind.tests)
        return tuple(one for one in parts if one)

    @property
    def kind_titles(self) -> str:
        *others, last = (f"processors with {kind.title}" for kind in reversed(self.kinds))
        return f"{', '.join(others)} and {last}" if others else last


def _x86(name: str, title: str, *features: str) -> Processors:
    tests = tuple(Test(f'__builtin_cpu_supports("{feature}")') for feature in features)
    return Processors(name, title, tuple(f"-m{feature}" for feature in features), tests)


# Older compilers do not know the names of these two in tests. Processors with AVX2 have leaf 7 of
# CPUID, and whether the system keeps the registers is part of the test of AVX2.
_AVXVNNI = Test(
    "has_vnni_of_avx()",
    "<cpuid.h>",
    """\
static inline int has_vnni_of_avx(void)
{
#if defined(__clang__) || __GNUC__ < 11
    unsigned int a, b, c, d;

    __cpuid_count(7, 0, a, b, c, d);
    if (a == 0) {
        return 0;
    }
    __cpuid_count(7, 1, a, b, c, d);
    return (a & 0x10U) != 0;
#else
    return __builtin_cpu_supports("avxvnni");
#endif
}
""",
)
_F16C = Test(
    "has_f16c()",
    "<cpuid.h>",
    """\
static inline int has_f16c(void)
{
    unsigned int a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
""",
)
_AVX2 = ("avx2", "fma")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni")
_WITH_AVX2 = _x86("avx2", "AVX2 and FMA", *_AVX2)
X86_64 = Architecture(
    "x86_64",
    "x86-64",
    'CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$"',
    "-march=native",
    (
        _x86("avx512", "AVX-512 and VNNI", *_AVX2, *_AVX512),
        Processors(
            "avxvnni", "AVX-VNNI", (*_WITH_AVX2.options, "-mavxvnni"),
            (*_WITH_AVX2.tests, _AVXVNNI), b"__AVXVNNI__",
        ),
        _WITH_AVX2,
    ),
)  # fmt: skip
X86_64_HALF = replace(
    X86_64,
    kinds=tuple(
        replace(kind, options=(*kind.options, "-mf16c"), tests=(*kind.tests, _F16C))
        for kind in X86_64.kinds
    ),
)
# The bits of Linux's <asm/hwcap.h>, which older C libraries lack: HWCAP_ASIMDDP, HWCAP2_I8MM.
_DOTPROD, _I8MM = (
    Test(f"(getauxval({name}) & (1UL << {bit})) != 0", "<sys/auxv.h>")
    for name, bit in (("AT_HWCAP", 20), ("AT_HWCAP2", 13))
)
AARCH64 = Architecture(
    "aarch64",
    "64-bit Arm",
    'CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$"'
    ' AND NOT CMAKE_C_FLAGS MATCHES "-m(cpu|arch)="',
    "-mcpu=native",
    (
        Processors(
            "i8mm", "the I8MM extension", ("-march=armv8.2-a+dotprod+i8mm",),
            (_DOTPROD, _I8MM), b"__ARM_FEATURE_MATMUL_INT8",
        ),
        Processors(
            "dotprod", "the DotProd extension", ("-march=armv8.2-a+dotprod",), (_DOTPROD,),
            b"__ARM_FEATURE_DOTPROD",
        ),
    ),
)  # fmt: skip
_ANY = Processors("any", "any processor", (), ())


def architecture_of(board: Board, headers: Mapping[str, bytes]) -> Architecture | None:
    """None where one code serves all processors; `headers`: those of the project."""
    if board.family == "host":
        half = any(b"__F16C__" in text for text in headers.values())
        return (X86_64_HALF if half else X86_64).used_by(headers)
    return (
        AARCH64.used_by(headers) if board.family == "linux" and "asimd" in board.features else None
    )


@dataclass(frozen=True, slots=True)
class FunctionView:
    """A public function, and what it is called in the code for some processors."""

    name: str
    other: str
    declaration: str
    arguments: str
    hands_back: str
    """`return `, or nothing where it returns nothing."""

    @property
    def is_void(self) -> bool:
        return not self.hands_back


@dataclass(frozen=True, slots=True)
class KindView:
    """The code for some processors, or for any."""

    processors: Processors
    functions: tuple[FunctionView, ...]


@dataclass(frozen=True, slots=True)
class CaseView:
    processors: Processors
    function: str


@dataclass(frozen=True, slots=True)
class ChoiceView:
    """A public function that calls the code for the processor that it runs on."""

    plain: FunctionView
    cases: tuple[CaseView, ...]
    any: str


def processor_files(architecture: Architecture, model: ModelView) -> dict[str, bytes]:
    """The C files for each kind of processors, and the one that chooses."""
    kinds = [_view(model, one) for one in architecture.kinds]
    files = {
        kind.processors.name: render(
            "project/processors.c.j2", model=model, kind=kind, architecture=architecture
        )
        for kind in kinds
    }
    files["dispatch"] = render(
        "project/dispatch.c.j2", model=model, kinds=kinds, any=(_view(model, _ANY),),
        choices=_choices(model, kinds), architecture=architecture,
    )  # fmt: skip
    folder = architecture.folder
    return {f"{folder}/{model.name}_{end}.c": text.encode() for end, text in files.items()}


def _choices(model: ModelView, kinds: Sequence[KindView]) -> tuple[ChoiceView, ...]:
    choices = []
    named = zip(_functions(model, ""), _view(model, _ANY).functions, strict=True)
    for number, (plain, any_) in enumerate(named):
        cases = [CaseView(k.processors, k.functions[number].other) for k in kinds]
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
        found.append(FunctionView(one.name, other, one.declaration, one.arguments, one.hands_back))
    return tuple(found)
