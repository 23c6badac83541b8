# SPDX-License-Identifier: Apache-2.0
"""Operators on text, where it comes as numbers."""

from __future__ import annotations

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import Dim
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array

LIMITS = {"TfIdfVectorizer": "integers only (pool_int64s); weights need ngram_indexes 0, 1, 2, ..."}


def _tf_idf(node: Node) -> Results:
    """Counts of n-grams, weighted. Two readings of `weights` exist, by n-gram and by result;
    they agree where the indexes count from 0."""
    x = node.arg(0)
    if node.has("pool_strings"):
        raise Refused("strings are not supported; map them to integers before")
    mode = node.required("mode")
    indexes = np.array(node.required("ngram_indexes"), np.int64)
    weights = np.array(node.attr("weights", []), np.float32)
    columns = int(indexes.max(initial=-1)) + 1
    if mode not in ("TF", "IDF", "TFIDF") or indexes.min(initial=0) < 0:
        raise ModelError(f"a TfIdfVectorizer of mode {mode!r} with indexes {indexes.tolist()}")
    rows = x if x.type.rank == 2 else node.reshape(x, (Dim.of(1), x.type.elements))
    rows = node.cast(rows, DType.I64)
    tables = [node.constant(table) for table in _tables(node, indexes)]
    skips = int(node.required("max_skip_count")) + 1
    y = node.emit("ngram_counts", rows, *tables, columns=columns, skips=skips)
    if mode == "IDF":
        y = node.emit("min", y, node.scalar(1, y))
    if mode != "TF" and weights.size:
        if weights.size != columns or (indexes != np.arange(columns)).any():
            raise Refused(
                "weights with ngram_indexes that do not count from 0 are read in two ways; order"
                " the pool by index"
            )
        y = node.emit("mul", y, node.constant(weights))
    return y if x.type.rank == 2 else node.reshape(y, (Dim.of(columns),))


def _tables(node: Node, indexes: Array) -> tuple[Array, Array, Array]:
    """The n-grams of the asked lengths, a line each; their lengths; their columns."""
    pool = np.array(node.required("pool_int64s"), np.int64)
    starts = [int(start) for start in node.required("ngram_counts")]
    least, most = int(node.required("min_gram_length")), int(node.required("max_gram_length"))
    ends = [*starts[1:], len(pool)]
    grams = [
        pool[place : place + length]
        for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1)
        for place in range(start, end, length)
    ]
    if sum(len(gram) for gram in grams) != len(pool) or len(grams) != len(indexes):
        raise ModelError("the pool of a TfIdfVectorizer does not fit its counts and indexes")
    kept = [i for i, gram in enumerate(grams) if least <= len(gram) <= most]
    table = np.zeros((len(kept), max(most, 1)), np.int64)
    for line, i in enumerate(kept):
        table[line, : len(grams[i])] = grams[i]
    return table, np.array([len(grams[i]) for i in kept], np.int64), indexes[kept]


HANDLERS: dict[str, Handler] = {"TfIdfVectorizer": _tf_idf}
