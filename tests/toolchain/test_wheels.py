# SPDX-License-Identifier: Apache-2.0
"""Compiler and emulator from wheels: the same results and counts as the installed programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from relax_aot import driver
from relax_aot.binaries.elf import Program
from relax_aot.binaries.stack import worst_stack
from relax_aot.driver import Options
from relax_aot.emulation.faults import TargetFault
from relax_aot.emulation.harness import HarnessCall
from relax_aot.emulation.qemu import run_image
from relax_aot.project import Project
from relax_aot.project.board import Board, list_boards, load_board
from relax_aot.toolchain import doctor, zig
from relax_aot.toolchain.build import build_target
from relax_aot.toolchain.tools import ToolMissing
from relax_aot.verify.adapter import adapter_files
from relax_aot.verify.emulate import build_image, emulate, emulate_cases
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.program import to_bytes
from relax_aot.verify.samples import cases_of
from tests.conftest import ROOT
from tests.end_to_end.test_faults import MOTION, broken

pytest.importorskip("unicorn")
pytest.importorskip("ziglang")

GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"
BOUNDS = {"microbit": 64}


def gesture(board: str) -> Project:
    options = Options(bounds={"n": (1, BOUNDS.get(board, 128))})
    return driver.compile_model(GESTURE, board, options)


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAX_AOT_TOOLS", "wheels")


# The emulator, on images of the installed compiler


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board",
    ["mps2-an386", *(pytest.param(b, marks=pytest.mark.long) for b in (
        "microbit", "mps2-an385", "mps2-an500", "mps2-an505"))],
)  # fmt: skip
def test_both_emulators_give_the_same_bytes_and_counts(
    board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = gesture(board)
    image = build_image(project, tmp_path)
    rng = np.random.default_rng(1)
    calls = [
        HarnessCall((n,), (to_bytes(rng.normal(size=(n, 6)).astype(np.float32)).tobytes(),))
        for n in (1, 2, 33, 64)
    ]
    by_qemu = run_image(image, project.board, calls, functions=True)
    monkeypatch.setenv("RELAX_AOT_TOOLS", "wheels")
    by_unicorn = run_image(image, project.board, calls, functions=True)
    assert by_unicorn == by_qemu
    assert all(result.status == 0 and result.instructions for result in by_qemu)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("*(volatile int32_t *)(uintptr_t)0x08000400u = 1;", ("MemManage", "0x08000400")),
        ("volatile char deep[9000]; deep[0] = 1; deep[8999] = deep[0];", ("stack overflow",)),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (
            ("*(volatile int32_t *)(uintptr_t)0x20030000u = 1;", ("BusFault", "0x20030000")),
            ("(*(volatile int32_t *)(uintptr_t)0xa0000000u)++;", ("BusFault", "0xa0000000")),
            ("__asm__ volatile(\"udf #0\");", ("UsageFault", "UNDEFINSTR")),
        )),
    ],
)  # fmt: skip
def test_faults_are_named(
    statement: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = broken("netduinoplus2", statement)
    monkeypatch.setattr("relax_aot.toolchain.tools.shutil.which", without("qemu-system-arm"))
    with pytest.raises(TargetFault) as caught:
        emulate(project, [MOTION])
    assert all(word in str(caught.value) for word in (*words, "gesture")), str(caught.value)


@pytest.mark.qemu
def test_a_stack_overflow_on_m33_is_named_as_qemu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core has a stack limit, which ends the program before anything is written."""
    size = 2 * load_board("mps2-an505").stack_bytes
    statement = f"volatile char deep[{size}]; deep[0] = 1; deep[{size - 1}] = deep[0];"
    project = broken("mps2-an505", statement)
    said = []
    for absent in ("", "qemu-system-arm"):
        monkeypatch.setattr("relax_aot.toolchain.tools.shutil.which", without(absent))
        with pytest.raises(TargetFault) as caught:
            emulate(project, [MOTION])
        assert caught.value.stack_overflow
        said.append(str(caught.value).splitlines()[0])
    assert "stack overflow (UsageFault: stack limit passed (STKOF))" in said[1]
    assert said[0] == said[1]


def without(absent: str):  # type: ignore[no-untyped-def]  # stands for shutil.which
    which = shutil.which
    return lambda name, *rest: None if name == absent else which(name, *rest)


# The compiler


CORTEX_M = [name for name in list_boards() if load_board(name).family == "cortex_m"]


@pytest.mark.parametrize("name", CORTEX_M)
def test_every_board_has_flags_for_zig(name: str) -> None:
    board = load_board(name)
    assert ("eabihf" in zig.target_flags(board)[1]) == ("fpu" in board.features)
    assert not [f for f in zig.other_flags(board) if f.startswith(("-mf", "-mc", "-mt"))]


def test_bit_casts_are_no_calls_of_memcpy(tmp_path: Path) -> None:
    board = load_board("mps3-an547")
    source = tmp_path / "cast.c"
    source.write_text(
        "#include <string.h>\n"
        "unsigned bits(float x) { unsigned y; (void)memcpy(&y, &x, sizeof y); return y; }\n"
    )
    command = [str(zig.program()), "cc", *zig.target_flags(board), *zig.other_flags(board), "-O2"]
    environment = os.environ | dict(zig.environment())
    built = [*command, "-c", str(source), "-o", str(tmp_path / "cast.o")]
    subprocess.run(built, env=environment, check=True)
    with (tmp_path / "cast.o").open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        assert "memcpy" not in {symbol.name for symbol in table.iter_symbols()}


def test_flags_that_are_not_known_are_refused() -> None:
    board = load_board("mps2-an386")
    for old, new in (("-mcpu=cortex-m4", "-mcpu=cortex-m85"), ("fpv4-sp-d16", "vfpv3-d16")):
        flags = tuple(flag.replace(old, new) for flag in board.flags)
        with pytest.raises(ToolMissing, match="arm-none-eabi-gcc"):
            zig.target_flags(replace(board, flags=flags))


def check(board: str, tmp_path: Path) -> None:
    """Equal to ONNX Runtime, on a stack that is as deep as was said, with the FPU in use."""
    project = gesture(board)
    result = run_job(Job(GESTURE, (project,)))
    assert result.ok
    image = build_image(project, tmp_path)
    # Those of its own library Zig calls compiler_rt.addf3.__aeabi_fadd.
    found = Program(image.elf).functions
    names = {function.name.rpartition(".")[2] for function in found}
    soft = {name for name in names if name.startswith(("__aeabi_f", "fmaf", "sqrtf"))}
    assert bool(soft) == ("fpu" not in project.board.features), soft
    painted = max(
        r.stack_bytes for r in emulate_cases(project, cases_of(project.interface, (), {}))
    )
    root = project.interface.linked_run
    assert painted <= worst_stack(image.stack_files, root, image.elf).bytes
    assert 0 < image.code_bytes < image.flash_bytes
    assert image.const_bytes >= project.const_bytes


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.usefixtures("wheels")
@pytest.mark.long
def test_a_board_with_wheels_alone(tmp_path: Path) -> None:
    check("mps2-an386", tmp_path)


@pytest.mark.qemu
@pytest.mark.long
@pytest.mark.usefixtures("wheels")
@pytest.mark.parametrize("board", ["microbit", "mps2-an385", "mps2-an500", "mps2-an505"])
def test_every_core_with_wheels_alone(board: str, tmp_path: Path) -> None:
    check(board, tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("wheels")
def test_this_machine_with_wheels_alone() -> None:
    (target,) = run_job(Job(GESTURE, (gesture("host"),))).targets
    assert target.ok
    assert target.memory.stack_bytes
    with pytest.raises(ToolMissing, match="gcc"):
        run_job(Job(GESTURE, (gesture("host"),), sanitize=True))


@pytest.mark.long
def test_an_image_that_does_not_fit_says_by_how_much(
    tmp_path: Path, wheels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del wheels
    source = tmp_path / "model.c"
    source.write_text("char raot_model[1 << 20];\n")
    project = gesture("mps2-an386")
    sizes = adapter_files(project.interface)["model_sizes.h"]
    project.write(tmp_path / "project")
    (tmp_path / "project" / "model_sizes.h").write_text(sizes)
    board: Board = load_board("mps2-an386")
    (ram, *_) = [m for m in board.memories if m.kind == "ram"]
    small = tuple(replace(m, size=64 << 10) if m == ram else m for m in board.memories)
    with pytest.raises(Exception, match="ram has 65536 bytes") as caught:
        folders = [tmp_path / "project"]
        build_target(replace(board, memories=small[:2]), [source], folders, tmp_path / "out")
    assert type(caught.value).__name__ == "DoesNotFit"


# What a user sees


@pytest.mark.usefixtures("wheels")
def test_doctor_says_what_takes_the_place_of_what() -> None:
    said = "\n".join(doctor.lines())
    assert "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi" in said
    assert "unicorn is used instead" in said
    assert {a.what: a.by for a in doctor.abilities()}["Cortex-M boards"][:2] == (
        "ziglang", "unicorn",
    )  # fmt: skip


@pytest.mark.qemu
@pytest.mark.long
def test_the_demo_runs_without_any_program(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "relax_aot", "demo"],
        cwd=tmp_path,
        env=environment | {"LANG": os.environ.get("LANG", "C.UTF-8")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all equal" in done.stdout and "skipped" not in done.stdout, done.stdout
