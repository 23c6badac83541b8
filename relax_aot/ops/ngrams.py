# SPDX-License-Identifier: Apache-2.0
"""ngram_counts: counts the n-grams of a table in rows of integers.

The elements of an n-gram may lie `1..skips` places apart, all by one distance; each distance
is counted, except that a single element is counted once. `pool` holds one n-gram a line, of
which the first `lengths` elements mean something; its count is added to column `places`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Lit, Select, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_equal, require


@dataclass(frozen=True, kw_only=True)
class Columns:
    columns: int
    skips: int = 1


def deduce(
    attrs: Columns, x: TensorType, pool: TensorType, lengths: TensorType, places: TensorType
) -> TensorType:
    require(x.rank == 2 and x.dtype.is_int, f"ngram_counts needs rows of integers, got {x}")
    tables = pool.rank == 2 and pool.dtype is x.dtype and lengths.rank == places.rank == 1
    require(tables, f"ngram_counts of {x} with the tables {pool}, {lengths}, {places}")
    kinds = lengths.dtype is places.dtype is DType.I64
    require(kinds, f"ngram_counts needs tables of i64, got {lengths} and {places}")
    counts = attrs.columns >= 0 and attrs.skips >= 1
    require(counts, f"ngram_counts: {attrs.columns} columns, {attrs.skips} skips")
    return TensorType(DType.F32, (x.shape[0], Dim.of(attrs.columns)))


def conditions(
    attrs: Columns, x: TensorType, pool: TensorType, lengths: TensorType, places: TensorType
) -> list[Condition]:
    return [must_equal(t.shape[0], pool.shape[0], "a table of n-grams") for t in (lengths, places)]


def lower(
    attrs: Columns,
    k: KernelBuilder,
    x: Buffer,
    pool: Buffer,
    lengths: Buffer,
    places: Buffer,
    y: Buffer,
) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], 0.0)
    with k.loops(x.shape[0], pool.shape[0]) as (row, gram):
        length = k.index("length", lengths[(gram,)], 1, pool.shape[1])
        place = k.index("place", places[(gram,)], 0, attrs.columns - 1)
        count = k.local("count", DType.I64, 0)
        with k.loops(attrs.skips, x.shape[1]) as (skip, start):
            last = start + (length - 1) * (skip + 1)
            fits = binary("<", last, x.shape[1]) & (binary("<", 1, length) | binary("==", skip, 0))
            with k.when(fits):
                matches = k.local("matches", DType.BOOL, Lit(True, DType.BOOL))
                with k.loops(length) as (j,):
                    here = x[(row, start + j * (skip + 1))]
                    k.assign(matches, matches & binary("==", here, pool[(gram, j)]))
                k.assign(count, count + Select(matches, Lit(1, DType.I64), Lit(0, DType.I64)))
        k.store(y[(row, place)], y[(row, place)] + Cast(count, DType.F32))


def reference(attrs: Columns, x: Array, pool: Array, lengths: Array, places: Array) -> Array:
    y = np.zeros((len(x), attrs.columns), np.float32)
    for gram, length, place in zip(pool, lengths, places, strict=True):
        if not (1 <= length <= len(gram) and 0 <= place < attrs.columns):
            raise IndexError(f"an n-gram of {length} for column {place}")
        for step in range(1, attrs.skips + 1 if length > 1 else 2):
            for start in range(x.shape[1] - (int(length) - 1) * step):
                found = x[:, start : start + (int(length) - 1) * step + 1 : step]
                y[:, place] += (found == gram[: int(length)]).all(1)
    return y


def samples(rng: np.random.Generator) -> list[Sample]:
    pool = np.array([[2, 0, 0], [1, 2, 0], [2, 1, 2], [0, 1, 0]])
    lengths, places = np.array([1, 2, 3, 2]), np.array([4, 0, 2, 1])

    def case(x: Array, skips: int) -> Sample:
        tables = (pool.astype(x.dtype), lengths, places)
        return Sample((x, *tables), {"columns": 5, "skips": skips}, (), (3, 4))

    text = rng.integers(0, 3, (7, 11))
    return [
        *(case(text, skips) for skips in (1, 2, 5)),
        case(text.astype(np.int32), 2),
        case(np.zeros((2, 0), np.int64), 1),
        case(np.array([[1, 2]]), 3),
    ]


OP = Op("ngram_counts", deduce, lower, reference, samples, conditions=conditions, record=Columns)
