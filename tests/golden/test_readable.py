"""The C of the golden projects has nothing that a reader would have to simplify."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.golden.subjects import PROJECTS

FOLDER = Path(__file__).parent
NUMBER = r"-?(?:\d[\w.]*|U?INT(?:8|16|32|64)_C\(-?\d+\))"
FAULTS = {
    "a helper with literal operands": rf"raot_(?:add|sub|mul|shl|shr|div|mod|and|or|xor|neg)_"
    rf"[iu]\d+\({NUMBER}(?:, {NUMBER})?\)",
    "an operator with literal operands": r"(?<![\w.)\]*/%-] )(?<![\w.\"])\d+ [-+*/%] \d+(?![\w.])",
    "a cast of a literal": rf"\((?:u?int\d+_t|float|double)\)\(?{NUMBER}",
    "a product with one": r"\* 1(?![\w.])|(?<![\w.])1 \* ",
    "a sum with zero": r"[-+] 0(?![\w.])|(?<![\w.\"])0 \+ ",
    "a cast by way of 64 bits": r"\((?:int32_t|float|double)\)\(int64_t\)",
    "two pairs of parentheses": r"(?<![\w])\(\((?:[^()]|\([^()]*\))*\)\)",
    "a parameter without a role": r"\bnumber\d+\b",
    "an annotation for the prover": r"/\*@",
}


def code(name: str) -> str:
    """The C of the kernels and of the run, without comments and preprocessor lines."""
    folder = FOLDER / name
    sources = [p for p in sorted(folder.glob("*.c")) if not p.name.endswith("_weights.c")]
    text = "\n".join(path.read_text() for path in sources if path.name != "main.c")
    text = re.sub(r"/\*[^@].*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"^#.*|^_Static_assert.*", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", PROJECTS)
def test_nothing_is_left_to_simplify(name: str, fault: str) -> None:
    lines = re.sub(r"\s+", " ", code(name))
    assert not [found[0] for found in re.finditer(FAULTS[fault], lines)][:5]


@pytest.mark.parametrize("name", PROJECTS)
def test_clang_format_changes_nothing(name: str) -> None:
    program = shutil.which("clang-format")
    if program is None:
        pytest.skip("clang-format is not installed")
    files = sorted(path for path in (FOLDER / name).rglob("*") if path.suffix in (".c", ".h"))
    done = subprocess.run(
        [program, "--dry-run", *files], capture_output=True, text=True, check=True
    )
    assert not done.stderr


def test_the_faults_are_found() -> None:
    """What the generator wrote before it folded."""
    written = {
        "a helper with literal operands": "raot_sub_i32(37, 33)",
        "an operator with literal operands": "a[(37 - 33)]",
        "a cast of a literal": "(int32_t)-128",
        "a product with one": "i0 * 1",
        "a sum with zero": "i0 + 0",
        "a cast by way of 64 bits": "(int32_t)(int64_t)x",
        "two pairs of parentheses": "= ((two / 5))",
        "a parameter without a role": "int32_t number0",
        "an annotation for the prover": "/*@ loop unroll 4096; */",
    }
    assert all(re.search(FAULTS[fault], text) for fault, text in written.items())
    assert written.keys() == FAULTS.keys()
