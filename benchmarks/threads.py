# SPDX-License-Identifier: Apache-2.0
"""Several threads on this machine, compared with one in the same run.

    python benchmarks/threads.py [--threads 2] [--runs 200] [--sizes 1,16,64,256] [--realtime]
                                 [--json FILE]

A transformer encoder (width 256, 4 layers), compiled with and without --threads, in one program
that calls both alternately: each pair gives a ratio, and results are compared by bits. Both sides
are built by the project's own CMakeLists.txt. A busy machine has no second core to give: the load
is printed, `quiet` is the ratio of the fastest tenth of both sides, and `--realtime` runs the
program before all others (by chrt, which needs privileges; choose few runs).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

CMAKE = """cmake_minimum_required(VERSION 3.16)
project(threads LANGUAGES C)
add_subdirectory(single)
add_subdirectory(several)
add_executable(threads threads.c)
target_link_libraries(threads PRIVATE single several)
"""


def built(folder: Path, threads: int) -> Path:
    """The program of threads.c."""
    import relax_aot as rx
    from tests.models.encoder import encoder

    for name, count in (("single", 1), ("several", threads)):
        project = rx.compile(encoder(), name=name, bounds={"n": 256, "batch": 1}, threads=count)
        project.write(folder / name)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "threads.c").write_bytes((ROOT / "benchmarks" / "threads.c").read_bytes())
    for command in (["-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release"], ["--build", "build"]):
        subprocess.run(["cmake", *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "build" / "threads"


def measured(program: Sequence[str], n: int, runs: int) -> dict[str, float]:
    before = os.getloadavg()[0]
    said = subprocess.run(
        [*program, str(n), str(runs + 3)], check=True, capture_output=True, text=True
    ).stdout
    pairs = [tuple(map(float, line.split())) for line in said.splitlines()][3:]
    fastest = [sorted(side)[: max(len(pairs) // 10, 1)] for side in zip(*pairs, strict=True)]
    one, all_ = map(statistics.median, fastest)
    return {
        "n": n,
        "one_ms": 1e3 * statistics.median(one for one, _ in pairs),
        "threads_ms": 1e3 * statistics.median(all_ for _, all_ in pairs),
        "ratio": statistics.median(one / all_ for one, all_ in pairs),
        "quiet": one / all_,
        "load": before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--sizes", default="1,16,64,256")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = [str(built(Path(folder), arguments.threads))]
        if arguments.realtime:
            program = ["chrt", "-f", "10", *program]
        for n in map(int, arguments.sizes.split(",")):
            rows.append(row := measured(program, n, arguments.runs))
            print(
                f"n = {n:4} {row['one_ms']:9.3f} ms, {arguments.threads} threads"
                f" {row['threads_ms']:9.3f} ms, ratio {row['ratio']:.2f}, quiet"
                f" {row['quiet']:.2f}, load {row['load']:.1f}"
            )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
