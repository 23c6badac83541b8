# SPDX-License-Identifier: Apache-2.0
"""Instructions of one inference by compiler: GCC, Clang and Zig, on emulated Cortex-M boards.

    python benchmarks/compilers.py [--board BOARD ...] [--json FILE] [NAME ...]

Names are parts of the models' names. Each model is compiled once per board and built by each
compiler that is installed, with the board's own flags (-O2); the counter is the emulator's. A
ratio is the count over GCC's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from relax_aot import driver  # noqa: E402
from relax_aot.driver import Options  # noqa: E402
from relax_aot.errors import RelaxAotError  # noqa: E402
from relax_aot.project.board import Board  # noqa: E402
from relax_aot.toolchain import build  # noqa: E402
from relax_aot.toolchain.compilers import CrossCompiler  # noqa: E402
from relax_aot.verify.emulate import emulate_cases  # noqa: E402
from relax_aot.verify.samples import cases_of  # noqa: E402
from tests.models.encoder import encoder  # noqa: E402
from tests.trust.build_matrix import BOARDS, Cell, available  # noqa: E402
from tests.trust.run_matrix import tools  # noqa: E402

SHARED = ROOT.parent / "shared" / "models"
GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"
COMPILERS = ("gcc", "clang", "zig")
TARGETS = {"M4": "mps2-an386", "M55": "mps3-an547"}
SILERO = Options(
    bounds={"sequence": (576, 576), "batch": (1, 1)},
    fix={"sr": "16000"},
    state={"state": "stateN"},
    name="silero",
)
Source = Callable[[], Any]


def models() -> dict[str, tuple[Source, Options, dict[str, int]]]:
    """Source, options and sizes by name."""
    found: dict[str, tuple[Source, Options, dict[str, int]]] = {}
    for net in ("resnet8", "kws"):
        for kind in ("int8_qdq.onnx", "int8.tflite", "fp32.onnx"):
            path = SHARED / f"{net}_{kind}"
            open_ = {"kws": "input_1_0", "resnet8": "input_1_int8_0"}[net]
            bounds = {open_: (1, 1)} if kind == "int8.tflite" else {}
            found[path.name] = (partial(Path, path), Options(bounds=bounds, name=net), {})
    n = {"n": 128}
    found["gesture"] = (lambda: GESTURE, Options(bounds={"n": (1, 128)}, name="gesture"), n)
    small = Options(bounds={"n": (1, 40), "batch": (1, 1)}, name="enc")
    found["encoder"] = (
        lambda: encoder(width=64, heads=4, layers=1, hidden=96), small, {"n": 40, "batch": 1},
    )  # fmt: skip
    found["silero"] = (lambda: SHARED / "silero_vad_16k_op15.onnx", SILERO, {})
    return found


def rows(names: list[str], targets: list[str]) -> Iterator[dict[str, Any]]:
    for target in targets:
        for name, (source, options, at) in models().items():
            if names and not any(part in name for part in names):
                continue
            yield measured(name, target, source, options, at)


def measured(
    name: str, target: str, source: Source, options: Options, at: dict[str, int]
) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "target": target}
    try:
        project = driver.compile_model(source(), BOARDS[target], options)
        cases = cases_of(project.interface, [at] if at else (), {})[-1:]
    except RelaxAotError as error:
        return {**row, "error": str(error).splitlines()[0]}
    for compiler in COMPILERS:
        cell = Cell(target, compiler, "-O2", "none")
        if available(cell):
            continue
        setattr(build, "cross_compiler", partial(_given, tools(cell)))  # noqa: B010
        try:
            (run,) = emulate_cases(project, cases)
            row[compiler] = run.instructions if run.status == 0 else f"status {run.status}"
        except RelaxAotError as error:
            row[compiler] = str(error).splitlines()[0]
    return row


def _given(tools_: CrossCompiler, _: Board) -> CrossCompiler:
    return tools_


def shown(row: dict[str, Any]) -> str:
    text = f"{row['model']:22} {row['target']:4}"
    if "error" in row:
        return f"{text} {row['error']}"
    base = row.get("gcc")
    for compiler in COMPILERS:
        count = row.get(compiler)
        if not isinstance(count, int):
            text += f" {compiler} {count}"
        else:
            ratio = f" {count / base:5.2f}x" if isinstance(base, int) else ""
            text += f" {compiler} {count:>12,}{ratio if compiler != 'gcc' else ''}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", action="append", choices=[*TARGETS], dest="targets")
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    found = []
    for row in rows(given.names, given.targets or [*TARGETS]):
        sys.stdout.write(shown(row) + "\n")
        sys.stdout.flush()
        found.append(row)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
