# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers with quantized weights compared with f32: instructions on boards, time on this
machine.

    python benchmarks/recurrent.py [--board mps2-an386 ...] [--units 64 ...] [--runs 100]
        [--json FILE]

A GRU and an LSTM with as many inputs as units run over 24 steps. Instructions and estimated cycles
are for each multiply-add of the layer. An LSTM of TensorFlow Lite (`TFLite`) has bytes, and cells
of 16 bits; the package ai-edge-litert writes it. On this machine, f32 and each kind are called
alternately with ONNX Runtime's float layer on one thread, and the median of the ratios of these
pairs counts.
`constants` and `arena` are bytes of the project.
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

BOARDS = ("mps2-an386", "mps3-an547", "raspberry-pi-4b")
MORE = ("nucleo-l4r5zi",)
KINDS = ("", "int8", "int8d", "int8w")
GATES = {"GRU": 3, "LSTM": 4, "TFLite": 4}
STEPS = 24
Row = dict[str, Any]


def model(layer: str, units: int) -> Any:
    from tests.models.onnx_text import model_of

    rng, rows = np.random.default_rng(0), GATES[layer] * units
    shapes = {"w": (1, rows, units), "r": (1, rows, units), "b": (1, 2 * rows)}
    weights = {
        name: (rng.standard_normal(shape) / units**0.5).astype(np.float32)
        for name, shape in shapes.items()
    }
    reset = ", linear_before_reset = 1" if layer == "GRU" else ""
    text = f"y = {layer} <hidden_size = {units}{reset}> (x, w, r, b)"
    signature = f"layer (float[t, 1, {units}] x) => (float[t, 1, 1, {units}] y)"
    return model_of(signature, text, weights)


def integer_model(units: int) -> bytes:
    from tests.frontends.test_tflite_integer_lstm import layer

    return layer(
        np.int8, 1, batch=1, steps=STEPS, inner=units, cells=units, weights=(0.002, 0.003),
        signature=(1, -1, units),
    )  # fmt: skip


def sequence(units: int, layer: str = "") -> dict[str, Any]:
    rng = np.random.default_rng(1)
    if layer == "TFLite":
        return {"t0": rng.integers(-128, 128, (1, STEPS, units)).astype(np.int8)}
    return {"x": rng.standard_normal((STEPS, 1, units)).astype(np.float32)}


def compiled(layer: str, units: int, board: str, kind: str) -> Any:
    from relax_aot import driver
    from relax_aot.quantization import Choice

    if layer == "TFLite":
        options = driver.Options(bounds={"t0_1": (1, STEPS)})
        return driver.compile_model(integer_model(units), board, options)
    samples = {"x": sequence(units)["x"][None]} if kind == "int8" else {}
    options = driver.Options(
        bounds={"t": (1, STEPS)}, quantize=Choice(kind) if kind else None, calibrate=samples
    )
    return driver.compile_model(model(layer, units), board, options)


def on_board(layer: str, units: int, board: str, kind: str) -> Row:
    from relax_aot.verify.emulate import calls_of, emulate_cases
    from relax_aot.verify.program import program_of

    project = compiled(layer, units, board, kind)
    cases = calls_of(program_of(project), [sequence(units, layer)], {})
    (run,) = emulate_cases(project, cases, cycles=not board.startswith("raspberry"))
    assert run.status == 0 and run.instructions is not None, run
    macs = 2 * GATES[layer] * units * units * STEPS
    cycles = None if run.cycles_estimated is None else run.cycles_estimated / macs
    return {
        "instructions_per_mac": run.instructions / macs, "cycles_per_mac": cycles,
        "constants": project.const_bytes, "arena": project.arena_bytes,
    }  # fmt: skip


def on_host(layer: str, units: int, kind: str, runs: int, folder: Path) -> Row:
    """Milliseconds of ours, and the ratio to ONNX Runtime's float layer."""
    from benchmarks.host_latency import ours, paired, theirs
    from tests.project.shipped import shipped_library

    project = compiled(layer, units, "host", kind)
    place = folder / f"{layer}-{units}-{kind or 'f32'}"
    place.mkdir()
    feeds = sequence(units)
    call = ours(project, shipped_library(project, place, []), feeds, {"t": STEPS})
    source = place / "layer.onnx"
    source.write_bytes(model(layer, units).SerializeToString())
    times = paired(call, theirs(source, feeds), runs)
    return {
        "ms": times["ours_ms"], "ratio": times["ratio"], "constants": project.const_bytes,
        "arena": project.arena_bytes,
    }  # fmt: skip


def shown(row: Row) -> str:
    if "ms" in row:
        cost = f"{row['ms']:9.4f} ms  {row['ratio']:5.2f}x of ONNX Runtime in f32"
    else:
        cycles = row["cycles_per_mac"]
        cost = f"{row['instructions_per_mac']:5.2f} instructions"
        cost += "" if cycles is None else f" {cycles:5.2f} cycles (estimated)"
    return (
        f"{row['board']:15} {row['layer']:5} {row['units']:>4} {row['kind']:6} {cost}"
        f"  constants {row['constants']:>9,}  arena {row['arena']:>7,}"
    )


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", action="append", choices=(*BOARDS, *MORE, "host"))
    parser.add_argument("--units", action="append", type=int)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for board in chosen.board or (*BOARDS, "host"):
            for layer in GATES:
                for units in chosen.units or (64, 128, 256):
                    for kind in ("",) if layer == "TFLite" else KINDS:
                        if (layer, board) == ("TFLite", "host"):
                            continue  # ONNX Runtime has no such layer
                        shown_kind = "i8" if layer == "TFLite" else kind or "f32"
                        row: Row = {
                            "board": board, "layer": layer, "units": units, "kind": shown_kind,
                        }  # fmt: skip
                        if board == "host":
                            row |= on_host(layer, units, kind, chosen.runs, Path(folder))
                        else:
                            row |= on_board(layer, units, board, kind)
                        found.append(row)
                        print(shown(row), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
