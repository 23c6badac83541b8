# SPDX-License-Identifier: Apache-2.0
"""What memory of half precision rounds anyway is not rounded before, nor are bytes, which it
holds."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import relax_aot as rx


@pytest.mark.slow
def test_decoded_bytes_are_rounded_once() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        decoded (int8[n] x, float16[n] s) => (float16[n] y) {
            half = Cast <to = 10> (x)
            y = Mul(half, s)
        }"""
    )
    project = rx.compile(model, bounds={"n": 4096}, name="decoded")
    assert "_round(" not in project.built.files["decoded.c"].decode()
    x = np.repeat(np.arange(-128, 128, dtype=np.int8), 16)
    s = np.random.default_rng(0).integers(0, 1 << 16, 4096).astype(np.uint16).view(np.float16)
    s[~np.isfinite(s)] = np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = x.astype(np.float16) * s
    np.testing.assert_array_equal(project.host()(x=x, s=s)["y"], wanted)
