"""Greatest errors of the runtime's elementary functions, beside the C library of this machine.

    python benchmarks/maths.py [--every 61] [--every64 4099] [--json FILE] [--page FILE]

Of the 2^32 floats every 61st is tried (`--every 1`: all of them, minutes for each function), of
doubles fewer. The C library computes with more bits: float is compared with double, double with
long double (80 bits on x86). `--page docs/reference/maths.md` writes the published table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "pow", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "sqrt",
)  # fmt: skip
FLAGS = ("-std=c11", "-O2", "-ffp-contract=off", "-DRAOT_CONTRACTION_OFF")
HEAD = """# Errors of elementary functions

Made by `python benchmarks/maths.py --every 1 --page docs/reference/maths.md`, on this many inputs
of each function, spread over all bit patterns: normal and subnormal numbers, infinities, NaN.
Errors are in units of the last place of the exact result; 0.5 is a result that is rounded
correctly. NaN, infinities and overflow are where IEEE 754 and C (annex F) have them, for all of
these inputs.

Routines are in `raot/math.h` (float) and `raot/math64.h` (double), in integer and floating-point
arithmetic alone, so that each gives the same bits on every target. No libm is called.

| function | float: inputs | greatest error | at | double: inputs | greatest error | at |
|---|---|---|---|---|---|---|
"""
TAIL = """
Where 4,294,967,296 inputs are given all floats were tried, the others are every 61st. Doubles are
spread over all sizes, angles up to 1.8e308 among them: those are reduced exactly, as those of
float. `pow` is tried with exponents of 2^-8 to 2^8 in magnitude, half of them integers. The tests
also compare doubles with mpmath, at the hardest angles and near overflow and underflow.
"""


@dataclass(frozen=True, slots=True)
class Worst:
    """`wrong`: inputs whose result is NaN, infinite or finite and should not be."""

    inputs: int
    error: float
    at: str
    wrong: int


SOURCE = ROOT / "benchmarks" / "maths_errors.c"


def build(folder: Path, source: Path = SOURCE) -> Path:
    program = folder / "maths_errors"
    include = ROOT / "runtime_c" / "include"
    subprocess.run(
        ["cc", *FLAGS, f"-I{include}", str(source), "-o", str(program), "-lm"], check=True
    )
    return program


def measure(program: Path, function: str, every: int) -> Worst:
    done = subprocess.run(
        [program, function, str(every)], capture_output=True, text=True, check=True
    )
    inputs, error, x, y, wrong = done.stdout.split()
    at = f"{float.fromhex(x):.9g}"
    if function.startswith("pow"):
        at += f", {float.fromhex(y):.9g}"
    return Worst(int(inputs), float(error), at, int(wrong))


def page(found: dict[str, tuple[Worst, Worst]]) -> str:
    rows = [
        f"| `{name}` | {single.inputs:,} | {single.error:.2f} | {single.at}"
        f" | {double.inputs:,} | {double.error:.2f} | {double.at} |\n"
        for name, (single, double) in found.items()
    ]
    return HEAD + "".join(rows) + TAIL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=61)
    parser.add_argument("--every64", type=int, default=4099)
    parser.add_argument("--json")
    parser.add_argument("--page")
    arguments = parser.parse_args()
    found: dict[str, tuple[Worst, Worst]] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for name in NAMES:
            single = measure(program, f"{name}f", arguments.every)
            double = measure(program, name, arguments.every64)
            found[name] = (single, double)
            wrong = single.wrong + double.wrong
            print(f"{name:8} float {single.error:6.2f}  double {double.error:8.2f}  wrong {wrong}")
    if arguments.json:
        rows = {name: [asdict(part) for part in parts] for name, parts in found.items()}
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    if arguments.page:
        Path(arguments.page).write_text(page(found))


if __name__ == "__main__":
    main()
