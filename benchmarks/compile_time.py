# SPDX-License-Identifier: Apache-2.0
"""How long `relax-aot compile` takes, as a whole process: median of several runs; and its memory.

    python benchmarks/compile_time.py [--runs 5] [MODEL.onnx ...]

Without models: the bundled gesture model, a transformer encoder (width 256, 4 layers), one of
17 layers that is narrow, but has more than 1000 calls: it is to take at most 10 seconds; ONNX's
DenseNet-121, at most 30 seconds; products with weights of 100 MB, in less than 400 MB.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def subjects(folder: Path, models: list[str]) -> list[tuple[str, list[str]]]:
    if models:
        return [(Path(model).name, [model]) for model in models]
    import onnx

    from tests.end_to_end.test_large_weights import perceptron
    from tests.models.encoder import encoder

    path = folder / "encoder.onnx"
    onnx.save(encoder(), path)
    deep = folder / "deep.onnx"
    onnx.save(encoder(width=32, heads=2, layers=17, hidden=64), deep)
    large = folder / "large.onnx"
    onnx.save(perceptron(), large)
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    gesture = ROOT / "examples" / "gesture" / "gesture.onnx"
    return [
        ("gesture, n <= 128", [str(gesture), "--bound", "n=128"]),
        ("encoder, n <= 256, batch <= 3", [str(path), "--bound", "n=256", "--bound", "batch=3"]),
        ("17 layers, 1038 calls", [str(deep), "--bound", "n=256", "--bound", "batch=3"]),
        ("DenseNet-121", [str(light / "light_densenet121.onnx")]),
        ("100 MB of weights, n <= 8", [str(large), "--bound", "n=8"]),
    ]


MEASURED = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, capture_output=True)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Run by a small process: a child counts the memory that its parent had when it began."""


def measured(arguments: list[str], folder: Path) -> tuple[float, float]:
    """Seconds, and megabytes at most."""
    command = [sys.executable, "-m", "relax_aot", "compile", *arguments, "-o", str(folder / "out")]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    took, memory = done.stdout.split()
    return float(took), int(memory) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("models", nargs="*")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, arguments in subjects(folder, chosen.models):
            runs = [measured(arguments, folder) for _ in range(chosen.runs)]
            times = [took for took, _ in runs]
            spread = f"{min(times):.2f}..{max(times):.2f}"
            most = max(memory for _, memory in runs)
            print(f"{name:32} median {statistics.median(times):.2f} s ({spread}), {most:.0f} MB")


if __name__ == "__main__":
    main()
