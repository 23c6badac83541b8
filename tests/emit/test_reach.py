# SPDX-License-Identifier: Apache-2.0
"""Which sizes and loops are looked at one by one for an index. Expected: by hand, from what the
least and greatest values of its parts leave."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relax_aot.emit.c_reach import NONE, Apart, apart, span
from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Bounds, Dim, dim_max, dim_min
from relax_aot.ir.loops import Buffer, For, Kernel, Load, Select, Store, binary
from relax_aot.ir.types import DType

N, M, TURN = Dim.of("n"), Dim.of("m"), Dim.of("i")
BOUNDS = Bounds.of({"n": (1, 40), "m": (1, 7)})


def copied(start: Dim, stop: Dim, source: Dim, shape: Sequence[Dim]) -> Kernel:
    """y[i] = x[source] for i in start..stop."""
    x, y = Buffer("x", DType.F32, tuple(shape)), Buffer("y", DType.F32, (N * M,))
    turn = Store(y, (TURN,), Load(x, (source,)))
    return Kernel("k", (x,), (y,), (), (For("i", start, stop, (turn,)),))


@pytest.mark.parametrize(
    ("start", "stop", "source", "shape", "expected"),
    [
        (0, N, TURN, (N,), NONE),
        (0, N - 2, TURN + 2, (N,), NONE),
        (0, N, N - 1 - TURN, (N,), Apart(loops=frozenset({"i"}))),
        (dim_min(4, N), N, TURN - 4, (N,), Apart(sizes=frozenset({"n"}))),
        (0, N * M, N * M - 1 - TURN, (N * M,), Apart(sizes=frozenset({"n", "m"}))),
        (0, N, dim_max(TURN - 3, 0), (N,), NONE),
    ],
)
def test_what_is_looked_at_one_by_one(
    start: Dim | int, stop: Dim, source: Dim, shape: Sequence[Dim], expected: Apart
) -> None:
    assert apart(copied(Dim.of(start), stop, source, shape), NONE, BOUNDS) == expected


def test_nested_loops_begin_and_end_independently() -> None:
    """The first of one loop with the last of another: `-i` alone is below the buffer there."""
    count = dim_max(N - 2, 0)
    x = Buffer("x", DType.F32, (M, Dim.of(4), N))
    y = Buffer("y", DType.F32, (M, Dim.of(4), count + 1))
    k = KernelBuilder("k", [x], [y])
    with k.loops(M, 4, count + 1) as (row, column, i):
        k.store(y[(row, column, i)], x[(row, column, count - i)])
    one_by_one, bounds = Apart(loops=frozenset({"i0", "i2"})), {"n": (1, 5), "m": (1, 24)}
    assert apart(k.finish(), one_by_one, Bounds.of(bounds)).sizes == {"n"}


@pytest.mark.parametrize("named", [True, False])
def test_a_condition_narrows_what_stands_in_it(named: bool) -> None:
    """Where its name stands for a difference, the loop is looked at turn by turn instead."""
    x, y = (Buffer(name, DType.F32, (N,)) for name in "xy")
    k = KernelBuilder("k", [x], [y])
    with k.loops(N) as (i,):
        before = k.let("before", i - 1) if named else i - 1
        here = Select(binary("<=", 0, i - 1), Load(x, (before,)), Load(x, (i,)))
        k.store(y[(i,)], here)
    found = apart(k.finish(), NONE, BOUNDS)
    assert (len(found.loops), found.sizes) == (int(named), frozenset())


def test_a_length_from_data_is_clear_turn_by_turn() -> None:
    x, y = (Buffer(name, DType.F32, (N,)) for name in "xy")
    lengths = Buffer("lengths", DType.I32, (Dim.of(1),))
    k = KernelBuilder("k", [x, lengths], [y])
    with k.loops(N) as (i,):
        length = k.index("length", lengths[(Dim.of(0),)], 0, N)
        with k.when(binary("<", i, length)):
            k.store(y[(i,)], Load(x, (length - 1 - i,)))
    found = apart(k.finish(), NONE, BOUNDS)
    assert found.loops == i.symbols and not found.sizes


def test_spans_take_each_symbol_by_itself() -> None:
    spans = {"n": (1, 40), "m": (-2, 7)}
    assert span(N - N // 2 * 2, spans) == (-39, 40)
    assert span(N * M, spans) == (-80, 280)
    assert span(dim_min(N, M), spans) == (-2, 7)
    assert span(N % 8, spans) == (0, 7)
    assert span(Dim.of(3), spans) == (3, 3)
