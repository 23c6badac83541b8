# SPDX-License-Identifier: Apache-2.0
"""Tiles and micro-kernels on the memory of the kernel interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from relax_aot.evaluation import scalars
from relax_aot.evaluation.kernel_values import Compiled, Memory
from relax_aot.evaluation.races import Races, Recorded, Tracked
from relax_aot.ir.access_ranges import access_ranges, operand_shapes
from relax_aot.ir.microkernel import MicroKernel


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
    *,
    separate: bool = False,
) -> None:
    """`Multiply` of loops.py: each sum takes one multiply-add per step of the levels."""
    add_product = scalars.separate if separate else scalars.fused
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
                total = add_product(a, b, total)
            sums.data[r * width + c] = total


def _element(memory: Memory, at: int) -> scalars.Value:
    assert 0 <= at < len(memory.data), f"element {at} of {len(memory.data)}"
    value = memory.data[at]
    assert value is not None, f"element {at} is read before it is written"
    return value


def run_micro(
    kernel: MicroKernel,
    code: Compiled,
    operands: Sequence[tuple[Memory, int]],
    sizes: tuple[int, ...],
    races: Races | None = None,
) -> None:
    """`code`, the meaning of the micro-kernel, on as much memory as it may touch. What it reads may
    begin before an array where it reads nothing there."""
    ranges, shapes = access_ranges(kernel, sizes), operand_shapes(kernel, sizes)
    views: dict[str, Memory] = {}
    for operand, (memory, start), count, shape in zip(
        kernel.operands, operands, ranges, shapes, strict=True
    ):
        first = max(start, 0) if operand.name not in kernel.written else start
        inside = count == 0 or 0 <= first <= start + count <= len(memory.data)
        assert inside, f"{kernel.name}: {operand.name} at {start}, {count} elements"
        held = memory.data.values if isinstance(memory.data, Tracked) else memory.data
        data = held[first : start + count] if count else []
        if operand.name not in kernel.written:
            data = [0 if value is None else value for value in data]
            data = [*[None] * min(first - start, count), *data]
        elif operand.name not in kernel.updated:
            data = [None] * count
        view = Recorded(data) if isinstance(memory.data, Tracked) else data
        views[operand.name] = Memory(view, shape, memory.dtype)
    named = dict(zip(kernel.sizes, sizes, strict=True))
    arguments = (views[buffer.name] for buffer in kernel.meaning.buffers)
    code.run(races, *(named[symbol] for symbol in code.symbols), *arguments)
    for operand, (memory, start) in zip(kernel.operands, operands, strict=True):
        view = views[operand.name].data
        if isinstance(memory.data, Tracked) and isinstance(view, Recorded):
            for at in view.read - view.written:
                memory.data[start + at]
            for at in view.written:
                memory.data[start + at] = list.__getitem__(view, at)
        elif operand.name in kernel.written:
            for at, value in enumerate(view, start):
                if value is not None:
                    memory.data[at] = value
