# SPDX-License-Identifier: Apache-2.0
"""Preprocessor conditions are resolved as a preprocessor does, and helpers of kernels are those
that are used."""

from __future__ import annotations

import re
import subprocess

import pytest

from relax_aot.emit.c_conditions import Conditions
from relax_aot.emit.cuda_helpers import helper_text
from relax_aot.resources import data_dir

HEADERS = sorted((data_dir("runtime_c") / "include" / "raot").glob("*.h"))
ENVIRONMENTS = {
    "device": {"RAOT_DEVICE": "", "__cplusplus": "201402"},
    "aarch64": {"__GNUC__": "12", "__aarch64__": "1", "__ARM_NEON": "1", "__ARM_FEATURE_FMA": "1"},
    "thumb": {
        "__GNUC__": "12", "__arm__": "1", "__thumb2__": "1", "__ARM_ARCH_PROFILE": "'M'",
        "__ARM_FEATURE_MVE": "3", "__ARM_FP": "12",
    },
}  # fmt: skip


def preprocessed(text: str, macros: dict[str, str]) -> list[str]:
    """The tokens."""
    given = [f"-D{name}={value}" for name, value in macros.items()]
    done = subprocess.run(
        ["gcc", "-E", "-P", "-undef", *given, "-"],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return re.findall(r"\w+|\S", done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_what_is_left_is_what_a_preprocessor_sees(environment: str) -> None:
    macros = ENVIRONMENTS[environment]
    for path in HEADERS:
        text = re.sub(r"^#include.*\n", "", path.read_text(), flags=re.MULTILINE)
        left = Conditions(dict(macros)).resolved(text)
        assert not re.search(r"^#\s*(if|ifdef|ifndef|elif|else|endif)\b", left, re.MULTILINE)
        assert preprocessed(left, macros) == preprocessed(text, macros), path.name


def test_open_macros_keep_their_conditions() -> None:
    text = "#if defined(A)\na\n#elif defined(OPEN)\nb\n#elif defined(C)\nc\n#else\nd\n#endif"
    known = Conditions({"OPEN": None})
    assert known.resolved(text) == "#if defined(OPEN)\nb\n#else\nd\n#endif"
    assert known.value("OPEN >= 3 && defined(A)") == 0
    assert known.value("OPEN >= 3 || 1") == 1
    assert known.value("(OPEN & 2) == 2") is None
    assert known.resolved("#if OPEN\n#define B 1\n#endif\n#if B\nb\n#endif").count("#if") == 2


def test_helpers_are_those_that_are_used() -> None:
    text = helper_text("raot_quantize_i8(x, 3) raot_larger_i64(a, b)", ())
    made = set(re.findall(r"^__device__ inline \w+ (\w+)\(", text, re.MULTILINE))
    assert {"raot_quantize_i8", "raot_rintf", "raot_clamp_i32"} <= made
    assert not made & {"raot_quantize_u8", "raot_expf", "raot_f32_to_f16"}
    for name in made - {"raot_quantize_i8"}:
        assert len(re.findall(rf"\b{name}\b", text)) > 1, f"{name} is not used"
    assert "RAOT_INTEGER_COMMON(i64," in text
    assert "RAOT_INTEGER_COMMON(i8," not in text
    assert not re.search(r"__GNUC__|__SSE2__|__aarch64__|__ARM", text)
