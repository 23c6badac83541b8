# SPDX-License-Identifier: Apache-2.0
"""Which range of numbers the quantized values of a value are to cover, from runs on sample
inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.reference import EvaluationError, evaluate, sizes_shown
from relax_aot.ir.graph import Module, Var
from relax_aot.ir.types import DType

Array = NDArray[Any]
Sample = Mapping[str, Array]

METHODS = ("minmax", "percentile", "entropy")
BINS = 2048
KEPT = 0.9999
"""The part of all numbers that `percentile` covers."""

FRACTIONS = np.linspace(0.1, 1.0, 46)
"""Parts of the whole range that `entropy` tries."""

LEVELS = 256


class CalibrationError(RelaxAotError):
    """Sample inputs that say nothing of the model's values."""


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float


def values(module: Module, samples: Sequence[Sample]) -> Iterator[dict[str, Array]]:
    """For each sample every float value of the entry, by name."""
    watched = _watched(module)
    given = {param.name for param in module.main.params}
    for number, sample in enumerate(samples, 1):
        inputs = {name: array for name, array in sample.items() if name in given}
        sizes = sizes_shown(module, inputs)
        try:
            found = evaluate(watched, inputs, sizes)
        except EvaluationError as error:
            shown = ", ".join(f"{module.source_name(n)}={size}" for n, size in sizes.items())
            error.add_note(f"in sample {number} of the calibration data, {shown or 'fixed sizes'}")
            raise
        yield found | {n: a for n, a in inputs.items() if a.dtype == np.float32}


def _watched(module: Module) -> Module:
    """The module whose entry returns all its float values."""
    main = module.main
    outs = [out for call in main.body for out in call.outs if _is_single(out)]
    watched = replace(main, results=tuple(outs))
    return replace(module, functions=(watched, *module.functions[1:]), states=())


def _is_single(value: Var) -> bool:
    return value.type.dtype is DType.F32


def ranges(module: Module, samples: Sequence[Sample], method: str) -> dict[str, Range]:
    """The range of each float value of the entry that is always finite; 0 lies in every range."""
    widest: dict[str, Range] = {}
    endless: set[str] = set()
    for sample in samples:
        for name, array in sample.items():
            if array.dtype == np.float32 and not np.isfinite(array).all():
                raise CalibrationError(f"%{name} is not finite in a sample")
    for found in values(module, samples):
        for name, array in found.items():
            if not array.size:
                continue
            if not np.isfinite(array).all():
                endless.add(name)
                continue
            before = widest.get(name, Range(0.0, 0.0))
            low, high = float(array.min()), float(array.max())
            widest[name] = Range(min(before.low, low), max(before.high, high))
    widest = {name: range_ for name, range_ in widest.items() if name not in endless}
    if method == "minmax":
        return widest
    counts = {name: np.zeros(BINS, np.int64) for name in widest}
    for found in values(module, samples):
        for name, array in found.items():
            if name in widest and widest[name].high > widest[name].low:
                ends = (widest[name].low, widest[name].high)
                counts[name] += np.histogram(array, BINS, ends)[0]
    narrow = _percentile if method == "percentile" else _entropy
    return {name: narrow(counts[name], whole) for name, whole in widest.items()}


def _percentile(counts: Array, whole: Range) -> Range:
    """Without so many of the outermost numbers at either end."""
    total = counts.sum()
    if not total:
        return whole
    rest = (1 - KEPT) / 2 * total
    width = (whole.high - whole.low) / BINS
    below = int(np.searchsorted(np.cumsum(counts), rest, side="right"))
    above = int(np.searchsorted(np.cumsum(counts[::-1]), rest, side="right"))
    low, high = whole.low + below * width, whole.high - above * width
    return Range(min(low, 0.0), max(high, 0.0))


def _entropy(counts: Array, whole: Range) -> Range:
    """The part of the range whose quantized values tell most of the numbers: the least divergence
    (Kullback and Leibler) of the histogram from what its quantized values give back."""
    edges = np.linspace(whole.low, whole.high, BINS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    # 0 is a quantized value in every range, and the zeros after a relu would outweigh the rest.
    counts = np.where((edges[:-1] <= 0) & (edges[1:] > 0), 0, counts)
    best, least = whole, np.inf
    for fraction in FRACTIONS:
        part = Range(whole.low * fraction, whole.high * fraction)
        found = _divergence(counts, middles, part)
        if found <= least:
            best, least = part, found
    return best


def _divergence(counts: Array, middles: Array, part: Range) -> float:
    inside = (middles >= part.low) & (middles <= part.high)
    if inside.sum() < 2 or not counts[inside].sum():
        return np.inf
    kept = counts[inside].astype(np.float64)
    clipped = kept.copy()
    places = middles[inside]
    clipped[0] += counts[middles < part.low].sum()
    clipped[-1] += counts[middles > part.high].sum()
    step = (part.high - part.low) / (LEVELS - 1)
    level = np.clip(np.rint((places - part.low) / step), 0, LEVELS - 1).astype(np.int64)
    used = kept > 0
    sums = np.bincount(level, kept, LEVELS)
    shares = np.bincount(level, used, LEVELS)
    given_back = np.where(used, sums[level] / np.maximum(shares[level], 1), 0)
    p, q = clipped / clipped.sum(), given_back / max(given_back.sum(), 1)
    both = (p > 0) & (q > 0)
    lost = p[(p > 0) & (q == 0)].sum()
    return float((p[both] * np.log(p[both] / q[both])).sum() + lost * np.log(BINS))
