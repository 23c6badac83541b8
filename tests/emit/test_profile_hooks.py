# SPDX-License-Identifier: Apache-2.0
"""The hook around each kernel: nothing when off, each call in order when on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.files import write_files
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.verify.profile import profile
from relax_aot.verify.samples import cases_of
from tests.conftest import ROOT

GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"
PAGE = ROOT / "docs" / "how-to" / "find_a_difference.md"
LOGGING = """
#include <stdio.h>
#define RAOT_PROFILE_BEGIN(kernel) printf("begin %s\\n", kernel)
#define RAOT_PROFILE_END(kernel) printf("end %s\\n", kernel)
"""
MAIN = """
#include "gesture.h"
GESTURE_ARENA(static, arena);
static float motion[6 * 5], scores[GESTURE_SCORES_BYTES / 4], frames[GESTURE_FRAMES_BYTES / 4];
int main(void)
{
    const struct gesture_memory memory = {.arena = arena, .arena_bytes = sizeof arena};
    const struct gesture_dims dims = {.n = 5};
    const struct gesture_inputs in = {.motion = motion};
    const struct gesture_outputs out = {.scores = scores, .frames = frames};
    return gesture_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def project() -> Project:
    return driver.compile_model(GESTURE, "nucleo-f446re", Options(bounds={"n": (1, 16)}))


def build(folder: Path, *arguments: str, compiler: str = "gcc") -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} not installed")
    done = subprocess.run(
        [compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-I.", *arguments],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_off_the_hook_adds_nothing(project: Project, tmp_path: Path) -> None:
    source = project.files["gesture.c"].decode()
    bare, count = re.subn(
        r"RAOT_PROFILE\(\s*\w+,\s+([^;]*)\);$", r"\1;", source, flags=re.MULTILINE
    )
    assert count == len(project.view.kernels) > 5 and "RAOT_PROFILE" not in bare
    write_files(tmp_path, project.files)
    build(tmp_path, "-c", "gesture.c", "-o", "with.o")
    (tmp_path / "gesture.c").write_text(bare)
    build(tmp_path, "-c", "gesture.c", "-o", "without.o")
    assert (tmp_path / "with.o").read_bytes() == (tmp_path / "without.o").read_bytes()


@pytest.mark.slow
def test_on_every_call_is_seen_in_its_order(project: Project, tmp_path: Path) -> None:
    write_files(tmp_path, project.files)
    (tmp_path / "log.h").write_text(LOGGING)
    (tmp_path / "try.c").write_text(MAIN)
    units = ("try.c", *project.units)
    build(tmp_path, '-DRAOT_PROFILE_HEADER="log.h"', *units, "-o", "try", "-lm")
    said = subprocess.run([tmp_path / "try"], capture_output=True, text=True, check=True).stdout
    run = project.files["gesture.c"].decode().partition("enum raot_status gesture_run")[2]
    order = re.findall(r"RAOT_PROFILE\(\s*(\w+),", run)
    layers = [layer for kernel in project.view.kernels for layer, _ in kernel.layers]
    assert sorted(order) == sorted(layers)
    assert said.splitlines() == [f"{w} {name}" for name in order for w in ("begin", "end")]


@pytest.mark.qemu
def test_the_cycle_counter_of_the_document_compiles(project: Project, tmp_path: Path) -> None:
    (header,) = re.findall(r"^```c\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    write_files(tmp_path, project.files)
    (tmp_path / "cycles.h").write_text(header)
    flags = load_board("nucleo-f446re").flags
    hook = '-DRAOT_PROFILE_HEADER="cycles.h"'
    build(tmp_path, *flags, hook, "-fsyntax-only", "gesture.c", compiler="arm-none-eabi-gcc")


TWICE = """
func @main(%x: f32[8, 8], %a: f32[8, 8], %b: f32[8, 8]) {
  %p: f32[8, 8] = matmul(%x, %a)  # /first
  %q: f32[8, 8] = matmul(%p, %b)  # /second
  return %q
}
"""


@pytest.mark.qemu
def test_layers_that_share_a_function_have_names_and_origins_of_their_own() -> None:
    project = driver.compile_module(
        rx.parse(TWICE), load_board("mps2-an386"), Options(name="twice")
    )
    (kernel,) = project.view.kernels
    assert [origin for _, origin in kernel.layers] == ["/first", "/second"]
    names = re.findall(r"RAOT_PROFILE\(\s*(\w+),", project.files["twice.c"].decode())
    assert names == [layer for layer, _ in kernel.layers] and len(set(names)) == 2
    (case,) = cases_of(project.interface, [{}], {})
    rows = {row.function: row for row in profile(project, case).kernels}
    assert [rows[name].origin for name in names] == ["/first", "/second"]
    assert all(rows[name].instructions > 100 for name in names)
