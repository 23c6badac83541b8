# SPDX-License-Identifier: Apache-2.0
"""Operands of assembly that is part of a C function."""

from __future__ import annotations

import re

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.quantization import Choice
from relax_aot.verify.emulate import emulate
from tests.conftest import ROOT
from tests.models.onnx_text import model_of, random_weights

HEADERS = ROOT / "runtime_c" / "include" / "raot"
SHARED = re.compile(r'\[\w+\] "\+(?!&)')
"""An operand that is changed and may have the register of one that is only read: compilers give
both the same one where they know that the values are equal."""


def test_operands_that_change_have_registers_of_their_own() -> None:
    found = {path.name: SHARED.findall(path.read_text()) for path in HEADERS.glob("*.*h")}
    assert {name: operands for name, operands in found.items() if operands} == {}


@pytest.mark.qemu
@pytest.mark.slow
def test_a_step_may_be_as_large_as_a_count() -> None:
    """Four pairs of 16 inputs are gathered in steps of four bytes."""
    rng = np.random.default_rng(1)
    weights = random_weights(rng, wf=(16, 10), bf=(10,))
    text = "p = GlobalAveragePool (x)\n f = Flatten (p)\n y = Gemm (f, wf, bf)"
    model = model_of("dense (float[1, 16, n] x) => (float[1, 10] y)", text, weights)
    x = rng.normal(size=(1, 16, 4)).astype(np.float32)
    options = driver.Options(bounds={"n": (1, 8)}, quantize=Choice("int8"), calibrate={"x": x})
    results = [
        emulate(driver.compile_model(model, board, options), [{"x": x}])[0].outputs["y"]
        for board in ("mps2-an386", "mps2-an385")
    ]
    assert results[0].tobytes() == results[1].tobytes()
