"""Tiles and micro-kernels on the memory of the kernel interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from relax_aot.evaluation import scalars
from relax_aot.ir.micro import MicroKernel

if TYPE_CHECKING:
    from relax_aot.evaluation.kernel_code import Memory


def run_multiply(
    sums: Memory,
    rows: int,
    columns: int,
    left_row: int,
    levels: Sequence[tuple[int, int, int]],
    left: Memory,
    left_start: int,
    right: Memory,
    right_start: int,
) -> None:
    """`Multiply` of loops.py: each sum takes one fused multiply-add per step of the levels."""
    assert rows <= sums.shape[0] and columns <= sums.shape[1], f"{rows}, {columns} sums"
    width = sums.shape[1]
    steps = [
        (sum(at * level[1] for at, level in pairs), sum(at * level[2] for at, level in pairs))
        for turn in itertools.product(*(range(count) for count, _, _ in levels))
        for pairs in [list(zip(turn, levels, strict=True))]
    ]
    for r in range(max(rows, 0)):
        for c in range(max(columns, 0)):
            total = sums.data[r * width + c]
            assert total is not None, "sums without a start"
            for i, j in steps:
                a = _element(left, left_start + r * left_row + i)
                b = _element(right, right_start + c + j)
                total = scalars.fused(a, b, total)
            sums.data[r * width + c] = total


def _element(memory: Memory, at: int) -> scalars.Value:
    assert 0 <= at < len(memory.data), f"element {at} of {len(memory.data)}"
    value = memory.data[at]
    assert value is not None, f"element {at} is read before it is written"
    return value


def run_micro(
    kernel: MicroKernel, operands: Sequence[tuple[Memory, int]], sizes: Sequence[int]
) -> None:
    """What the micro-kernel's record says, on as much memory as it may touch."""
    reach = kernel.reach(sizes)
    ends = []
    for wanted, (memory, start), count in zip(kernel.operands, operands, reach, strict=True):
        inside = count == 0 or 0 <= start <= start + count <= len(memory.data)
        assert inside, f"{kernel.name}: {wanted.name} at {start}, {count} elements"
        ends.append((start, start + count))
    arrays = _arrays(operands, ends)
    kernel.run(arrays, sizes)
    rows = zip(kernel.operands, operands, ends, arrays, strict=True)
    for wanted, (memory, _), (start, stop), array in rows:
        if wanted.written and stop > start:
            memory.data[start:stop] = scalars.values_of(array, memory.dtype)


def _arrays(
    operands: Sequence[tuple[Memory, int]], ends: Sequence[tuple[int, int]]
) -> list[scalars.Array]:
    """The operands as arrays; those of one buffer are views of one array."""
    whole: dict[int, tuple[int, scalars.Array]] = {}
    for memory, _ in operands:
        if id(memory) in whole:
            continue
        mine = [e for (m, _), e in zip(operands, ends, strict=True) if m is memory and e[1] > e[0]]
        first, last = min((e[0] for e in mine), default=0), max((e[1] for e in mine), default=0)
        if memory.array is not None:
            whole[id(memory)] = first, memory.array[first:last]
        else:
            values = [0 if value is None else value for value in memory.data[first:last]]
            whole[id(memory)] = first, scalars.array_of(values, memory.dtype)
    found = []
    for (memory, _), (start, stop) in zip(operands, ends, strict=True):
        first, array = whole[id(memory)]
        found.append(array[start - first : stop - first] if stop > start else np.empty(0))
    return found
