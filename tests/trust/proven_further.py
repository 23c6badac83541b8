# SPDX-License-Identifier: Apache-2.0
"""Further small models that are proven: where C has differences of sizes, counts, functions of any
number, and indices from floats."""

from __future__ import annotations

import numpy as np
import onnx

from relax_aot.driver import Options
from relax_aot.quantization import Choice
from tests.models.onnx_text import Array, model_of, random_weights
from tests.trust.proven import Proven, gru

RNG = np.random.default_rng(11)
FUNCTIONS = (
    "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Exp",
    "Log", "Sqrt", "Erf", "Tanh", "Sigmoid", "Softplus", "Floor", "Ceil", "Round", "Reciprocal",
)  # fmt: skip


def _codes(*shape: int) -> Array:
    return RNG.integers(-100, 100, shape).astype(np.int8)


def _scales(count: int) -> Array:
    return np.full(count, 0.01, np.float32)


def causal_codes() -> onnx.ModelProto:
    return model_of(
        "causal (float[1, 4, n] x) => (float[1, 6, m] y)",
        """
        q = QuantizeLinear(x, s0, z0)
        d = DequantizeLinear(q, s0, z0)
        d1 = DequantizeLinear <axis = 0> (w1, ws1, wz1)
        c = Conv <kernel_shape = [5], pads = [4, 0], group = 4> (d, d1)
        r = Relu(c)
        q2 = QuantizeLinear(r, s1, z1)
        p = DequantizeLinear(q2, s1, z1)
        d2 = DequantizeLinear <axis = 0> (w2, ws2, wz2)
        c2 = Conv <kernel_shape = [1]> (p, d2)
        q3 = QuantizeLinear(c2, s2, z2)
        y = DequantizeLinear(q3, s2, z2)
        """,
        {
            "s0": np.array(0.02, np.float32), "z0": np.array(3, np.int8),
            "w1": _codes(4, 1, 5), "ws1": _scales(4), "wz1": np.zeros(4, np.int8),
            "s1": np.array(0.03, np.float32), "z1": np.array(-128, np.int8),
            "w2": _codes(6, 4, 1), "ws2": _scales(6), "wz2": np.zeros(6, np.int8),
            "s2": np.array(0.05, np.float32), "z2": np.array(1, np.int8),
        },
    )  # fmt: skip


def quantized_depthwise() -> onnx.ModelProto:
    return model_of(
        "depthwise (float[1, 6, 9, 7] x) => (float[1, 6, 9, 7] y)",
        """
        q = QuantizeLinear(x, s0, z0)
        d = DequantizeLinear(q, s0, z0)
        d1 = DequantizeLinear <axis = 0> (w1, ws1, wz1)
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 6> (d, d1)
        q2 = QuantizeLinear(c, s1, z0)
        y = DequantizeLinear(q2, s1, z0)
        """,
        {
            "s0": np.array(0.02, np.float32), "z0": np.array(3, np.int8),
            "w1": _codes(6, 1, 3, 3), "ws1": _scales(6), "wz1": np.zeros(6, np.int8),
            "s1": np.array(0.05, np.float32),
        },
    )  # fmt: skip


def both_ways() -> onnx.ModelProto:
    return model_of(
        "both (float[n, batch, 4] x, int32[batch] lengths)"
        " => (float[n, 2, batch, 5] y, float[2, batch, 5] last)",
        'y, last = LSTM <hidden_size = 5, direction = "bidirectional"> (x, w, r, b, lengths)',
        random_weights(RNG, w=(2, 20, 4), r=(2, 20, 5), b=(2, 40)),
    )


def distinct() -> onnx.ModelProto:
    return model_of(
        "distinct (float[n] x) => (float[k] y, int64[n] inverse, int64[k] times)",
        "y, first, inverse, times = Unique <sorted = 1> (x)",
        {},
    )


def kept_boxes() -> onnx.ModelProto:
    return model_of(
        "kept (float[1, n, 4] boxes, float[1, 2, n] scores) => (int64[k, 3] y)",
        "y = NonMaxSuppression(boxes, scores, most, overlap, least)",
        {
            "most": np.array([4], np.int64),
            "overlap": np.array([0.5], np.float32),
            "least": np.array([0.1], np.float32),
        },
    )


def backwards() -> onnx.ModelProto:
    return model_of(
        "backwards (float[a, b] x, float[b, c] z) => (float[d, e] y, float[f] v)",
        """
        m = MatMul(x, z)
        k = Concat <axis = 1> (m, m)
        y = Pad(k, pads)
        flat = Constant <value = int64[1] {-1}> ()
        r = Reshape(k, flat)
        first = Constant <value = int64[1] {-1}> ()
        beyond = Constant <value = int64[1] {-9223372036854775807}> ()
        step = Constant <value = int64[1] {-2}> ()
        axis = Constant <value = int64[1] {0}> ()
        v = Slice(r, first, beyond, axis, step)
        """,
        {"pads": np.array([1, 0, 0, 2], np.int64)},
    )


def resized() -> onnx.ModelProto:
    return model_of(
        "resized (float[1, 2, h, w] x) => (float[1, 2, hh, ww] y)",
        'y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners">'
        " (x, , scales)",
        {"scales": np.array([1, 1, 2, 1.5], np.float32)},
    )


def functions_of(kind: str) -> onnx.ModelProto:
    lines = [f"y{i} = {name}(x)" for i, name in enumerate(FUNCTIONS)]
    lines += ["power = Pow(x, z)", "rest = Mod <fmod = 1> (x, z)", "most = Max(x, z)"]
    names = [line.split(" ", maxsplit=1)[0] for line in lines]
    outputs = ", ".join(f"{kind}[n] {name}" for name in names)
    return model_of(f"f ({kind}[n] x, {kind}[n] z) => ({outputs})", "\n".join(lines), {})


def integers() -> onnx.ModelProto:
    return model_of(
        "integers (int32[n] x, int32[n] z, int64[n] v, int64[n] w)"
        " => (int32[n] a, int32[n] b, int32[n] c, int64[n] d, int64[n] e, int64[n] f)",
        """
        a = Div(x, z)
        b = Mod(x, z)
        c = Mod <fmod = 1> (x, z)
        d = Div(v, w)
        e = Mod(v, w)
        f = Pow(v, w)
        """,
        {},
    )


def quantized_pools() -> onnx.ModelProto:
    """Maxima of bytes, and means whose ties the order of sums decides, or none."""
    return model_of(
        "pools (int8[1, 5, 3, 5] x)"
        " => (int8[1, 5, 2, 3] a, int8[1, 5, 1, 1] b, int8[1, 5, 1, 1] c)",
        """
        a = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
        d = DequantizeLinear (x, s, z)
        m = GlobalAveragePool (d)
        b = QuantizeLinear (m, s, z)
        c = QuantizeLinear (m, t, z)
        """,
        {"s": np.array(0.3, np.float32), "t": np.array(0.6, np.float32),
         "z": np.array(3, np.int8)},
    )  # fmt: skip


def _quantized_gru() -> Options:
    rng, sizes = np.random.default_rng(1), {"x": (4, 5, 1, 5), "start": (4, 1, 1, 7)}
    samples = {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    return Options(
        bounds={"n": (1, 7), "batch": (1, 2)}, name="gru", quantize=Choice(), calibrate=samples
    )


def _options(**bounds: tuple[int, int]) -> Options:
    return Options(bounds=bounds)


FURTHER = {
    "quantized_gru": Proven(gru, _quantized_gru()),
    "quantized_pools": Proven(quantized_pools, Options(name="quantized_pools")),
    "causal_codes": Proven(causal_codes, _options(n=(1, 40))),
    "quantized_depthwise": Proven(quantized_depthwise, _options()),
    "both_ways": Proven(both_ways, _options(n=(1, 16), batch=(1, 2))),
    "distinct": Proven(distinct, _options(n=(1, 40))),
    "kept_boxes": Proven(kept_boxes, _options(n=(1, 20))),
    "backwards": Proven(backwards, _options(a=(1, 6), b=(1, 7), c=(1, 5))),
    "resized": Proven(resized, _options(h=(2, 9), w=(2, 9))),
    "functions": Proven(lambda: functions_of("float"), _options(n=(1, 12))),
    "functions_of_doubles": Proven(lambda: functions_of("double"), _options(n=(1, 12))),
    "integers": Proven(integers, _options(n=(1, 12))),
}
