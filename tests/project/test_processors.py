# SPDX-License-Identifier: Apache-2.0
"""A project for this machine has code for several processors, and chooses while it runs."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from relax_aot import driver
from relax_aot.ir.parse import parse
from relax_aot.project import Project
from relax_aot.project.processors import X86_64
from relax_aot.verify.host import HostModel
from relax_aot.verify.library import Library
from tests.models.onnx_text import model_of, random_weights
from tests.project.shipped import shipped_library

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="the project has code for x86-64 processors"
    ),
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
]
STRICT = "-Wall -Wextra -Wconversion -Wshadow -Wvla -Wdouble-promotion -Wmissing-prototypes -Werror"
SIZES = (1, 2, 7, 16, 33)
HALF = """
const %w: f16[24, 40] = splat 0.5

func @main(%x: f32[7, 24]) {
  %c: f32[24, 40] = cast(%w) {to=f32, saturate=false}
  %y: f32[7, 40] = matmul(%x, %c)
  return %y
}"""


@cache
def network(symbolic: bool) -> onnx.ModelProto:
    rows = "n" if symbolic else "7"
    signature = f"net (float[{rows}, 24] x) => (float[{rows}, 40] y)"
    weights = random_weights(np.random.default_rng(3), w=(24, 40), b=(40,))
    return model_of(signature, "a = MatMul(x, w)\nc = Add(a, b)\ny = Tanh(c)", weights)


@cache
def compiled(symbolic: bool) -> Project:
    options = driver.Options(bounds={"n": (1, 33)} if symbolic else {}, name="net")
    return driver.compile_model(network(symbolic), "host", options)


def compare(project: Project, library: Path, symbolic: bool) -> None:
    session = ort.InferenceSession(network(symbolic).SerializeToString())
    host = HostModel(project.interface, Library(library))
    for n in SIZES if symbolic else (7,):
        x = np.random.default_rng(n).normal(size=(n, 24)).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(host(x=x)["y"], wanted, rtol=2e-5, atol=2e-6)


def features() -> set[str]:
    """Of this processor, in the words of Linux."""
    text = Path("/proc/cpuinfo").read_text()
    return {word.replace("_", "") for line in text.splitlines() for word in line.split()}


def names(library: Path) -> set[str]:
    done = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines() if " T " in line}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["any", *(kind.name for kind in X86_64.kinds)])
def test_each_kind_of_processor_computes_the_same(kind: str, tmp_path: Path) -> None:
    """The test while running is replaced, so that each kind has its turn on one machine."""
    options = next((one.options for one in X86_64.kinds if one.name == kind), ())
    if not {option.removeprefix("-m") for option in options} <= features():
        pytest.skip(f"this processor has no {kind}")
    choose = tmp_path / "choose.h"
    # "avx512f", "avx2" and "fma" differ in their fourth character.
    allowed = {"any": "0", "avx2": "((name)[3] != '5')", "avx512": "1"}[kind]
    choose.write_text(f"#define __builtin_cpu_supports(name) ({allowed})\n")
    flags = f"-DCMAKE_C_FLAGS={STRICT} -include {choose}"
    compare(compiled(True), shipped_library(compiled(True), tmp_path, [flags]), True)


@pytest.mark.slow
@pytest.mark.parametrize("symbolic", [False, True], ids=["fixed", "symbolic"])
def test_the_choice_is_made_while_running(symbolic: bool, tmp_path: Path) -> None:
    library = shipped_library(compiled(symbolic), tmp_path)
    end = "_n33" if symbolic else ""
    assert {f"net_run_{kind}{end}" for kind in ("any", "avx2", "avx512")} <= names(library)
    assert {"net_run", f"net_run{end}"} <= names(library)
    compare(compiled(symbolic), library, symbolic)


@pytest.mark.slow
def test_a_build_for_one_processor_has_its_code_alone(tmp_path: Path) -> None:
    library = shipped_library(compiled(True), tmp_path, ["-DRAOT_NATIVE=ON"])
    assert not any("avx" in name for name in names(library))
    compare(compiled(True), library, True)


def test_conversions_of_half_precision_are_asked_for() -> None:
    """Only where the model has some."""
    module = replace(parse(HALF), keeps_half=True)
    project = driver.compile_model(module, "host", driver.Options(name="net"))
    assert b"-mf16c" in project.files["CMakeLists.txt"]
    assert b"has_f16c()" in project.files["x86_64/net_dispatch.c"]
    assert b"f16c" not in compiled(True).files["CMakeLists.txt"]


def test_other_boards_have_one_code() -> None:
    options = driver.Options(bounds={"n": (1, 33)}, name="net")
    project = driver.compile_model(network(True), "mps2-an386", options)
    assert not [path for path in project.files if path.startswith("x86_64/")]
    assert b"RAOT_NATIVE" not in project.files["CMakeLists.txt"]
