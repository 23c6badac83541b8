# SPDX-License-Identifier: Apache-2.0
"""The folder of a project for a GPU: what it holds, and that it builds alone."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from relax_aot import driver
from relax_aot.binaries.cubin import Cubin, read_cubin
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.project.cuda_board import DeviceError
from relax_aot.toolchain import nvrtc
from relax_aot.verify.figures import memory_of
from tests.conftest import ROOT
from tests.cuda.toolkits import needs_compilers, needs_fixed_addresses, needs_nvcc

MODEL = ROOT / "examples" / "gesture" / "gesture.onnx"


def compiled(board: str, emit: str = "auto") -> Project:
    options = Options(bounds={"n": (1, 64)}, name="gesture", emit=emit)
    return driver.compile_model(MODEL, board, options)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["jetson-nano", "jetson-tx2", "jetson-thor", "cuda-sm90"])
def test_a_project_in_source_needs_no_compiler_of_cuda(board: str) -> None:
    project = compiled(board, "cuda-source")
    again = compiled(board, "cuda-source")
    assert project.files == again.files
    assert {"gesture.c", "gesture.cu", "gesture_cubin.c", "CMakeLists.txt"} <= project.files.keys()
    build = project.files["CMakeLists.txt"].decode()
    assert f"set(CMAKE_CUDA_ARCHITECTURES {project.board.cuda.sm})" in build  # type: ignore[union-attr]
    assert b".incbin" in project.files["gesture_cubin.c"]


def test_a_million_elements_of_half_precision_fit() -> None:
    """A block has many elements, so few blocks have all: no index passes an int32_t."""
    text = "half (float16[n, m] x) => (float16[n, m] y) { y = Relu(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    options = Options(bounds={"n": (1, 4096), "m": (1, 4096)}, emit="cuda-source")
    assert driver.compile_model(model, "jetson-orin-nano", options).launches


@pytest.mark.parametrize(
    ("kind", "total", "made"),
    [
        ("float", "float", "MatMul(a, b)"),
        ("float16", "float16", "MatMul(a, b)"),
        ("uint8", "int32", "zero = Constant <value = uint8 {3}> () y = MatMulInteger(a, b, zero)"),
    ],
)
def test_products_of_matrices_of_4096_by_4096_fit(kind: str, total: str, made: str) -> None:
    """No index of their tiles passes an int32_t."""
    made = made if "y =" in made else f"y = {made}"
    text = f"product ({kind}[m, k] a, {kind}[k, n] b) => ({total}[m, n] y) {{ {made} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    bounds = dict.fromkeys("mkn", (1, 4096))
    options = Options(bounds=bounds, name="product", emit="cuda-source")
    assert driver.compile_model(model, "cuda-sm90", options).files


def test_groups_of_4096_queries_fit() -> None:
    """The last key that a block sees is bounded by the number of queries, not its square."""
    shapes = ("[1, 8, n, 64] q", "[1, 2, m, 64] k", "[1, 2, m, 64] v")
    inputs = ", ".join(f"float16{shape}" for shape in shapes)
    made = "y = Attention <is_causal = 1> (q, k, v)"
    text = f"heads ({inputs}) => (float16[1, 8, n, 64] y) {{ {made} }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> {text}')
    options = Options(bounds=dict.fromkeys("mn", (1, 4096)), name="heads", emit="cuda-source")
    assert driver.compile_model(model, "cuda-sm90", options).files


def test_functions_that_spill_are_made_with_more_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not those of arrays in local memory, which more registers do not help."""

    def blocks(text: str) -> dict[str, int]:
        found = re.findall(r"__launch_bounds__\(\d+, (\d+)\) (\w+)\(", text)
        return {name: int(count) for count, name in found}

    def local_bytes(cubin: bytes) -> dict[str, int]:
        spills = 8 * (blocks(cubin.decode())["softmax_y"] - 1)
        return {"relu_a": 16} | ({"softmax_y": spills} if spills else {})

    monkeypatch.setattr(nvrtc, "cubin", lambda text, name, sm, toolkit: text.encode())
    monkeypatch.setattr(driver, "local_bytes", local_bytes)
    text = "f (float[n, 64] x) => (float[n, 64] a, float[n, 64] y) { a = Relu(x)\n y = Softmax(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    bounds = {"n": (1, 64)}

    def found(emit: str) -> dict[str, int]:
        options = Options(bounds=bounds, name="f", emit=emit)
        made = driver.compile_model(model, "jetson-orin-nano", options)
        return blocks(made.files["f.cu"].decode())

    told, of_source = found("cubin"), found("cuda-source")
    monkeypatch.setattr(nvrtc, "installed_compiler", lambda major: None)
    before = found("cuda-source")
    assert before["softmax_y"] > 1
    assert told == of_source == {**before, "softmax_y": 1}


def test_functions_that_spill_with_all_registers_have_smaller_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each entry is planned again, too."""

    def local_bytes(cubin: bytes) -> dict[str, int]:
        _, *parts = re.split(r"__launch_bounds__\(\d+, \d+\) (\w+)", cubin.decode())
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return {name: 8 for name, text in pairs if "float sums[64]" in text}

    monkeypatch.setattr(nvrtc, "cubin", lambda text, name, sm, toolkit: text.encode())
    text = "f (float[n, 512] x, float[512, 512] w) => (float[n, 512] y) { y = MatMul(x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    options = Options(bounds={"n": (1, 4096)}, name="f", emit="cuda-source")
    monkeypatch.setattr(driver, "local_bytes", lambda cubin: {})
    usual = driver.compile_model(model, "jetson-orin-nano", options).files["f.cu"].decode()
    monkeypatch.setattr(driver, "local_bytes", local_bytes)
    made = driver.compile_model(model, "jetson-orin-nano", options)
    entries = driver.load_entries({"one": model, "two": model}, options)
    both = driver.compile_entries(entries, load_board("jetson-orin-nano"), options)
    assert "float sums[64]" in usual
    for files in (made.files, both.files):
        found = files["f.cu"].decode()
        assert "float sums[64]" not in found and "float sums[32]" in found
    assert not made.crowded and not both.crowded


DIGESTS = """
import hashlib, sys
from relax_aot import driver
from tests.end_to_end.subjects import SUBJECTS
subject, board = SUBJECTS[sys.argv[1]], sys.argv[2]
files = driver.compile_model(subject.model(), board, subject.options).files
for name, contents in files.items():
    print(name, hashlib.sha256(contents).hexdigest())
"""


@pytest.mark.slow
@needs_compilers
@needs_fixed_addresses
@pytest.mark.parametrize(
    ("name", "board"),
    [
        ("gesture", "jetson-xavier"),
        pytest.param("gesture", "jetson-orin-nano", marks=pytest.mark.long),
        *(
            pytest.param(name, board, marks=pytest.mark.long)
            for name in ("gru_tagger", "small_encoder")
            for board in ("jetson-orin-nano", "jetson-xavier")
        ),
    ],
)
@pytest.mark.long
def test_two_processes_make_the_same_project(name: str, board: str, tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS, name, board], cwd=ROOT, check=True, text=True,
            capture_output=True, env=os.environ | {
                "PYTHONHASHSEED": seed, "RELAX_AOT_CACHE": str(tmp_path / seed),
                "PYTHONPATH": str(ROOT),
            },
        )  # fmt: skip
        found.append(done.stdout.splitlines())
    assert found[0] == found[1]
    assert any("_cubin.c " in line for line in found[0])


@pytest.mark.slow
@needs_compilers
def test_a_project_builds_alone_and_says_what_is_missing(tmp_path: Path) -> None:
    if shutil.which("cmake") is None or shutil.which("gcc") is None:
        pytest.skip("cmake or gcc is not installed")
    project = compiled("jetson-orin-nano")
    text = project.files["gesture_cubin.c"].decode()
    assert all(f"gesture_cubin_{toolkit}[] = {{" in text for toolkit in (11, 12))
    assert 0 < (memory_of(project).code_bytes or 0) < len(text)
    assert memory_of(compiled("jetson-nano", "cuda-source")).code_bytes is None
    folder = project.write(tmp_path / "project")
    flags = "-DCMAKE_C_FLAGS=-Wall -Wextra -Wconversion -Werror"
    build = str(tmp_path / "build")
    for arguments in (["-S", str(folder), "-B", build, flags], ["--build", build]):
        subprocess.run(["cmake", *arguments], check=True, capture_output=True)
    done = subprocess.run(
        [tmp_path / "build" / "gesture_example"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == "RAOT_ERR_DEVICE libcuda.so.1: no such driver on this machine\n"


NVCC = """#!/bin/sh
echo "$@" > "$(dirname "$0")/arguments"
while [ "$1" != -o ]; do shift; done
printf '\\177ELF' > "$2"
"""
"""It says what it was given, and makes a file."""
KNOWN = (
    "FORCED=1", "ID=NVIDIA", "ID_RUN=1", "VERSION=10.2.300",
    "PRODUCED_OUTPUT=#$ LIBRARIES= -lc\n#$ gcc a.o -lc\n",
)  # fmt: skip
"""What CMake would find by asking the compiler, which answers no question here."""


def built(folder: Path, build: Path, *settings: str, **environment: str) -> None:
    if shutil.which("cmake") is None or shutil.which("gcc") is None:
        pytest.skip("cmake or gcc is not installed")
    given = [f"-D{one}" for one in settings]
    for arguments in (["-S", str(folder), "-B", str(build), *given], ["--build", str(build)]):
        done = subprocess.run(
            ["cmake", *arguments], check=False, capture_output=True, env=os.environ | environment
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_project_in_source_is_built_by_the_nvcc_of_the_machine(tmp_path: Path) -> None:
    folder = compiled("jetson-nano", "cuda-source").write(tmp_path / "project")
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    known = [f"CMAKE_CUDA_COMPILER_{one}" for one in KNOWN]
    built(folder, tmp_path / "build", *known, CUDA_HOME=str(tmp_path / "cuda"))
    text = (nvcc.parent / "arguments").read_text()
    assert re.search(r"arch=compute_53,code=\S*sm_53", text)
    given = text.split()
    assert {"-fatbin", "--fmad=false", str(folder / "gesture.cu")} <= {*given}
    assert {"-std=c++14", "--std=c++14"} & {*given}
    example = tmp_path / "build" / "gesture_example"
    done = subprocess.run([example], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("RAOT_ERR_DEVICE libcuda.so.1: ")


def machine_code(image: bytes) -> Iterator[Cubin]:
    """Of a fatbin whose entries are not compressed: each begins with its own number of bytes, and
    with those of the cubin behind."""
    at = 16
    while at < len(image):
        header, size = struct.unpack_from("<IQ", image, at + 4)
        yield read_cubin(image[at + header : at + header + size])
        at += header + size


@pytest.mark.long
@needs_nvcc
def test_nvcc_compiles_a_project_for_other_gpus(tmp_path: Path) -> None:
    folder = compiled("cuda-sm90", "cuda-source").write(tmp_path / "project")
    build = tmp_path / "build"
    chips, strict = "ARCHITECTURES=90-real;100-real", "FLAGS=-Werror all-warnings"
    built(folder, build, f"CMAKE_CUDA_{chips}", f"CMAKE_CUDA_{strict}")
    image = (build / "gesture.fatbin").read_bytes()
    assert image.startswith(b"\x50\xed\x55\xba")
    needed = subprocess.run(
        ["readelf", "-d", build / "gesture_example"], capture_output=True, text=True, check=True
    )
    assert re.findall(r"NEEDED.*\[(.*?)\]", needed.stdout) == ["libc.so.6"]
    code = list(machine_code(image))
    assert [one.sm for one in code] == [90, 100]
    names = re.findall(r'^    "(\w+)",$', (folder / "gesture.c").read_text(), re.M)
    assert all({function.name for function in one.functions} == {*names} for one in code)


@pytest.mark.parametrize(
    "given", [{"threads": 2}, {"stepwise": True}, {"offsets": "dynamic"}], ids=str
)
def test_what_is_for_processors_is_refused(given: dict[str, Any]) -> None:
    options = Options(bounds={"n": (1, 64)}, emit="cuda-source", **given)
    (name,) = given
    with pytest.raises(DeviceError, match=f"--{name}.* is for programs on a CPU"):
        driver.compile_model(MODEL, "jetson-orin-nano", options)
