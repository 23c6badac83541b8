# SPDX-License-Identifier: Apache-2.0
"""Nodes may stand in another order than ONNX asks for, as ONNX Runtime reads them too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import relax_aot as rx

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, bool which) => (float[n, 4] y)
{
    y = If (which) <
        then_branch = t () => (float[n, 4] a) { held = Neg (later) a = Abs (held) },
        else_branch = e () => (float[n, 4] b) { b = Add (later, x) }
    >
    later = Mul (early, early)
    early = Exp (x)
}
"""


@pytest.mark.parametrize("which", [True, False])
def test_nodes_are_put_in_order(which: bool) -> None:
    """Reads inside branches count."""
    model = parser.parse_model(TEXT)
    before = model.SerializeToString()
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    (y,) = (
        rx.compile(rx.load(model, bounds={"n": (1, 5)})).host()(x=x, which=np.array(which)).values()
    )
    squared = np.exp(x.astype(np.float64)) ** 2
    np.testing.assert_allclose(y, squared if which else squared + x, rtol=1e-5)
    assert model.SerializeToString() == before


def test_nodes_that_wait_for_each_other_are_an_error() -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)'
        " { y = Add (x, later) later = Neg (y) }"
    )
    assert isinstance(model, onnx.ModelProto)
    with pytest.raises(rx.RelaxAotError, match="'later' is not defined before its use"):
        rx.load(model)
