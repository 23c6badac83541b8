# SPDX-License-Identifier: Apache-2.0
"""What a step of a random graph may be: each function draws one operator with its attributes.

A step that does not fit raises `Rejected`, and another one is drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.control import (
    branched,
    compressed,
    found_places,
    looped,
    not_empty,
    recurrent,
    scanned,
)
from tests.fuzz.values import Array, Graph, Rejected, Value

Step = Callable[[Graph], object]

INT_TYPES = ("int32", "int64", "int8", "uint8")


def unary(g: Graph) -> None:
    x = g.floating()
    kind = g.random.choice(("Relu", "Neg", "Abs", "Identity", "LeakyRelu", "HardSigmoid"))
    g.step(kind, x, exact=kind in ("Relu", "Neg", "Abs", "Identity"))


def smooth(g: Graph) -> None:
    x = g.floating()
    kinds = ["Tanh", "Sigmoid", "Erf", "Softplus", "Softsign", "Gelu", "Elu", "Selu", "Sin", "Cos"]
    kinds += ["Mish", "HardSwish", "Celu", "ThresholdedRelu", "Atan"]
    if x.peak < 6:
        kinds += ["Exp", "Sinh"]
    if x.bottom >= 0:
        kinds += ["Sqrt"]
    kind = g.random.choice(kinds)
    if kind in ("Selu", "ThresholdedRelu") and not x.exact:
        raise Rejected
    g.step(kind, x)


def stepwise(g: Graph) -> None:
    """Where a small error would show."""
    g.step(g.random.choice(("Floor", "Ceil", "Round", "Sign")), g.floating(exact=True), exact=True)


def binary(g: Graph) -> None:
    x = g.some(lambda v: v.floating or v.dtype in (np.int32, np.int64))
    y = g.partner(x)
    kind = g.random.choice(("Add", "Sub", "Mul", "Max", "Min"))
    pair = [x, y]
    g.random.shuffle(pair)
    g.step(kind, *pair, exact=True)


def divided(g: Graph) -> None:
    x = g.floating()
    y = g.partner(x)
    (low,) = g.step("Abs", y, exact=True)
    (safe,) = g.step("Add", low, g.known(np.array(1.5, x.dtype)), exact=True)
    g.step("Div", x, safe)


def twice(g: Graph) -> None:
    """A value with itself."""
    x = g.some(lambda v: v.floating or v.dtype in (np.int32, np.int64))
    if g.random.random() < 0.5:
        g.step(g.random.choice(("Add", "Mul", "Sub", "Max")), x, x, exact=True)
    else:
        g.step("Concat", x, x, axis=g.axis(x), exact=True)


def compared(g: Graph) -> None:
    x = g.some(lambda v: v.exact and v.dtype != np.bool_)
    kind = g.random.choice(("Less", "Greater", "Equal", "LessOrEqual"))
    g.step(kind, x, g.partner(x))


def chosen(g: Graph) -> None:
    condition = g.some(lambda v: v.dtype == np.bool_)
    x = g.floating()
    g.step("Where", condition, x, g.partner(x), exact=True)


def logic(g: Graph) -> None:
    x = g.some(lambda v: v.dtype == np.bool_)
    if g.random.random() < 0.4:
        g.step("Not", x)
    else:
        g.step(g.random.choice(("And", "Or", "Xor")), x, g.partner(x))


def cast(g: Graph) -> None:
    x = g.some()
    target = g.random.choice(("float32", "float32", "float16", "int32", "int64", "bool", "int8"))
    if x.floating and not target.startswith("float") and not x.exact:
        raise Rejected
    if target == "int8" and (x.peak > 100 or x.bottom < -100):
        raise Rejected
    g.step("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(target)), exact=True)


def clipped(g: Graph) -> None:
    x = g.floating()
    low, high = np.array(-1.25, x.dtype), np.array(1.5, x.dtype)
    g.step("Clip", x, g.constant(low), g.constant(high), exact=True)


def softmax(g: Graph) -> None:
    x = g.floating(1)
    g.step(g.random.choice(("Softmax", "LogSoftmax")), x, axis=g.axis(x))


def reduced(g: Graph) -> None:
    x = g.some(lambda v: v.rank > 0 and (v.floating or v.dtype in (np.int32, np.int64)))
    kind = g.random.choice(
        ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare",
         "ReduceL1", "ReduceLogSumExp", "ReduceProd")
    )  # fmt: skip
    if not x.floating and kind not in ("ReduceSum", "ReduceMax", "ReduceMin"):
        raise Rejected
    if kind == "ReduceProd" and not x.exact:
        raise Rejected
    axes = sorted(g.random.sample(range(x.rank), g.random.randint(1, x.rank)))
    exact = kind in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")
    keepdims = g.random.randint(0, 1)
    g.step(kind, x, g.ints(*(a - x.rank * g.random.randint(0, 1) for a in axes)),
           keepdims=keepdims, exact=exact)  # fmt: skip


def arg_reduced(g: Graph) -> None:
    x = g.floating(1, exact=True)
    kind = g.random.choice(("ArgMax", "ArgMin"))
    last, keepdims = g.random.randint(0, 1), g.random.randint(0, 1)
    g.step(kind, x, axis=g.axis(x), keepdims=keepdims, select_last_index=last)


def top_k(g: Graph) -> None:
    x = g.floating(1, exact=True)
    axis = g.axis(x)
    k = g.random.randint(1, min(x.axis(axis)) or 1)
    largest = g.random.randint(0, 1)
    g.step("TopK", x, g.ints(k), axis=axis, largest=largest, outs=2, exact=True)


def cumulated(g: Graph) -> None:
    x = g.floating(1)
    g.step("CumSum", x, g.constant(np.array(g.axis(x), np.int64)), exact=True,
           exclusive=g.random.randint(0, 1), reverse=g.random.randint(0, 1))  # fmt: skip


def normalized(g: Graph) -> None:
    x = g.floating(2)
    if not x.exact:
        raise Rejected
    size = g.dim(x.axis(-1))
    scale = g.input([size]) if isinstance(size, str) else g.drawn_constant([size])
    g.step("LayerNormalization", x, scale, axis=-1, epsilon=0.1)


def rms_normalized(g: Graph) -> None:
    """Spelled out, as exporters do."""
    x = g.floating(1)
    (square,) = g.step("Mul", x, x)
    (mean,) = g.step("ReduceMean", square, g.ints(-1))
    (more,) = g.step("Add", mean, g.known(np.array(0.5, x.dtype)))
    (root,) = g.step("Sqrt", more)
    (inverse,) = g.step("Reciprocal", root)
    g.step("Mul", x, inverse)


def transposed(g: Graph) -> None:
    x = g.some(lambda v: v.rank > 1)
    order = list(range(x.rank))
    g.random.shuffle(order)
    g.step("Transpose", x, perm=order, exact=True)


def concatenated(g: Graph) -> None:
    x = g.some(lambda v: v.rank > 0)
    axis = g.axis(x)
    at = axis % x.rank

    def alike(v: Value) -> bool:
        same = v.dtype == x.dtype and v.rank == x.rank
        return same and all(v.axis(a) == x.axis(a) for a in range(x.rank) if a != at)

    parts = [x] + [g.some(alike) for _ in range(g.random.randint(1, 2))]
    if all(p is x for p in parts) and g.random.random() < 0.7:
        dims = list(g.dims(x))
        dims[at] = g.size(1, 2)
        parts[-1] = g.input(dims, str(x.dtype))
    g.random.shuffle(parts)
    g.step("Concat", *parts, axis=axis, exact=True)


def sliced(g: Graph) -> None:
    x = g.some(lambda v: v.rank > 0)
    axis, far = g.axis(x), 2**31
    start, stop, by = g.random.choice(
        ((0, -1, 1), (1, far, 1), (-1, -far, -1), (-2, far, 1), (0, far, 2), (-1, -far, -2),
         (1, -1, 1), (-3, -1, 1), (2, 0, -1), (0, 2, 1), (1, far, 3), (-2, -far, -1))
    )  # fmt: skip
    made = g.step("Slice", x, g.ints(start), g.ints(stop), g.ints(axis), g.ints(by), exact=True)
    not_empty(g, made)


def split(g: Graph) -> None:
    x = g.some(lambda v: v.rank > 0)
    axis = g.axis(x)
    sizes = x.axis(axis)
    if min(sizes) < 2:
        raise Rejected
    if len(set(sizes)) == 1 and g.random.random() < 0.6:
        first = g.random.randint(1, sizes[0] - 1)
        g.step("Split", x, g.ints(first, sizes[0] - first), axis=axis, outs=2, exact=True)
    else:
        g.step("Split", x, axis=axis, num_outputs=2, outs=2, exact=True)


def reshaped(g: Graph) -> None:
    x = g.some(lambda v: v.rank > 0)
    match g.random.randrange(4):
        case 0:
            g.step("Reshape", x, g.ints(-1), exact=True)
        case 1:
            g.step("Reshape", x, g.ints(0, -1), exact=True)
        case 2:
            g.step("Flatten", x, axis=g.random.randrange(x.rank + 1), exact=True)
        case _:
            g.step("Reshape", x, g.ints(*g.random.choice(((1, -1), (-1, 1), (-1, 2), (2, -1)))),
                   exact=True)  # fmt: skip


def shape_chain(g: Graph) -> None:
    """Shape -> Gather -> Concat -> Reshape: two axes become one, or all but one do."""
    x = g.some(lambda v: v.rank > 1)
    (shape,) = g.step("Shape", x)
    (first,) = g.step("Slice", shape, g.ints(0), g.ints(1), g.ints(0), exact=True)
    (whole,) = g.step("Concat", first, g.known(np.array([-1])), axis=0)
    for value in (shape, first, whole):
        g.pool.remove(value)
    g.step("Reshape", x, whole, exact=True)


def like(g: Graph) -> None:
    """Expand to the shape of another value, or a constant of that shape."""
    other = g.some(lambda v: v.rank > 0)
    (shape,) = g.step("Shape", other)
    g.pool.remove(shape)
    if g.random.random() < 0.3:
        filled = numpy_helper.from_array(np.array([1.5], np.float32))
        g.step("ConstantOfShape", shape, value=filled, exact=True)
        return
    x = g.some(lambda v: fits_into(v, other))
    g.step("Expand", x, shape, exact=True)


def fits_into(x: Value, other: Value) -> bool:
    return x.rank <= other.rank and all(
        x.axis(-b) == other.axis(-b) or set(x.axis(-b)) == {1} for b in range(1, x.rank + 1)
    )


def counted(g: Graph) -> None:
    """0, 1, 2, ... as many as an axis is long."""
    other = g.some(lambda v: v.rank > 0)
    (shape,) = g.step("Shape", other)
    at = g.constant(np.array(g.axis(other), np.int64))
    (size,) = g.step("Gather", shape, at, axis=0)
    zero, one = (g.constant(np.array(n, np.int64)) for n in (0, 1))
    (numbers,) = g.step("Range", zero, size, one)
    for value in (shape, size):
        g.pool.remove(value)
    if g.random.random() < 0.6:
        g.step("Cast", numbers, to=TensorProto.FLOAT, exact=True)


def squeezed(g: Graph) -> None:
    x = g.some()
    ones = [a for a in range(x.rank) if set(x.axis(a)) == {1}]
    if ones and g.random.random() < 0.6:
        g.step("Squeeze", x, g.ints(g.random.choice(ones)), exact=True)
    elif x.rank < 4:
        at = g.random.randint(-x.rank - 1, x.rank)
        g.step("Unsqueeze", x, g.ints(at), exact=True)


def tiled(g: Graph) -> None:
    x = g.some(lambda v: v.rank > 0)
    g.step("Tile", x, g.ints(*(g.random.choice((1, 1, 2, 3)) for _ in range(x.rank))), exact=True)


def padded(g: Graph) -> None:
    x = g.floating(1)
    pads = [g.random.choice((0, 0, 1, 2)) for _ in range(2 * x.rank)]
    mode = g.random.choice(("constant", "edge", "reflect", "wrap"))
    if mode == "constant":
        g.step("Pad", x, g.ints(*pads), g.constant(np.array(0.5, x.dtype)), exact=True)
    elif min(size for s in x.shapes for size in s) > 2:
        g.step("Pad", x, g.ints(*pads), mode=mode, exact=True)


def gathered(g: Graph) -> None:
    x = g.some(lambda v: v.rank > 0)
    axis = g.axis(x)
    least = min(x.axis(axis))
    if least < 1:
        raise Rejected
    shape = g.random.choice(((), (1,), (3,), (2, 2)))
    source = np.random.default_rng(g.random.randrange(2**32))
    index = source.integers(-least, least, shape)
    if g.random.random() < 0.5:
        g.step("Gather", x, g.constant(index), axis=axis, exact=True)
        return
    # Not known at compile time.
    dims = [g.size(2)]
    given = g.input(dims, "int64")
    (wrapped,) = g.step("Mod", given, g.constant(np.array(least, np.int64)), fmod=0)
    g.step("Gather", x, wrapped, axis=axis, exact=True)


def scattered(g: Graph) -> None:
    x = g.floating(1, exact=True)
    least = min(x.axis(0))
    if least < 2:
        raise Rejected
    index = g.constant(np.array([[1], [-least]], np.int64))
    rest = [g.dim(x.axis(a)) for a in range(1, x.rank)]
    updates = g.input([2, *rest], str(x.dtype))
    mode = g.random.choice(("none", "add", "mul", "max"))
    g.step("ScatterND", x, index, updates, reduction=mode, exact=True)


def gathered_elements(g: Graph) -> None:
    x = g.floating(1)
    axis = g.axis(x) % x.rank
    least = min(x.axis(axis))
    if least < 1:
        raise Rejected
    dims = list(g.dims(x))
    given = g.input(dims, "int64")
    (wrapped,) = g.step("Mod", given, g.constant(np.array(least, np.int64)), fmod=0)
    g.step("GatherElements", x, wrapped, axis=axis, exact=True)


def one_hot(g: Graph) -> None:
    x = g.some(lambda v: v.dtype in (np.int32, np.int64))
    values = g.constant(np.array([0.25, 1.5], np.float32))
    g.step("OneHot", x, g.ints(5), values, axis=-1, exact=True)


def triangle(g: Graph) -> None:
    x = g.floating(2)
    g.step("Trilu", x, g.constant(np.array(g.random.randint(-1, 2), np.int64)),
           upper=g.random.randint(0, 1), exact=True)  # fmt: skip


def product(g: Graph) -> None:
    x = g.floating(1)
    inner = g.dim(x.axis(-1))
    width = g.size(1, 3, 4)
    choice = g.random.random()
    if choice < 0.35:
        y = g.some(lambda v: v.dtype == x.dtype and v.rank > 1 and v.axis(-2) == x.axis(-1))
    elif choice < 0.7 and isinstance(inner, int):
        y = g.drawn_constant([inner, 3], str(x.dtype))
    else:
        y = g.input([inner, width], str(x.dtype))
    g.step("MatMul", x, y, exact=True)


def with_itself(g: Graph) -> None:
    """Its own Gram matrix: both operands are one value."""
    x = g.floating(2, 4)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    (turned,) = g.step("Transpose", x, perm=order, exact=True)
    pair = [x, turned]
    g.random.shuffle(pair)
    g.step("MatMul", *pair, exact=True)


def gemm(g: Graph) -> None:
    x = g.floating(2, 2)
    turned, other = g.random.randint(0, 1), g.random.randint(0, 1)
    inner = g.dim(x.axis(0 if turned else 1))
    width = g.size(3)
    y = g.input([width, inner] if other else [inner, width], str(x.dtype))
    bias = g.input([width] if g.random.random() < 0.5 else [1, width], str(x.dtype))
    g.step("Gemm", x, y, bias, transA=turned, transB=other, alpha=0.5, beta=2.0, exact=True)


def attention(g: Graph) -> None:
    """Scores, mask, softmax and mix as three products."""
    x = g.floating(2, 4)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    (turned,) = g.step("Transpose", x, perm=order)
    (scores,) = g.step("MatMul", x, turned)
    if g.random.random() < 0.7:
        (scores,) = g.step("Mul", scores, g.known(np.array(0.25, x.dtype)))
    if g.random.random() < 0.4:
        (scores,) = g.step("Add", scores, g.partner(scores))
    (weights,) = g.step("Softmax", scores, axis=-1)
    g.step("MatMul", weights, x)


def convolved(g: Graph) -> None:
    x = g.floating(3, 4)
    channels = g.dim(x.axis(1))
    if not isinstance(channels, int):
        raise Rejected
    spatial = x.rank - 2
    kernel = [g.random.choice((1, 2, 3)) for _ in range(spatial)]
    group = channels if g.random.random() < 0.3 else 1
    made = channels if group > 1 else g.random.choice((1, 2, 3))
    weights = g.drawn_constant([made, channels // group, *kernel], str(x.dtype))
    pads = [g.random.choice((0, 1)) for _ in range(2 * spatial)]
    strides = [g.random.choice((1, 1, 2)) for _ in range(spatial)]
    operands = [x, weights]
    if g.random.random() < 0.6:
        operands.append(g.drawn_constant([made], str(x.dtype)))
    made_values = g.step("Conv", *operands, kernel_shape=kernel, pads=pads, strides=strides,
                         group=group, exact=True)  # fmt: skip
    if g.random.random() < 0.5:
        g.step("Relu", *made_values, exact=True)


def deconvolved(g: Graph) -> None:
    x = g.floating(3, 4)
    channels = g.dim(x.axis(1))
    if not isinstance(channels, int):
        raise Rejected
    spatial = x.rank - 2
    kernel = [g.random.choice((1, 2, 3)) for _ in range(spatial)]
    weights = g.drawn_constant([channels, 2, *kernel], str(x.dtype))
    strides = [g.random.choice((1, 2)) for _ in range(spatial)]
    g.step("ConvTranspose", x, weights, kernel_shape=kernel, strides=strides, exact=True)


def pooled(g: Graph) -> None:
    x = g.floating(3, 4)
    spatial = x.rank - 2
    kind = g.random.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if kind.startswith("Global"):
        g.step(kind, x, exact=kind == "GlobalMaxPool")
        return
    kernel = [g.random.choice((2, 3)) for _ in range(spatial)]
    strides = [g.random.choice((1, 2)) for _ in range(spatial)]
    pads = [g.random.choice((0, 1)) for _ in range(2 * spatial)]
    if any(shape[2 + a] < kernel[a] for shape in x.shapes for a in range(spatial)):
        raise Rejected  # ONNX Runtime rounds its size towards zero there, ONNX down
    g.step(kind, x, kernel_shape=kernel, strides=strides, pads=pads,
           ceil_mode=0, exact=kind == "MaxPool")  # fmt: skip


def batch_normalized(g: Graph) -> None:
    x = g.floating(2, 4)
    channels = g.dim(x.axis(1))
    if not isinstance(channels, int):
        raise Rejected
    scale, bias, mean = (g.drawn_constant([channels], str(x.dtype)) for _ in range(3))
    variance = g.known(np.abs(g.draw([channels], str(x.dtype))) + x.dtype.type(0.5))
    g.step("BatchNormalization", x, scale, bias, mean, variance)


def resized(g: Graph) -> None:
    x = g.floating(3, 4)
    scales = g.constant(np.array([1, 1] + [2.0] * (x.rank - 2), np.float32))
    mode = g.random.choice(("nearest", "linear"))
    g.step("Resize", x, "", scales, mode=mode, exact=mode == "nearest")


def depth_moved(g: Graph) -> None:
    x = g.floating(4, 4)
    kind = g.random.choice(("DepthToSpace", "SpaceToDepth"))
    g.step(kind, x, blocksize=2, exact=True)


def quantized(g: Graph) -> None:
    """There and back, and a product of integers between at times."""
    x = g.floating(exact=True)
    if x.dtype != np.float32:
        raise Rejected
    scale = g.known(np.array(0.25, np.float32))
    kind = g.random.choice((np.int8, np.uint8))
    zero = g.known(np.array(3, kind))
    (small,) = g.step("QuantizeLinear", x, scale, zero, exact=True)
    if g.random.random() < 0.4 and x.rank > 0:
        inner = g.dim(x.axis(-1))
        if isinstance(inner, int):
            weights = g.drawn_constant([inner, 2], str(np.dtype(kind)))
            g.step("MatMulInteger", small, weights, zero, exact=True)
    g.step("DequantizeLinear", small, scale, zero, exact=True)


def quantized_by_range(g: Graph) -> None:
    x = g.floating(1, exact=True)
    if x.dtype != np.float32:
        raise Rejected
    small, scale, zero = g.step("DynamicQuantizeLinear", x, outs=3)
    for value in (small, scale, zero):
        g.pool.remove(value)
    # Ties may fall either way, by one step.
    (_,) = g.step("DequantizeLinear", small, scale, zero)
    g.pool.pop()


def equation(g: Graph) -> None:
    x = g.floating(2, 2)
    y = g.some(lambda v: v.dtype == x.dtype and v.rank == 2 and v.axis(0) == x.axis(1))
    g.step("Einsum", x, y, equation=g.random.choice(("ij,jk->ik", "ij,jk->ki", "ij,jk->k")))


STEPS: tuple[tuple[Step, int], ...] = (
    (unary, 6), (smooth, 6), (stepwise, 2), (binary, 10), (divided, 2), (twice, 3), (compared, 2),
    (chosen, 3), (logic, 1), (cast, 2), (clipped, 2), (softmax, 4), (reduced, 6), (arg_reduced, 1),
    (top_k, 2), (cumulated, 2), (normalized, 2), (rms_normalized, 2), (transposed, 6),
    (concatenated, 5), (sliced, 5), (split, 3), (reshaped, 5), (shape_chain, 3), (like, 3),
    (counted, 2), (squeezed, 3), (tiled, 2), (padded, 3), (gathered, 3), (scattered, 1),
    (gathered_elements, 2), (one_hot, 1), (triangle, 1), (product, 5), (with_itself, 2),
    (gemm, 2), (attention, 4), (convolved, 5), (deconvolved, 2), (pooled, 3),
    (batch_normalized, 2), (resized, 1), (depth_moved, 1), (quantized, 3), (quantized_by_range, 1),
    (equation, 1), (branched, 2), (looped, 2), (scanned, 2), (compressed, 1), (found_places, 1),
    (recurrent, 1),
)  # fmt: skip

__all__ = ["STEPS", "Array"]
