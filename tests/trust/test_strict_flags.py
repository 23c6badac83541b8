# SPDX-License-Identifier: Apache-2.0
"""Thirty models, small and real, floats and quantized, ONNX and TensorFlow Lite: no warning from
any compiler, no heap, no stdio, nothing writable at file scope."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from tests.conftest import NO_SHARED_MODELS
from tests.end_to_end.subjects import SHARED, SUBJECTS
from tests.models.encoder import Variant, encoder
from tests.trust.proven import PROVEN

REAL = tuple(
    f"{name}_{kind}"
    for name in ("kws", "resnet8")
    for kind in ("fp32.onnx", "fp32.tflite", "int8_qdq.onnx", "int8_qop.onnx")
)
BOUNDS = {"resnet8_fp32.tflite": {"input_1_0": (1, 2)}}
"""Sizes that the file leaves open."""
SMALL = tuple(name for name in SUBJECTS if name not in ("kws", "resnet8"))
MODELS = (*REAL, *SMALL, *(f"proven_{name}" for name in PROVEN), "masked_encoder")
STRICT = (
    "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wcast-align", "-Wstrict-prototypes",
    "-Wmissing-prototypes", "-Wdouble-promotion", "-Wvla", "-Wpedantic", "-Wsign-conversion",
    "-Wcast-qual", "-Wundef", "-Wfloat-equal", "-Wredundant-decls", "-Werror",
)  # fmt: skip
HELIUM = ("-mthumb", "-mcpu=cortex-m55", "-mfloat-abi=hard")
COMPILERS = {
    "gcc": ("gcc", "-std=c11", *STRICT, "-O2"),
    "clang": ("clang", "-std=c11", *STRICT, "-O2"),
    "m0": ("arm-none-eabi-gcc", "-std=c11", *STRICT, "-O2", "-mthumb", "-mcpu=cortex-m0"),
    "m55": ("arm-none-eabi-gcc", "-std=c11", *STRICT, "-O2", *HELIUM),
    "c++": ("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-x", "c++"),
}
FORBIDDEN = {"malloc", "free", "calloc", "realloc", "printf", "exit", "abort", "__errno_location"}


@cache
def project(model: str, weights: str) -> Project:
    source, options = described(model)
    return driver.compile_model(source, "host", replace(options, weights=weights))


def described(model: str) -> tuple[Any, Options]:
    if model == "masked_encoder":
        made = encoder(16, 2, 1, 24, variant=Variant(norm="post", mask=True, causal=True))
        return made, Options(bounds={"n": (1, 20), "batch": (1, 3)}, name=model)
    if model.startswith("proven_"):
        proven = PROVEN[model.removeprefix("proven_")]
        return proven.make(), proven.options
    if model in SUBJECTS:
        return SUBJECTS[model].model(), SUBJECTS[model].options
    if not (SHARED / model).is_file():
        pytest.skip(NO_SHARED_MODELS)
    name = re.sub(r"\W", "_", model)
    return SHARED / model, Options(bounds=BOUNDS.get(model, {}), name=name)


def test_there_are_thirty_models() -> None:
    assert len(set(MODELS)) >= 30


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("weights", ["auto", "blob"])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("model", MODELS)
def test_no_warning(model: str, compiler: str, weights: str, tmp_path: Path) -> None:
    made = project(model, weights)
    folder = made.write(tmp_path / "out")
    command, *flags = COMPILERS[compiler]
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    sources = [f"{made.name}.h"] if compiler == "c++" else list(made.units)
    output = ["-fsyntax-only"] if compiler == "c++" else ["-c"]
    done = subprocess.run(
        [command, *flags, *output, *sources],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_no_heap_no_stdio_nothing_writable(model: str, tmp_path: Path) -> None:
    made = project(model, "auto")
    folder = made.write(tmp_path / "out")
    for tool in ("gcc", "nm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    subprocess.run(["gcc", "-O2", "-c", *made.units], cwd=folder, check=True)
    listing = subprocess.run(
        ["nm", *(f"{Path(unit).stem}.o" for unit in made.units)],
        cwd=folder, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    symbols = re.findall(r"^\S* *([A-Za-z]) (\S+)$", listing, re.M)
    assert symbols and not [name for kind, name in symbols if kind in "bBdDcC"]
    assert not {name for _, name in symbols} & FORBIDDEN
