# SPDX-License-Identifier: Apache-2.0
"""Products with quantized weights compared with f32: instructions on boards, time on this machine.

    python benchmarks/quantized_products.py [--board mps2-an386 ...] [--runs 200] [--json FILE]

Instructions are those of one product of 256x512 for one row and for 64 rows, counted by the
emulator; they are not cycles. On this machine it is a product of 1024x1024, in the library that the
project's own CMakeLists.txt builds. f32 and each kind are called alternately, and the median of the
ratios of these pairs counts. `constants` and `arena` are bytes of the project.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

BOARDS = ("mps2-an386", "mps3-an547", "raspberry-pi-5")
KINDS = ("int8w", "int4w", "int8d", "int4d", "q8_0", "q4_0")
ROWS = (1, 64)
SMALL, LARGE = (256, 512), (1024, 1024)
Row = dict[str, Any]


def product(depth: int, columns: int) -> Any:
    from tests.models.onnx_text import model_of

    weights = np.random.default_rng(0).standard_normal((depth, columns)) / depth**0.5
    signature = f"product (float[n, {depth}] x) => (float[n, {columns}] y)"
    return model_of(signature, "y = MatMul(x, w)", {"w": weights.astype(np.float32)})


def activations(rows: int, depth: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(1).standard_normal((rows, depth)).astype(np.float32)}


def compiled(size: tuple[int, int], board: str, kind: str, rows: int) -> Any:
    from relax_aot import driver
    from relax_aot.quantization import Choice

    options = driver.Options(bounds={"n": (1, rows)}, quantize=Choice(kind) if kind else None)
    return driver.compile_model(product(*size), board, options)


def on_board(board: str, rows: int) -> list[Row]:
    """Instructions of each kind."""
    from relax_aot.verify.emulate import emulate

    found: list[Row] = []
    for kind in ("", *KINDS):
        project = compiled(SMALL, board, kind, rows)
        (run,) = emulate(project, [activations(rows, SMALL[0])])
        assert run.status == 0, run
        found.append({
            "board": board, "rows": rows, "kind": kind or "f32", "instructions": run.instructions,
            "constants": project.const_bytes, "arena": project.arena_bytes,
        })  # fmt: skip
    for row in found:
        row["ratio"] = row["instructions"] / found[0]["instructions"]
    return found


def on_host(rows: int, runs: int, folder: Path) -> list[Row]:
    """Milliseconds of f32 and of each kind, in pairs."""
    from benchmarks.host_latency import ours, paired
    from tests.project.shipped import shipped_library

    feeds = activations(rows, LARGE[0])
    calls, projects = {}, {}
    for kind in ("", *KINDS):
        project = compiled(LARGE, "host", kind, rows)
        place = folder / f"{kind or 'f32'}-{rows}"
        place.mkdir()
        calls[kind] = ours(project, shipped_library(project, place, []), feeds, {"n": rows})
        projects[kind] = project
    found: list[Row] = []
    for kind in KINDS:
        times = paired(calls[kind], calls[""], runs)
        found.append({
            "board": "host", "rows": rows, "kind": kind, "ms": times["ours_ms"],
            "f32_ms": times["onnxruntime_ms"], "ratio": times["ratio"],
            "constants": projects[kind].const_bytes, "arena": projects[kind].arena_bytes,
        })  # fmt: skip
    return found


def shown(row: Row) -> str:
    if "ms" in row:
        cost = f"{row['ms']:9.4f} ms, f32 {row['f32_ms']:9.4f} ms"
    else:
        cost = f"{row['instructions']:>12,} instructions"
    return (
        f"{row['board']:15} n = {row['rows']:<3} {row['kind']:6} {cost}"
        f"  {row['ratio']:5.2f}x of f32  constants {row['constants']:>9,}  arena {row['arena']:>7,}"
    )


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", action="append", choices=(*BOARDS, "host"))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for board in chosen.board or (*BOARDS, "host"):
            for rows in ROWS:
                if board == "host":
                    found += on_host(rows, chosen.runs, Path(folder))
                else:
                    found += on_board(board, rows)
                last = [row for row in found if (row["board"], row["rows"]) == (board, rows)]
                print("\n".join(map(shown, last)), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
