# SPDX-License-Identifier: Apache-2.0
"""Eleven small models of different kinds, whose C is proven to be defined for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from relax_aot.driver import Options
from relax_aot.quantization import Choice
from tests.models.encoder import encoder
from tests.models.onnx_text import model_of, random_weights
from tests.models.perceptron import perceptron


@dataclass(frozen=True)
class Proven:
    make: Callable[[], onnx.ModelProto]
    options: Options


def _weights(**shapes: tuple[int, ...]) -> dict[str, Any]:
    return random_weights(np.random.default_rng(3), **shapes)


def small_cnn() -> onnx.ModelProto:
    return model_of(
        "cnn (float[n, 2, h, 9] x) => (float[n, 5] y)",
        """
        c1 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, w1, b1)
        r1 = Relu(c1)
        c2 = Conv <kernel_shape = [1, 1]> (r1, w2, b2)
        r2 = Relu(c2)
        g = GlobalAveragePool(r2)
        f = Flatten <axis = 1> (g)
        y = Gemm(f, w3, b3)
        """,
        _weights(w1=(4, 2, 3, 3), b1=(4,), w2=(6, 4, 1, 1), b2=(6,), w3=(6, 5), b3=(5,)),
    )


def lstm() -> onnx.ModelProto:
    return model_of(
        "lstm (float[n, 1, 6] x) => (float[n, 1, 3] y)",
        """
        o, h, c = LSTM <hidden_size = 8> (x, w, r, b)
        axes = Constant <value = int64[1] {1}> ()
        s = Squeeze(o, axes)
        y = MatMul(s, w2)
        """,
        _weights(w=(1, 32, 6), r=(1, 32, 8), b=(1, 64), w2=(8, 3)),
    )


def gru() -> onnx.ModelProto:
    return model_of(
        "gru (float[n, batch, 5] x, float[1, batch, 7] start) => (float[1, batch, 7] last)",
        "o, last = GRU <hidden_size = 7, linear_before_reset = 1> (x, w, r, b, , start)",
        _weights(w=(1, 21, 5), r=(1, 21, 7), b=(1, 42)),
    )


def depthwise() -> onnx.ModelProto:
    return model_of(
        "depthwise (float[1, 4, n] x) => (float[1, 8, m] y)",
        """
        d = Conv <kernel_shape = [5], pads = [4, 0], group = 4> (x, w1, b1)
        r = Clip(d, low, high)
        p = Conv <kernel_shape = [1]> (r, w2, b2)
        y = Sigmoid(p)
        """,
        _weights(w1=(4, 1, 5), b1=(4,), w2=(8, 4, 1), b2=(8,))
        | {"low": np.array(0, np.float32), "high": np.array(6, np.float32)},
    )


def pooled() -> onnx.ModelProto:
    return model_of(
        "pooled (float[1, 3, n] x) => (float[1, 3, m] y)",
        """
        a = BatchNormalization(x, scale, shift, mean, var)
        b = MaxPool <kernel_shape = [3], strides = [2], pads = [1, 1]> (a)
        c = AveragePool <kernel_shape = [2], strides = [1], pads = [0, 1]> (b)
        y = Softmax <axis = 2> (c)
        """,
        _weights(scale=(3,), shift=(3,), mean=(3,)) | {"var": np.ones(3, np.float32)},
    )


def chain() -> onnx.ModelProto:
    return model_of(
        "chain (float[n, 1] x, float[m] z) => (float[n, m] y)",
        """
        a = Add(x, z)
        b = Exp(a)
        c = Mul(b, z)
        d = Div(c, x)
        e = Erf(d)
        f = Pow(e, two)
        g = Floor(f)
        h = Log(g)
        y = Tanh(h)
        """,
        {"two": np.array(2, np.float32)},
    )


def from_data() -> onnx.ModelProto:
    return model_of(
        "found (float[n] x) => (float[k, 3] y)",
        """
        zero = Constant <value = float {0.0}> ()
        over = Greater(x, zero)
        where = NonZero(over)
        axes = Constant <value = int64[1] {0}> ()
        places = Squeeze(where, axes)
        y = Gather <axis = 0> (table, places)
        """,
        {"table": np.arange(36, dtype=np.float32).reshape(12, 3)},
    )


def _quantized() -> Options:
    samples = np.random.default_rng(1).normal(size=(20, 9, 12)).astype(np.float32)
    return Options(
        bounds={"batch": (1, 9)}, name="quantized", quantize=Choice(), calibrate={"x": samples}
    )


def _quantized_cnn() -> Options:
    samples = np.random.default_rng(0).normal(size=(8, 1, 2, 7, 9)).astype(np.float32)
    return Options(
        bounds={"n": (1, 2), "h": (1, 11)}, name="quantized_cnn", quantize=Choice(),
        calibrate={"x": samples},
    )  # fmt: skip


PROVEN = {
    "mlp": Proven(perceptron, Options(bounds={"batch": (1, 9)}, name="mlp")),
    "cnn": Proven(small_cnn, Options(bounds={"n": (1, 2), "h": (1, 11)}, name="cnn")),
    "lstm": Proven(lstm, Options(bounds={"n": (1, 20)}, name="lstm")),
    "attention": Proven(
        lambda: encoder(width=8, heads=2, layers=1, hidden=12),
        Options(bounds={"n": (1, 40), "batch": (1, 2)}, name="attention"),
    ),
    "quantized": Proven(perceptron, _quantized()),
    "quantized_cnn": Proven(small_cnn, _quantized_cnn()),
    "from_data": Proven(from_data, Options(bounds={"n": (1, 12)}, name="from_data")),
    "depthwise": Proven(depthwise, Options(bounds={"n": (1, 50)}, name="depthwise")),
    "pooled": Proven(pooled, Options(bounds={"n": (1, 40)}, name="pooled")),
    "gru": Proven(gru, Options(bounds={"n": (1, 9), "batch": (1, 3)}, name="gru")),
    "chain": Proven(chain, Options(bounds={"n": (1, 20), "m": (1, 30)}, name="chain")),
}
