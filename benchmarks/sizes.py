# SPDX-License-Identifier: Apache-2.0
"""Instructions of a transformer encoder against its size: what tails and unknown sizes cost.

    python benchmarks/sizes.py [--board aarch64-linux] [--json FILE] [--svg FILE]

One program, compiled for n <= 256, is run at many sizes and compared with programs compiled for
one size alone. Instructions are counted under QEMU, on the host by Valgrind (callgrind), and
repeatable to the instruction. The encoder has a width of 256 and 4 layers on Linux, a width of
64 and one layer on a microcontroller.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

COUNTED = Path(__file__).parent / "counted.c"
MOST = 256
SIZES = (1, 2, 3, 4, 8, 15, 16, 17, 24, 31, 32, 33, 48, 62, 63, 64, 65, 66, 80, 96)
ALONE = (1, 8, 16, 33, 64, 96)
"""Sizes for which programs of their own are compiled."""
LARGE, SMALL = (256, 4, 4, 1024), (64, 4, 1, 128)
"""Width, heads, layers, hidden."""


def counts(model: Any, board: str, bounds: tuple[int, int], sizes: Sequence[int]) -> list[int]:
    from relax_aot import driver
    from relax_aot.verify.emulate import emulate

    options = driver.Options(bounds={"n": bounds, "batch": (1, 1)})
    project = driver.compile_model(model, board, options)
    if board == "host":
        return host_counts(project, sizes)
    width = project.interface.inputs[0].type.shape[-1].constant
    rng = np.random.default_rng(0)
    samples = [{"x": rng.normal(size=(1, n, width)).astype(np.float32)} for n in sizes]
    found = [run.instructions for run in emulate(project, samples)]
    return [count for count in found if count is not None]


def host_counts(project: Any, sizes: Sequence[int]) -> list[int]:
    """Of this machine's instructions, vectors with them, as far as Valgrind knows them."""
    from relax_aot.verify.host import OPTIMISE_FLAGS, library_files

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = library_files(project) | {"counted.c": COUNTED.read_bytes()}
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        sources = sorted(path for path in files if path.endswith(".c") and "/" not in path)
        command = ["cc", "-std=c11", *OPTIMISE_FLAGS, "-I.", *sources, "-o", "counted", "-lm"]
        subprocess.run(command, cwd=folder, check=True)
        return [_host_count(project, folder, n) for n in sizes]


def _host_count(project: Any, folder: Path, n: int) -> int:
    """One call with a batch of 1."""
    dims = [str(n if field.symbol.name == "n" else 1) for field in project.interface.dims]
    options = ["--tool=callgrind", "--toggle-collect=counted", "--callgrind-out-file=out"]
    command = ["valgrind", *options, "./counted", *dims]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


def measure(board: str) -> dict[str, Any]:
    from relax_aot.project.board import load_board
    from tests.models.encoder import encoder

    dims = SMALL if load_board(board).family == "cortex_m" else LARGE
    model = encoder(*dims)
    found = dict(zip(SIZES, counts(model, board, (1, MOST), SIZES), strict=True))
    alone = {n: counts(model, board, (n, n), [n])[0] for n in ALONE}
    return {"board": board, "encoder": dims, "instructions": found, "alone": alone}


def svg(found: dict[str, Any]) -> str:
    """Instructions for an element against n."""
    each = {n: count / n for n, count in found["instructions"].items()}
    top, right = max(each.values()) * 1.1, max(each) * 1.05

    def place(n: float, value: float) -> str:
        return f"{60 + 520 * n / right:.1f},{300 - 270 * value / top:.1f}"

    line = " ".join(place(n, value) for n, value in each.items())
    dots = "".join(
        '<circle cx="{}" cy="{}" r="2.5"/>'.format(*place(n, v).split(",")) for n, v in each.items()
    )
    marks = "".join(
        '<text x="{}" y="318" text-anchor="middle">{}</text>'.format(place(n, 0).split(",")[0], n)
        for n in (1, 16, 32, 48, 64, 80, 96)
    )
    heights = "".join(
        '<text x="54" y="{}" text-anchor="end">{:,.0f}</text>'.format(
            place(0, top * part).split(",")[1], top * part / 1000
        )
        for part in (0.25, 0.5, 0.75, 1.0)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 340" font-family="sans-serif"'
        f' font-size="11"><text x="60" y="14">{found["board"]}: thousands of instructions for'
        ' one of n</text><path d="M60 30V300H590" fill="none" stroke="#888"/>'
        f'{marks}{heights}<polyline points="{line}" fill="none" stroke="#1668b0"'
        f' stroke-width="1.5"/><g fill="#1668b0">{dots}</g></svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="aarch64-linux")
    parser.add_argument("--json")
    parser.add_argument("--svg")
    arguments = parser.parse_args()
    found = measure(arguments.board)
    at_64 = found["instructions"][64] / 64
    for n, count in found["instructions"].items():
        print(f"n = {n:3}  {count:13,}  {count / n:12,.0f} for one  {count / n / at_64:5.2f}")
    for n, count in found["alone"].items():
        ratio = found["instructions"][n] / count
        print(f"compiled for n = {n} alone: {count:,}; for n <= {MOST} {ratio:.3f} times as many")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")
    if arguments.svg:
        Path(arguments.svg).write_text(svg(found))


if __name__ == "__main__":
    main()
