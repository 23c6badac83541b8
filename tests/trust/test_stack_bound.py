# SPDX-License-Identifier: Apache-2.0
"""The stack bound that users see and the measured stack on a board, for the model's
run alone; and the figures from machine code, compared with those of the compiler."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from relax_aot.binaries.stack import CallGraph, call_graph, deepest_path, worst_stack
from relax_aot.binaries.thumb_stack import library_depths
from relax_aot.microkernels import all_micro_kernels
from relax_aot.project.fit import DoesNotFit
from relax_aot.verify.emulate import build_image, emulate_cases
from relax_aot.verify.figures import memory_of
from relax_aot.verify.samples import cases_of
from tests.conftest import ROOT
from tests.end_to_end.subjects import SUBJECTS, project_of

HEADERS = {
    header.name: header.read_text(encoding="utf-8")
    for header in (ROOT / "runtime_c" / "include" / "raot").glob("*.h")
}
NAKED = tuple(
    name for text in HEADERS.values() for name in re.findall(r"RAOT_NAKED static void (\w+)", text)
)
"""How the names of functions of assembly alone begin."""
COMPILED = {
    name
    for name, kernel in all_micro_kernels().items()
    if "RAOT_NAKED" not in HEADERS.get(kernel.header, "")
}
"""Micro-kernels whose names may begin so, too."""
assert "raot_" not in NAKED, "a macro makes names of assembly that begin as all others do"
FEW = ("gesture", "small_encoder", "image_net", "gru_tagger")
BOARDS = ("mps2-an385", "mps2-an386", "microbit", "mps2-an500", "mps2-an505", "mps3-an547")
CASES = [
    pytest.param(name, board, marks=[] if name in FEW and board in BOARDS[:2] else pytest.mark.long)
    for name in SUBJECTS
    for board in BOARDS
]


@pytest.mark.qemu
@pytest.mark.parametrize(("name", "board"), CASES)
def test_the_bound_holds_and_is_close(name: str, board: str, tmp_path: Path) -> None:
    """Where a model fits at all."""
    try:
        project = project_of(name, board)
    except DoesNotFit:
        return
    cases = cases_of(project.interface, SUBJECTS[name].at, {})
    painted = max(run.stack_bytes for run in emulate_cases(project, cases))
    bound = memory_of(project).stack_bytes
    image = build_image(project, tmp_path)
    found = worst_stack(image.stack_files, project.interface.linked_run, image.elf)
    assert found.exact and found.bytes == bound
    assert painted <= bound <= 1.3 * painted, found.path


@pytest.mark.qemu
@pytest.mark.parametrize("board", BOARDS)
def test_machine_code_is_as_deep_as_the_compiler_says(board: str, tmp_path: Path) -> None:
    """Read as if they were a library's, the model's own functions come out the same."""
    image = build_image(project_of("perceptron", board), tmp_path)
    read = library_depths(image.elf)
    told = call_graph(image.stack_files)
    compiled = {title.rpartition(":")[2] for title in told.frames}
    libraries = {name: depth for name, depth in read.items() if name not in compiled}
    both = compiled & set(read)
    # Compilers report 0 bytes for naked functions.
    titles = {title.rpartition(":")[2]: title for title in told.frames}
    alone = {n for n in both if n.startswith(NAKED) and n.partition(".")[0] not in COMPILED}
    naked = {titles[name]: read[name] for name in alone}
    assert not any(told.frames[title] for title in naked)
    graph = CallGraph(told.frames | libraries | naked, told.calls)
    assert len(both) > 15 and libraries
    assert {n: read[n] for n in both} == {n: deepest_path(graph, n).bytes for n in both}


@pytest.mark.qemu
def test_a_last_call_by_pointer_is_as_deep_as_nobody_knows(tmp_path: Path) -> None:
    source, linked = tmp_path / "calls.c", tmp_path / "calls.elf"
    source.write_text(
        "int direct(int x) { return x; }\n"
        "int handed(int (*f)(int), int x) { return f(x + 1); }\n"
        "int main(void) { return handed(direct, 1); }\n"
        "void _exit(int status) { (void)status; for (;;) { } }\n"
    )
    flags = ("-mcpu=cortex-m4", "-mthumb", "-O2", "-fno-inline", "--specs=nosys.specs")
    command = ["arm-none-eabi-gcc", *flags, "-fno-ipa-cp", str(source), "-o", str(linked)]
    subprocess.run(command, check=True, capture_output=True)
    depths = library_depths(linked)
    assert "direct" in depths
    assert "handed" not in depths
