# SPDX-License-Identifier: Apache-2.0
"""The memory planner on hard public tables, compared with first fit: heights and times.

    python benchmarks/planner.py [--time 60] [--lowest] [FOLDER]

The tables are those of MiniMalloc (Moffitt, ASPLOS 2023), `A.1048576.csv` to `K.1048576.csv`,
in FOLDER (default: `shared/minimalloc` next to the checkout). By default the search ends when a
table fits the capacity in its name; with --lowest it goes on until the time is up or the
height is proved to be the lowest. Each row is one process of `relax-aot plan`, its start included.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = ROOT.parent / "shared" / "minimalloc"

Row = tuple[int, int, int]


def read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        return [(int(r["lower"]), int(r["upper"]), int(r["size"])) for r in rows]


def first_fit(rows: list[Row]) -> int:
    """By falling size, each at the lowest offset that is free during its whole life."""
    placed: list[tuple[int, int, int, int]] = []
    for lower, upper, size in sorted(rows, key=lambda row: -row[2]):
        offset = 0
        for start, end, other_lower, other_upper in sorted(placed):
            if other_lower < upper and lower < other_upper:
                if offset + size <= start:
                    break
                offset = max(offset, end)
        placed.append((offset, offset + size, lower, upper))
    return max(end for _, end, _, _ in placed)


def height_of(path: Path) -> int:
    """From the table that was written, after looking at every pair of blocks."""
    with path.open(newline="") as file:
        rows = [{k: int(v) for k, v in row.items() if k != "id"} for row in csv.DictReader(file)]
    for number, one in enumerate(rows):
        for other in rows[:number]:
            if one["lower"] < other["upper"] and other["lower"] < one["upper"]:
                above = one["offset"] >= other["offset"] + other["size"]
                below = other["offset"] >= one["offset"] + one["size"]
                assert above or below, (path.name, one, other)
    return max(row["offset"] + row["size"] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--time", type=float, default=60)
    parser.add_argument("--lowest", action="store_true")
    chosen = parser.parse_args()
    tables = sorted(chosen.folder.glob("*.*.csv"))
    if not tables:
        print(f"skipped: no tables in {chosen.folder.name}; fetch them from google/minimalloc")
        return
    print(f"{'table':6} {'blocks':>6} {'capacity':>9} {'first fit':>9} {'plan':>9} {'seconds':>8}")
    fit = 0
    for table in tables:
        name, capacity, _ = table.name.split(".")
        rows = read(table)
        with tempfile.TemporaryDirectory() as scratch:
            output = Path(scratch) / "out.csv"
            command = [sys.executable, "-m", "relax_aot", "plan", str(table), "-o", str(output)]
            command += ["--time", str(chosen.time)]
            command += [] if chosen.lowest else ["--capacity", capacity]
            start = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            seconds = time.perf_counter() - start
            height = height_of(output)
        fit += height <= int(capacity)
        shown = f"{height:>9} {seconds:8.2f}  {done.stdout.strip()}"
        print(f"{name:6} {len(rows):6} {capacity:>9} {first_fit(rows):>9} {shown}", flush=True)
    print(f"{fit} of {len(tables)} fit")


if __name__ == "__main__":
    main()
