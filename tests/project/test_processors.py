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
from tests.models import every_kernel
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
LARGEST = 6
ASKED = """
#include <string.h>
extern const char *names;
extern unsigned int leaves[2];
#define __builtin_cpu_supports(name) (strstr(names, "," name ",") != 0)
#include <cpuid.h>
#undef __cpuid_count
#define __cpuid_count(leaf, part, a, b, c, d) \\
    do { a = (leaf) == 7 ? leaves[part] : 0; b = c = d = 0; (void)b, (void)c, (void)d; } while (0)
"""
"""What the program is told of its processor: words, and EAX of leaf 7 of CPUID."""
STUBS = """
#include <stdio.h>
#include <stdlib.h>
#include "sums.h"
const char *names;
unsigned int leaves[2];
#define STUB(kind) \\
    size_t SUMS_NAMED(sums_arena_bytes_##kind)(const struct sums_dims *dims); \\
    size_t SUMS_NAMED(sums_arena_bytes_##kind)(const struct sums_dims *dims) { \\
        (void)dims; puts(#kind); exit(0); }
STUB(avx512) STUB(avxvnni) STUB(avx2)
int main(int count, char **words)
{
    (void)count;
    names = words[1];
    leaves[0] = (unsigned int)atoi(words[2]);
    leaves[1] = (unsigned int)atoi(words[3]);
    (void)sums_arena_bytes(&(struct sums_dims){.n = 2});
    puts("any");
}
"""
AVX2, AVX512 = ",avx2,fma,", ",avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,"
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


@cache
def bytes_() -> Project:
    options = driver.Options(bounds={"n": (1, LARGEST)}, name="sums")
    return driver.compile_model(every_kernel.codes_and_sums(), "host", options)


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


@pytest.mark.parametrize("kind", ["any", "avx2", "avx512"])
@pytest.mark.long
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


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_kinds_are_chosen_by_what_the_processor_names(compiler: str, tmp_path: Path) -> None:
    """Clang asks CPUID itself. A leaf 7 without parts has no part 1, whatever is read there."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    bytes_().write(tmp_path)
    (tmp_path / "asked.h").write_text(ASKED)
    (tmp_path / "stubs.c").write_text(STUBS)
    dispatch, program = tmp_path / "x86_64" / "sums_dispatch.c", tmp_path / "program"
    command = [compiler, "-std=c11", "-no-pie", "-Wl,--unresolved-symbols=ignore-all"]
    command += [f"-I{tmp_path}", "-include", str(tmp_path / "asked.h"), str(dispatch)]
    subprocess.run([*command, str(tmp_path / "stubs.c"), "-o", str(program)], check=True)
    word = {"gcc": "avxvnni,", "clang": ""}[compiler]
    for names, parts, bits, kind in [
        (AVX512 + word, 1, 0x10, "avx512"),
        (AVX2 + word, 2, 0xFF, "avxvnni"),
        (AVX2, 1, 0xFFFFFFEF, "avx2"),
        (AVX2, 0, 0x10 if compiler == "clang" else 0, "avx2"),
        (",fma," + word, 1, 0x10, "any"),
    ]:
        asked = [str(program), names, str(parts), str(bits)]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [kind], (names, parts, bits)


def test_models_without_bytes_have_no_code_for_their_products() -> None:
    assert "x86_64/sums_avxvnni.c" in bytes_().files
    assert "x86_64/net_avxvnni.c" not in compiled(True).files


@pytest.mark.slow
def test_products_of_bytes_need_no_avx512(tmp_path: Path) -> None:
    """The code for AVX-VNNI has its encoding (VEX, which begins with C4), not that of AVX-512."""
    bytes_().write(tmp_path)
    (kind,) = (kind for kind in X86_64.kinds if kind.name == "avxvnni")
    source, code = tmp_path / "x86_64" / "sums_avxvnni.c", tmp_path / "code.o"
    known = ["cc", *kind.options, "-fsyntax-only", "-xc", "/dev/null"]
    if subprocess.run(known, capture_output=True, check=False).returncode != 0:
        pytest.skip("the compiler does not know AVX-VNNI")
    build = ["cc", "-std=c11", "-O3", *kind.options, "-c", str(source), "-o", str(code)]
    subprocess.run(build, capture_output=True, check=True)
    shown = subprocess.run(["objdump", "-d", code], capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in shown.stdout.splitlines() if "vpdpbusd" in line]
    assert lines and all(line[1].startswith("c4 ") for line in lines)
    assert "zmm" not in shown.stdout


@pytest.mark.parametrize("arguments", [(), ("-DRAOT_AVXVNNI=OFF",)], ids=["known", "unknown"])
@pytest.mark.long
def test_bytes_without_avx512_are_those_of_onnx_runtime(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """This processor has AVX-VNNI or not; a compiler may not know it."""
    library = shipped_library(bytes_(), tmp_path, ["-DRAOT_AVX512=OFF", *arguments])
    assert (f"sums_run_avxvnni_n{LARGEST}" in names(library)) == (not arguments)
    session = ort.InferenceSession(every_kernel.codes_and_sums().SerializeToString())
    host = HostModel(bytes_().interface, Library(library))
    for n in range(1, LARGEST + 1):
        x = np.random.default_rng(n).integers(-128, 128, (n, 4, 3, 2)).astype(np.int8)
        for name, wanted in zip(("y", "sum"), session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(host(x=x)[name], wanted)


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
