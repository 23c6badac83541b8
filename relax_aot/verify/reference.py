# SPDX-License-Identifier: Apache-2.0
"""What a model is compared with: a computation that carries states from call to call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.reference import KernelResults, evaluate
from relax_aot.frontends.fixing import fixed_value
from relax_aot.frontends.symbols import shape_at
from relax_aot.ir.graph import Module
from relax_aot.ir.types import DType

Array = NDArray[Any]
Given = Callable[[str, Any, Sequence[int | str]], Array]
"""The value of an input by name; its element type and shape are for one that was fixed: a size
is a number or a text, which is empty where nothing is said."""


class ReferenceFailed(RelaxAotError):
    """The reference is missing, or refused the model."""


@dataclass(frozen=True, slots=True)
class Window:
    """The rows that a state keeps on an axis."""

    axis: int
    rows: int

    def last(self, array: Array) -> Array:
        """The rows of a new state that are kept."""
        length = array.shape[self.axis]
        return array.take(range(max(length - self.rows, 0), length), self.axis)


def windows_of(module: Module) -> dict[str, Window]:
    """The windows of a module by the source names of their states' inputs."""
    return {
        module.source_name(state.input): Window(state.axis, growth.capacity)
        for state in module.states
        if state.length and (growth := module.lengths[state.length]).is_window
    }


class Reference(ABC):
    """Inputs that were fixed and states are filled in."""

    def __init__(
        self,
        fix: Mapping[str, Any],
        state: Mapping[str, str],
        held: dict[str, Array] | None = None,
    ) -> None:
        """`state` maps inputs to outputs; `held` are states by the input's name, where several
        models share them."""
        self._fix, self._state = dict(fix), dict(state)
        self._held: dict[str, Array] = {} if held is None else held
        self._windows: Mapping[str, Window] = {}
        self._module: Module | None = None

    def with_module(self, module: Module) -> Reference:
        """The reference, which knows the sizes of a module, and keeps what its windows keep."""
        self._windows, self._module = windows_of(module), module
        return self

    def reset(self) -> None:
        """Begin with states of zeros."""
        self._held.clear()

    def __call__(
        self,
        inputs: Mapping[str, Array],
        state_shapes: Mapping[str, tuple[int, ...]],
        sizes: Mapping[str, int] | None = None,
    ) -> dict[str, Array]:
        """The outputs by name. `sizes` are those of the entry, by symbol."""

        def given(name: str, dtype: Any, shape: Sequence[int | str]) -> Array:
            if name in inputs:
                return np.asarray(inputs[name], order="C")
            if name in self._state:
                held = self._held.get(name, np.zeros(state_shapes[name], dtype))
                return first_rows(held, state_shapes[name])
            if name not in self._fix:
                raise ReferenceFailed(f"{name!r} is not an input of the compiled model")
            axes = shape_at(name, shape, self._by_source(sizes or {}))
            fixed = fixed_value(name, axes, DType.of(np.dtype(dtype)), self._fix[name])
            whole = [size if isinstance(size, int) else 1 for size in axes]
            return np.broadcast_to(fixed.array, whole).copy() if fixed.splat else fixed.array

        results = self.run(given, sizes or {})
        for name, window in self._windows.items():
            if (output := self._state[name]) in results:
                results[output] = window.last(results[output])
        self._held |= {i: results[o] for i, o in self._state.items() if o in results}
        return results

    def _by_source(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes by the names of the source, with those that can have one value only."""
        if self._module is None:
            return dict(sizes)
        symbols = self._module.symbols
        known = {s.name: s.low for s in symbols if s.low == s.high} | dict(sizes)
        return {self._module.source_name(name): size for name, size in known.items()}

    @abstractmethod
    def run(self, given: Given, sizes: Mapping[str, int]) -> dict[str, Array]:
        """The outputs of one call by name."""


def first_rows(held: Array, shape: tuple[int, ...]) -> Array:
    """A state as a call finds it: growing states may be truncated before."""
    return held[tuple(slice(0, size) for size in shape)]


class NumpyReference(Reference):
    """The module itself, by the ops' NumPy references."""

    def __init__(
        self,
        module: Module,
        held: dict[str, Array] | None = None,
        known: KernelResults | None = None,
    ) -> None:
        """`known` are results of kernels, filled and used."""
        name = module.source_name
        super().__init__({}, {name(s.input): name(s.output) for s in module.states}, held)
        self._called, self._known = module, known
        self.with_module(module)

    def run(self, given: Given, sizes: Mapping[str, int]) -> dict[str, Array]:
        module = self._called
        feed = {
            p.name: given(module.source_name(p.name), p.type.dtype.numpy, ())
            for p in module.main.params
        }
        results = evaluate(module, feed, sizes, self._known)
        return {module.source_name(name): value for name, value in results.items()}
