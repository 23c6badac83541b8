# SPDX-License-Identifier: Apache-2.0
"""Sizes that models compute from sizes, as exporters spell them, equal ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import relax_aot as rx

LOW, ODD, HIGH = {"b": 1, "n": 1}, {"b": 2, "n": 7}, {"b": 3, "n": 12}
BOUNDS = {"b": 3, "n": 12}


def model_of(body: str) -> onnx.ModelProto:
    """`body` computes `y` from `x`, whose shape is `s`, and its sizes `b` and `n`."""
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        sizes (float[b, n] x) => (float[p, q] y) {{
            s = Shape(x)
            first = Constant <value = int64[1] {{0}}> ()
            second = Constant <value = int64[1] {{1}}> ()
            one = Constant <value = int64[1] {{1}}> ()
            two = Constant <value = int64[1] {{2}}> ()
            minus = Constant <value = int64[1] {{-1}}> ()
            three = Constant <value = int64[1] {{3}}> ()
            b = Gather(s, first)
            n = Gather(s, second)
            {body}
        }}"""
    )


def check(model: onnx.ModelProto) -> None:
    host = rx.compile(model, bounds=BOUNDS, name="sizes").host()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for at in (LOW, ODD, HIGH):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(at["b"], at["n"])).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(host(x=x)["y"], wanted)


BODIES = {
    # -(-n // 2), which TorchScript writes as a division that truncates.
    "a negative dividend": """
        less = Neg(n)
        half = Div(less, two)
        up = Neg(half)
        pads = Concat <axis = 0> (first, up, up, first)
        y = Pad(x, pads)""",
    "a dividend of any sign": """
        apart = Sub(n, three)
        half = Div(apart, two)
        more = Add(half, two)
        pads = Concat <axis = 0> (first, more, first, first)
        y = Pad(x, pads)""",
    # Which of the ways to divide is right, the upper bound of n says.
    "a quotient that follows from a bound": """
        most = Constant <value = int64[1] {20}> ()
        room = Sub(most, n)
        part = Div(room, three)
        down = Neg(room)
        up = Div(down, three)
        rest = Mod(n, room)
        f = Cast <to = 1> (room)
        half = Constant <value = float[1] {0.5}> ()
        share = Mul(f, half)
        k = Cast <to = 7> (share)
        after = Abs(up)
        pads = Concat <axis = 0> (part, rest, k, after)
        y = Pad(x, pads)""",
    "a negative divisor": """
        less = Neg(two)
        half = Div(n, less)
        up = Abs(half)
        pads = Concat <axis = 0> (up, first, first, up)
        y = Pad(x, pads)""",
    "the product of a shape": """
        count = ReduceProd <keepdims = 1> (s)
        shape = Concat <axis = 0> (one, count)
        y = Reshape(x, shape)""",
    "the greatest of a shape": """
        most = ReduceMax <keepdims = 0> (s)
        axis = Constant <value = int64[1] {0}> ()
        list = Unsqueeze(most, axis)
        pads = Concat <axis = 0> (first, first, list, list)
        y = Pad(x, pads)""",
    # int(0.75 * n), ceil(n / 3) and the like, which exporters write with floats.
    "a share of a size": """
        f = Cast <to = 1> (n)
        share = Constant <value = float[1] {0.75}> ()
        part = Mul(f, share)
        k = Cast <to = 7> (part)
        y = Slice(x, first, k, one)""",
    "a third of a size": """
        f = Cast <to = 1> (n)
        third = Constant <value = float[1] {3.0}> ()
        part = Div(f, third)
        whole = Floor(part)
        up = Ceil(part)
        more = Add(whole, up)
        k = Cast <to = 7> (more)
        pads = Concat <axis = 0> (first, first, first, k)
        y = Pad(x, pads)""",
    "floats that count": """
        f = Cast <to = 1> (n)
        half = Constant <value = float[1] {0.5}> ()
        short = Sub(f, half)
        axes = Constant <value = int64[1] {0}> ()
        end = Squeeze(short, axes)
        start = Constant <value = float {-1.25}> ()
        step = Constant <value = float {0.75}> ()
        zero = Constant <value = float {0.0}> ()
        whole = Constant <value = float {1.0}> ()
        all = Squeeze(f, axes)
        apart = Range(start, end, step)
        count = Range(zero, all, whole)
        shown = Add(x, count)
        down = Neg(whole)
        back = Range(all, start, down)
        parts = Concat <axis = 0> (apart, back)
        row = Unsqueeze(parts, first)
        times = Concat <axis = 0> (b, one)
        rows = Tile(row, times)
        y = Concat <axis = 1> (shown, rows)""",
    # Bounded by what its calls can give, as no arithmetic of sizes follows it.
    "the root of a size": """
        f = Cast <to = 1> (n)
        root = Sqrt(f)
        up = Ceil(root)
        k = Cast <to = 7> (up)
        y = Slice(x, first, k, one)""",
    "a data-dependent size, within limits": """
        axes = Constant <value = int64[1] {0}> ()
        flat = Reshape(x, minus)
        some = Gather(flat, first)
        near = Sigmoid(some)
        f = Cast <to = 1> (n)
        far = Mul(near, f)
        k = Cast <to = 7> (far)
        most = Add(k, one)
        limit = Constant <value = int64 {9}> ()
        kept = Clip(most, , limit)
        end = Squeeze(kept, axes)
        start = Squeeze(first, axes)
        by = Squeeze(one, axes)
        count = Range(start, end, by)
        shown = Cast <to = 1> (count)
        row = Unsqueeze(shown, first)
        times = Concat <axis = 0> (b, one)
        rows = Tile(row, times)
        y = Concat <axis = 1> (x, rows)""",
    # As masks are spread over heads: what is left over is 4*b / (4*b).
    "a size that cancels": """
        four = Constant <value = int64[1] {4}> ()
        infer = Constant <value = int64[1] {-1}> ()
        rows = Mul(b, four)
        wide = Concat <axis = 0> (b, four, one, n)
        spread = Concat <axis = 0> (one, four, one, one)
        shape = Concat <axis = 0> (b, one, one, n)
        apart = Reshape(x, shape)
        repeated = Expand(apart, spread)
        flat = Concat <axis = 0> (rows, one, n)
        joined = Reshape(repeated, flat)
        again = Concat <axis = 0> (b, four, infer, n)
        heads = Reshape(joined, again)
        square = Concat <axis = 0> (b, four, n, n)
        zero = ConstantOfShape(square)
        sum = Add(zero, heads)
        y = ReduceMax <axes = [1, 2], keepdims = 0> (sum)""",
    # The one element is known, so nothing reads the index that is checked.
    "an element of a shape of one": """
        infer = Constant <value = int64[1] {-1}> ()
        zero = Constant <value = int64 {0}> ()
        flat = Reshape(x, infer)
        count = Shape(flat)
        number = Gather(count, zero)
        wide = Cast <to = 1> (number)
        y = Add(x, wide)""",
    "steps as wide as a size": """
        zero = Constant <value = int64 {0}> ()
        count = ReduceProd <keepdims = 0> (s)
        wide = Squeeze(n)
        places = Range(zero, count, wide)
        numbers = Cast <to = 1> (places)
        column = Unsqueeze(numbers, second)
        y = Add(x, column)""",
    "steps down as wide as a size": """
        zero = Constant <value = int64 {0}> ()
        count = ReduceProd <keepdims = 0> (s)
        wide = Squeeze(n)
        down = Neg(wide)
        places = Range(count, zero, down)
        numbers = Cast <to = 1> (places)
        column = Unsqueeze(numbers, second)
        y = Add(x, column)""",
    # index_copy and index_put write their indices' size into a shape.
    "a size written into a shape": """
        count = Constant <value = int64[1] {7}> ()
        tall = ScatterElements <axis = 0> (s, minus, count)
        where = Constant <value = int64[1, 1] {-2}> ()
        shape = ScatterND(tall, where, n)
        zero = ConstantOfShape(shape)
        row = ReduceMax <axes = [0], keepdims = 1> (x)
        side = Slice(row, first, one, second)
        y = Add(zero, side)""",
    "a signal without an axis of parts": """
        step = Constant <value = int64 {1}> ()
        window = Constant <value = float[1] {0.5}> ()
        spectrum = STFT <onesided = 1> (x, step, window)
        axes = Constant <value = int64[2] {2, 3}> ()
        y = ReduceSum <keepdims = 0> (spectrum, axes)""",
    "small integers with a scale for each row": """
        stored = Constant <value = int8[2, 3] {1, 2, 3, 4, 5, 6}> ()
        scales = Constant <value = float[2] {0.5, 0.25}> ()
        zeros = Constant <value = int8[2] {0, 1}> ()
        weights = DequantizeLinear <axis = 0> (stored, scales, zeros)
        total = ReduceSum <keepdims = 0> (weights)
        y = Add(x, total)""",
    # Static quantization of ONNX Runtime takes float arithmetic of sizes for activations.
    "constant sizes between quantize and dequantize": """
        five = Constant <value = float[1] {5.0}> ()
        half = Constant <value = float[1] {0.5}> ()
        scale = Constant <value = float {0.03125}> ()
        zero = Constant <value = uint8 {0}> ()
        whole = QuantizeLinear(five, scale, zero)
        back = DequantizeLinear(whole, scale, zero)
        parts = Mul(back, half)
        up = Ceil(parts)
        third = QuantizeLinear(up, scale, zero)
        again = DequantizeLinear(third, scale, zero)
        length = Cast <to = 7> (again)
        wide = Concat <axis = 1> (x, x, x)
        shape = Concat <axis = 0> (b, length, minus)
        apart = Reshape(wide, shape)
        y = ReduceSum <keepdims = 0> (apart, second)""",
    # The neck of DPT: the side of an image is the root of the number of its patches.
    "the root of a constant size": """
        count = Constant <value = int64[1] {9}> ()
        column = ReduceSum(x, second)
        spread = Expand(column, count)
        patches = Shape <start = 1> (spread)
        real = Cast <to = 1> (patches)
        half = Constant <value = float {0.5}> ()
        root = Pow(real, half)
        side = Cast <to = 7> (root)
        wide = Concat <axis = 1> (x, x, x)
        shape = Concat <axis = 0> (b, side, minus)
        apart = Reshape(wide, shape)
        y = ReduceSum <keepdims = 0> (apart, second)""",
    # EmbeddingBag of the newer exporter: rows between neighboring elements.
    "as many iterations as a vector has neighbors": """
        wide = ReduceSum <keepdims = 0> (x, first)
        zero = Constant <value = int64 {0}> ()
        step = Constant <value = int64 {1}> ()
        count = Squeeze(n)
        going = Less(zero, count)
        last, rows = Loop("", going, zero) <body = each (int64 i, bool on, int64 place)
            => (bool more, int64 next, float[c] row) {
                line = Constant <value = int64[1] {-1}> ()
                begin = Reshape(place, line)
                end = Add(begin, step)
                row = Slice(wide, begin, end)
                next = Add(place, step)
                more = Less(next, count)
            }>
        line = Transpose(rows)
        y = Add(line, x)""",
}


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_sizes_that_sizes_make(body: str) -> None:
    check(model_of(body))


@pytest.mark.parametrize(
    "name",
    ["constant sizes between quantize and dequantize", "the root of a constant size"],
)
def test_constant_sizes_are_no_data(name: str) -> None:
    symbols = rx.load(model_of(BODIES[name]), bounds=BOUNDS).symbols
    assert [symbol.name for symbol in symbols] == ["b", "n"]


@pytest.mark.parametrize("kind", ["float", "double", "int64"])
def test_choices_that_become_vectors(kind: str) -> None:
    """As the host's compiler makes them: GCC 12 has mixed up lanes of masked loads."""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        choose (bool[b, n, 8] c, {kind}[b, n, 8] x, {kind}[b, n, 8] y) => ({kind}[b, n, 8] z) {{
            z = Where(c, x, y)
        }}"""
    )
    host = rx.compile(model, bounds=BOUNDS, name="choices").host()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(0)
    for b, n in ((1, 1), (2, 7), (3, 12)):
        x, y = rng.integers(-99, 99, (2, b, n, 8)).astype(kind if kind != "float" else np.float32)
        given = {"c": rng.integers(0, 2, (b, n, 8)).astype(np.bool_), "x": x, "y": y}
        np.testing.assert_array_equal(host(given)["z"], session.run(None, given)[0])


def test_a_size_of_minus_one_is_dynamic() -> None:
    """Paddle2ONNX writes it, also as the sizes of results that depend on data."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        minus (float[3, 4] x) => (float[3, 4] y, int64[2, 4] places) {
            y = Relu(x)
            places = NonZero(y)
        }"""
    )
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim[-2 if value.name == "x" else -1 :]:
            dim.dim_value = -1
    host = rx.compile(model, bounds={"x_0": 5, "x_1": 4}, name="minus").host()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    y, places = session.run(None, {"x": x})
    found = host(x=x)
    np.testing.assert_array_equal(found["y"], y)
    np.testing.assert_array_equal(found["places"], places)


def test_a_reshape_to_sizes_that_may_be_0_divides_by_none() -> None:
    """A -1 next to a size of 0 is a status, as it is an error in ONNX Runtime."""
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        agraph (float[a] x, float[b] y, float[b, c, 3] z) => (float[b, d] u, float[e, 3] v)
        <int64[1] rest = {-1}>
        {
            apart = Shape(y)
            shape = Concat <axis = 0> (apart, rest)
            u = Reshape(x, shape)
            all = Shape(z)
            product = ReduceProd <keepdims = 1> (all)
            three = Shape <start = 2> (z)
            lines = Div(product, three)
            again = Concat <axis = 0> (lines, rest)
            v = Reshape(z, again)
        }""")
    host = rx.compile(model, bounds={"a": (0, 8), "b": (0, 4), "c": (0, 4)}, name="apart").host()
    for a, b, c in ((8, 2, 3), (0, 3, 1), (6, 1, 4)):
        found = host(
            x=np.ones(a, np.float32), y=np.ones(b, np.float32), z=np.ones((b, c, 3), np.float32)
        )
        assert (found["u"].shape, found["v"].shape) == ((b, a // b), (b * c, 3))
    for a, b, c in ((8, 0, 3), (0, 0, 1)):
        with pytest.raises(rx.StatusError, match="MISMATCH"):
            host(
                x=np.ones(a, np.float32), y=np.ones(b, np.float32), z=np.ones((b, c, 3), np.float32)
            )
