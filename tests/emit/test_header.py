# SPDX-License-Identifier: Apache-2.0
"""The public header is a manual: its example runs, its sizes are right, its statuses are those of
the code, and nothing internal stands in it."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from onnx import helper

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.files import write_files
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.project.packaging import NAMES
from tests.end_to_end.test_data_sizes import FLOAT, INT64, model
from tests.golden.subjects import PROJECTS

FLAGS = (
    "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-O1",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-strict-aliasing",
    "-ffp-contract=off",
)  # fmt: skip
SUBJECTS = (
    "float_m4",
    "int8_m4",
    "state_m4",
    "entries_m55",
    "stepwise_m4",
    "weights_block_m4",
    "data_m4",
)
SPDX = re.compile(rb"SPDX-License-Identifier: LicenseRef-[A-Za-z0-9.-]+\b")


@cache
def project(name: str) -> Any:
    """For the host, whose compiler runs the example."""
    if name == "data_m4":
        nodes = [helper.make_node("NonZero", ["x"], ["out"])]
        source = model(nodes, {"x": (FLOAT, ("n",))}, {"out": (INT64, 2)})
        return driver.compile_model(source, "host", Options(bounds={"n": (0, 5)}, name="found"))
    golden = PROJECTS[name]
    source = golden.source()
    if isinstance(source, dict):
        entries = driver.load_entries(source, golden.options)
        return driver.compile_entries(entries, load_board("host"), golden.options)
    return driver.compile_model(source, "host", golden.options)


def header_of(built: Any) -> str:
    return str(built.files[f"{built.name}.h"].decode())


def example_of(header: str) -> str:
    text = header.partition(" * Example: a complete program.\n")[2].partition("\n */")[0]
    return re.sub(r"^ \*(?:     )?", "", text, flags=re.MULTILINE).lstrip("\n") + "\n"


def compiled(folder: Path, *arguments: str, compiler: str = "gcc") -> None:
    done = subprocess.run(
        [compiler, "-I.", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_example_compiles_and_runs(name: str, tmp_path: Path) -> None:
    built = project(name)
    write_files(tmp_path, built.files)
    (tmp_path / "example.c").write_text(example_of(header_of(built)))
    compiled(tmp_path, *FLAGS, "example.c", *built.units, "-o", "example", "-lm")
    assert subprocess.run([tmp_path / "example"], check=False).returncode == 0
    assert built.files["main.c"].decode().endswith(example_of(header_of(built)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_stated_sizes_are_those_of_the_code(name: str, tmp_path: Path) -> None:
    built = project(name)
    write_files(tmp_path, built.files)
    header, prefix = header_of(built), built.name.upper()
    fixed = dict(re.findall(rf"^#define ({prefix}_[A-Z0-9_]+) +(\d+)", header, re.M))
    bounded = dict(re.findall(rf"^ \*   ({prefix}_[A-Z0-9_]+) +(\d+)  ", header, re.M))
    assert f"{prefix}_ARENA_BYTES" in fixed | bounded
    lines = [f'#include "{built.name}.h"', '#include "raot/index.h"']
    lines += [f"#if {macro} != {n}\n#error\n#endif" for macro, n in fixed.items()]
    sizes = [m for m in fixed | bounded if m.endswith("_COUNT")]
    assert sizes
    for macro, number in (fixed | bounded).items():
        lines.append(f'RAOT_STATIC_ASSERT({macro} == {number}, "{macro}");')
    for macro in sizes:
        lines.append(f'RAOT_STATIC_ASSERT({macro} <= {macro[:-6]}_BYTES, "{macro}");')
    lines.append("#if RAOT_INTERFACE_VERSION != 2\n#error\n#endif")
    lines.append(f"extern char text[sizeof {prefix}_VERSION];")
    for unit in ("sizes.c", "sizes.cc"):
        (tmp_path / unit).write_text("\n".join([*lines, ""]))
        compiler = "gcc" if unit == "sizes.c" else "g++"
        compiled(tmp_path, "-Wall", "-Wpedantic", "-Werror", "-c", unit, compiler=compiler)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_status_of_the_code_and_no_other_is_explained(name: str) -> None:
    built = project(name)
    code = built.files[f"{built.name}.c"].decode()
    weights = {"RAOT_ERR_WEIGHTS"} if "weights_check" in code else set()
    told = re.findall(r"^ \*   (RAOT_(?:OK|ERR_\w+)) +\w", header_of(built), re.M)
    assert set(told) == set(re.findall(r"\bRAOT_(?:OK|ERR_\w+)", code)) | weights
    assert "{" not in header_of(built).partition("Example")[0]


@pytest.mark.parametrize("name", SUBJECTS)
def test_internals_stand_in_the_layout_header(name: str) -> None:
    built = project(name)
    prefix = built.name.upper()
    internal = re.compile(rf"\b{prefix}_(?:\w+_)?(?:OFFSET|END|SIZE|NAMED)(?:_\w+)?\b")
    assert not internal.findall(header_of(built))
    assert built.files[f"{built.name}_layout.h"]


@pytest.mark.parametrize("kind", NAMES)
def test_every_file_names_its_license(kind: str) -> None:
    built: Project = project("float_m4")
    for path, data in built.packaged(kind).items():
        if "raot/" in path or path.endswith((".bin", ".pack")):
            continue
        stated = b'"license": "LicenseRef-Model"' if path.endswith(".json") else None
        assert stated in data if stated else SPDX.search(data[:400]), path


def test_headers_of_two_versions_do_not_mix(tmp_path: Path) -> None:
    built = project("int8_m4")
    write_files(tmp_path, built.files)
    text = f'#define RAOT_INTERFACE_VERSION 0\n#include "{built.name}.h"\n'
    (tmp_path / "mixed.c").write_text(text)
    done = subprocess.run(
        ["gcc", "-I.", "-fsyntax-only", "mixed.c"], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode and "RAOT_INTERFACE_VERSION" in done.stderr


def test_sizes_without_an_origin_have_no_gap_in_their_comments() -> None:
    """A text declares symbols, and states the input of none of them."""
    text = """symbol m in 0..9
symbol s in 1..4
inner symbol k in 0..4
state %past = %present
func @main(%past: f32[m, 2], %x: f32[s, 2], %count: i64[1]) {
  %present: f32[m + s, 2] = concat(%past, %x) {axis=0}
  %c: shape[k] = match_cast(%count)
  %y: f32[k, 2] = slice(%x) {axes=[0], lengths=[k], starts=[0], steps=[1]}
  return %y, %present
}"""
    windows: tuple[dict[str, int], ...] = ({}, {"m": 5})
    for window in windows:
        files = rx.compile(rx.parse(text, window=window), name="gap").files
        for name in ("gap.h", "gap_config.h", "gap_layout.h", "README.md"):
            assert not re.search(r": , |: +\*/|, , ", files[name].decode()), name
