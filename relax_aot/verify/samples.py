# SPDX-License-Identifier: Apache-2.0
"""What to run: sizes within the bounds, and inputs of these sizes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.interface import Interface, Port
from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Dim
from relax_aot.ir.types import DType
from relax_aot.verify.sizes import InputError, given_sizes, sizes_of

Array = NDArray[Any]
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
    if arrays and needed <= set(arrays):
        given = [case for sizes in at or ({},) for case in _given(interface, arrays, sizes)]
        for case in given:
            _require_bounds(interface, case.sizes)
        return given
    chosen = [_named(interface, one) for one in at] or _spread(interface, seed)
    return [
        Case(
            sizes,
            tuple(input_of(p, interface.shape(p, sizes), arrays, rng) for p in interface.inputs),
        )
        for sizes in chosen
    ]


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
            inputs.append(np.asarray(array, port.type.dtype.numpy, order="C"))
        sizes = sizes_of(interface, inputs, given_sizes(interface.dims, at, interface.fixed_sizes))
        cases.append(Case(sizes, tuple(inputs)))
    return cases


def by_sample(array: Array, port: Port) -> Array:
    """The array with a leading axis of samples, where its first axis holds samples."""
    fixed_to_one = port.type.rank > 0 and port.type.shape[0] == Dim.of(1)
    if array.ndim == port.type.rank and fixed_to_one and array.shape[0] > 1:
        return array[:, None]
    return array


def _named(interface: Interface, requested: Mapping[str, int]) -> dict[str, int]:
    known = {f.source: f.symbol for f in interface.dims}
    for name in requested:
        if name not in known and name not in interface.fixed_sizes:
            raise SizeChoiceError(
                f"--at {name}=...: the model has no such size, only {sorted(known)}"
            )
    requested = given_sizes(interface.dims, requested, interface.fixed_sizes)
    sizes = {s.name: requested.get(source, s.high) for source, s in known.items()}
    _require_bounds(interface, sizes)
    return sizes


def _require_bounds(interface: Interface, sizes: Mapping[str, int]) -> None:
    """The C refuses other sizes by its status, and some references end the process at them."""
    for field in interface.dims:
        size, low, high = sizes[field.symbol.name], field.symbol.low, field.symbol.high
        if not low <= size <= high:
            raise SizeChoiceError(
                f"{field.source}={size}: the bounds are {low}..{high}; give another --at or"
                f" inputs, or --bound {field.source}={min(low, size)}..{max(high, size)}"
            )


def _spread(interface: Interface, seed: int) -> list[dict[str, int]]:
    symbols = [f.symbol for f in interface.dims]
    source = random.Random(seed)
    candidates = [
        _end(interface, {s.name: range(s.low, s.high + 1) for s in symbols}),
        _end(interface, {s.name: range(s.high, s.low - 1, -1) for s in symbols}),
    ]
    for _ in range(TRIES if symbols else 0):
        candidates.append({s.name: source.randint(s.low, s.high) for s in symbols})
    chosen: list[dict[str, int]] = []
    for sizes in candidates:
        if sizes not in chosen and allowed(interface, sizes):
            chosen.append(sizes)
        if len(chosen) == RANDOM_SIZES + 2:
            break
    if not chosen:
        needs = ", ".join(str(c) for c in interface.conditions)
        raise SizeChoiceError(f"no sizes found that satisfy {needs}; give some with --at")
    return chosen


def _end(interface: Interface, sizes: Mapping[str, range]) -> dict[str, int]:
    """The first of all sizes, or the nearest ones that the model allows: all moved, or one."""
    for step in range(min(TRIES, max(map(len, sizes.values()), default=1))):
        for moved in ({*sizes}, *({name} for name in sizes)):
            found = {
                name: values[min(step, len(values) - 1) if name in moved else 0]
                for name, values in sizes.items()
            }
            if allowed(interface, found):
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
        array = np.asarray(arrays[port.source], port.type.dtype.numpy, order="C")
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
