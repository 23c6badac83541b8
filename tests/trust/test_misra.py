# SPDX-License-Identifier: Apache-2.0
"""cppcheck's MISRA add-on finds no required rule broken but those that the reference lists."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from tests.conftest import ROOT
from tests.emit.test_stepwise import CASES
from tests.models.onnx_text import model_of
from tests.trust.proven import PROVEN, Proven

PAGE = ROOT / "docs" / "reference" / "misra.md"
FEW = ("mlp",)
MOST = 10
"""Required rules that may be on the list."""
X86 = "__x86_64__ __SSE2__ __SSE3__ __SSSE3__ __SSE4_1__"
ARM = "__ARM_ARCH=8 __ARM_FEATURE_FMA __ARM_FP=14"
PROCESSORS = {
    "any": "",
    "cortex-m0": "__arm__ __thumb__ __ARM_ARCH=6",
    "cortex-m4": "__arm__ __thumb__ __ARM_ARCH=7 __ARM_FEATURE_DSP=1 __ARM_FP=4",
    "cortex-m55": "__arm__ __thumb__ __ARM_FEATURE_DSP=1 __ARM_FEATURE_MVE=3 " + ARM,
    "armv7": "__arm__ __ARM_NEON __ARM_ARCH=7 __ARM_FEATURE_FMA __ARM_FP=14",
    "aarch64": "__aarch64__ __ARM_NEON " + ARM,
    "aarch64-i8mm": "__aarch64__ __ARM_NEON __ARM_FEATURE_DOTPROD __ARM_FEATURE_MATMUL_INT8 " + ARM,
    "x86-64": X86,
    "x86-64-v3": f"{X86} __AVX__ __AVX2__ __FMA__",
    "x86-64-vnni": f"{X86} __AVX__ __AVX2__ __FMA__ __AVX512F__ __AVX512BW__ __AVX512VNNI__",
}
"""What their compilers define of what the headers ask for."""


def picked() -> onnx.ModelProto:
    """Bytes that decide, and names that begin alike."""
    return model_of(
        "picked (float[n, 3] x, bool[n] those) => (float[k, 3] y)",
        """
        chosen_of_the_many_rows_that_the_model_was_given_as_input = Compress <axis = 0> (x, those)
        chosen_of_the_many_rows_that_the_model_was_given_as_input_scaled = Mul(
            chosen_of_the_many_rows_that_the_model_was_given_as_input, w)
        y = Tanh(chosen_of_the_many_rows_that_the_model_was_given_as_input_scaled)
        """,
        {"w": np.ones(3, np.float32)},
    )


MODELS = {**PROVEN, "picked": Proven(picked, Options(bounds={"n": (1, 9)}, name="picked"))}


@cache
def categories() -> dict[str, frozenset[str]]:
    rows = re.findall(r"^\| (mandatory|advisory) \| (.*) \|$", PAGE.read_text(), re.M)
    return {name: frozenset(rules.split(", ")) for name, rules in rows}


@cache
def listed() -> frozenset[str]:
    return frozenset(re.findall(r"^\| ([\d.]+) \| required \| \S", PAGE.read_text(), re.M))


def test_the_list_is_short() -> None:
    assert 0 < len(listed()) <= MOST
    assert not listed() & (categories()["mandatory"] | categories()["advisory"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.long) for n in MODELS]
)
def test_no_other_required_rule(name: str, tmp_path: Path) -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("cppcheck is not installed")
    subject = MODELS[name]
    project = driver.compile_model(subject.make(), "host", subject.options)
    folder = project.write(tmp_path / "out")
    configurations = ["--max-configs=1"] if name in FEW else []
    assert not broken(folder, *configurations, "-I.", *project.units)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["loop", "branches"])
def test_no_other_required_rule_where_a_run_returns_between_kernels(
    name: str, tmp_path: Path
) -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("cppcheck is not installed")
    source, options, _ = CASES[name]
    project = rx.compile(source, name=name, stepwise=True, **options)
    folder = project.write(tmp_path / "out")
    assert not broken(folder, "--max-configs=1", "-I.", *project.built.units)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("processor", PROCESSORS)
def test_no_other_required_rule_in_headers(processor: str, tmp_path: Path) -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("cppcheck is not installed")
    headers = ROOT / "runtime_c" / "include"
    names = sorted(path.name for path in (headers / "raot").iterdir())
    (tmp_path / "all.c").write_text("".join(f'#include "raot/{name}"\n' for name in names))
    defined = [f"-D{name}" for name in ("__GNUC__=12", *PROCESSORS[processor].split())]
    assert not broken(tmp_path, "--max-configs=1", *defined, f"-I{headers}", "all.c")


def broken(folder: Path, *arguments: str) -> dict[str, list[str]]:
    """Rules that are neither advisory nor listed, and up to three places of each."""
    done = subprocess.run(
        ["cppcheck", "--addon=misra", "--enable=style", "--std=c11", "-q", *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, list[str]] = {}
    for place, rule in re.findall(r"^(\S+:\d+):.*\[misra-c2012-([\d.]+)\]$", done.stderr, re.M):
        found.setdefault(rule, []).append(place)
    assert found, "the add-on said nothing at all"
    return {
        rule: places[:3]
        for rule, places in found.items()
        if rule not in categories()["advisory"] | listed()
    }
