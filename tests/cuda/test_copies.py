# SPDX-License-Identifier: Apache-2.0
"""Copies that a thread does not wait for: the shim finds what reads them too early."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from relax_aot.emit.cuda_module import device_source
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.scheduling.devices.matrix_units import matrix_product
from tests.cuda.shim import Job, Shim, ShimError
from tests.scheduling.devices.kernels import device_form, inputs
from tests.scheduling.devices.test_matrix_units import CASES, TILES

FAULTS = {"_waits": "raot_wait_copies();", "_meets": "__syncthreads();"}
"""What each variant lacks."""


@pytest.mark.slow
def test_a_missing_wait_and_a_missing_barrier_are_found(tmp_path: Path) -> None:
    text, sizes = CASES["rows below, at and above a tile"]
    plain, made, bounds = device_form(text, partial(matrix_product, tiles=TILES), "product")
    assert made is not None
    source = device_source("model", [made], bounds).text
    functions = re.findall(r'^extern "C" [^{]* \w+\(.*?^}\n', source, re.M | re.S)
    assert all(lacking in functions[0] for lacking in FAULTS.values())
    variants = {
        end: "\n".join(re.sub(r" (product\w*)\(", rf" \1{end}(", f) for f in functions)
        for end in FAULTS
    }
    variants = {end: texts.replace(FAULTS[end], ";") for end, texts in variants.items()}
    shim = Shim([made], bounds, tmp_path, variants)
    size = sizes[-1]
    given = tuple(inputs(plain, size))
    (wanted,) = run_kernel(plain, given, size)

    def found(variant: str) -> str:
        """What tells the results from those of the loops."""
        try:
            (answer,) = shim.run([Job("product", given, size, seed=3, variant=variant)])
        except ShimError as error:
            return str(error)
        same = np.array_equal(answer.outputs[0], wanted)
        return "" if same else "other values"

    assert found("") == ""
    assert found("_waits") != ""
    assert found("_meets") != ""
