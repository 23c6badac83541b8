# SPDX-License-Identifier: Apache-2.0
"""Ops with a data-dependent number of results: the count first, then the elements.

`define` makes a size of the count in between. Ops that must look at everything to count
(`unique`, `non_max_suppression`) keep what they find in results of the largest size, of which
a slice is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Binary, Buffer, Cast, Expr, Index, Lit, Load, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    may_equal,
    must_equal,
    not_negative,
    require,
    require_one_type,
)

FIRST = (Dim.of(0),)


def _truth(value: Load) -> Expr:
    return value if value.dtype is DType.BOOL else binary("!=", value, 0)


def _count_lower(k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    count = k.local("count", DType.I64, 0)
    with k.loops(*x.shape) as at, k.when(_truth(x[at])):
        k.assign(count, count + 1)
    k.store(y[FIRST], count)


COUNT = Op(
    "count_nonzero",
    lambda x: TensorType(DType.I64, (Dim.of(1),)),
    _count_lower,
    lambda x: np.array([np.count_nonzero(x)], np.int64),
    lambda rng: [
        Sample((rng.integers(0, 2, (3, 5)).astype(np.float32),)),
        Sample((rng.integers(0, 2, (7,)).astype(np.bool_),)),
        Sample((np.zeros((0, 3), np.int32),)),
    ],
)


def _places_type(x: TensorType, *, count: int | Dim) -> TensorType:
    return TensorType(DType.I64, (Dim.of(x.rank), Dim.of(count)))


def _places_lower(k: KernelBuilder, x: Buffer, y: Buffer, *, count: int | Dim) -> None:
    found = k.local("found", DType.I64, 0)
    with k.loops(*x.shape) as at, k.when(_truth(x[at])):
        place = k.placed("place", found, 0, Dim.of(count) - 1)
        for axis, index in enumerate(at):
            k.store(y[(Dim.of(axis), place)], Index(index))
        k.assign(found, found + 1)


def _places_samples(rng: np.random.Generator) -> list[Sample]:
    arrays = [
        rng.integers(0, 2, (3, 5)).astype(np.float32),
        rng.integers(0, 2, (7,)).astype(np.bool_),
        np.zeros((2, 3), np.int32),
    ]
    return [Sample((x,), {"count": int(np.count_nonzero(x))}, sizes=("count",)) for x in arrays]


PLACES = Op(
    "nonzero",
    _places_type,
    _places_lower,
    lambda x, *, count: np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1),
    _places_samples,
    conditions=not_negative("count"),
    former=("nonzero_places",),
)


# unique: rows of x that differ


def _unique_type(x: TensorType, *, sort: bool) -> tuple[TensorType, ...]:
    require(x.rank == 2, f"unique takes rows, got {x}")
    rows = TensorType(DType.I64, (x.shape[0],))
    return rows, rows, rows, TensorType(DType.I64, (Dim.of(1),))


def _less(a: Expr, b: Expr) -> Binary:
    """a < b; NaN comes last."""
    if a.dtype is DType.BOOL:
        return binary("&&", ~a, b)
    plain = binary("<", a, b)
    if not a.dtype.is_float:
        return plain
    return binary("||", plain, binary("&&", ~apply("isnan", a), apply("isnan", b)))


def _unique_lower(
    k: KernelBuilder,
    x: Buffer,
    firsts: Buffer,
    inverse: Buffer,
    counts: Buffer,
    total: Buffer,
    *,
    sort: bool,
) -> None:
    rows, columns = x.shape
    seen_at = k.scratch("seen_at", DType.I64, (rows,))
    seen_times = k.scratch("seen_times", DType.I64, (rows,))
    rank = k.scratch("rank", DType.I64, (rows,))
    seen = k.local("seen", DType.I64, 0)
    with k.loops(rows) as (i,):
        found = k.local("found", DType.I64, -1)
        with k.loops(k.clamped("known", seen, 0, rows)) as (j,):
            other = k.clamped("other", seen_at[(j,)], 0, rows - 1)
            same = k.local("same", DType.BOOL, True)
            with k.loops(columns) as (c,), k.when(binary("!=", x[(i, c)], x[(other, c)])):
                k.assign(same, False)
            with k.when(binary("&&", same, binary("<", found, 0))):
                k.assign(found, Index(j))
        with k.when(binary("<", found, 0)):
            fresh = k.clamped("fresh", seen, 0, rows - 1)
            k.store(seen_at[(fresh,)], Index(i))
            k.store(seen_times[(fresh,)], 0)
            k.assign(found, seen)
            k.assign(seen, seen + 1)
        group = k.clamped("group", found, 0, rows - 1)
        k.store(seen_times[(group,)], seen_times[(group,)] + 1)
        k.store(inverse[(i,)], found)
        k.store(firsts[(i,)], 0)
        k.store(counts[(i,)], 0)
    groups = k.clamped("groups", seen, 0, rows)
    with k.loops(groups) as (j,):
        place = k.local("place", DType.I64, 0 if sort else Index(j))
        if sort:
            one = k.clamped("one", seen_at[(j,)], 0, rows - 1)
            with k.loops(groups) as (m,):
                two = k.clamped("two", seen_at[(m,)], 0, rows - 1)
                order = k.local("order", DType.I64, 0)
                with k.loops(columns) as (c,):
                    a, b = x[(two, c)], x[(one, c)]
                    step = Select(_less(a, b), Lit(-1, DType.I64), Lit(1, DType.I64))
                    differ = binary("||", _less(a, b), _less(b, a))
                    with k.when(binary("&&", binary("==", order, 0), differ)):
                        k.assign(order, step)
                tied = binary("&&", binary("==", order, 0), binary("<", Index(m), Index(j)))
                with k.when(binary("||", binary("<", order, 0), tied)):
                    k.assign(place, place + 1)
        target = k.clamped("target", place, 0, rows - 1)
        k.store(rank[(j,)], place)
        k.store(firsts[(target,)], seen_at[(j,)])
        k.store(counts[(target,)], seen_times[(j,)])
    with k.loops(rows) as (i,):
        was = k.clamped("was", inverse[(i,)], 0, rows - 1)
        k.store(inverse[(i,)], rank[(was,)])
    k.store(total[FIRST], seen)


def _unique_reference(x: Array, *, sort: bool) -> tuple[Array, ...]:
    n = x.shape[0]
    groups: list[int] = []
    inverse = np.zeros(n, np.int64)
    for i in range(n):
        known = [j for j, first in enumerate(groups) if np.array_equal(x[first], x[i])]
        if not known:
            groups.append(i)
        inverse[i] = known[0] if known else len(groups) - 1
    order = list(range(len(groups)))
    if sort and groups:
        keys = x[groups].T[::-1]
        order = list(np.lexsort(keys)) if len(keys) else order
    firsts, counts = np.zeros(n, np.int64), np.zeros(n, np.int64)
    rank = np.zeros(max(len(groups), 1), np.int64)
    for place, j in enumerate(order):
        rank[j] = place
        firsts[place], counts[place] = groups[j], np.count_nonzero(inverse == j)
    return firsts, rank[inverse], counts, np.array([len(groups)], np.int64)


def _unique_samples(rng: np.random.Generator) -> list[Sample]:
    rows = rng.integers(0, 3, (9, 2)).astype(np.float32)
    odd = np.array([[2.0], [np.nan], [-1.0], [np.nan], [2.0]], np.float32)
    return [
        Sample((x,), {"sort": sort})
        for x in (rows, odd, rng.integers(-2, 2, (7, 1)), np.zeros((0, 3), np.float32),
                  rng.integers(0, 2, (6, 3)).astype(np.bool_))
        for sort in (True, False)
    ]  # fmt: skip


UNIQUE = Op(
    "unique",
    _unique_type,
    _unique_lower,
    _unique_reference,
    _unique_samples,
    former=("unique_scan",),
)


# non_max_suppression: boxes that overlap no better one too much


def _nms_type(
    boxes: TensorType,
    scores: TensorType,
    most: TensorType | None = None,
    overlap: TensorType | None = None,
    least: TensorType | None = None,
    *,
    center: bool,
) -> tuple[TensorType, TensorType]:
    fits = boxes.rank == scores.rank == 3 and may_equal(boxes.shape[2], 4)
    floats = boxes.dtype is scores.dtype and boxes.dtype.is_float
    require(fits and floats, f"boxes and scores do not fit: {boxes} and {scores}")
    require_one_type("non_max_suppression", boxes, overlap, least)
    greatest = scores.shape[0] * scores.shape[1] * scores.shape[2]
    found = TensorType(DType.I64, (greatest, Dim.of(3)))
    return found, TensorType(DType.I64, (Dim.of(1),))


def _nms_conditions(
    boxes: TensorType, scores: TensorType, *_rest: TensorType | None, center: bool
) -> list[Condition]:
    return [
        must_equal(boxes.shape[2], 4, "the numbers of a box"),
        must_equal(boxes.shape[0], scores.shape[0], "the batch of boxes and scores"),
        must_equal(boxes.shape[1], scores.shape[2], "the number of boxes and scores"),
    ]


def _only(buffer: Buffer) -> Load:
    return buffer[(Dim.of(0),) * buffer.rank]


def _nms_lower(
    k: KernelBuilder,
    boxes: Buffer,
    scores: Buffer,
    most: Buffer | None,
    overlap: Buffer | None,
    least: Buffer | None,
    found: Buffer,
    total: Buffer,
    *,
    center: bool,
) -> None:
    """The best box that is left is compared with those that are chosen. One that it overlaps
    removes all boxes that overlap it, once, so no more boxes are found in vain than are chosen."""
    batch, classes, count = scores.shape
    gone = k.scratch("gone", DType.BOOL, (count,))
    taken = k.local("taken", DType.I64, 0)
    requested = k.local("requested", DType.I64, 0 if most is None else Cast(_only(most), DType.I64))
    limit = k.local("limit", boxes.dtype, 0.0 if overlap is None else _only(overlap))
    with k.loops(*found.shape) as at:
        k.store(found[at], 0)
    with k.loops(batch, classes) as (image, label):
        with k.loops(count) as (i,):
            below: Expr = Lit(False, DType.BOOL)
            if least is not None:
                below = ~binary("<", _only(least), scores[(image, label, i)])
            k.store(gone[(i,)], below)
        first = k.local("first", DType.I64, taken)
        trips = k.clamped("trips", requested, 0, count)
        done = k.local("done", DType.BOOL, False)
        with k.loops(trips * 2), k.when(~done):
            best = k.local("best", DType.I64, -1)
            score = k.local("score", scores.dtype, 0.0)
            with k.loops(count) as (i,):
                value = scores[(image, label, i)]
                better = binary("||", binary("<", best, 0), binary("<", score, value))
                with k.when(binary("&&", ~gone[(i,)], better)):
                    k.assign(best, Index(i))
                    k.assign(score, value)
            full = ~binary("<", taken - first, Index(trips))
            k.assign(done, binary("||", binary("<", best, 0), full))
            with k.when(~done):
                chosen = k.clamped("chosen", best, 0, count - 1)
                edges = _edges(k, boxes, image, chosen, center)
                over = k.local("over", DType.I64, -1)
                with k.loops(k.clamped("mine", taken - first, 0, count)) as (j,):
                    row = k.clamped("row", first + Index(j), 0, found.shape[0] - 1)
                    held = k.clamped("held", found[(row, Dim.of(2))], 0, count - 1)
                    other = _edges(k, boxes, image, held, center)
                    with k.when(_overlaps(k, other, edges, limit)):
                        k.assign(over, Index(held))
                k.store(gone[(chosen,)], True)
                with k.when(binary("<", over, 0)):
                    place = k.clamped("place", taken, 0, found.shape[0] - 1)
                    for column, number in enumerate((Index(image), Index(label), best)):
                        k.store(found[(place, Dim.of(column))], number)
                    k.assign(taken, taken + 1)
                with k.when(binary("<=", Lit(0, DType.I64), over)):
                    better_one = k.clamped("better_one", over, 0, count - 1)
                    edges = _edges(k, boxes, image, better_one, center)
                    with k.loops(count) as (i,), k.when(~gone[(i,)]):
                        other = _edges(k, boxes, image, i, center)
                        k.store(gone[(i,)], _overlaps(k, edges, other, limit))
    k.store(total[FIRST], taken)


Edges = tuple[Expr, Expr, Expr, Expr]


def _edges(k: KernelBuilder, boxes: Buffer, image: Dim, i: Dim, center: bool) -> Edges:
    """Least and largest of either axis."""
    a, b, c, d = (boxes[(image, i, Dim.of(column))] for column in range(4))
    pairs: list[tuple[Expr, Expr]]
    if center:
        pairs = [(b - d / 2.0, b + d / 2.0), (a - c / 2.0, a + c / 2.0)]
    else:
        pairs = [(apply("min", a, c), apply("max", a, c)), (apply("min", b, d), apply("max", b, d))]
    low, high, left, right = (
        k.local(name, boxes.dtype, value)
        for name, value in zip(
            ("low", "high", "left", "right"), [*pairs[0], *pairs[1]], strict=True
        )
    )
    return low, high, left, right


def _overlaps(k: KernelBuilder, one: Edges, two: Edges, limit: Expr) -> Expr:
    height = apply("max", apply("min", one[1], two[1]) - apply("max", one[0], two[0]), 0.0)
    width = apply("max", apply("min", one[3], two[3]) - apply("max", one[2], two[2]), 0.0)
    areas = [(edges[1] - edges[0]) * (edges[3] - edges[2]) for edges in (one, two)]
    common = k.local("common", limit.dtype, height * width)
    whole = k.local("whole", limit.dtype, areas[0] + areas[1] - common)
    share = binary("<", limit, common / whole)
    flat = binary("||", binary("<=", areas[0], 0.0), binary("<=", areas[1], 0.0))
    return binary("&&", ~binary("||", flat, binary("<=", whole, 0.0)), share)


def _nms_reference(
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
    *,
    center: bool,
) -> tuple[Array, Array]:
    requested = 0 if most is None else int(most.reshape(-1)[0])
    limit = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    rows: list[tuple[int, int, int]] = []
    for image, label in np.ndindex(*scores.shape[:2]):
        values = scores[image, label]
        alive = [
            i for i in np.argsort(-values, kind="stable")
            if least is None or values[i] > least.reshape(-1)[0]
        ]  # fmt: skip
        chosen: list[int] = []
        for i in alive:
            box = _corners(boxes[image, i], center)
            kept = all(_share(box, _corners(boxes[image, j], center)) <= limit for j in chosen)
            if len(chosen) < requested and kept:
                chosen.append(int(i))
        rows += [(image, label, i) for i in chosen]
    found = np.zeros((scores.size, 3), np.int64)
    if rows:
        found[: len(rows)] = rows
    return found, np.array([len(rows)], np.int64)


def _corners(box: Array, center: bool) -> Array:
    if center:
        x, y, width, height = box
        return np.array([y - height / 2, x - width / 2, y + height / 2, x + width / 2])
    a, b, c, d = box
    return np.array([min(a, c), min(b, d), max(a, c), max(b, d)])


def _share(one: Array, two: Array) -> float:
    sides = np.maximum(np.minimum(one[2:], two[2:]) - np.maximum(one[:2], two[:2]), 0)
    areas = [np.prod(box[2:] - box[:2]) for box in (one, two)]
    whole = areas[0] + areas[1] - np.prod(sides)
    return float(np.prod(sides) / whole) if min(*areas, whole) > 0 else 0.0


def _nms_samples(rng: np.random.Generator) -> list[Sample]:
    def case(batch: int, classes: int, count: int, *rest: Any, center: bool = False) -> Sample:
        boxes = rng.uniform(0, 4, (batch, count, 4)).astype(np.float32)
        scores = rng.uniform(0, 1, (batch, classes, count)).astype(np.float32)
        given = [None if v is None else np.array([v], t) for v, t in zip(
            rest, (np.int64, np.float32, np.float32), strict=True
        )]  # fmt: skip
        return Sample((boxes, scores, *given), {"center": center}, fixed=(4,))

    return [
        case(1, 1, 6, 3, 0.4, 0.2),
        case(2, 3, 7, 9, 0.3, None),
        case(1, 2, 5, 2, 0.0, 0.5, center=True),
        case(1, 1, 5, None, None, None),
        case(2, 1, 6, -1, 0.5, 0.1),
    ]


NON_MAX = Op(
    "non_max_suppression", _nms_type, _nms_lower, _nms_reference, _nms_samples,
    conditions=_nms_conditions, former=("non_max_scan",),
)  # fmt: skip

OPS = (COUNT, PLACES, UNIQUE, NON_MAX)
