# SPDX-License-Identifier: Apache-2.0
"""Which descent runs: the one in C, built once and kept, or the one in Python.

Both make the same moves and count the same work, so the choice changes only how long it takes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cffi

from relax_aot.cache import CacheError, cached_folder, digest_of
from relax_aot.planning import descent
from relax_aot.planning.descent import Descent, Problem, Verdict

Engine = Callable[[Problem, Sequence[int], list[int], int, int, int], Descent]

SOURCE = Path(__file__).with_name("descent.c")
FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC")
GREATEST_SUM = 2**61
"""The descent in C adds no more than this."""

CDEF = """
struct descent {
    int32_t blocks, sections;
    const int32_t *start, *stop;
    const int64_t *size;
    const int32_t *rank;
    int64_t capacity, nodes, work;
    int64_t *weight, *offset;
};
int descend(struct descent *d);
"""


@cache
def best_engine() -> Engine:
    """C where a compiler is at hand ($CC, else cc) and the cache can be written."""
    library = _library()
    if library is None:
        return descent.descend
    ffi, functions = library

    def descend(
        problem: Problem,
        ranks: Sequence[int],
        weights: list[int],
        capacity: int,
        nodes: int,
        work: int,
    ) -> Descent:
        if sum(problem.sizes) + capacity >= GREATEST_SUM:
            return descent.descend(problem, ranks, weights, capacity, nodes, work)
        weight = ffi.new("int64_t[]", weights)
        offset = ffi.new("int64_t[]", len(problem.sizes))
        kept = (
            ffi.new("int32_t[]", problem.starts),
            ffi.new("int32_t[]", problem.stops),
            ffi.new("int64_t[]", problem.sizes),
            ffi.new("int32_t[]", list(ranks)),
        )
        sizes = (len(problem.sizes), problem.sections)
        call = ffi.new("struct descent *", (*sizes, *kept, capacity, nodes, work, weight, offset))
        status = functions.descend(call)
        if status not in {verdict.value for verdict in Verdict}:
            raise MemoryError("the memory planner's search")
        weights[:] = list(weight)
        found = tuple(offset)
        return Descent(Verdict(status), found, nodes - call.nodes, work - call.work)

    return descend


def _library() -> tuple[Any, Any] | None:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    digest = digest_of([SOURCE.read_bytes(), *FLAGS, compiler])

    def build(folder: Path) -> None:
        target = folder / "descent.so"
        subprocess.run(
            [compiler, *FLAGS, "-o", str(target), str(SOURCE)], check=True, capture_output=True
        )

    try:
        folder = cached_folder("planner", digest, build)
        ffi = cffi.FFI()
        ffi.cdef(CDEF)
        return ffi, ffi.dlopen(str(folder / "descent.so"))
    except (OSError, subprocess.CalledProcessError, CacheError):
        return None
