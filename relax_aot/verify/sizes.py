# SPDX-License-Identifier: Apache-2.0
"""The sizes of a call: solved from the shapes of its arrays, completed by sizes that the caller
gives, and checked against every axis before C sees them.

Bounds are the generated code's matter: a size that the shapes determine may lie outside of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.interface import DimField, Interface, Port
from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Dim, Relation
from relax_aot.ir.solve import Solved, solve

Array = NDArray[Any]
GREATEST_SIZE = 2**31 - 1
Ranges = tuple[tuple[str, tuple[int, int]], ...]


class InputError(RelaxAotError):
    """Arrays or sizes that do not fit the model's inputs."""


def ordered_inputs(interface: Interface, arrays: Mapping[str, Array]) -> list[Array]:
    """The arrays in the interface's order, checked for presence, type and rank."""
    known = {p.source for p in interface.inputs}
    unknown = sorted(str(name) for name in set(arrays) - known)
    if unknown:
        raise InputError(f"unknown input {unknown[0]!r}; inputs are {sorted(known)}")
    return [_checked(port, arrays) for port in interface.inputs]


def _checked(port: Port, arrays: Mapping[str, Array]) -> Array:
    if port.source not in arrays:
        raise InputError(f"input {port.source!r} ({port.type}) is missing")
    array = as_array(arrays[port.source], f"input {port.source!r}")
    if array.dtype != port.type.dtype.numpy or array.ndim != port.type.rank:
        raise InputError(
            f"input {port.source!r} must be {port.type}, got {array.dtype}{list(array.shape)}"
        )
    return array


def as_array(value: object, what: str) -> Array:
    """`value` as a NumPy array; `what` names it in the error."""
    try:
        return np.asarray(value)
    except Exception as error:  # noqa: BLE001 - objects may raise anything while they convert
        raise InputError(f"{what} is not an array: {error}") from None


def by_name(positional: Sequence[object], named: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays by input name, from a mapping and from keywords of one call."""
    if len(positional) > 1 or not all(isinstance(one, Mapping | None) for one in positional):
        raise InputError(
            "inputs are given by name, as keywords or as one mapping: host(x=...) or"
            ' host({"x": ...})'
        )
    arrays: dict[str, Array] = {}
    for one in positional:
        arrays |= dict(one) if isinstance(one, Mapping) else {}
    return {**arrays, **named}


def given_sizes(
    fields: Iterable[DimField],
    requested: Mapping[str, Any],
    fixed: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Sizes that the caller gives, by the names of the source, checked. `fixed` are those that
    the model was compiled for; they may be given too, and are left out."""
    known, numbers = sorted(field.source for field in fields), fixed or {}
    for name, size in requested.items():
        if name not in known and name not in numbers:
            raise InputError(f"the model has no size {str(name)!r}; sizes are {known}")
        if isinstance(size, bool) or not isinstance(size, Integral):
            raise InputError(f"the size {name} must be a whole number, got {size!r}")
        if name in numbers and size != numbers[name]:
            only = numbers[name]
            raise InputError(
                f"{name}={size}: the model was compiled only for {only}; widen its bound:"
                f" --bound {name}={min(int(size), only)}..{max(int(size), only)}"
            )
    return {name: int(size) for name, size in requested.items() if name in known}


def merged_sizes(positional: Mapping[str, int] | None, named: Mapping[str, int]) -> dict[str, int]:
    """Sizes by name, from a mapping and from keywords of one call."""
    if positional is not None and not isinstance(positional, Mapping):
        raise InputError(f"sizes are given by name: at(n=5) or at({{'n': 5}}), not {positional!r}")
    return {**(positional or {}), **named}


def sizes_of(
    interface: Interface,
    inputs: Sequence[Array],
    given: Mapping[str, int] | None = None,
    held: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Every symbol of the interface by name. `given` are sizes by the names of the source;
    `held` are those of a state that exists, which count where nothing else decides."""
    chosen = _by_symbol(interface, given or {})
    solved = _solved(interface, inputs, chosen)
    open_ = set(solved.ambiguous) | set(solved.impossible)
    kept = {n: s for n, s in _by_symbol(interface, held or {}).items() if n in open_}
    if kept:
        solved = _solved(interface, inputs, kept | chosen)
    if not solved.impossible and not solved.ambiguous:
        require_shapes(interface, solved.sizes, inputs)
        return {field.symbol.name: solved.sizes[field.symbol.name] for field in interface.sizes}
    _require_known_axes(interface, solved.sizes, inputs)
    raise InputError(
        _impossible(interface, inputs, solved)
        if solved.impossible
        else _ambiguous(interface, solved)
    )


def shown_sizes(
    interface: Interface, inputs: Sequence[Array], given: Mapping[str, int]
) -> dict[str, int]:
    """The sizes that the shapes and `given` determine, by the names of the source."""
    known = _solved(interface, inputs, _by_symbol(interface, given)).sizes
    return {f.source: known[f.symbol.name] for f in interface.sizes if f.symbol.name in known}


def _by_symbol(interface: Interface, sizes: Mapping[str, int]) -> dict[str, int]:
    return {f.symbol.name: sizes[f.source] for f in interface.sizes if f.source in sizes}


def _solved(interface: Interface, inputs: Sequence[Array], given: Mapping[str, int]) -> Solved:
    pinned = {f.symbol.name: f.symbol.low for f in interface.sizes if f.pinned}
    equations = tuple(
        (Dim.of(size), int(actual))
        for port, array in zip(interface.inputs, inputs, strict=True)
        for size, actual in zip(port.type.shape, array.shape, strict=True)
    )
    relations: tuple[Relation, ...] = tuple(
        (c.relation, c.left, c.right) for c in interface.conditions
    )
    ranges = tuple((f.symbol.name, (f.symbol.low, f.symbol.high)) for f in interface.sizes)
    return _remembered(equations, relations, ranges, tuple((pinned | dict(given)).items()))


@lru_cache(maxsize=1024)
def _remembered(
    equations: tuple[tuple[Dim, int], ...],
    relations: tuple[Relation, ...],
    ranges: Ranges,
    given: tuple[tuple[str, int], ...],
) -> Solved:
    return solve(equations, relations, dict(ranges), dict(given))


def _ambiguous(interface: Interface, solved: Solved) -> str:
    names = [f for f in interface.sizes if f.symbol.name in solved.ambiguous]
    first = names[0].source
    value = names[0].symbol.low
    why = "no shape determines them"
    if solved.examples:
        texts = [_text(names, example) for example in solved.examples]
        why = f"both {texts[0]} and {texts[1]} fit their shapes"
        value = solved.examples[0][names[0].symbol.name]
    listed = " and ".join(field.source for field in names)
    return (
        f"the inputs do not determine {'sizes' if len(names) > 1 else 'size'} {listed}: {why};"
        f" give {first}: .at({first}={value}) in Python, --at {first}={value} on the command line"
    )


def _impossible(interface: Interface, inputs: Sequence[Array], solved: Solved) -> str:
    names = [f for f in interface.sizes if f.symbol.name in solved.impossible]
    symbols = {field.symbol.name for field in names}
    ranges = ", ".join(f"{f.source} in {f.symbol.low}..{f.symbol.high}" for f in names)
    shapes = [
        f"input {port.source!r} is {port.type} and got {list(array.shape)}"
        for port, array in zip(interface.inputs, inputs, strict=True)
        if port.type.symbols & symbols
    ]
    needs = [str(c) for c in interface.conditions if (c.left - c.right).symbols & symbols]
    where = f", where {' and '.join(needs)}" if needs else ""
    return f"no sizes {ranges} fit: {'; '.join(shapes) or 'the other sizes'}{where}"


def _text(fields: Sequence[DimField], sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{f.source}={sizes[f.symbol.name]}" for f in fields)


def _require_known_axes(
    interface: Interface, sizes: Mapping[str, int], inputs: Sequence[Array]
) -> None:
    """Every axis whose symbols are known has the size that they give it."""
    for port, array in zip(interface.inputs, inputs, strict=True):
        for axis, (size, actual) in enumerate(zip(port.type.shape, array.shape, strict=True)):
            dim = Dim.of(size)
            if not dim.symbols <= sizes.keys():
                continue
            try:
                needed = dim.evaluate(sizes)
            except ZeroDivisionError:
                raise InputError(
                    f"axis {axis} of input {port.source!r} is {dim}, which divides by 0 here"
                ) from None
            if needed != actual:
                requested = "it has to be" if dim.is_constant else f"{dim} is"
                raise InputError(
                    f"axis {axis} of input {port.source!r} is {actual}; {requested} {needed} here"
                )


def require_shapes(interface: Interface, sizes: Mapping[str, int], inputs: Sequence[Array]) -> None:
    """Every call of C passes here: all sizes are known and are int32, each array has the type
    of its input, and each axis (so the bytes too) what the sizes make of it."""
    if not isinstance(sizes, Mapping):
        raise InputError(f"sizes are given by symbol name, not as {type(sizes).__name__}")
    if not isinstance(inputs, Sequence):
        raise InputError(f"inputs are a list of arrays here, not {type(inputs).__name__}")
    for field in interface.sizes:
        size: Any = sizes.get(field.symbol.name)
        if isinstance(size, bool) or not isinstance(size, Integral):
            raise InputError(f"the size {field.source} must be a whole number, got {size!r}")
        if abs(int(size)) > GREATEST_SIZE:
            raise InputError(f"the size {field.source} is {size}; sizes in C are int32_t")
    if len(inputs) != len(interface.inputs):
        raise InputError(f"the model has {len(interface.inputs)} inputs, got {len(inputs)}")
    for port, array in zip(interface.inputs, inputs, strict=True):
        _checked(port, {port.source: array})
    _require_known_axes(interface, sizes, inputs)
    for port, array in zip(interface.inputs, inputs, strict=True):
        shape = interface.shape(port, dict(sizes))
        assert array.nbytes == prod(shape) * port.type.dtype.bytes, (port, array.shape)
