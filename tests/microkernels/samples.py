# SPDX-License-Identifier: Apache-2.0
"""Random calls of micro-kernels within the ranges of their descriptions, with what their meaning
gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.evaluation.kernel_code import compiled
from relax_aot.evaluation.kernel_values import Memory
from relax_aot.evaluation.scalars import values_of
from relax_aot.evaluation.tile_code import run_micro
from relax_aot.ir.access_ranges import access_ranges
from relax_aot.ir.loops import Apply, Buffer, expressions, walk
from relax_aot.ir.microkernel import MicroKernel, Range
from relax_aot.ir.types import DType
from relax_aot.microkernels.functions import FUNCTIONS

Array = NDArray[Any]
Random = np.random.Generator
MILLIONTH = np.float32(1e-6)


@dataclass(frozen=True)
class Sample:
    """`arrays`: the operands before the call. `expected`: written operands after it, masked where
    the meaning stores nothing."""

    sizes: tuple[int, ...]
    arrays: dict[str, Array]
    expected: dict[str, Any]


def sample(kernel: MicroKernel, rng: Random, **given: int) -> Sample:
    """A call with the sizes that are `given`, and others at random."""
    sizes = sample_sizes(kernel, rng, **given)
    named = dict(zip(kernel.sizes, sizes, strict=True))
    counts = access_ranges(kernel, sizes)
    operands = dict(zip(kernel.operands, counts, strict=True))
    arrays = {buffer.name: data(kernel, buffer, n, named, rng) for buffer, n in operands.items()}
    _complete(kernel, arrays, named)
    memories = {}
    for buffer in operands:
        array = arrays[buffer.name]
        keeps = buffer not in kernel.meaning.outputs or buffer.name in kernel.updated
        values = values_of(array, buffer.dtype) if keeps else [None] * array.size
        memories[buffer.name] = Memory(values, array.shape, buffer.dtype)
    with np.errstate(all="ignore"):
        run_micro(
            kernel, compiled(kernel.meaning), [(memory, 0) for memory in memories.values()], sizes
        )
    expected = {}
    for buffer in kernel.meaning.outputs:
        values = list(memories[buffer.name].data)
        mask = [value is None for value in values]
        filled = np.array([0 if value is None else value for value in values], buffer.dtype.numpy)
        expected[buffer.name] = np.ma.masked_array(filled, mask)
    return Sample(sizes, arrays, expected)


def differs(kernel: MicroKernel, found: Array, wanted: Array) -> bool:
    """Whether results are not those of the meaning, which computes elementary functions exactly:
    `verify` allows for 2.5 units in the last place of them. A quotient of a power and a sum of
    powers has the errors of both, and of its own."""
    used = {
        expr.function
        for stmt in walk(kernel.meaning.body)
        for expr in expressions(stmt)
        if isinstance(expr, Apply)
    }
    units = 6 if "exp_below" in used else 2.5 if used & FUNCTIONS.keys() else 0
    if not units:
        return not np.array_equal(found, wanted)
    error = np.abs(found.astype(np.float64) - wanted)
    return bool((error > units * np.spacing(np.abs(wanted))).any())


def _complete(kernel: MicroKernel, arrays: dict[str, Array], sizes: dict[str, int]) -> None:
    """What schedules store besides: padding of weights is zero, and the starts of the sums of two
    pixels are equal."""
    if kernel.name.startswith("raot_depthwise_positions"):
        arrays["weights"][sizes["taps"] :] = 0
    if kernel.name == "raot_depthwise_columns_s8":
        arrays["weights"].reshape(sizes["channels"], -1)[:, sizes["depth"] :] = 0
    if kernel.name.startswith("raot_scale") and "by" in arrays:
        limits = ((-np.inf, np.inf), (0, np.inf), (0, 6), (-1, 1))
        arrays["by"][1:] = limits[sum(sizes.values()) % len(limits)]
    if kernel.name.startswith("raot_depthwise_bytes"):
        depth, step = sizes["depth"], sizes["step"]
        weights = arrays["weights"].reshape(sizes["channels"], -1, 16)
        for n in range(sizes["shared"]):
            weights[:, n, : n * step] = 0
            weights[:, n, n * step + depth :] = 0
    if kernel.name == "raot_multiply_nhwc_s8":
        starts = arrays["weights"].reshape(sizes["groups"], -1)
        starts[:, 4:8] = starts[:, :4]
        last = np.ascontiguousarray(starts[:, -16:]).view(np.int8).reshape(-1, 4, 16)
        last[..., (sizes["depth"] - 1) % 16 + 1 :] = 0
        starts[:, -16:] = last.reshape(sizes["groups"], -1).view(np.int32)


def sample_sizes(kernel: MicroKernel, rng: Random, **given: int) -> tuple[int, ...]:
    """Sizes within their ranges, each drawn once those that its range mentions are."""
    drawn = dict(given)
    while missing := [name for name in kernel.sizes if name not in drawn]:
        known = [name for name in missing if _symbols(kernel.sizes[name]) <= drawn.keys()]
        assert known, f"{kernel.name}: ranges of {missing} go in a circle"
        drawn |= {name: _drawn(kernel.sizes[name], drawn, rng) for name in known}
    return tuple(drawn[name] for name in kernel.sizes)


def _symbols(of: Range) -> frozenset[str]:
    dims = of.choices or (of.low, of.sampled)
    return frozenset[str]().union(*(dim.symbols for dim in dims))


def _drawn(of: Range, sizes: dict[str, int], rng: Random) -> int:
    if of.choices:
        return of.choices[rng.integers(len(of.choices))].evaluate(sizes)
    low, high = of.low.evaluate(sizes), max(of.sampled.evaluate(sizes), of.low.evaluate(sizes))
    ends = rng.random()
    if ends < 0.2:
        return low if ends < 0.1 else high - (high - low) % of.step
    return low + of.step * int(rng.integers((high - low) // of.step + 1))


def data(
    kernel: MicroKernel, buffer: Buffer, count: int, sizes: dict[str, int], rng: Random
) -> Array:
    """Elements as wide as their type, or within the ranges of the description."""
    found = _within(kernel.values.get(buffer.name), buffer.dtype, count, sizes, rng)
    by_index = kernel.values.get(f"{buffer.name}[1]")
    if by_index is not None and count:
        shape = [dim.evaluate(sizes) for dim in buffer.shape]
        part = found.reshape(shape)[..., 1, :]
        part[...] = _within(by_index, buffer.dtype, part.size, sizes, rng).reshape(part.shape)
    return found


def _within(
    of: Range | None, dtype: DType, count: int, sizes: dict[str, int], rng: Random
) -> Array:
    if of is None and dtype.is_float:
        return rng.normal(size=count).astype(dtype.numpy)
    if of is None:
        low, high = dtype.limits
        found = rng.integers(low, high, count, endpoint=True)
        near = found >> rng.integers(0, dtype.bits - 8, count) if dtype.bits > 8 else found
        return np.where(rng.random(count) < 0.1, rng.choice([low, high], count), near).astype(
            dtype.numpy
        )
    low, high = of.low.evaluate(sizes), of.sampled.evaluate(sizes)
    if dtype.is_float:
        return rng.uniform(low, high, count).astype(dtype.numpy) * MILLIONTH
    return rng.integers(low, high, count, endpoint=True).astype(dtype.numpy)
