# SPDX-License-Identifier: Apache-2.0
"""Runs one kernel in Python, exactly as the loop level declares it.

This is the second opinion on the generated C. It is stricter than C: an access outside its
buffer, a read of what was never written, a result element that stays unwritten, a name used
outside its block and a race of parallel iterations are assertion failures.

Values are computed as in C: integers wrap at their width, `f32` and `f64` round after each
operation, and half-precision values are computed in `f32` and rounded when stored. The kernel
becomes Python source once (kernel_code.py), and that is run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.evaluation.kernel_code import compiled
from relax_aot.evaluation.kernel_values import IndexFault, Memory
from relax_aot.evaluation.races import RaceError, Races
from relax_aot.evaluation.scalars import array_of, values_of
from relax_aot.ir.loops import Buffer, Kernel

__all__ = ["Array", "IndexFault", "RaceError", "run_kernel"]

Array = NDArray[Any]


def run_kernel(
    kernel: Kernel,
    inputs: Sequence[Array],
    sizes: Mapping[str, int],
    shared: Mapping[str, str] | None = None,
    seed: int = 0,
    partial: Collection[str] = (),
) -> list[Array]:
    """The outputs of `kernel` for these inputs and symbol values. `shared`: by the name of an
    output, the input whose memory it takes. Parallel iterations run in an order drawn from
    `seed`. Of outputs in `partial`, some elements may be undefined."""
    shared = shared or {}
    code = compiled(kernel)
    memories: dict[str, Memory] = {}
    for buffer, array in zip(kernel.inputs, inputs, strict=True):
        requested = _shape(buffer, sizes)
        assert array.shape == requested, (
            f"{buffer.name}: {array.shape} for {buffer.type} {requested}"
        )
        assert array.dtype == buffer.dtype.numpy, f"{buffer.name}: {array.dtype} for {buffer.type}"
        values, flat = values_of(array, buffer.dtype), array.reshape(-1)
        kept = None if buffer.name in shared.values() else flat
        memories[buffer.name] = Memory(values, requested, buffer.dtype, kept)
    for buffer in kernel.outputs + kernel.scratch:
        if buffer.name in shared:
            memories[buffer.name] = memories[shared[buffer.name]]
            continue
        shape = _shape(buffer, sizes)
        memories[buffer.name] = Memory([None] * _count(shape), shape, buffer.dtype)
    with np.errstate(all="ignore"):
        code.run(Races(Random(seed)), *(sizes[name] for name in code.symbols), *memories.values())
    for buffer in kernel.outputs:
        memory = memories[buffer.name]
        if buffer.name in partial:
            undefined = float("nan") if buffer.dtype.is_float else 0
            memory.data[:] = [undefined if value is None else value for value in memory.data]
        complete = None not in memory.data
        assert complete, f"{buffer.name} is not written everywhere"
    return [
        array_of(memory.data, buffer.dtype).reshape(memory.shape)
        for buffer in kernel.outputs
        for memory in [memories[buffer.name]]
    ]


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) if shape else 1


def _shape(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size.evaluate(sizes) for size in buffer.shape)
