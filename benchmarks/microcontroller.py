# SPDX-License-Identifier: Apache-2.0
"""Instructions, code and memory of models on emulated Cortex-M boards, compared with peers.

    python benchmarks/microcontroller.py [--optimize speed] [--weights auto] [--json FILE] [MODEL]

Without models: the MLPerf Tiny models of ../shared/models that are there. Instructions are of
one inference, counted by the emulator; they are not cycles. Code is what the linker keeps of
the sections .text of the model's objects and of what they take from the C library: neither
weights nor the harness. Peers of integer models are TensorFlow Lite Micro with CMSIS-NN, gcc 12
-O2, counted the same way, and their arena holds inputs and outputs too; of floats onnx2c, -O3.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "models"
BOARDS = ("mps2-an386", "mps3-an547")
PEERS = {
    ("resnet8", "int8", "mps2-an386"): 29_863_840,
    ("resnet8", "int8", "mps3-an547"): 4_916_094,
    ("kws", "int8", "mps2-an386"): 7_697_800,
    ("kws", "int8", "mps3-an547"): 1_814_281,
    ("resnet8", "fp32", "mps2-an386"): 116_200_000,
    ("resnet8", "fp32", "mps3-an547"): 120_100_000,
    ("kws", "fp32", "mps2-an386"): 19_920_000,
    ("kws", "fp32", "mps3-an547"): 11_800_000,
}
PEER_ARENA = {"resnet8": 54_996, "kws": 22_820}


def models() -> list[Path]:
    kinds = ("_int8", "_fp32")
    return sorted(
        path
        for path in (SHARED.iterdir() if SHARED.is_dir() else ())
        if path.suffix in (".onnx", ".tflite") and any(kind in path.name for kind in kinds)
    )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def measured(model: Path, board: str, optimize: str, weights: str) -> dict[str, Any]:
    """One row; `error` says why there are no figures."""
    command = [sys.executable, "-m", "relax_aot", "verify", str(model), "--board", board]
    command += ["--optimize", optimize, "--weights", weights, "--json", "-"]
    done = _run(command)
    asked = re.findall(r"--bound (\w+)=", done.stderr)
    if asked:
        # One inference: the batch that a file leaves open is 1.
        done = _run(command + [word for name in asked for word in ("--bound", f"{name}=1")])
    family, _, kind = model.stem.partition("_")
    row: dict[str, Any] = {"model": model.name, "board": board, "optimize": optimize}
    row["weights"] = weights
    row["peer_instructions"] = PEERS.get((family, kind[:4], board))
    row["peer_arena_bytes"] = PEER_ARENA.get(family) if kind.startswith("int8") else None
    try:
        (target,) = json.loads(done.stdout)["targets"]
        run = target["runs"][0]
    except (ValueError, KeyError, IndexError):
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no figures"]
        return {**row, "error": lines[-1]}
    return {**row, **target["memory"], "instructions": run["instructions"], "equal": target["ok"]}


def shown(row: dict[str, Any]) -> str:
    head = f"{row['model']:26} {row['board']:11}"
    if "error" in row:
        return f"{head} {row['error']}"
    peer = row["peer_instructions"]
    beside = f"{peer:>11,} {peer / row['instructions']:5.2f}x" if peer else " " * 18
    return (
        f"{head} {row['instructions']:>11,} {beside} {row['code_bytes']:>7,}"
        f" {row['const_bytes']:>8,} {row['arena_bytes']:>7,} {row['stack_bytes']:>6,}"
        f"  {'equal' if row['equal'] else 'DIFFERS'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--optimize", choices=("speed", "size", "memory"), default="speed")
    parser.add_argument("--weights", choices=("auto", "c", "asm", "blob"), default="auto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("models", nargs="*", type=Path)
    chosen = parser.parse_args()
    subjects = chosen.models or models()
    if not subjects:
        parser.error(f"no model: give one, or have some in {SHARED}")
    print(
        f"{'model':26} {'board':11} {'instr.':>11} {'peer':>11} {'':6} {'code':>7}"
        f" {'weights':>8} {'arena':>7} {'stack':>6}"
    )
    rows = []
    for model in subjects:
        for board in BOARDS:
            rows.append(measured(model.resolve(), board, chosen.optimize, chosen.weights))
            print(shown(rows[-1]), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
