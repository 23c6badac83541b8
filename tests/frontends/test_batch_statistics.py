# SPDX-License-Identifier: Apache-2.0
"""BatchNormalization in training mode equals ONNX Runtime: standardized weights are written so."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import relax_aot as rx
from relax_aot.frontends import UnsupportedError

SHAPES = {"[b, 3, n]": (4, 3, 7), "[1, 3, n, 2]": (1, 3, 7, 2)}


@pytest.mark.parametrize("shape", SHAPES)
def test_training_mode_takes_the_statistics_of_the_batch(shape: str) -> None:
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        norm (float{shape} x) => (float{shape} y, float[3] middle, float[3] spread)
        <float[3] s = {{1.5, -1.0, 0.5}}, float[3] c = {{0.1, 0.2, 0.3}},
         float[3] before = {{1.0, 2.0, 3.0}}, float[3] far = {{1.0, 0.5, 2.0}}> {{
            y, middle, spread = BatchNormalization <training_mode = 1, momentum = 0.8>
                (x, s, c, before, far)
        }}"""
    )
    bounds = {symbol: size for symbol, size in {"b": 4, "n": 9}.items() if symbol in shape}
    host = rx.compile(model, bounds=bounds, name="norm").host()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    batch, channels, _, *rest = SHAPES[shape]
    for b, n in ((1, 2), (min(batch, 3), 5), (batch, 9)):
        x = np.random.default_rng(n).normal(size=(b, channels, n, *rest)).astype(np.float32)
        for name, wanted in zip(
            ("y", "middle", "spread"), session.run(None, {"x": x}), strict=True
        ):
            np.testing.assert_allclose(host(x=x)[name], wanted, rtol=1e-5, atol=1e-6)


def test_running_statistics_keep_their_type() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        norm (float16[2, 3, 5] x, float16[3] s, float16[3] c) =>
            (float16[2, 3, 5] y, float[3] middle, float[3] spread)
        <float[3] before = {1.2345678, 2.0, 3.0}, float[3] far = {1.0, 0.5, 2.0}> {
            y, middle, spread = BatchNormalization <training_mode = 1> (x, s, c, before, far)
        }"""
    )
    x = np.random.default_rng(1).normal(size=(2, 3, 5)).astype(np.float16)
    ones = np.ones(3, np.float16)
    found = rx.compile(model, name="norm").host()(x=x, s=ones, c=ones)
    wide = x.astype(np.float64)
    wanted = {"middle": (1.2345678, 2.0, 3.0), "spread": (1.0, 0.5, 2.0)}
    for name, of_batch in (("middle", wide.mean(axis=(0, 2))), ("spread", wide.var(axis=(0, 2)))):
        assert found[name].dtype == np.float32
        exact = 0.9 * np.array(wanted[name]) + 0.1 * of_batch
        np.testing.assert_allclose(found[name], exact, rtol=1e-6)


def test_standardized_weights_are_constants() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[1, 2, n] x) => (float[1, 2, m] y)
        <float[1, 2, 4] w = {1, 2, 4, 8, -1, 0, 1, 3}, float[2] one = {1.0, 1.0},
         float[2] none = {0.0, 0.0}, int64[3] shape = {2, 2, 2}> {
            apart, middle, spread = BatchNormalization <training_mode = 1> (w, one, none, none, one)
            weights = Reshape(apart, shape)
            y = Conv(x, weights)
        }"""
    )
    assert [call.op for call in rx.load(model, bounds={"n": 9}).main.body] == ["conv"]


def test_the_training_mode_of_older_operator_sets_is_refused() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 9]>
        net (float[4, 3] x, float[3] s) => (float[4, 3] y, float[3] middle) {
            y, middle = BatchNormalization(x, s, s, s, s)
        }"""
    )
    with pytest.raises(UnsupportedError, match="training mode"):
        rx.load(model)
