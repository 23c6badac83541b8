"""Kernels that differ by numbers alone as one C function, which is given the numbers.

What it costs is a few instructions for each use of such a number. In loops around micro-kernels
those are few; where the sums are made in loops of C it is done for size alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relax_aot.emit.c_names import Names
from relax_aot.emit.c_numbers import Number, Places
from relax_aot.ir.loops import For, Kernel, Micro, Multiply, walk

WAYS = ("same", "calls", "all")
"""Which kernels share a function: those that are the same, also those whose work is done by
micro-kernels, all."""
MOST = 24
"""Numbers at most that a function is given."""
TOKEN_BYTES = 0.8
"""Of code for a word of C, about."""
ARGUMENT_BYTES = 5
"""Of code to pass a number."""

_TOKEN = re.compile(r"[A-Za-z_]\w*|[\d.]\w*|\S")
_SAID = re.compile(r"/\*@.*?\*/")
_WORD = re.compile(r"(?!raot_|RAOT_)[A-Za-z_]\w*")
_C = frozenset(
    {
        "const", "float", "double", "void", "restrict", "for", "if", "else", "struct", "return",
        "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t",
    }
)  # fmt: skip

Head = Callable[[Kernel], str]
Body = Callable[[Kernel, Places, Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Shared:
    """A kernel's function: that of `owner`, given `arguments`. `parameters` are what the owner
    is given, as C declares them."""

    owner: str
    arguments: tuple[str, ...]
    parameters: tuple[str, ...]
    body: str


@dataclass(frozen=True, slots=True)
class _Form:
    kernel: Kernel
    key: tuple[str, ...]
    numbers: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class _Multiple:
    """`ratio` times the `position`-th parameter, which stands for the numbers `base`."""

    base: tuple[Number, ...]
    position: int
    ratio: int


class _Everywhere(Mapping[int, str]):
    """A mark for each number."""

    def __getitem__(self, place: int) -> str:
        return "@"

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


def shared(
    kernels: Sequence[Kernel],
    symbols: frozenset[str],
    sharing: str,
    printed: Mapping[str, str],
    head: Head,
    body: Body,
    taken: frozenset[str] = frozenset(),
) -> dict[str, Shared]:
    """By name, the kernels that share a function. `printed` is the C of each by itself, `head`
    the text of its return type and parameters, `body` prints it with places for numbers, and
    `taken` are names beside symbols that no parameter for a number may have."""
    groups: dict[tuple[str, ...], list[_Form]] = {}
    for kernel in _candidates(kernels, symbols, sharing, printed):
        form = _form(kernel, symbols, head, body)
        groups.setdefault(form.key, []).append(form)
    result: dict[str, Shared] = {}
    for forms in groups.values():
        places = _parameters(forms)
        may = not places or _numbers_may_differ(forms[0].kernel, sharing)
        bases = _bases(places)
        count = len({multiple.base for multiple in bases.values()})
        if len(forms) > 1 and may and _worth(forms, count):
            result |= _as_one(forms, places, bases, body, symbols | taken)
    return result


def _numbers_may_differ(kernel: Kernel, sharing: str) -> bool:
    made_of_calls = any(isinstance(stmt, Multiply | Micro) for stmt in walk(kernel.body))
    return sharing == "all" or (sharing == "calls" and made_of_calls)


def _candidates(
    kernels: Sequence[Kernel], symbols: frozenset[str], sharing: str, printed: Mapping[str, str]
) -> list[Kernel]:
    """Without those that are clearly unlike any that may share."""
    exact = {k.name: _without_names(printed[k.name], symbols) for k in kernels}
    counts = Counter(exact.values())
    sharers = [k for k in kernels if counts[exact[k.name]] > 1 or _numbers_may_differ(k, sharing)]
    outlines = {_outline(kernel) for kernel in sharers}
    return [kernel for kernel in kernels if _outline(kernel) in outlines]


def _outline(kernel: Kernel) -> tuple[object, ...]:
    """What is the same for kernels that differ by names and numbers; loops of one iteration are no
    loops in C."""
    work = Counter(type(stmt).__name__ for stmt in walk(kernel.body) if not isinstance(stmt, For))
    buffers = (kernel.inputs, kernel.outputs, kernel.scratch)
    return (*(tuple(b.dtype for b in side) for side in buffers), frozenset(work.items()))


def _form(kernel: Kernel, symbols: frozenset[str], head: Head, body: Body) -> _Form:
    places = Places(_Everywhere())
    text = head(kernel) + body(kernel, places, ())
    return _Form(kernel, _without_names(text, symbols), tuple(places.found))


def _without_names(text: str, symbols: frozenset[str]) -> tuple[str, ...]:
    """Its words; names of its own are numbers in the order in which they come. What is said to
    a value analysis is no part of it."""
    names: dict[str, str] = {}
    return tuple(
        names.setdefault(word, f"#{len(names)}")
        if _WORD.fullmatch(word) and word not in _C and word not in symbols
        else word
        for word in _TOKEN.findall(_SAID.sub("", text))
    )


def _parameters(forms: Sequence[_Form]) -> dict[tuple[Number, ...], list[int]]:
    """What differs between the kernels -> the places where it stands."""
    found: dict[tuple[Number, ...], list[int]] = {}
    for place, values in enumerate(zip(*(form.numbers for form in forms), strict=True)):
        if len(set(values)) > 1:
            found.setdefault(values, []).append(place)
    return found


def _bases(columns: Iterable[tuple[Number, ...]]) -> dict[tuple[Number, ...], _Multiple]:
    """Numbers that are multiples of others need no parameter of their own."""
    bases: list[tuple[Number, ...]] = []
    found: dict[tuple[Number, ...], _Multiple] = {}
    for column in sorted(columns, key=_size):
        ways = ((position, _ratio(column, base)) for position, base in enumerate(bases))
        position, ratio = next((way for way in ways if way[1]), (len(bases), 1))
        if position == len(bases):
            bases.append(column)
        found[column] = _Multiple(bases[position], position, ratio)
    return found


def _size(column: tuple[Number, ...]) -> tuple[float, str]:
    whole = column[0].c_type == "int32_t"
    return (sum(abs(int(n.text)) for n in column) if whole else math.inf), str(column)


def _ratio(column: tuple[Number, ...], base: tuple[Number, ...]) -> int:
    """0 where it is none."""
    if {number.c_type for number in (*column, *base)} != {"int32_t"}:
        return 0
    values = [(int(a.text), int(b.text)) for a, b in zip(column, base, strict=True)]
    if any(b == 0 or a % b for a, b in values):
        return 0
    ratios = {a // b for a, b in values}
    return ratios.pop() if len(ratios) == 1 else 0


def _worth(forms: Sequence[_Form], count: int) -> bool:
    saved = (len(forms) - 1) * len(forms[0].key) * TOKEN_BYTES
    return count <= MOST and saved > len(forms) * count * ARGUMENT_BYTES


def _as_one(
    forms: Sequence[_Form],
    places: Mapping[tuple[Number, ...], list[int]],
    bases: Mapping[tuple[Number, ...], _Multiple],
    body: Body,
    taken: frozenset[str],
) -> dict[str, Shared]:
    given = dict.fromkeys(multiple.base for multiple in bases.values())
    claimed = Names(taken)
    names = [claimed.claim(f"number{position}") for position in range(len(given))]
    stands: dict[int, str] = {}
    for column, at in places.items():
        multiple = bases[column]
        name = names[multiple.position]
        text = name if multiple.ratio == 1 else f"({name} * {multiple.ratio})"
        stands |= dict.fromkeys(at, text)
    owner = forms[0].kernel
    text = body(owner, Places(stands), names)
    parameters = tuple(f"{c[0].c_type} {name}" for c, name in zip(given, names, strict=True))
    return {
        form.kernel.name: Shared(
            owner.name, tuple(column[position].text for column in given), parameters, text
        )
        for position, form in enumerate(forms)
    }
