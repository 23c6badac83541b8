"""The sizes of a model's inputs: names, expressions, bounds."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ValueInfoProto

from relax_aot.errors import RelaxAotError
from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.ir.dims import Dim, DimSyntaxError, parse_dim
from relax_aot.ir.graph import Alias, Symbol


class MissingBound(RelaxAotError):
    """Symbols without an upper bound: all of them, with the options to add."""


class UnknownBound(RelaxAotError):
    """A bound for a symbol that the model does not have."""


@dataclass(frozen=True)
class Sizes:
    """The shape of each input, and the symbols in them."""

    shapes: Mapping[str, tuple[Dim, ...]]
    symbols: tuple[Symbol, ...]
    aliases: tuple[Alias, ...]


def input_sizes(inputs: list[ValueInfoProto], options: ImportOptions) -> Sizes:
    """Every symbol gets an identifier that is unique without regard to case."""
    origins: dict[str, str] = {}
    texts: dict[str, list[int | str]] = {}
    for value in inputs:
        axes: list[int | str] = []
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                if dim.dim_value < 0:
                    raise ModelError(f"input {value.name!r}: axis {axis} is {dim.dim_value}")
                axes.append(dim.dim_value)
                continue
            text = dim.dim_param.strip() or f"{value.name}_{axis}"
            axes.append(text)
            for name in _names(text):
                origins.setdefault(name, f"input {value.name}, axis {axis}")
        texts[value.name] = axes
    return _bounded(texts, origins, options)


def _names(text: str) -> list[str]:
    """The symbols of a dim_param: those of an expression, else the text itself."""
    expression = _expression(text)
    return [text] if expression is None else sorted(expression.symbols)


def _expression(text: str) -> Dim | None:
    if not re.search(r"[-+*/%(]", text):
        return None
    try:
        parsed = parse_dim(text)
    except (DimSyntaxError, ZeroDivisionError):
        return None
    return parsed if parsed.symbols else None


def _bounded(
    texts: Mapping[str, list[int | str]], origins: Mapping[str, str], options: ImportOptions
) -> Sizes:
    missing = [name for name in origins if name not in options.bounds]
    unknown = [name for name in options.bounds if name not in origins]
    if unknown:
        close = difflib.get_close_matches(unknown[0], list(origins), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        has = f"its symbols are {sorted(origins)}" if origins else "all its sizes are fixed"
        raise UnknownBound(f"the model has no symbol {unknown[0]!r}: {has}{hint}")
    if missing:
        lines = [f"  {name} ({origins[name]}): --bound {_quoted(name)}=128" for name in missing]
        raise MissingBound(
            "sizes that are known at run time only need an upper bound:\n" + "\n".join(lines)
        )
    symbols, aliases, values = [], [], {}
    taken: set[str] = set()
    for name, origin in origins.items():
        plain = _identifier(name, taken)
        low, high = options.bounds[name]
        symbols.append(Symbol(plain, low, high, origin))
        if plain != name:
            aliases.append(Alias(plain, name))
        values[name] = Dim.of(low) if low == high else Dim.of(plain)
    shapes = {name: tuple(_dim(text, values) for text in axes) for name, axes in texts.items()}
    return Sizes(shapes, tuple(symbols), tuple(aliases))


def _dim(text: int | str, values: Mapping[str, Dim]) -> Dim:
    if isinstance(text, int):
        return Dim.of(text)
    expression = _expression(text)
    return values[text] if expression is None else expression.substitute(values)


def _identifier(name: str, taken: set[str]) -> str:
    base = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "size"
    base = base if base[0].isalpha() else f"n_{base}"
    found, count = base, 1
    while found.lower() in taken or found in ("min", "max", "inf", "nan"):
        count += 1
        found = f"{base}_{count}"
    taken.add(found.lower())
    return found


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_.-]+", name) else f"'{name}'"
