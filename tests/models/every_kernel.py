# SPDX-License-Identifier: Apache-2.0
"""Small models that together reach every header of the runtime and every kind of schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import relax_aot as rx
from relax_aot.driver import Options
from relax_aot.quantization import Choice
from tests.frontends.test_tflite_hybrid import network
from tests.frontends.tflite_models import Maker
from tests.models.catalog import CATALOGUE
from tests.models.half_weights import half_product, half_weights
from tests.models.onnx_text import Array, model_of

ONES = "<pads = [1, 1, 1, 1]>"
SAME = 0


@dataclass(frozen=True)
class Subject:
    """`group`: the kind of model that it stands for. Symbols have the sizes of `at` one after
    another; `source` is made when it is asked for."""

    group: str
    source: Callable[[], Any]
    options: Options
    at: tuple[Mapping[str, int], ...] = ({},)


@dataclass(frozen=True)
class Convolution:
    """A QLinearConv: shapes of x (n is symbolic) and of the weights, and its attributes."""

    x: tuple[int | str, ...]
    w: tuple[int, ...]
    attributes: str = ""
    kind: type = np.int8
    zeros: tuple[int, int] = (-3, 7)

    def model(self) -> onnx.ModelProto:
        rng = np.random.default_rng(0)
        kind = "uint8" if self.kind is np.uint8 else "int8"
        # ONNX Runtime adds two products of unsigned bytes in 16 bits on some machines.
        far = 64 if self.kind is np.uint8 else 128
        data: dict[str, Array] = {
            "xs": np.array(0.05, np.float32),
            "xz": np.array(self.zeros[0], self.kind),
            "w": rng.integers(-far, far, self.w).astype(np.int8),
            "ws": rng.uniform(0.001, 0.02, self.w[0]).astype(np.float32),
            "wz": np.zeros(self.w[0], np.int8),
            "ys": np.array(0.3, np.float32),
            "yz": np.array(self.zeros[1], self.kind),
            "b": rng.integers(-9000, 9000, self.w[0]).astype(np.int32),
        }
        shape = ", ".join(map(str, self.x))
        out = ", ".join([str(self.x[0]), str(self.w[0]), *"hv"[: len(self.x) - 2]])
        text = f"y = QLinearConv {self.attributes} (x, xs, xz, w, ws, wz, ys, yz, b)"
        return model_of(f"m ({kind}[{shape}] x) => ({kind}[{out}] y)", text, data)


UNSIGNED = (np.uint8, (120, 130))
DENSE = {
    "point": Convolution((1, 8, "n", 5), (6, 8, 1, 1)),
    "padded": Convolution((1, 4, "n", 6), (4, 4, 3, 3), ONES),
    "image": Convolution((1, 3, "n", 6), (7, 3, 3, 3), "<pads = [1, 1, 1, 1], strides = [2, 2]>"),
    "line": Convolution((1, 2, "n"), (4, 2, 3), "<pads = [4, 2], dilations = [3]>"),
    "unsigned": Convolution((1, 5, "n", 4), (6, 5, 3, 3), ONES, *UNSIGNED),
}
BY_CHANNEL = {
    "window": Convolution((1, 4, "n", 7), (4, 1, 3, 3), "<pads = [1, 1, 1, 1], group = 4>"),
    "wide": Convolution((1, 2, 5, "n"), (2, 1, 3, 3), "<group = 2, pads = [0, 2, 2, 1]>"),
    "strided": Convolution(
        (1, 3, "n", 8), (3, 1, 3, 3), "<pads = [1, 0, 1, 1], group = 3, strides = [2, 2]>",
        *UNSIGNED,
    ),
    "taps": Convolution((1, 6, "n"), (8, 3, 4), "<pads = [2, 1], group = 2>"),
    "long": Convolution((1, 3, "n"), (3, 1, 5), "<pads = [2, 2], group = 3>"),
    "longer": Convolution((1, 2, "n"), (2, 1, 19), "<pads = [9, 9], group = 2>"),
}  # fmt: skip


def together(parts: Mapping[str, Convolution]) -> onnx.ModelProto:
    """One model that does all of it, each part on inputs of its own."""
    merged = onnx.GraphProto(name="together")
    for name, part in parts.items():
        model = part.model()
        onnx.compose.add_prefix_graph(model.graph, f"{name}_", inplace=True, rename_edges=True)
        for at in (model.graph.input, model.graph.output):
            for value in at:
                for dim in value.type.tensor_type.shape.dim:
                    if dim.dim_param and dim.dim_param.endswith("_n"):
                        dim.dim_param = "n"
        merged.MergeFrom(model.graph)
        merged.name = "together"
    return helper.make_model(merged, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def codes_and_sums() -> onnx.ModelProto:
    """On 8-bit quantized values: a convolution, a residual sum, a product, and a softmax."""
    rng = np.random.default_rng(1)
    # Powers of two: results do not depend on rounding.
    one = np.array(1 / 16, np.float32), np.array(3, np.int8)
    data: dict[str, Array] = {
        "s": one[0], "z": one[1], "ws": np.array(1 / 128, np.float32), "wz": np.array(0, np.int8),
        "w": rng.integers(-99, 99, (4, 4, 1, 1)).astype(np.int8),
        "m": rng.integers(-99, 99, (4, 5)).astype(np.int8),
    }  # fmt: skip
    return model_of(
        "sums (int8[n, 4, 3, 2] x) => (int8[n, 5] y, int8[n, 4, 3, 2] sum)",
        """
        xf = DequantizeLinear(x, s, z)
        wf = DequantizeLinear(w, ws, wz)
        cf = Conv(xf, wf)
        c = QuantizeLinear(cf, s, z)
        cd = DequantizeLinear(c, s, z)
        af = Add(cd, xf)
        sum = QuantizeLinear(af, s, z)
        sd = DequantizeLinear(sum, s, z)
        gf = GlobalAveragePool(sd)
        g = QuantizeLinear(gf, s, z)
        gd = DequantizeLinear(g, s, z)
        flat = Flatten(gd)
        mf = DequantizeLinear(m, ws, wz)
        rows = MatMul(flat, mf)
        q = QuantizeLinear(rows, s, z)
        qd = DequantizeLinear(q, s, z)
        soft = Softmax <axis = 1> (qd)
        y = QuantizeLinear(soft, s, z)
        """,
        data,
    )


def lite(kind: type = np.int8, activation: int = 1) -> bytes:
    """TensorFlow Lite, quantized to 8 bits: convolutions, depthwise, a pool, a dense layer."""
    rng = np.random.default_rng(2)
    made, unsigned = Maker(), kind is np.uint8
    info = np.iinfo(kind)
    middle = 120 if unsigned else 0

    def convolved(name: str, x: int, shape: tuple[int, ...], weights: tuple[int, ...]) -> int:
        by_channel = name == "DEPTHWISE_CONV_2D"
        count = weights[3] if by_channel else weights[0]
        scales = rng.uniform(0.004, 0.01, 1 if unsigned else count)
        w = made.constant(
            rng.integers(info.min + 1, info.max + 1, weights).astype(kind), scales, middle,
            axis=3 if by_channel else 0,
        )  # fmt: skip
        bias = rng.integers(-900, 900, count).astype(np.int32)
        b = made.constant(bias, 0.05 * scales, 0)
        y = made.tensor(shape, kind, 0.05, middle + 4)
        options = "DepthwiseConv2DOptions" if by_channel else "Conv2DOptions"
        extra: dict[str, Any] = {"depthMultiplier": 1} if by_channel else {}
        made.operator(
            name, [x, w, b], [y], options, version=3, padding=SAME, strideH=1, strideW=1,
            dilationHFactor=1, dilationWFactor=1, fusedActivationFunction=activation, **extra,
        )  # fmt: skip
        return y

    x = made.tensor((1, 6, 7, 3), kind, 0.05, middle - 5)
    y = convolved("CONV_2D", x, (1, 6, 7, 8), (8, 3, 3, 3))
    y = convolved("DEPTHWISE_CONV_2D", y, (1, 6, 7, 8), (1, 3, 3, 8))
    y = convolved("CONV_2D", y, (1, 6, 7, 4), (4, 1, 1, 8))
    pooled = made.tensor((1, 3, 3, 4), kind, 0.05, middle + 4)
    made.operator(
        "AVERAGE_POOL_2D", [y], [pooled], "Pool2DOptions", version=2, padding=1, strideH=2,
        strideW=2, filterHeight=2, filterWidth=2,
    )  # fmt: skip
    w = made.constant(rng.integers(info.min + 1, info.max + 1, (5, 36)).astype(kind), 0.006, middle)
    b = made.constant(rng.integers(-900, 900, 5).astype(np.int32), 0.0003, 0)
    last = made.tensor((1, 5), kind, 0.1, middle + 1)
    made.operator("FULLY_CONNECTED", [pooled, w, b], [last], "FullyConnectedOptions", version=4)
    return made.build([x], [last])


def lines() -> bytes:
    """TensorFlow Lite: a pool of 3 x 3 quantized values."""
    made = Maker()
    x, y = made.tensor((1, 5, 6, 9)), made.tensor((1, 3, 4, 9), np.int8, 0.05, 4)
    q = made.tensor((1, 5, 6, 9), np.int8, 0.05, 4)
    made.operator("QUANTIZE", [x], [q], "QuantizeOptions")
    made.operator(
        "AVERAGE_POOL_2D", [q], [y], "Pool2DOptions", version=2, padding=1, strideH=1, strideW=1,
        filterHeight=3, filterWidth=3,
    )  # fmt: skip
    return made.build([x], [y])


def rows_of_floats() -> onnx.ModelProto:
    """Floats that are divided by a scale and rounded, and their softmax."""
    data: dict[str, Array] = {"s": np.array(0.3, np.float32), "z": np.array(4, np.int8)}
    text = "rows (float[n, 5, 17] x) => (int8[n, 5, 17] y, float[n, 5, 17] p)"
    return model_of(text, "y = QuantizeLinear(x, s, z)\np = Softmax <axis = 2> (x)", data)


def planes() -> onnx.ModelProto:
    """Convolutions of fixed sizes: of images, by channel, and of one pixel."""
    rng = np.random.default_rng(4)
    shapes = {"a": (8, 3, 3, 3), "b": (8, 1, 3, 3), "c": (16, 8, 1, 1), "d": (4, 16, 3, 3)}
    data: dict[str, Array] = {
        name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()
    }
    return model_of(
        "planes (float[1, 3, 10, 11] x) => (float[1, 4, 5, 6] y)",
        f"""
        first = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, a)
        first_on = Relu(first)
        each = Conv <pads = [1, 1, 1, 1], group = 8> (first_on, b)
        point = Conv(each, c)
        point_on = Relu(point)
        y = Conv {ONES} (point_on, d)
        """,
        data,
    )


def channel_blocks() -> onnx.ModelProto:
    """A convolution by channel of floats, with enough channels for vectors of them."""
    weights = np.random.default_rng(5).normal(size=(16, 1, 3, 3)).astype(np.float32)
    text = "m (float[1, 16, n, 5] x) => (float[1, 16, n, 5] y)"
    return model_of(text, "y = Conv <pads = [1, 1, 1, 1], group = 16> (x, w)", {"w": weights})


def halves() -> onnx.ModelProto:
    """Half-precision numbers: a convolution, a pool and a product."""
    rng = np.random.default_rng(3)
    data: dict[str, Array] = {
        "w": rng.normal(0, 0.3, (4, 2, 3, 3)).astype(np.float16),
        "m": rng.normal(0, 0.3, (4, 5)).astype(np.float16),
        "b": rng.normal(0, 0.3, 5).astype(np.float16),
    }
    return model_of(
        "halves (float16[n, 2, 5, 6] x) => (float16[n, 5] y)",
        f"""
        c = Conv {ONES} (x, w)
        on = Relu(c)
        g = GlobalAveragePool(on)
        flat = Flatten(g)
        rows = MatMul(flat, m)
        y = Add(rows, b)
        """,
        data,
    )


def bytes_of_floats() -> onnx.ModelProto:
    """Floats of eight bits, there and back."""
    nodes = [
        helper.make_node("Cast", ["x"], ["e4"], to=TensorProto.FLOAT8E4M3FN),
        helper.make_node("Cast", ["e4"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["x"], ["e5"], to=TensorProto.FLOAT8E5M2),
        helper.make_node("Cast", ["e5"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "narrow", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def functions() -> onnx.ModelProto:
    """Every family of functions of floats and doubles, and casts between types."""
    names = "Exp Log Sin Cos Tanh Sqrt Tan Sigmoid Erf Atan Floor Sinh Asin Acosh Round"
    singles = "\n".join(f"s{n} = {name}(x)" for n, name in enumerate(names.split()))
    doubles = "\n".join(f"d{n} = {name}(wide)" for n, name in enumerate(names.split()[:6]))
    count = len(names.split())
    return model_of(
        "functions (float[n, 3] x) => (float[a, 3] y, double[b, 3] z, uint8[n, 3] byte)",
        f"""
        wide = Cast <to = 11> (x)
        {singles}
        p = Pow(x, x)
        y = Concat <axis = 0> ({", ".join(f"s{n}" for n in range(count))}, p)
        {doubles}
        root = Sqrt(wide)
        q = Pow(wide, root)
        z = Concat <axis = 0> ({", ".join(f"d{n}" for n in range(6))}, q)
        byte = Cast <to = 2> (x)
        """,
        {},
    )


def product(depth: int = 75) -> onnx.ModelProto:
    """A product whose weights the compiler quantizes."""
    weights = np.random.default_rng(0).normal(size=(depth, 61)).astype(np.float32)
    text = f"m (float[n, {depth}] x) => (float[n, 61] y)"
    return model_of(text, "y = MatMul(x, w)", {"w": weights})


def states() -> onnx.ModelProto:
    """A recurrent layer whose weights the compiler quantizes."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 99, 10), "r": (1, 99, 33), "b": (1, 198)}
    weights = {name: rng.normal(size=s).astype(np.float32) / 4 for name, s in shapes.items()}
    text = "y = GRU <hidden_size = 33> (x, w, r, b)"
    return model_of("m (float[n, 1, 10] x) => (float[n, 1, 1, 33] y)", text, weights)


def ranges() -> bytes:
    """TensorFlow Lite with int8 weights and activations that are quantized as a run finds them."""
    return network(np.random.default_rng(3), 12, asymmetric=False)


def _entry(name: str) -> Callable[[], Any]:
    return lambda: CATALOGUE[name].make()


N = {"n": (1, 6)}
SIZES = ({"n": 1}, {"n": 5}, {"n": 6})
RANGES = ({"t0_0": 1}, {"t0_0": 3}, {"t0_0": 4})
IMAGE = {"batch": (1, 2), "height": (1, 7), "width": (3, 8)}
IMAGES = (
    {"batch": 1, "height": 1, "width": 3},
    {"batch": 2, "height": 5, "width": 7},
    {"batch": 2, "height": 7, "width": 8},
)
WORDS = {"n": (1, 6), "batch": (1, 2)}
SPEECH = ({"n": 1, "batch": 1}, {"n": 5, "batch": 2}, {"n": 6, "batch": 2})


def _quantized(name: str, kind: str) -> Options:
    return Options(bounds=N, name=name, quantize=Choice(kind))


def computed() -> onnx.ModelProto:
    """Products whose factors are both computed, of bytes and of few rows of floats, and those of
    few rows by weights."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 72, 10), "r": (1, 72, 24), "bias": (1, 144)}
    weights = {name: rng.normal(size=s).astype(np.float32) / 4 for name, s in shapes.items()}
    text = """
        columns = Transpose <perm = [0, 2, 1]> (b)
        y = MatMulInteger (a, columns)
        z = MatMul (q, k)
        h = GRU <hidden_size = 24> (x, w, r, bias)
    """
    signature = """computed (int8[2, n, 9] a, int8[2, n, 9] b, float[2, 2, n] q,
        float[2, n, 20] k, float[n, 1, 10] x)
        => (int32[2, n, n] y, float[2, 2, 20] z, float[n, 1, 1, 24] h)"""
    return model_of(signature, text, weights)


WIDE = """
    symbol n in 1..6
    func @main(%x: i16[2, 2, n, 19], %w: i8[2, 1, 21, 19], %r: f32[2, 2, n], %c: f32[2, 1, 21],
      %q: f32[2, n, 21], %s: f32[2, 1, 21], %v: i8[2, 7, 21]) {
      %columns: i8[2, 1, 19, 21] = transpose(%w) {perm=[0, 1, 3, 2]}
      %y: f32[2, 2, n, 21] = matmul_scaled(%x, %columns, %r, %c)
      %weights: f32[2, n, 21] = mul(%q, %s)
      %rows: i16[2, n, 21], %steps: f32[2, n] = quantize_rows(%weights) {multiple=1, most=32767}
      %values: i8[2, 21, 7] = transpose(%v) {perm=[0, 2, 1]}
      %z: f32[2, n, 7] = matmul_scaled(%rows, %values, %steps, _)
      return %y, %z
    }"""
"""Products of rows of 16 bits by bytes, as those of attention."""
SUBJECTS = {
    "wide": Subject("int8 QDQ", lambda: rx.parse(WIDE), Options(name="wide"), SIZES),
    "computed": Subject("int8 QDQ", computed, Options(bounds=N, name="computed"), SIZES),
    "image": Subject("float", _entry("image_net"), Options(bounds=IMAGE, name="image"), IMAGES),
    "small": Subject(
        "float",
        _entry("image_net"),
        Options(bounds=IMAGE, name="small", optimize="size", offsets="dynamic"),
        IMAGES,
    ),
    "dense": Subject("int8 QDQ", lambda: together(DENSE), Options(bounds=N, name="dense"), SIZES),
    "sums": Subject("int8 QDQ", codes_and_sums, Options(bounds=N, name="sums"), SIZES),
    "lite": Subject("TFLite", lite, Options(name="lite")),
    "light": Subject("TFLite", lambda: lite(np.uint8, 0), Options(name="light", optimize="size")),
    "lines": Subject("TFLite", lines, Options(name="lines")),
    "floats": Subject("int8 QDQ", rows_of_floats, Options(bounds=N, name="floats"), SIZES),
    "planes": Subject("float", planes, Options(name="planes", optimize="size", weights="blob")),
    "by_channel": Subject("float", channel_blocks, Options(bounds=N, name="by_channel"), SIZES),
    "narrow": Subject("functions", bytes_of_floats, Options(bounds=N, name="narrow"), SIZES),
    "channel": Subject(
        "depthwise", lambda: together(BY_CHANNEL), Options(bounds=N, name="channel"), SIZES
    ),
    "recurrent": Subject(
        "recurrent", _entry("lstm_tagger"), Options(bounds=WORDS, name="recurrent"), SPEECH
    ),
    "halves": Subject("fp16", halves, Options(bounds=N, name="halves"), SIZES),
    "weights": Subject("weights", product, _quantized("weights", "int8w"), SIZES),
    "weights4": Subject("weights", product, _quantized("weights4", "int4w"), SIZES),
    "rows": Subject("weights", product, _quantized("rows", "int8d"), SIZES),
    "rows4": Subject("weights", product, _quantized("rows4", "int4d"), SIZES),
    "blocks": Subject("weights", lambda: product(96), _quantized("blocks", "q8_0"), SIZES),
    "blocks4": Subject("weights", lambda: product(96), _quantized("blocks4", "q4_0"), SIZES),
    "casts": Subject("fp16", half_weights, Options(bounds=N, name="casts"), SIZES),
    "widened": Subject(
        "fp16",
        half_product,
        Options(bounds={"n": (32, 40)}, name="widened"),
        ({"n": 32}, {"n": 37}, {"n": 40}),
    ),
    "ranges": Subject("ranges", ranges, Options(bounds={"t0_0": (1, 4)}, name="ranges"), RANGES),
    "states": Subject(
        "recurrent",
        states,
        Options(
            bounds=N,
            name="states",
            quantize=Choice("int8"),
            calibrate={"x": np.ones((1, 3, 1, 10), np.float32)},
        ),
        SIZES,
    ),
    "functions": Subject("functions", functions, Options(bounds=N, name="functions"), SIZES),
}
