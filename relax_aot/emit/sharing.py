# SPDX-License-Identifier: Apache-2.0
"""Kernels that differ by numbers alone as one C function, which is given the numbers.

What it costs is a few instructions for each use of such a number. In loops around micro-kernels
those are few; where the sums are made in loops of C it is done for size alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.c_code import KernelCode
from relax_aot.emit.c_expr import literal
from relax_aot.emit.c_names import Names
from relax_aot.emit.c_outline import role_of
from relax_aot.emit.numbers import Number, canonical, map_numbers, renamed
from relax_aot.ir.loops import Kernel, Lit, Micro, Multiply, walk
from relax_aot.ir.types import C_TYPES, DType
from relax_aot.ir.value_ranges import Range

SHARING = ("same", "calls", "all")
"""Which kernels share a function: those that are the same, also those whose work is done by
micro-kernels, all."""

_TOKEN = re.compile(r"[A-Za-z_]\w*|[\d.]\w*|\S")
_WORD = re.compile(r"[A-Za-z_]\w*")
Column = tuple[Number, ...]
"""A number of the kernels of a group, one for each."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that a shared function is given: its C name, and its values in all kernels."""

    name: str
    column: Column

    @property
    def declaration(self) -> str:
        kind = self.column[0].kind
        before = f"{C_TYPES[kind]} " if isinstance(kind, DType) else f"const struct {kind} *"
        return f"{before}{self.name}"

    @property
    def range(self) -> Range | None:
        """None for what is no integer."""
        values = [number.value for number in self.column if isinstance(number.value, int)]
        return (min(values), max(values)) if values else None


@dataclass(frozen=True, slots=True)
class Shared:
    """A kernel's function: that of `owner`, given `arguments`. `symbols` and `parameters` are
    what the owner is given."""

    owner: str
    arguments: tuple[str, ...]
    parameters: tuple[str, ...]
    symbols: tuple[str, ...]
    code: KernelCode


@dataclass(frozen=True, slots=True)
class _Form:
    """A kernel with all its numbers taken out."""

    kernel: Kernel
    key: tuple[Kernel, tuple[int, ...]]
    numbers: tuple[Number, ...]


def shared(
    kernels: Sequence[tuple[Kernel, tuple[int, ...]]],
    sharing: str,
    body: Callable[[Kernel, Sequence[Parameter]], KernelCode],
    taken: frozenset[str],
) -> dict[str, Shared]:
    """By name, the kernels that share a function. With each stand the lows of its symbols;
    `taken` are names that no parameter may have; `body` prints the owner of a group, whose kernel
    has the parameters in the place of numbers."""
    groups: dict[tuple[Kernel, tuple[int, ...]], list[_Form]] = {}
    for kernel, lows in kernels:
        form = _form(kernel, lows)
        groups.setdefault(form.key, []).append(form)
    result: dict[str, Shared] = {}
    for forms in groups.values():
        found = _as_one(forms, sharing, body, taken) if len(forms) > 1 else {}
        if not found:
            for equal in _equal(forms):
                found |= _as_one(equal, sharing, body, taken)
        result |= found
    return result


def _equal(forms: Sequence[_Form]) -> list[list[_Form]]:
    """Those with the same numbers, where there are several."""
    groups: dict[tuple[Number, ...], list[_Form]] = {}
    for form in forms:
        groups.setdefault(form.numbers, []).append(form)
    return [group for group in groups.values() if len(group) > 1]


def _form(kernel: Kernel, lows: tuple[int, ...]) -> _Form:
    found: list[Number] = []

    def rule(number: Number, role: str) -> tuple[str, int]:
        found.append(number)
        return f"?{len(found):04}", 1

    key = map_numbers(canonical(kernel)[0], rule)
    return _Form(kernel, (replace(key, name="", in_place=()), lows), tuple(found))


def _as_one(
    forms: Sequence[_Form],
    sharing: str,
    body: Callable[[Kernel, Sequence[Parameter]], KernelCode],
    taken: frozenset[str],
) -> dict[str, Shared]:
    """The function of a group, or nothing where that is not worth it."""
    columns = list(zip(*(form.numbers for form in forms), strict=True))
    differing = list(dict.fromkeys(column for column in columns if len(set(column)) > 1))
    owner = forms[0].kernel
    made_of_calls = any(isinstance(stmt, Multiply | Micro) for stmt in walk(owner.body))
    if differing and not (sharing == "all" or (sharing == "calls" and made_of_calls)):
        return {}
    # Numbers that C leaves out need no parameter: the text shows which those are.
    marks = {column: f"raot_at_{position}" for position, column in enumerate(differing)}
    trial = {column: _Multiple(mark, column, 1) for column, mark in marks.items()}
    words = set(_WORD.findall(body(*_general(owner, columns, trial)).text))
    used = [column for column, mark in marks.items() if mark in words]
    roles = _roles(owner, columns)
    bases = _bases(used, roles, taken.union(canonical(owner)[1].values()))
    kernel, parameters = _general(owner, columns, bases)
    code = body(kernel, parameters)
    if not _worth(forms, len(parameters), code.text):
        return {}
    found = set(_WORD.findall(code.text))
    given = tuple(p for p in parameters if p.name in found)
    symbols = tuple(name for name in owner.free_symbols if name in kernel.free_symbols)
    return {
        form.kernel.name: Shared(
            owner.name,
            tuple(_argument(parameter.column[position]) for parameter in given),
            tuple(parameter.declaration for parameter in given),
            symbols,
            code,
        )
        for position, form in enumerate(forms)
    }


@dataclass(frozen=True, slots=True)
class _Multiple:
    """`ratio` times the parameter of a name, which stands for the numbers `base`."""

    name: str
    base: Column
    ratio: int


def _bases(
    columns: Iterable[Column], roles: Mapping[Column, str], taken: frozenset[str]
) -> dict[Column, _Multiple]:
    """Numbers that are multiples of others need no parameter of their own."""
    claimed = Names(taken)
    bases: dict[Column, str] = {}
    found: dict[Column, _Multiple] = {}
    for column in sorted(columns, key=_size):
        pairs = ((base, _ratio(column, base)) for base in bases)
        base, ratio = next((pair for pair in pairs if pair[1]), (column, 1))
        if base is column:
            bases[column] = claimed.claim(roles[column])
        found[column] = _Multiple(bases[base], base, ratio)
    return found


def _size(column: Column) -> tuple[float, bool, str]:
    """The least first, and positive before negative ones."""
    values = [n.value for n in column if isinstance(n.value, int)]
    size = sum(map(abs, values)) if column[0].kind is DType.I32 else math.inf
    return size, any(value < 0 for value in values), str(column)


def _ratio(column: Column, base: Column) -> int:
    """0 where it is none."""
    if {number.kind for number in (*column, *base)} != {DType.I32}:
        return 0
    values = [(n.value, m.value) for n, m in zip(column, base, strict=True)]
    pairs = [(a, b) for a, b in values if isinstance(a, int) and isinstance(b, int)]
    if any(b == 0 or a % b for a, b in pairs):
        return 0
    ratios = {a // b for a, b in pairs}
    return ratios.pop() if len(ratios) == 1 else 0


def _general(
    owner: Kernel, columns: Sequence[Column], bases: Mapping[Column, _Multiple]
) -> tuple[Kernel, tuple[Parameter, ...]]:
    """The owner with parameters in the place of numbers, under its own names."""
    positions = iter(columns)

    def rule(number: Number, role: str) -> tuple[str, int] | None:
        multiple = bases.get(next(positions))
        return (multiple.name, multiple.ratio) if multiple else None

    plain, names = canonical(owner)
    general = replace(renamed(map_numbers(plain, rule), names), in_place=owner.in_place)
    return general, tuple({m.name: Parameter(m.name, m.base) for m in bases.values()}.values())


def _roles(owner: Kernel, columns: Sequence[Column]) -> dict[Column, str]:
    """What each number is called: by the use that says most."""
    found: dict[Column, tuple[int, str]] = {}
    positions = iter(columns)
    _, names = canonical(owner)

    def rule(number: Number, role: str) -> None:
        column = next(positions)
        for short, name in names.items():
            role = role.replace(short, role_of(name))
        rank = _VAGUE.index(role) + 1 if role in _VAGUE else 0
        if column not in found or rank < found[column][0]:
            found[column] = rank, role

    map_numbers(canonical(owner)[0], rule)
    return {column: role for column, (_, role) in found.items()}


_VAGUE = ("columns", "rows", "planes", "stride", "value", "limit", "offset")
"""Roles that say less than that of an argument, the vaguest last."""


def _argument(number: Number) -> str:
    if isinstance(number.value, tuple):
        return "\n".join(["{", *(f"    .{name} = {value}," for name, value in number.value), "};"])
    assert isinstance(number.kind, DType)
    return literal(Lit(number.value, number.kind))


def _worth(forms: Sequence[_Form], count: int, text: str) -> bool:
    """A function is given 24 numbers at most. About 0.8 bytes of code for a word of C are saved,
    for 5 bytes to pass a number."""
    saved = (len(forms) - 1) * len(_TOKEN.findall(text)) * 0.8
    return count <= 24 and saved > len(forms) * count * 5
