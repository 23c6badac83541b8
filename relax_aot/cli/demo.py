# SPDX-License-Identifier: Apache-2.0
"""The bundled example: compiled, run on the host and on boards, and compared."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.resources import data_dir
from relax_aot.toolchain.tools import ToolMissing
from relax_aot.verify.job import Job, Result, run_job
from relax_aot.verify.table import RUN_COLUMNS, run_cells, shown

BOUND = 128
BOARDS = {
    "host": BOUND,
    "microbit": 64,  # 16 KB of RAM
    "mps2-an385": BOUND,
    "mps2-an386": BOUND,
    "mps2-an500": BOUND,
    "mps2-an505": BOUND,
}
"""The upper bound on each board: this machine, then Cortex-M0, M3, M4, M7 and M33."""
SIZES = (1, 2, 17, 64, 127, 128)


def run_demo(folder: Path) -> bool:
    """Print the table and return whether every run equals the reference."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    model = data_dir("examples") / "gesture" / "gesture.onnx"
    start = time.perf_counter()
    options = _options(BOUND)
    project = driver.compile_model(model, "host", options)
    written = project.write(folder)
    console.print(
        f"model: {model.name}, gestures from motion, float[n, 6] with n in"
        f" 1..{BOUND}; sizes: {', '.join(map(str, SIZES))}"
    )
    table = Table(title="one C project for all sizes", title_justify="left")
    for column in ("board", *RUN_COLUMNS):
        table.add_column(column, justify="left" if column in ("board", "sizes") else "right")
    lines, ok = [], True
    for board, bound in BOARDS.items():
        try:
            result = _verify(model, board, bound)
        except ToolMissing as error:
            lines.append(f"{board}: skipped, {error}")
            continue
        ok = ok and result.ok
        (target,) = result.targets
        for run in target.runs:
            table.add_row(board, *run_cells(run))
        memory = target.memory
        code = memory.code_bytes or 0
        lines.append(
            f"{board}: arena {memory.arena_bytes}, flash"
            f" {shown(code + memory.const_bytes)} (code {shown(code)},"
            f" constants {shown(memory.const_bytes)}), stack {shown(memory.stack_bytes)} bytes"
        )
    console.print(table)
    for line in lines:
        console.print(line)
    console.print(f"C project: {written.resolve()}")
    console.print(_samples(model, options))
    console.print(f"{'all equal' if ok else 'NOT EQUAL'}, {time.perf_counter() - start:.1f} s")
    return ok


def _options(bound: int) -> Options:
    return Options(bounds={"n": (1, bound)})


def _verify(model: Path, board: str, bound: int) -> Result:
    return run_job(
        Job(
            source=model,
            projects=driver.compile_for(model, [board], _options(bound)),
            at=tuple({"n": n} for n in SIZES if n <= bound),
            reference=_reference(),
        )
    )


def _reference() -> str:
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return "numpy"
    return "onnxruntime"


def _samples(model: Path, options: Options) -> str:
    """Classify the recorded gestures, and mark wrong results with the correct class."""
    from relax_aot.verify.host import host_model

    path = model.with_name("gesture_samples.npz")
    try:
        stored = np.load(path, allow_pickle=False)
    except OSError as error:
        raise RelaxAotError(f"cannot read {path}: {error}") from None
    host = host_model(driver.compile_model(model, "host", options))
    (motion_input,) = host.interface.inputs
    said = []
    for label in stored.files:
        motion = stored[label][:BOUND]
        scores = host({motion_input.source: motion})["scores"]
        guess = stored.files[int(scores.reshape(-1).argmax())]
        mark = "" if guess == label else f" (is {label})"
        said.append(f"n={len(motion)} {guess}{mark}")
    return "recordings: " + ", ".join(said)
