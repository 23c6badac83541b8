# SPDX-License-Identifier: Apache-2.0
"""What to run: sizes within the bounds, and inputs of these sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.interface import DimField, Interface, Port
from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Symbol
from relax_aot.ir.types import DType, array_of
from relax_aot.verify.sizes import InputError, given_sizes, sizes_of

Array = NDArray[Any]
Fits = Callable[[Mapping[str, int]], bool]
RANDOM_SIZES = 3
TRIES = 1000


class SizeChoiceError(RelaxAotError):
    """Sizes that were asked for do not exist, or none fits the model's conditions."""


@dataclass(frozen=True)
class Case:
    """One call: sizes by symbol name, inputs in the interface's order."""

    sizes: dict[str, int]
    inputs: tuple[Array, ...]
    anew: bool = False
    """Whether the state is cleared before this call."""
    entry: str = ""
    """Which of several is called."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Sizes that only other entries have, by the names of the source."""
    fills: bool = False
    """Whether it only appends rows to growing states, for a later call."""

    @property
    def shown(self) -> str:
        return sizes_text(self.sizes)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """As `--at` takes them."""
    return ",".join(f"{name}={size}" for name, size in sizes.items()) or "fixed sizes"


def cases_of(
    interface: Interface,
    at: Sequence[Mapping[str, int]],
    arrays: Mapping[str, Array],
    seed: int = 0,
) -> list[Case]:
    """Given arrays for all inputs decide the sizes, completed by `at`; else `at`; else lowest,
    highest and random sizes."""
    rng = np.random.default_rng(seed)
    needed = {p.source for p in interface.inputs}
    require_inputs([{name} for name in needed], arrays)
    if arrays and needed <= set(arrays):
        given = [case for sizes in at or ({},) for case in _given(interface, arrays, sizes)]
        for case in given:
            _require_room(interface.sizes, case.sizes)
            _require_bounds(interface.sizes, case.sizes)
        return given
    chosen = sizes_to_run(interface.sizes, [interface], at, seed)
    return [
        Case(
            sizes,
            tuple(input_of(p, interface.shape(p, sizes), arrays, rng) for p in interface.inputs),
        )
        for sizes in chosen
    ]


def require_inputs(inputs: Sequence[Set[str]], arrays: Mapping[str, Array]) -> None:
    """Refuse arrays of other names where an input has none, which would silently be random.
    `inputs`: for each one the names that an array may have."""
    known = set[str]().union(*inputs)
    others = sorted(arrays.keys() - known)
    if others and any(names.isdisjoint(arrays) for names in inputs):
        raise InputError(
            f"the model has no input {', '.join(map(repr, others))}; its inputs are"
            f" {', '.join(sorted(known))}"
        )


def sizes_to_run(
    fields: Sequence[DimField],
    interfaces: Sequence[Interface],
    at: Sequence[Mapping[str, int]],
    seed: int = 0,
) -> list[dict[str, int]]:
    """Sizes by symbol name that all interfaces allow: those of `at`, else lowest, highest and
    random ones."""

    def fits(sizes: Mapping[str, int]) -> bool:
        by_source = {f.source: sizes[f.symbol.name] for f in fields}
        return all(
            allowed(one, {f.symbol.name: by_source.get(f.source, 0) for f in one.sizes})
            for one in interfaces
        )

    fixed = interfaces[0].fixed_sizes
    if at:
        return [_fitted(fields, fixed, one, fits) for one in at]
    chosen = _spread([f.symbol for f in fields], fits, seed)
    if not chosen:
        needs = ", ".join(dict.fromkeys(str(c) for one in interfaces for c in one.conditions))
        raise SizeChoiceError(f"no sizes found that satisfy {needs}; give some with --at")
    return chosen


def _fitted(
    fields: Sequence[DimField], fixed: Mapping[str, int], requested: Mapping[str, int], fits: Fits
) -> dict[str, int]:
    """The sizes that were asked for, the others as high as the model allows."""
    sizes = _named(fields, fixed, requested)
    if fits(sizes):
        return sizes
    free = {
        f.symbol.name: range(f.symbol.high, f.symbol.low - 1, -1)
        for f in fields
        if f.source not in requested
    }
    found = {**sizes, **(_end(free, lambda chosen: fits({**sizes, **chosen})) if free else {})}
    _require_room(fields, found)
    return found if fits(found) else sizes


def _given(interface: Interface, arrays: Mapping[str, Array], at: Mapping[str, int]) -> list[Case]:
    """Arrays for every input; `at` has sizes that their shapes do not determine. One more
    leading axis than the input has means samples, and so does a longer axis in the place of a
    leading axis that is always 1."""
    arrays = {p.source: by_sample(arrays[p.source], p) for p in interface.inputs}
    counts = {
        len(arrays[p.source]) for p in interface.inputs if arrays[p.source].ndim == p.type.rank + 1
    }
    if len(counts) > 1:
        raise InputError(f"inputs have different numbers of samples: {sorted(counts)}")
    cases = []
    held = {f.source: at.get(f.source, 0) for f in interface.lengths}
    asked = {name: size for name, size in at.items() if name not in held}
    for sample in range(counts.pop() if counts else 1):
        inputs = []
        for port in interface.inputs:
            array = arrays[port.source]
            array = array[sample] if array.ndim == port.type.rank + 1 else array
            if array.ndim != port.type.rank:
                raise InputError(
                    f"input {port.source!r} must be {port.type}, got {array.dtype}"
                    f"{list(array.shape)}"
                )
            inputs.append(_typed(port, array))
        given = given_sizes(interface.dims, asked, interface.fixed_sizes)
        sizes = sizes_of(interface, inputs, given, held)
        cases.append(Case(sizes, tuple(inputs)))
        growths = [(f.source, f.symbol.growth) for f in interface.lengths]
        held = {source: growth.kept(sizes) for source, growth in growths if growth}
    return cases


def _typed(port: Port, array: Array) -> Array:
    try:
        return array_of(port.type.dtype, array)
    except ValueError as error:
        raise InputError(f"input {port.source!r} must be {port.type}: {error}") from None


def by_sample(array: Array, port: Port) -> Array:
    """The array with a leading axis of samples, where its first axis holds samples."""
    fixed_to_one = port.type.rank > 0 and port.type.shape[0] == Dim.of(1)
    if array.ndim == port.type.rank and fixed_to_one and array.shape[0] > 1:
        return array[:, None]
    return array


def _named(
    fields: Sequence[DimField], fixed: Mapping[str, int], requested: Mapping[str, int]
) -> dict[str, int]:
    known = {f.source: f.symbol for f in fields}
    for name in requested:
        if name not in known and name not in fixed:
            raise SizeChoiceError(
                f"--at {name}=...: the model has no such size, only {sorted(known)}"
            )
    requested = given_sizes(fields, requested, fixed)
    sizes = {s.name: requested.get(source, s.high) for source, s in known.items()}
    _require_bounds(fields, sizes)
    return sizes


def _require_bounds(fields: Sequence[DimField], sizes: Mapping[str, int]) -> None:
    """The C refuses other sizes by its status, and some references end the process at them."""
    for one in fields:
        size, low, high = sizes[one.symbol.name], one.symbol.low, one.symbol.high
        growth = one.symbol.growth
        if not low <= size <= high:
            more = f"--bound {one.source}={min(low, size)}..{max(high, size)}"
            more = f"--window {one.source}={size}" if growth and growth.is_window else more
            raise SizeChoiceError(
                f"{one.source}={size}: the bounds are {low}..{high}; give another --at or"
                f" inputs, or {more}"
            )


def _require_room(fields: Sequence[DimField], sizes: Mapping[str, int]) -> None:
    """A call that leaves more rows than a growing state holds is refused as well."""
    for one in fields:
        growth, size = one.symbol.growth, sizes[one.symbol.name]
        if growth is not None and (rows := growth.kept(sizes)) > growth.capacity:
            raise SizeChoiceError(
                f"{one.source}={size}: the call would leave {rows} rows in a growing state, which"
                f" holds {growth.capacity}; give another --at or inputs, or --bound"
                f" {one.source}={rows}"
            )


def _spread(symbols: Sequence[Symbol], fits: Fits, seed: int) -> list[dict[str, int]]:
    source = random.Random(seed)
    candidates = [
        _end({s.name: range(s.low, s.high + 1) for s in symbols}, fits),
        _end({s.name: range(s.high, s.low - 1, -1) for s in symbols}, fits),
    ]
    for _ in range(TRIES if symbols else 0):
        candidates.append({s.name: source.randint(s.low, s.high) for s in symbols})
    chosen: list[dict[str, int]] = []
    for sizes in candidates:
        if sizes not in chosen and fits(sizes):
            chosen.append(sizes)
        if len(chosen) == RANDOM_SIZES + 2:
            break
    return chosen


def _end(sizes: Mapping[str, range], fits: Fits) -> dict[str, int]:
    """The first of all sizes, or the nearest ones that the model allows: all moved, or one."""
    for step in range(min(TRIES, max(map(len, sizes.values()), default=1))):
        for moved in ({*sizes}, *({name} for name in sizes)):
            found = {
                name: values[min(step, len(values) - 1) if name in moved else 0]
                for name, values in sizes.items()
            }
            if fits(found):
                return found
    return {name: values[0] for name, values in sizes.items()}


def allowed(interface: Interface, sizes: Mapping[str, int]) -> bool:
    """Whether these sizes fulfill the conditions of the model."""
    for condition in interface.conditions:
        left, right = condition.left.evaluate(sizes), condition.right.evaluate(sizes)
        if left != right if condition.relation == "==" else left > right:
            return False
    return True


def input_of(
    port: Port, shape: tuple[int, ...], arrays: Mapping[str, Array], rng: np.random.Generator
) -> Array:
    """What was given for an input, else random elements of its type."""
    if port.source in arrays:
        array = _typed(port, arrays[port.source])
        if array.shape != shape:
            raise InputError(f"input {port.source!r} must have shape {list(shape)} here")
        return array
    dtype = port.type.dtype
    if dtype.is_float:
        return np.asarray(rng.normal(size=shape)).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    # Whole numbers are often indices: small ones are in range of most tables.
    return np.asarray(rng.integers(0, 2, shape)).astype(dtype.numpy)
