# SPDX-License-Identifier: Apache-2.0
"""What CUDA C++ uses of the runtime headers, as a part of its text.

NVRTC knows no header files, so a `.cu` text holds the functions of `runtime_c/` that it calls.
Functions of the headers are `static inline` in C; here they are `__device__ inline`. Conditions
on compilers and processors of the host are gone: nvcc defines macros of the host too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from relax_aot.emit.c_conditions import Conditions
from relax_aot.emit.includes import RUNTIME
from relax_aot.resources import data_dir

_ALWAYS = ("index.h", "status.h", "fail.cuh", "lane.cuh")
_INCLUDE = re.compile(r'^#include "([\w/.]+)"\n', re.MULTILINE)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_FUNCTION = re.compile(r"__device__ inline [^(;={]*?\b(\w+)\(")
_MACRO = re.compile(r"#define (\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)
_OPEN = ("__CUDA_ARCH__", "RAOT_SHIM", "RAOT_SHIM_MATRICES")
"""Macros that differ between the compilers of one text."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A definition at the top of a header, with the comment before it."""

    text: str
    defines: frozenset[str]
    uses: frozenset[str]


def helper_text(code: str, micro: Iterable[str]) -> str:
    """The definitions that `code` uses, each behind those that it uses itself. `micro`: headers of
    micro-kernels."""
    words = [name for name, names in RUNTIME.items() if re.search(rf"\b(?:{names})", code)]
    order: dict[str, None] = {}
    for name in (*_ALWAYS, *words, *(name.removeprefix("raot/") for name in micro)):
        _visit(name, order)
    parts = _parts(tuple(order))
    used = set(_WORD.findall(code))
    kept: set[int] = set()
    while True:
        found = {at for at, part in enumerate(parts) if at not in kept and part.defines & used}
        if not found:
            break
        kept |= found
        used = used.union(*(parts[at].uses for at in found))
    texts = [parts[at].text for at in sorted(kept)]
    return "".join(map(_spaced, texts, [*texts[1:], ""])).strip("\n")


def _spaced(text: str, after: str) -> str:
    """With an empty line behind it, except between lines that are alone."""
    return f"{text}\n" if "\n" not in text and "\n" not in after else f"{text}\n\n"


def _visit(name: str, order: dict[str, None]) -> None:
    if name in order:
        return
    for inner in _INCLUDE.findall(_header(name)):
        _visit(inner.removeprefix("raot/"), order)
    order[name] = None


@cache
def _header(name: str) -> str:
    return (data_dir("runtime_c") / "include" / "raot" / name).read_text(encoding="utf-8")


@cache
def _parts(names: tuple[str, ...]) -> tuple[_Part, ...]:
    """Of these headers, in their order."""
    conditions = Conditions({"RAOT_DEVICE": "", "__cplusplus": "201402", **dict.fromkeys(_OPEN)})
    macros: dict[str, tuple[list[str], str]] = {}
    parts: list[_Part] = []
    for name in names:
        text = re.sub(r"^#include [^\n]*\n", "", _header(name), flags=re.MULTILINE)
        text = re.sub(r"^/\* (SPDX|clang-format)[^\n]*\n", "", text, flags=re.MULTILINE)
        text = conditions.resolved(text).replace("static inline", "__device__ inline")
        parts += (_part(chunk, macros) for chunk in _chunks(text))
    return tuple(part for part in parts if part.defines)


def _chunks(text: str) -> Iterator[str]:
    """Definitions, and what a preprocessor condition holds, with the comments right before."""
    lines: list[str] = []
    conditions = brackets = 0
    inside = False  # a comment
    for line in text.split("\n"):
        ended = bool(lines) and conditions == brackets == 0 and not inside
        separate = line.startswith(("#", "RAOT_", "__device__")) and not _continues(lines)
        if ended and (not line.strip() or separate):
            yield "\n".join(lines)
            lines = []
        if not lines and not line.strip():
            continue
        lines.append(line)
        code = re.sub(r"/\*.*?\*/", "", f"/*{line}" if inside else line)
        code, begun, _ = code.partition("/*")
        inside = bool(begun)
        conditions += code.startswith("#if") - code.startswith("#endif")
        brackets += sum((mark in "({") - (mark in ")}") for mark in code)
    if lines:
        yield "\n".join(lines)


def _continues(lines: list[str]) -> bool:
    """Whether the next line belongs to these: as the text behind a comment, or of a macro."""
    return bool(lines) and (lines[-1].endswith(("\\", "*/")) or lines[-1].startswith((" *", "/*")))


def _part(text: str, macros: dict[str, tuple[list[str], str]]) -> _Part:
    """Notes the macros that it defines."""
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    defines = set(_FUNCTION.findall(code))
    for line in re.split(r"\n(?=#define)", code.strip()):
        if found := _MACRO.match(line):
            own = [name.strip() for name in (found[2] or "").split(",")]
            macros[found[1]] = own, found[3]
            defines = {found[1]} | (defines if code.lstrip().startswith("#if") else set())
    if found := re.match(r"\s*(?:struct|enum) (\w+) {(.*?)}", code, re.DOTALL):
        defines |= {found[1], *(_WORD.findall(found[2]) if "enum" in code else ())}
    uses = set(_WORD.findall(code))
    if not defines and code.strip().startswith("RAOT_"):
        expanded = _expanded(code, macros)
        defines, uses = set(_FUNCTION.findall(expanded)), uses | set(_WORD.findall(expanded))
    return _Part(text, frozenset(defines), frozenset(uses))


def _expanded(code: str, macros: dict[str, tuple[list[str], str]]) -> str:
    """Calls of macros that define functions, as those definitions."""

    def call(found: re.Match[str]) -> str:
        if found[1] not in macros:
            return found[0]
        names, body = macros[found[1]]
        others = {name: macro for name, macro in macros.items() if name != found[1]}
        given = dict(zip(names, (one.strip() for one in found[2].split(",")), strict=False))
        text = _WORD.sub(lambda word: given.get(word[0], word[0]), body)
        return _expanded(re.sub(r"\s*##\s*", "", text), others)

    return re.sub(r"\b(RAOT_\w+)\(([^()]*(?:\([^()]*\)[^()]*)*)\)", call, code)
