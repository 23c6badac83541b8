# SPDX-License-Identifier: Apache-2.0
"""Layouts against a plain evaluation of their definition, element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relax_aot.ir.dims import Dim
from relax_aot.ir.layout import MEMORY, Layout, LayoutError, Piece

Position = tuple[tuple[str, int], ...]


def layout_of(
    shard: Sequence[tuple[int, int, str]],
    replica: Sequence[tuple[int, int, str]] = (),
    offset: Mapping[str, int] = {},
) -> Layout:
    pieces, copies = (tuple(Piece(*piece) for piece in given) for given in (shard, replica))
    return Layout(pieces, copies, tuple(sorted((a, n) for a, n in offset.items() if n)))


def _places(layout: Layout, number: int) -> set[Position]:
    """Where the element with that row-major number lies, as arXiv:2601.19092 defines it."""
    base = dict(layout.offset)
    for piece in reversed(layout.shard):
        number, digit = divmod(number, piece.extent)
        base[piece.axis] = base.get(piece.axis, 0) + digit * piece.stride
    found = set()
    for steps in product(*(range(piece.extent) for piece in layout.replica)):
        place = dict(base)
        for step, piece in zip(steps, layout.replica, strict=True):
            place[piece.axis] = place.get(piece.axis, 0) + step * piece.stride
        found.add(tuple(sorted((axis, at) for axis, at in place.items() if at)))
    return found


def _table(layout: Layout) -> list[set[Position]]:
    return [_places(layout, number) for number in range(layout.size)]


def _at(layout: Layout, index: Sequence[int], shape: Sequence[int]) -> set[Position]:
    """What `at` says of the first copy, and the replica of the others, for comparison."""
    first = {axis: dim.constant for axis, dim in layout.at(index, shape).items()}
    found = set()
    for steps in product(*(range(piece.extent) for piece in layout.replica)):
        place = dict(first)
        for step, piece in zip(steps, layout.replica, strict=True):
            place[piece.axis] += step * piece.stride
        found.add(tuple(sorted((axis, at) for axis, at in place.items() if at)))
    return found


TENSOR_CORE = layout_of(
    [(8, 4, "lane"), (2, 1, "warp"), (4, 1, "lane"), (2, 1, "m")], [(2, 4, "warp")], {"warp": 5}
)
PUBLISHED = [
    ((0, 0), 0, (5, 9), 0),
    ((0, 1), 0, (5, 9), 1),
    ((0, 2), 1, (5, 9), 0),
    ((1, 0), 4, (5, 9), 0),
    ((0, 8), 0, (6, 10), 0),
    ((7, 15), 31, (6, 10), 1),
]
"""The worked example of a tile of 8 x 16 on lanes, two copies over warps: index, lane, warps,
element in the register (the documentation of TIRx, after the paper's section 2)."""


@pytest.mark.parametrize(("index", "lane", "warps", "m"), PUBLISHED)
def test_the_published_table(
    index: tuple[int, int], lane: int, warps: tuple[int, int], m: int
) -> None:
    wanted = {(("lane", lane), ("m", m), ("warp", warp)) for warp in warps}
    found = _at(TENSOR_CORE, index, (8, 16))
    assert found == {tuple((a, n) for a, n in place if n) for place in wanted}


AXES = st.sampled_from(["m", "m", "m", "lane"])
PIECES = st.lists(st.tuples(st.integers(1, 4), st.integers(-12, 24), AXES), max_size=3)
OFFSETS = st.dictionaries(AXES, st.integers(-5, 9), max_size=2)
LAYOUTS = st.builds(
    layout_of,
    PIECES,
    st.lists(st.tuples(st.integers(1, 3), st.integers(-6, 30), AXES), max_size=2),
    OFFSETS,
)


@given(LAYOUTS)
def test_at_is_the_definition(layout: Layout) -> None:
    shape = tuple(piece.extent for piece in layout.shard)
    for number, index in enumerate(product(*map(range, shape))):
        assert _at(layout, index, shape) == _places(layout, number)


@given(LAYOUTS)
def test_normal_keeps_the_places_and_is_final(layout: Layout) -> None:
    normal = layout.normal()
    assert _table(normal) == _table(layout)
    assert normal.normal() == normal
    assert len(normal.shard) <= len(layout.shard)


@given(PIECES, st.data())
def test_what_is_split_has_the_same_normal_form(
    pieces: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    layout = layout_of(pieces)
    parts: list[tuple[int, int, str]] = []
    for extent, stride, axis in pieces:
        divisors = [d for d in range(1, extent + 1) if extent % d == 0]
        inner = data.draw(st.sampled_from(divisors))
        parts += [(extent // inner, stride * inner, axis), (inner, stride, axis)]
    assert layout_of(parts).normal() == layout.normal()


@given(LAYOUTS)
def test_injective_is_what_comparing_says(layout: Layout) -> None:
    table = _table(layout)
    apart = sum(map(len, table)) == len(set().union(*table))
    assert layout.is_injective() == apart


@given(LAYOUTS, st.data())
def test_slices_are_boxes(layout: Layout, data: st.DataObject) -> None:
    shape = tuple(piece.extent for piece in layout.shard)
    start = [data.draw(st.integers(0, extent - 1)) for extent in shape]
    extent = [data.draw(st.integers(1, n - low)) for low, n in zip(start, shape, strict=True)]
    box = layout.slice(shape, start, extent)
    index = np.arange(layout.size).reshape(shape)
    numbers = index[tuple(slice(a, a + n) for a, n in zip(start, extent, strict=True))]
    table = _table(layout)
    assert _table(box) == [table[number] for number in numbers.reshape(-1)]


@settings(max_examples=40)
@given(LAYOUTS, LAYOUTS)
def test_tiles_stand_as_the_grid_says(grid: Layout, inner: Layout) -> None:
    rank = max(len(grid.shard), len(inner.shard))
    outer_shape = [piece.extent for piece in grid.shard] + [1] * (rank - len(grid.shard))
    inner_shape = [piece.extent for piece in inner.shard] + [1] * (rank - len(inner.shard))
    tiled = grid.tile(outer_shape, inner, inner_shape)
    shape = [a * b for a, b in zip(outer_shape, inner_shape, strict=True)]
    span = {axis: inner.span(axis) for axis in {*grid.axes, *inner.axes}}
    for number, index in enumerate(product(*map(range, shape))):
        tile = [i // n for i, n in zip(index, inner_shape, strict=True)]
        cell = [i % n for i, n in zip(index, inner_shape, strict=True)]
        wanted = set()
        for far in _at(grid, tile, outer_shape):
            for near in _at(inner, cell, inner_shape):
                place = dict(near)
                for axis, value in far:
                    place[axis] = place.get(axis, 0) + value * span[axis]
                wanted.add(tuple(sorted((a, n) for a, n in place.items() if n)))
        assert _places(tiled, number) == wanted


def test_weights_in_blocks_of_four_over_two_cores() -> None:
    """64 x 96 weights for dot products: four rows by four columns side by side, half the rows
    on each core."""
    block = Layout.row_major((4, 4))
    core = Layout.row_major((8, 24)).tile((8, 24), block, (4, 4))
    weights = layout_of([(2, 1, "core")]).tile((2, 1), core, (32, 96))
    for n, k in product(range(64), range(96)):
        at = weights.at((n, k), (64, 96))
        assert at["core"] == n // 32
        assert at[MEMORY] == (n % 32 // 4) * 384 + (k // 4) * 16 + (n % 4) * 4 + k % 4
    assert weights.is_injective()


def test_channels_first_and_last_are_one_array_read_in_two_orders() -> None:
    first = Layout.row_major((3, 5, 7))
    last = first.permute((3, 5, 7), (1, 2, 0))
    assert last.at((4, 6, 2), (5, 7, 3)) == first.at((2, 4, 6), (3, 5, 7))
    image = np.arange(105).reshape(3, 5, 7)
    np.testing.assert_array_equal(last.pack(image.transpose(1, 2, 0)), image.reshape(-1))


@given(LAYOUTS)
def test_pack_puts_each_element_where_it_lies(layout: Layout) -> None:
    if set(layout.axes) - {MEMORY} or not layout.is_injective():
        return
    table = [[dict(place).get(MEMORY, 0) for place in places] for places in _table(layout)]
    lowest = min(min(places) for places in table)
    values = np.arange(1, layout.size + 1)
    wanted = np.zeros(layout.span(MEMORY), values.dtype)
    for value, places in zip(values, table, strict=True):
        for place in places:
            wanted[place - lowest] = value
    np.testing.assert_array_equal(layout.pack(values), wanted)


def test_addresses_of_symbolic_indices() -> None:
    blocked = Layout.row_major((4, 2)).tile((4, 2), Layout.row_major((2, 4)), (2, 4))
    at = blocked.at((Dim.of("i"), Dim.of("j")), (8, 8))[MEMORY]
    for i, j in product(range(8), range(8)):
        wanted = (i // 2) * 16 + (j // 4) * 8 + (i % 2) * 4 + j % 4
        assert at.evaluate({"i": i, "j": j}) == wanted


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: layout_of([(0, 1, "m")]), "at least 1"),
        (lambda: Layout.row_major((6,)).group((4,)), "6 elements"),
        (lambda: layout_of([(2, 9, "m"), (3, 1, "m")]).group((3, 2)), "no pieces"),
        (lambda: Layout.row_major((6,)).slice((6,), (4,), (3,)), "not within"),
        (lambda: layout_of([(2, 9, "m"), (3, 1, "m")]).slice((6,), (1,), (3,)), "within a piece"),
        (lambda: TENSOR_CORE.pack(np.zeros(128)), "one memory"),
        (lambda: Layout.row_major((6,)).pack(np.zeros(5)), "5 elements"),
    ],
)
def test_what_no_layout_describes_is_refused(act: object, message: str) -> None:
    assert callable(act)
    with pytest.raises(LayoutError, match=message):
        act()


def test_sizes_and_spans() -> None:
    assert TENSOR_CORE.size == prod((8, 16))
    assert (TENSOR_CORE.span("lane"), TENSOR_CORE.span("warp")) == (32, 6)
    assert str(layout_of([(2, 1, "m")], [(2, 4, "warp")], {"warp": 5})) == (
        "[2:1@m, replica 2:4@warp, offset 5@warp]"
    )
