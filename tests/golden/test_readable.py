# SPDX-License-Identifier: Apache-2.0
"""The C of the golden projects has nothing that a reader would have to simplify."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import clang_format
from tests.golden.subjects import PROJECTS

FOLDER = Path(__file__).parent
RUNTIME = FOLDER.parents[1] / "runtime_c" / "include"
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
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
    "a start that is called an end": r"for \(int32_t \w+ = \w+_end(?:_\d+)?;",
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


def deepest(text: str) -> int:
    """How many blocks are open within each other; the braces of initializers open none."""
    most, blocks = 0, list[bool]()
    for before, brace in re.findall(r"([=,]?)\s*([{}])", text):
        if brace == "}":
            blocks.pop()
            continue
        blocks.append(before == "" and blocks[-1:] != [False])
        most = max(most, sum(blocks))
    return most


@pytest.mark.parametrize("name", PROJECTS)
def test_no_block_is_nested_deeper_than_six(name: str) -> None:
    assert deepest(code(name)) <= 6


def test_nested_blocks_are_counted() -> None:
    assert deepest("f() { int a[2] = {{1}, {2}}; for (;;) { if (a) { } else { } } }") == 3


@pytest.mark.parametrize("name", PROJECTS)
def test_clang_format_changes_nothing(name: str) -> None:
    program = clang_format()
    files = sorted(path for path in (FOLDER / name).rglob("*") if path.suffix in (".c", ".h"))
    done = subprocess.run(
        [program, "--dry-run", *files], capture_output=True, text=True, check=True
    )
    assert not done.stderr


STANDARD = {
    "<stddef.h>": {"NULL", "offsetof", "ptrdiff_t", "size_t"},
    "<stdint.h>": {
        f"{start}{bits}{end}"
        for bits in (8, 16, 32, 64)
        for start, end in (("int", "_t"), ("uint", "_t"))
    }
    | {f"{kind}{bits}_{end}" for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)
       for end in ("MIN", "MAX", "C")},
    "<stdio.h>": {"printf", "puts"},
    "<stdlib.h>": {"malloc", "free"},
    "<string.h>": {"memcpy", "memset", "memcmp", "memmove"},
    "<sys/auxv.h>": {"getauxval"},
}  # fmt: skip
INCLUDE = re.compile(r"^# *include ([<\"].*[>\"])", re.MULTILINE)
DECLARATION = re.compile(
    r"^# *define +(\w+)|^(?:struct|enum) (\w+) \{|^[^\s#].*?(\w+)\([^()]*\)\s*[;{]"
    r"|^[^\s#}].*?(\w+)(?:\[.*\])?;|^    ([A-Z]\w+)(?: = .*)?,?$",
    re.MULTILINE,
)


@cache
def declared(path: Path) -> set[str]:
    """What a header declares; one that declares nothing stands for those that it includes."""
    text = COMMENT.sub("", path.read_text())
    expanded = subprocess.run(  # functions that macros define have their names only here
        ["gcc", "-E", f"-I{RUNTIME}", path], capture_output=True, text=True, check=False
    ).stdout
    own = re.findall(
        rf'^# \d+ "{re.escape(str(path))}".*\n((?:[^#\n].*\n|\n)*)', expanded, re.MULTILINE
    )
    found = DECLARATION.findall("\n".join([text, *own]))
    names = {word for groups in found for word in groups if word}
    if len(names) > 1:  # besides the guard
        return names
    return set().union(*(declared(path.parent / one.strip('"')) for one in INCLUDE.findall(text)))


def names_of(header: str, folder: Path) -> set[str]:
    if header in STANDARD:
        return STANDARD[header]
    path = folder / header.strip('"')
    return declared(path if path.exists() else RUNTIME / header.strip('"'))


@pytest.mark.parametrize("name", PROJECTS)
def test_every_included_header_is_used(name: str) -> None:
    idle = []
    for path in sorted(path for path in (FOLDER / name).rglob("*") if path.suffix in (".c", ".h")):
        text = COMMENT.sub("", path.read_text())
        words = set(re.findall(r"\w+", INCLUDE.sub("", text)))
        passed_on = f'"{path.stem}_layout.h"'  # macros that programs use
        headers = [one for one in INCLUDE.findall(text) if one != passed_on]
        idle += [f"{path.name}: {one}" for one in headers if not names_of(one, path.parent) & words]
    assert not idle


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
        "a start that is called an end": "for (int32_t i4 = i4_end_3; i4 < 5; i4++)",
        "an annotation for the prover": "/*@ loop unroll 4096; */",
    }
    assert all(re.search(FAULTS[fault], text) for fault, text in written.items())
    assert written.keys() == FAULTS.keys()
