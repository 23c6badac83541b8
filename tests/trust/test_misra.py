# SPDX-License-Identifier: Apache-2.0
"""cppcheck's MISRA add-on finds no required rule broken but those that the reference lists."""

from __future__ import annotations

import json
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
from tests.runtime_c.headers import HEADERS, all_headers
from tests.trust.proven import PROVEN, Proven

PAGE = ROOT / "docs" / "reference" / "misra.md"
FEW = ("mlp",)
MOST = 10
"""Required rules that may be on the list."""
FREQUENT = "15.5"
"""An advisory rule that all code violates, which shows that the add-on ran."""
QUICK = ("any", "cortex-m4")
"""Processors whose headers each run of the tests checks."""
THUMB2 = (
    "__arm__ __thumb__ __thumb2__ __ARM_ARCH_PROFILE=77 __ARM_FEATURE_DSP __ARM_FEATURE_SAT "
    "__ARM_FEATURE_FMA __ARM_FEATURE_UNALIGNED"
)
HELIUM = f"{THUMB2} __ARM_ARCH=8 __ARM_FP=14 __ARM_FEATURE_MVE=3"
APPLICATION = (
    "__ARM_ARCH_PROFILE=65 __ARM_NEON __ARM_FEATURE_FMA __ARM_FEATURE_UNALIGNED __ARM_FP=14"
)
AARCH64 = f"__aarch64__ __ARM_ARCH=8 {APPLICATION}"
X86 = "__x86_64__ __SSE__ __SSE2__ __SSE3__ __SSSE3__ __SSE4_1__"
V3 = f"{X86} __AVX__ __AVX2__ __FMA__ __F16C__"
PROCESSORS = {
    "any": "",
    "cortex-m0": "__arm__ __thumb__ __ARM_ARCH=6 __ARM_ARCH_PROFILE=77 __SOFTFP__",
    "cortex-m4": f"{THUMB2} __ARM_ARCH=7 __ARM_FP=4",
    "cortex-m55": HELIUM,
    "cortex-m55-small": f"{HELIUM} __OPTIMIZE_SIZE__",
    "armv7": f"__arm__ __thumb__ __thumb2__ __ARM_ARCH=7 {APPLICATION} __ARM_FEATURE_DSP",
    "aarch64": AARCH64,
    "aarch64-i8mm": f"{AARCH64} __ARM_FEATURE_DOTPROD __ARM_FEATURE_MATMUL_INT8",
    "x86-64": X86,
    "x86-64-v3": V3,
    "x86-64-vnni": f"{V3} __AVX512F__ __AVX512BW__ __AVX512DQ__ __AVX512VNNI__",
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


def test_every_header_is_compiled_for_a_processor(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "all.c").write_text(all_headers())
    unseen = {path.name for path in HEADERS.glob("raot/*.h")}
    for processor in PROCESSORS:
        done = subprocess.run(
            ["gcc", "-M", "-MG", "-undef", "-nostdinc", *defined(processor), "all.c"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        unseen -= set(re.findall(r"raot/(\w+\.h)", done.stdout))
    assert not unseen


@pytest.mark.slow
@pytest.mark.parametrize(
    "processor",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in PROCESSORS],
)
def test_no_other_required_rule_in_headers(processor: str, tmp_path: Path) -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("cppcheck is not installed")
    (tmp_path / "all.c").write_text(all_headers())
    assert not broken(tmp_path, "--max-configs=1", *defined(processor), "all.c")


def defined(processor: str) -> list[str]:
    """Options that define macros of a compiler, and those of <stdint.h> that select code."""
    word = "0xffffffff"
    limits = (f"UINT32_MAX={word}u", f"UINTPTR_MAX={word}{word[2:] * ('64' in processor)}u")
    names = ("__GNUC__=12", *limits, *PROCESSORS[processor].split())
    return [f"-I{HEADERS}", *(f"-D{name}" for name in names)]


def broken(folder: Path, *arguments: str) -> dict[str, list[str]]:
    """Rules that are neither advisory nor listed, and up to three places of each.

    cppcheck prints equal messages of a line once, whatever their rules are: each has its own text.
    """
    rules = [f"{section}.{number}" for section in range(1, 23) for number in range(1, 25)]
    lines = ["Appendix A Summary of guidelines", *(f"Rule {r} Required\nR{r}" for r in rules)]
    (folder / "rules.txt").write_text("\n".join(lines))
    ignored = ",".join(sorted((categories()["advisory"] | listed()) - {FREQUENT}))
    options = [f"--suppress-rules={ignored}", f"--rule-texts={folder / 'rules.txt'}"]
    (folder / "misra.json").write_text(json.dumps({"script": "misra.py", "args": options}))
    done = subprocess.run(
        ["cppcheck", "--addon=misra.json", "--enable=style,warning", "--std=c11", "-q", *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, list[str]] = {}
    for place, rule in re.findall(r"^(\S+:\d+):.*\[misra-c2012-([\d.]+)\]$", done.stderr, re.M):
        found.setdefault(rule, []).append(place)
    assert FREQUENT in found, done.stderr[-2000:]
    return {rule: places[:3] for rule, places in found.items() if rule != FREQUENT}
