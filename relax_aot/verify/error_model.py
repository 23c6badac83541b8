# SPDX-License-Identifier: Apache-2.0
"""How far floats may be from the exact result, element by element.

The exact result is the module evaluated in double precision. How much the roundings of the
declared types disturb each element is estimated by Monte Carlo arithmetic (wide.py): a few
evaluations whose roundings are random and as large as the reduction depth of each call implies.
The allowed error is a multiple of their standard deviation, and at least one unit in the last
place. docs/decisions/0012-the-error-model.md has the reasons and the calibration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.evaluation.reference import (
    Evaluation,
    KernelResults,
    all_sizes,
    entry_results,
    entry_shape,
)
from relax_aot.ir.graph import Module
from relax_aot.ir.types import DType
from relax_aot.verify.compare import Bound
from relax_aot.verify.reference import windows_of
from relax_aot.verify.ulp import unit_in_last_place
from relax_aot.verify.wide import Disturbed, Recorded, Wide, widened

Array = NDArray[Any]

DEVIATIONS = 7.0
"""Allowed standard deviations of the disturbed evaluations. The order of a sum changes how large
its partial sums are, and with them the deviation, by a factor of up to two. Where few roundings
are made, n uniform ones are at most sqrt(3 n) deviations off."""
LANES = 24
LANES_OF_LARGE = 10
LANES_OF_INTERPRETED = 3
"""Disturbed evaluations of a model; of one whose values have many elements; and of one whose own
kernels have to be interpreted, which is slow."""
LARGE = 100_000
"""Elements of all values together."""
NEIGHBORS = 32
"""Elements of similar magnitude, on each side, that an estimate is compared with."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Inputs by the names of the source, sizes by symbol; `anew` begins with states of zeros."""

    inputs: Mapping[str, Array]
    sizes: Mapping[str, int]
    anew: bool = True
    entry: str = ""


class ErrorModel:
    """The bounds of a sequence of calls. Nothing is evaluated before it is asked for."""

    def __init__(
        self,
        modules: Mapping[str, Module],
        calls: Sequence[ModelCall],
        known: KernelResults | None = None,
        *,
        blocked: bool = False,
        vectors: bool = False,
        tf32: bool = False,
        halves: bool = False,
    ) -> None:
        """Modules by the entry's name. `known` are results of kernels at the declared types,
        from an earlier evaluation. `blocked`: sums may be partial sums; `vectors`: functions
        may be those for vectors; `tf32`: products of floats may round their factors; `halves`:
        those of half precision may round packed weights to it."""
        self._kinds = {"blocked": blocked, "vectors": vectors, "tf32": tf32, "halves": halves}
        self._modules = modules
        self._calls = calls
        self._known: KernelResults = {} if known is None else known
        self._done: dict[int, dict[str, Bound]] = {}
        self._lanes: list[_Lane] = []

    def bounds(self, number: int) -> dict[str, Bound]:
        """The bounds of the float outputs and states of a call, by the names of the source."""
        start = number
        while start not in self._done and not self._calls[start].anew and start > 0:
            start -= 1
        for one in range(start, number + 1):
            if one not in self._done:
                self._done[one] = self._evaluate(self._calls[one], one)
        return self._done[number]

    def _evaluate(self, call: ModelCall, number: int) -> dict[str, Bound]:
        module = self._modules[call.entry]
        if call.anew or not self._lanes:
            self._lanes = [_Lane() for _ in range(LANES + 2)]
        sizes = all_sizes(module, call.sizes)
        recorded = Recorded(module, dict(sizes), self._known)
        self._lanes[0].run(recorded, call.inputs, widen=False)
        self._lanes = self._lanes[: _lanes_of(module, recorded.results) + 2]
        _, exact, *disturbed = self._lanes
        wide = Wide(module, dict(sizes), recorded.results, **self._kinds)
        truth = exact.run(wide, call.inputs)
        deviations = min(DEVIATIONS, (3.0 * max(wide.depth, 1)) ** 0.5)
        squares: dict[str, Array] = {}
        steps: dict[str, Array] = {}
        for lane, one in enumerate(disturbed):
            noise = np.random.default_rng((number, lane))
            evaluation = Disturbed(module, dict(sizes), recorded.results, wide, noise)
            found = one.run(evaluation, call.inputs)
            for name, array in found.items():
                square = _square(array, truth[name])
                squares[name] = squares.get(name, 0.0) + square
                if evaluation.moved:
                    steps[name] = np.maximum(steps.get(name, 0.0), square)
        types = {v.name: v.type.dtype for v in module.main.results}
        return {
            module.source_name(name): _bound(
                truth[name],
                deviations * np.sqrt(squares[name] / len(disturbed)),
                np.sqrt(steps.get(name, 0.0)),
                dtype,
            )
            for name, dtype in types.items()
            if dtype.is_float
        }


def _lanes_of(module: Module, results: Sequence[Array]) -> int:
    if module.kernels:
        return LANES_OF_INTERPRETED
    return LANES if sum(r.size for r in results) < LARGE else LANES_OF_LARGE


class _Lane:
    """One of several evaluations side by side, with states of its own."""

    def __init__(self) -> None:
        self.held: dict[str, Array] = {}
        """States by the names of their inputs in the source, which entries share."""

    def run(
        self, evaluation: Evaluation, inputs: Mapping[str, Array], *, widen: bool = True
    ) -> dict[str, Array]:
        module, arguments = evaluation.module, []
        for param in module.main.params:
            source = module.source_name(param.name)
            if source in inputs:
                array = np.asarray(inputs[source])
                arguments.append(widened(array, param.type.dtype) if widen else array)
                continue
            zeros = np.zeros(entry_shape(evaluation, param), param.type.dtype.numpy)
            zeros = widened(zeros, param.type.dtype) if widen else zeros
            held = self.held.get(source, zeros)
            arguments.append(held[tuple(slice(0, size) for size in zeros.shape)])
        with np.errstate(all="ignore"):
            arrays = entry_results(evaluation, arguments)
        results = {v.name: a for v, a in zip(module.main.results, arrays, strict=True)}
        windows = windows_of(module)
        for state in module.states:
            if state.output in results:
                if (window := windows.get(module.source_name(state.input))) is not None:
                    results[state.output] = window.last(results[state.output])
                self.held[module.source_name(state.input)] = results[state.output]
        return results


def _square(array: Array, exact: Array) -> Array:
    """Squared distances; where one is not finite the exact value says all."""
    with np.errstate(all="ignore"):
        square = np.square(np.asarray(array, np.float64) - exact)
    return np.where(np.isfinite(square), square, 0.0)


def _bound(exact: Array, spread: Array, steps: Array, dtype: DType) -> Bound:
    """`steps`: the largest distances of evaluations in which quantized values are others."""
    least = np.maximum(unit_in_last_place(exact, dtype), steps)
    steadied = np.hypot(spread, _similar(exact, spread)) * 0.5**0.5
    return Bound(exact, np.maximum(least, steadied))


def _similar(exact: Array, spread: Array) -> Array:
    """The root mean square of `spread` over the elements closest in magnitude: an estimate from
    a few evaluations may be too small for an element by chance."""
    flat = np.square(spread.reshape(-1))
    order = np.argsort(np.abs(exact).reshape(-1), kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(flat[order])])
    places = np.arange(flat.size)
    low, high = np.maximum(places - NEIGHBORS, 0), np.minimum(places + NEIGHBORS + 1, flat.size)
    means = np.empty_like(flat)
    means[order] = np.maximum(sums[high] - sums[low], 0.0) / np.maximum(high - low, 1)
    return np.asarray(np.sqrt(means).reshape(spread.shape))
