# SPDX-License-Identifier: Apache-2.0
"""Random ONNX graphs with scattering, unpooling, resizing, recurrences, data-dependent sizes
and special values compute what ONNX Runtime computes, node by node.

    python -m tests.fuzz.wide --seeds 0:5000 [--jobs 2]

The C of 15 graphs is one library; it runs under the sanitizers, every fourth library with
optimization.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import Pool

from tests.fuzz.chains import say, seed_range
from tests.fuzz.graphs import Fuzzed, wide_graph
from tests.fuzz.judge import judge

PER_LIBRARY = 15
OPTIMIZED = 4
"""Every such library is built with optimization."""


def faults(seeds: range) -> list[str]:
    """What is refused, raised or wrong, one text each."""
    try:
        graphs = {seed: wide_graph(seed) for seed in seeds}
    except Exception:  # noqa: BLE001  # any that comes is a fault to report
        return [f"seeds {seeds}: {traceback.format_exc()}"]
    number = seeds.start // PER_LIBRARY
    return list(_judged(graphs, "-O3" if number % OPTIMIZED == OPTIMIZED - 1 else "-O0"))


def _judged(graphs: Mapping[int, Fuzzed], level: str) -> Iterator[str]:
    try:
        refused, wrong = judge(graphs, level)
    except Exception:  # noqa: BLE001
        if len(graphs) == 1:
            yield f"m{next(iter(graphs))}: {traceback.format_exc()}"
        else:
            for seed, made in graphs.items():
                yield from _judged({seed: made}, level)
        return
    yield from (f"m{refusal.seed}: refused: {refusal.reason}" for refusal in refused)
    yield from wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.wide", description=__doc__)
    parser.add_argument("--seeds", type=seed_range, default=range(150), metavar="FIRST:LAST")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args(arguments)
    seeds: range = given.seeds
    blocks = [
        range(first, min(first + PER_LIBRARY, seeds.stop))
        for first in range(seeds.start, seeds.stop, PER_LIBRARY)
    ]
    started, count, done = time.monotonic(), 0, 0
    with (
        tempfile.TemporaryDirectory(prefix="relax_aot-") as cache,
        Pool(given.jobs, _cached, (cache,)) as pool,
    ):
        for block, found in zip(blocks, pool.imap(faults, blocks), strict=True):
            done += len(block)
            count += len(found)
            for fault in found:
                say(fault)
            say(f"{done} of {len(seeds)}: {count} faults, {time.monotonic() - started:.0f} s")
    return 1 if count else 0


def _cached(folder: str) -> None:
    """Libraries of a long run lie in a folder that goes with it."""
    os.environ["RELAX_AOT_CACHE"] = folder


if __name__ == "__main__":
    sys.exit(main())
