# SPDX-License-Identifier: Apache-2.0
"""Attributes of ops: names, kinds, defaults and values, as the op's rules declare them.

An attribute is a keyword-only parameter of a rule, or a field of the record that the rules take.
The op lists the values of attributes that are one of several words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from relax_aot.ir.dims import Dim
from relax_aot.ir.types import DType

REQUIRED = inspect.Parameter.empty
"""The default of an attribute that has none."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """`kind` is its annotation, normalized; `values` are the words that it may be."""

    name: str
    kind: str
    default: Any = REQUIRED
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name if self.default is REQUIRED else f"{self.name}={text(self.default)}"

    @property
    def meaning(self) -> str:
        """The kind in words."""
        if self.values:
            return " or ".join(map(text, self.values))
        item = self.kind.removeprefix("Sequence[").removesuffix("]")
        parts = [_KINDS[part][0] for part in item.split(" | ") if part in _KINDS]
        parts = [part for part in parts if part != "integer" or "size" not in parts]
        if not parts:
            return "any value"
        if item != self.kind:
            return f"a list of {' or '.join(f'{part}s' for part in parts)}"
        return " or ".join(f"{'an' if part[0] in 'ei' else 'a'} {part}" for part in parts)

    def accepts(self, value: object) -> bool:
        if self.values:
            return value in self.values
        item = self.kind.removeprefix("Sequence[").removesuffix("]")
        if item == self.kind:
            return _is(value, item)
        return isinstance(value, tuple | list) and all(_is(part, item) for part in value)


def attributes_of(
    rules: Iterable[Callable[..., Any]], values: Mapping[str, Iterable[str]]
) -> tuple[Attribute, ...]:
    """The attributes that these rules take together."""
    found: dict[str, Attribute] = {}
    for rule in rules:
        for parameter in inspect.signature(rule).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in found:
                name = parameter.name
                words = tuple(values.get(name, ()))
                found[name] = Attribute(name, _kind(parameter), parameter.default, words)
    return tuple(found.values())


def with_attributes(rule: Callable[..., Any], record: type[Any]) -> Callable[..., Any]:
    """A rule that takes a record of attributes first, as one with keyword-only attributes. One
    that takes any arguments stays as it is."""
    own = inspect.signature(rule)
    first, *others = own.parameters.values()
    if first.kind is inspect.Parameter.VAR_POSITIONAL or getattr(rule, "record", None) is record:
        return rule

    def given(*args: Any, **attrs: Any) -> Any:
        return rule(record(**attrs), *args)

    parameters = [*others, *inspect.signature(record).parameters.values()]
    given.__dict__.update(record=record, __signature__=own.replace(parameters=parameters))
    return given


def with_optional(lower: Callable[..., Any], deduce: Callable[..., Any]) -> Callable[..., Any]:
    """`lower`, which is given None for optional arguments that a call leaves out at the end."""
    takes, gives = (_positional(rule) for rule in (deduce, lower))
    if takes is None or gives is None:
        return lower
    results = gives - 1 - takes

    @wraps(lower)
    def given(k: Any, /, *buffers: Any, **attrs: Any) -> Any:
        inputs = len(buffers) - results
        absent = [None] * (takes - inputs)
        return lower(k, *buffers[:inputs], *absent, *buffers[inputs:], **attrs)

    return given


def _positional(rule: Callable[..., Any]) -> int | None:
    kinds = [p.kind for p in inspect.signature(rule).parameters.values()]
    variadic = inspect.Parameter.VAR_POSITIONAL in kinds
    return None if variadic else kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)


def problem_of(op: str, attributes: Iterable[Attribute], given: Mapping[str, object]) -> str:
    """The first attribute that is unknown, missing or of a wrong kind; "" for none."""
    known = {attribute.name: attribute for attribute in attributes}
    takes = f"it takes {', '.join(map(str, known.values())) or 'no attributes'}"
    for name, value in given.items():
        if name not in known:
            return f"{op} has no attribute {name}: {takes}"
        if not known[name].accepts(value):
            return f"{op}: {name} is {known[name].meaning}, not {text(value)}"
    for attribute in known.values():
        if attribute.default is REQUIRED and attribute.name not in given:
            return f"{op} needs the attribute {attribute.name}: {takes}"
    return ""


def _kind(parameter: inspect.Parameter) -> str:
    kind = parameter.annotation
    if kind is parameter.empty:
        return "" if parameter.default is REQUIRED else type(parameter.default).__name__
    if not isinstance(kind, str):
        kind = inspect.formatannotation(kind)
    kind = kind.replace("tuple[", "Sequence[").replace(", ...]", "]")
    return "Sequence[int | Dim]" if kind == "Sizes" else kind


def _is(value: object, kind: str) -> bool:
    parts = kind.split(" | ")
    if any(part not in _KINDS for part in parts):
        return True
    if isinstance(value, bool):
        return "bool" in parts
    return any(isinstance(value, _KINDS[part][1]) for part in parts)


_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "DType": ("element type", (DType,)),
    "Dim": ("size", (Dim, int)),
    "bool": ("boolean", (bool,)),
    "float": ("number", (float, int)),
    "int": ("integer", (int,)),
    "str": ("string", (str,)),
}


def text(value: object) -> str:
    """A value as the text form has it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(text, value))}]"
    return value.value if isinstance(value, DType) else str(value)
