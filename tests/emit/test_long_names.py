# SPDX-License-Identifier: Apache-2.0
"""Names that begin alike for long differ where compilers still look."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.host import host_model
from tests.models.onnx_text import model_of

STEM = "encoder_layers_0_self_attention_output_projection"
PREFIX = "a_network_whose_name_has_nearly_fifty_characters"


@pytest.mark.slow
def test_names_differ_in_the_characters_that_count() -> None:
    weights = {f"{STEM}_{k}": np.full((4, 4), k + 1, np.float32) for k in range(11)}
    lines = [f"{STEM}_v0 = MatMul({STEM}_x, {STEM}_0)"]
    lines += [
        f"{STEM}_v{k} = MatMul({STEM}_v{k - 1}, {STEM}_{k})\n{STEM}_s{k} = Softmax({STEM}_v{k})"
        for k in range(1, 11)
    ]
    sums = ", ".join(f"{STEM}_s{k}" for k in range(1, 11))
    model = model_of(
        f"g (float[n, 4] {STEM}_x) => (float[n, 4] {STEM}_y)",
        "\n".join([*lines, f"{STEM}_y = Sum({sums})"]),
        weights,
    )
    options = Options(bounds={"n": (1, 3)}, name=PREFIX)
    files = driver.compile_model(model, "host", options).files
    text = "\n".join(files[f"{PREFIX}{end}"].decode() for end in (".h", ".c", "_weights.h"))
    names = set(re.findall(rf"\b{PREFIX}\w*", text, re.I))
    assert len(names) > 40
    assert [n for n, times in Counter(name[:63] for name in names).items() if times > 1] == []


def test_what_stands_after_the_prefix_is_no_macro_of_the_library() -> None:
    """M_MAX would be one to be careful of by itself; the contract is KWS_M_MAX."""
    model = model_of("g (float[m, n] x) => (float[m, n] y)", "y = Relu(x)", {})
    files = driver.compile_model(
        model, "host", Options(bounds={"m": (1, 3), "n": (1, 4)}, name="kws")
    ).files
    assert "#define KWS_M_MAX 3\n" in files["kws_config.h"].decode()


def test_members_are_called_as_the_model_calls_them() -> None:
    """Names that the C of a run uses for its own are free in structs."""
    model = model_of(
        "g (float[state, need] in, float[out] dims) => (float[state, need] out, float[out] result)",
        "out = Relu(in)\nresult = Abs(dims)",
        {},
    )
    bounds = {"state": (1, 3), "need": (1, 4), "out": (1, 2)}
    project = driver.compile_model(model, "host", Options(bounds=bounds, name="kws"))
    header = project.files["kws.h"].decode()
    for member in ("int32_t state;", "int32_t need;", "*in;", "*dims;", "*out;", "*result;"):
        assert f" {member}\n" in header
    x, y = np.array([[-1, 2]], np.float32), np.array([-3], np.float32)
    found = host_model(project)({"in": x, "dims": y})
    np.testing.assert_array_equal(found["out"], np.maximum(x, 0))
    np.testing.assert_array_equal(found["result"], np.abs(y))
