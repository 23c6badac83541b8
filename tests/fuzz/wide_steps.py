# SPDX-License-Identifier: Apache-2.0
"""More steps of random graphs: scattering, unpooling, resizing, sampling, recurrences, and
results of data-dependent sizes. Together with those of `steps.py` they are `WIDE_STEPS`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.fuzz.control import not_empty
from tests.fuzz.steps import STEPS, Step
from tests.fuzz.values import Array, Graph, Rejected, Value

REDUCTIONS = ("none", "add", "mul", "max", "min")
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_crop_and_resize",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def numbers(g: Graph, low: int, high: int, shape: tuple[int, ...]) -> Array:
    source = np.random.default_rng(g.random.randrange(2**32))
    return np.asarray(source.integers(low, high, shape), np.int64)


def least_axis(value: Value, axis: int) -> int:
    least = min(value.axis(axis))
    if least < 1:
        raise Rejected
    return least


def fixed(g: Graph, value: Value, axis: int) -> int:
    size = g.dim(value.axis(axis))
    if not isinstance(size, int):
        raise Rejected
    return size


# Scattering and gathering


def scatter_nd(g: Graph) -> None:
    """Rows at constant or computed places; equal places only where a reduction takes both."""
    x = g.floating(1, 4, exact=True)
    depth = g.random.randint(1, x.rank)
    limits = [least_axis(x, axis) for axis in range(depth)]
    rows = g.random.randint(1, 4)
    rest = [g.dim(x.axis(a)) for a in range(depth, x.rank)]
    kind = g.random.choice(REDUCTIONS)
    if kind != "none" and depth == 1 and g.random.random() < 0.5:
        given = g.input([rows, 1], "int64")
        (index,) = g.step("Mod", given, g.constant(np.array(limits[0], np.int64)), fmod=0)
        places: Value | str = index
    else:
        index_rows = np.stack([numbers(g, -n, n, (rows,)) for n in limits], axis=1)
        if kind == "none":
            wrapped = index_rows % np.array(limits)
            _, first = np.unique(wrapped, axis=0, return_index=True)
            if len(first) < rows or any(len(set(x.axis(a))) > 1 for a in range(depth)):
                index_rows = np.abs(index_rows)
                _, first = np.unique(index_rows % np.array(limits), axis=0, return_index=True)
                index_rows = index_rows[sorted(first)]
        index_rows = clipped_index(index_rows, limits)
        rows = len(index_rows)
        places = g.constant(index_rows)
    updates = g.input([rows, *rest], str(x.dtype))
    g.step("ScatterND", x, places, updates, reduction=kind, exact=True)


def clipped_index(index: Array, limits: list[int]) -> Array:
    found = np.clip(index, [-n for n in limits], [n - 1 for n in limits])
    return np.asarray(found, np.int64)


def scatter_elements(g: Graph) -> None:
    x = g.floating(1, 3, exact=True)
    axis = g.axis(x)
    at = axis % x.rank
    least = least_axis(x, at)
    kind = g.random.choice(REDUCTIONS)
    dims = list(g.dims(x))
    dims[at] = g.random.randint(1, least)
    updates = g.input(dims, str(x.dtype))
    if kind == "none":
        if not all(isinstance(size, int) for size in dims):
            raise Rejected
        shape = [int(size) for size in dims]
        order = np.argsort(numbers(g, 0, 1000, tuple(shape)), axis=at)
        g.step("ScatterElements", x, g.constant(order), updates, axis=axis, exact=True)
        return
    given = g.input(dims, "int64")
    (index,) = g.step("Mod", given, g.constant(np.array(least, np.int64)), fmod=0)
    g.step("ScatterElements", x, index, updates, axis=axis, reduction=kind, exact=True)


def gather_nd(g: Graph) -> None:
    x = g.some(lambda v: v.rank > 0)
    depth = g.random.randint(1, x.rank)
    limits = [least_axis(x, axis) for axis in range(depth)]
    shape = g.random.choice(((2,), (3,), (2, 2)))
    index = np.stack([numbers(g, -n, n, shape) for n in limits], axis=-1)
    g.step("GatherND", x, g.constant(index), exact=True)


def unpooled(g: Graph) -> None:
    """Maxima and back to where they were; at times something is added to all places."""
    x = g.floating(3, 4, exact=True)
    spatial = x.rank - 2
    if any(min(x.axis(2 + a)) < 2 for a in range(spatial)):
        raise Rejected
    kernel, strides = [2] * spatial, [g.random.choice((1, 2, 2))] * spatial
    values, places = g.step("MaxPool", x, kernel_shape=kernel, strides=strides, outs=2, exact=True)
    g.pool.remove(places)
    inputs: list[Value | str] = [values, places]
    if g.random.random() < 0.4:
        (shape,) = g.step("Shape", x)
        g.pool.remove(shape)
        inputs.append(shape)
    (back,) = g.step("MaxUnpool", *inputs, kernel_shape=kernel, strides=strides, exact=True)
    if g.random.random() < 0.5:
        (more,) = g.step("Add", back, g.known(np.array(1, x.dtype)), exact=True)
        if g.random.random() < 0.6:
            index = g.constant(np.array([[0]] * g.random.randint(1, 2), np.int64))
            rest = [g.dim(more.axis(a)) for a in range(1, more.rank)]
            updates = g.input([len(g.constants[index]), *rest], str(x.dtype))
            (found,) = g.step("ScatterND", more, index, updates, reduction="add", exact=True)
            g.step("Relu", found, exact=True)


# Resizing and sampling


def resized_any(g: Graph) -> None:
    """Every mode, by scales or sizes, of some or all axes."""
    x = g.floating(2, 4, exact=True)
    mode = g.random.choice(("nearest", "linear", "cubic"))
    if mode == "cubic" and x.rank not in (2, 4):
        raise Rejected
    spatial = 2 if x.rank > 2 or mode == "cubic" else g.random.randint(1, x.rank)
    spatial = 1 if x.rank == 3 else min(spatial, x.rank)
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": g.random.choice(COORDINATES),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = g.random.choice(ROUNDINGS)
    elif mode == "cubic":
        attributes["cubic_coeff_a"] = g.random.choice((-0.75, -0.5))
        attributes["exclude_outside"] = g.random.randint(0, 1)
    if mode != "nearest" and g.random.random() < 0.2:
        attributes["antialias"] = 1
    if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        attributes.pop("antialias", None)
        attributes["extrapolation_value"] = 0.5
        starts, ends = [0.0] * x.rank, [1.0] * x.rank
        for axis in range(x.rank - spatial, x.rank):
            starts[axis], ends[axis] = g.random.choice(((0.0, 1.0), (0.25, 0.75), (-0.5, 1.25)))
        roi = g.constant(np.array([*starts, *ends], np.float32))
    else:
        roi = ""
    front = x.rank - spatial
    if g.random.random() < 0.6:
        scales = [g.random.choice((0.5, 0.6, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0))
                  for _ in range(spatial)]  # fmt: skip
        given = g.constant(np.array([1.0] * front + scales, np.float32))
        g.step("Resize", x, roi, given, exact=mode == "nearest", **attributes)
        return
    kept = [fixed(g, x, axis) for axis in range(front)]
    sizes = [g.random.randint(1, 7) for _ in range(spatial)]
    g.step("Resize", x, roi, "", g.ints(*kept, *sizes), exact=mode == "nearest", **attributes)


def sampled(g: Graph) -> None:
    x = g.floating(4, 4)
    if min(least_axis(x, 2), least_axis(x, 3)) < 1:
        raise Rejected
    mode = g.random.choice(("linear", "nearest", "cubic"))
    dims = [g.dim(x.axis(0)), g.random.randint(1, 3), g.size(2), 2]
    given = g.input(dims, str(x.dtype))
    # Off the ties of nearest neighbors and of edges.
    scale, shift = g.known(np.array(0.6, x.dtype)), g.known(np.array(0.013, x.dtype))
    (wide,) = g.step("Mul", given, scale)
    (grid,) = g.step("Add", wide, shift)
    g.step("GridSample", x, grid, mode=mode, align_corners=g.random.randint(0, 1),
           padding_mode=g.random.choice(("zeros", "border", "reflection")))  # fmt: skip


def moved(g: Graph) -> None:
    """Cropped or padded around the middle."""
    x = g.floating(1)
    axis = g.axis(x)
    g.step("CenterCropPad", x, g.ints(g.random.randint(1, 6)), axes=[axis], exact=True)


def columns(g: Graph) -> None:
    x = g.floating(3, 3)
    channels, places = fixed(g, x, 1), fixed(g, x, 2)
    if channels % 4 or places != 4:
        raise Rejected
    g.step("Col2Im", x, g.ints(3, 3), g.ints(2, 2), exact=True)


# Windows


def transposed_convolution(g: Graph) -> None:
    x = g.floating(3, 4)
    channels = fixed(g, x, 1)
    spatial = x.rank - 2
    group = channels if g.random.random() < 0.3 else 1
    kernel = [g.random.choice((1, 2, 3)) for _ in range(spatial)]
    strides = [g.random.choice((1, 2, 3)) for _ in range(spatial)]
    dilations = [g.random.choice((1, 1, 2)) for _ in range(spatial)]
    weights = g.drawn_constant([channels, 2, *kernel], str(x.dtype))
    attributes: dict[str, Any] = {
        "kernel_shape": kernel, "strides": strides, "dilations": dilations, "group": group,
    }  # fmt: skip
    draw = g.random.random()
    if draw < 0.4:
        attributes["pads"] = [
            g.random.randint(0, (k - 1) * d) for _ in range(2)
            for k, d in zip(kernel, dilations, strict=True)
        ]  # fmt: skip
    elif draw < 0.6:
        attributes["auto_pad"] = g.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        attributes["dilations"] = [1] * spatial
        # ONNX Runtime's result of SAME is smaller than its text says where a stride is larger.
        attributes["strides"] = [min(s, k) for s, k in zip(strides, kernel, strict=True)]
    if draw < 0.4 and g.random.random() < 0.5:
        attributes["output_padding"] = [g.random.randint(0, s - 1) for s in strides]
    operands = [x, weights]
    if g.random.random() < 0.5:
        operands.append(g.drawn_constant([2 * group], str(x.dtype)))
    g.step("ConvTranspose", *operands, exact=True, **attributes)


def wide_convolution(g: Graph) -> None:
    x = g.floating(3, 4)
    channels = fixed(g, x, 1)
    spatial = x.rank - 2
    kernel = [g.random.choice((1, 2, 3, 4)) for _ in range(spatial)]
    weights = g.drawn_constant([g.random.choice((1, 2, 5)), channels, *kernel], str(x.dtype))
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    attributes["strides"] = [g.random.choice((1, 2, 3)) for _ in range(spatial)]
    if g.random.random() < 0.5:
        attributes["auto_pad"] = g.random.choice(("SAME_UPPER", "SAME_LOWER"))
    else:
        attributes["dilations"] = [g.random.choice((1, 2)) for _ in range(spatial)]
        attributes["pads"] = [g.random.choice((0, 1, 2, 3)) for _ in range(2 * spatial)]
    g.step("Conv", x, weights, exact=True, **attributes)


def wide_pooling(g: Graph) -> None:
    x = g.floating(3, 4)
    spatial = x.rank - 2
    kind = g.random.choice(("MaxPool", "AveragePool", "LpPool"))
    kernel = [g.random.choice((2, 3)) for _ in range(spatial)]
    dilations = [g.random.choice((1, 1, 2)) for _ in range(spatial)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(min(x.axis(2 + a)) < reach[a] for a in range(spatial)):
        raise Rejected
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [g.random.choice((1, 2)) for _ in range(spatial)],
        "dilations": dilations,
    }
    if g.random.random() < 0.6:
        attributes["pads"] = [g.random.choice((0, 1)) for _ in range(2 * spatial)]
    if kind == "AveragePool":
        attributes["count_include_pad"] = g.random.randint(0, 1)
    if kind == "LpPool":
        attributes["p"] = g.random.choice((1, 2))
    g.step(kind, x, exact=kind == "MaxPool", **attributes)


def padded_any(g: Graph) -> None:
    """Also cropped, of some axes alone, by every mode."""
    x = g.some(lambda v: v.rank > 0 and v.dtype != np.bool_)
    axes = sorted(g.random.sample(range(x.rank), g.random.randint(1, x.rank)))
    pads = [g.random.choice((0, 1, 2, -1)) for _ in range(2 * len(axes))]
    if min(min(x.axis(a)) for a in axes) < 3:
        pads = [max(p, 0) for p in pads]
    mode = g.random.choice(("constant", "edge", "reflect", "wrap"))
    if mode != "constant":
        pads = [max(p, 0) for p in pads]
        if min(min(x.axis(a)) for a in axes) < 3:
            raise Rejected
    value = g.constant(np.array(2, x.dtype)) if mode == "constant" else ""
    g.step("Pad", x, g.ints(*pads), value, g.ints(*axes), mode=mode, exact=True)


def normalized_any(g: Graph) -> None:
    x = g.floating(3, 4, exact=True)
    channels = fixed(g, x, 1)
    kind = g.random.choice(
        ("InstanceNormalization", "GroupNormalization", "LRN", "LpNormalization")
    )
    operands = [x]
    attributes: dict[str, Any] = {}
    if kind in ("InstanceNormalization", "GroupNormalization"):
        operands += [g.drawn_constant([channels], str(x.dtype)) for _ in range(2)]
        attributes["epsilon"] = 0.1
    if kind == "GroupNormalization":
        attributes["num_groups"] = channels if channels % 2 else 2
    elif kind == "LRN":
        attributes |= {"size": g.random.choice((1, 3)), "alpha": 0.1, "bias": 1.5}
    elif kind == "LpNormalization":
        (operands[0],) = g.step("Add", *(x, g.known(np.array(9, x.dtype))), exact=True)
        attributes |= {"axis": g.axis(x), "p": g.random.choice((1, 2))}
    g.step(kind, *operands, **attributes)


# Recurrences


def recurrent_any(g: Graph) -> None:
    """RNN, GRU or LSTM, with any of their operands and directions."""
    x = g.floating(3, 3)
    if x.dtype != np.float32 or x.peak > 40:
        raise Rejected
    width = fixed(g, x, 2)
    if min(min(s) for s in x.shapes) < 1:
        raise Rejected
    kind, gates = g.random.choice((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    direction = g.random.choice(("forward", "reverse", "bidirectional"))
    count, hidden = 1 + (direction == "bidirectional"), g.random.choice((1, 2, 3))

    def small(*shape: int) -> Value:
        return g.known((g.draw(list(shape), "float32") / 4).astype(np.float32))

    batch = g.dim(x.axis(1))
    operands: list[Value | str] = [
        x, small(count, gates * hidden, width), small(count, gates * hidden, hidden),
        small(count, 2 * gates * hidden) if g.random.random() < 0.6 else "",
    ]  # fmt: skip
    lengths: Value | str = ""
    if g.random.random() < 0.3:
        given = g.input([batch], "int32")
        limit = g.constant(np.array(min(x.axis(0)), np.int32))
        (rest,) = g.step("Mod", given, limit, fmod=0)
        (lengths,) = g.step("Add", rest, g.known(np.array(1, np.int32)), exact=True)
    operands.append(lengths)
    initial = g.random.random() < 0.5
    operands.append(g.input([count, batch, hidden]) if initial else "")
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if kind == "GRU":
        attributes["linear_before_reset"] = g.random.randint(0, 1)
    if kind == "LSTM":
        operands.append(g.input([count, batch, hidden]) if initial else "")
        if g.random.random() < 0.3:
            operands.append(small(count, 3 * hidden))
    if kind == "RNN" and g.random.random() < 0.5:
        attributes["activations"] = [g.random.choice(("Tanh", "Relu", "Sigmoid"))] * count
    if g.random.random() < 0.2:
        attributes["clip"] = 0.75
    while operands[-1] == "":
        operands.pop()
    outs = 3 if kind == "LSTM" else 2
    g.step(kind, *operands, outs=outs, **attributes)


# Data-dependent sizes


def unique(g: Graph) -> None:
    x = g.some(lambda v: v.exact and v.rank > 0 and v.dtype != np.bool_)
    attributes: dict[str, Any] = {"sorted": g.random.randint(0, 1)}
    if g.random.random() < 0.4:
        attributes["axis"] = g.axis(x)
    made = g.step("Unique", x, outs=g.random.choice((1, 4)), exact=True, **attributes)
    not_empty(g, made)


def compressed_any(g: Graph) -> None:
    """Of all elements, or of one axis, by fewer flags than elements."""
    x = g.floating(1)
    count = g.random.randint(1, 3)
    if g.random.random() < 0.5:
        if min(a.size for a in x.arrays) < count:
            raise Rejected  # no more flags than elements, which ONNX Runtime lets pass
        flags = g.input([count], "bool")
        not_empty(g, g.step("Compress", x, flags, exact=True))
        return
    axis = g.axis(x)
    least_axis(x, axis)
    flags = g.input([min(count, least_axis(x, axis))], "bool")
    not_empty(g, g.step("Compress", x, flags, axis=axis, exact=True))


def suppressed(g: Graph) -> None:
    """Boxes on a grid that divides exactly, so that no overlap is near its threshold."""
    boxes, classes = g.size(3, 4), g.random.randint(1, 2)
    given = g.input([1, boxes, 2])
    (middle,) = g.step("Abs", given, exact=True)
    (corner,) = g.step("Add", middle, g.known(np.array([2, 2.5], np.float32)), exact=True)
    (whole,) = g.step("Concat", middle, corner, axis=-1, exact=True)
    scores = g.input([1, classes, boxes])
    limit = g.constant(np.array(g.random.randint(1, 3), np.int64))
    share = g.constant(np.array(0.4137, np.float32))
    operands: list[Value | str] = [whole, scores, limit, share]
    if g.random.random() < 0.5:
        operands.append(g.constant(np.array(0.1, np.float32)))
    not_empty(g, g.step("NonMaxSuppression", *operands, exact=True,
                        center_point_box=g.random.randint(0, 1)))  # fmt: skip


def counted_by_data(g: Graph) -> None:
    given = g.input([], "int64")
    (size,) = g.step("Mod", given, g.constant(np.array(6, np.int64)), fmod=0)
    g.pool.remove(size)
    start = g.constant(np.array(g.random.randint(-1, 1), np.int64))
    step = g.constant(np.array(g.random.choice((1, 2)), np.int64))
    made = g.step("Range", start, size, step, exact=True)
    g.computed[f"{made[0].name}_0"] = (0, 7)
    not_empty(g, made)


def largest_by_data(g: Graph) -> None:
    """TopK whose K is an input."""
    x = g.floating(1, exact=True)
    axis = g.axis(x)
    least = least_axis(x, axis)
    given = g.input([1], "int64")
    (k,) = g.step("Mod", given, g.constant(np.array([least], np.int64)), fmod=0)
    g.pool.remove(k)
    made = g.step("TopK", x, k, axis=axis, largest=g.random.randint(0, 1), outs=2, exact=True)
    not_empty(g, made)


def cut_by_data(g: Graph) -> None:
    """A slice whose end is an input."""
    x = g.some(lambda v: v.rank > 0)
    end = g.input([1], "int64")
    made = g.step("Slice", x, g.ints(0), end, g.ints(g.axis(x)), exact=True)
    not_empty(g, made)


def spread_by_data(g: Graph) -> None:
    """A constant of a shape that an input gives."""
    given = g.input([1], "int64")
    (size,) = g.step("Mod", given, g.constant(np.array([5], np.int64)), fmod=0)
    g.pool.remove(size)
    made = g.step("Expand", g.drawn_constant([g.random.choice((1, 1, 2)), 1]), size, exact=True)
    g.computed[f"{made[0].name}_1"] = (0, 5)
    not_empty(g, made)


# Elements and reductions


def integers(g: Graph) -> None:
    x = g.some(lambda v: v.dtype in (np.int32, np.int64, np.int8, np.uint8))
    kind = g.random.choice(
        ("Mod", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Abs", "Sign", "Clip",
         "BitShift", "Div")
    )  # fmt: skip
    if kind in ("BitwiseNot", "Abs", "Sign"):
        g.step(kind, x)
    elif kind == "Clip":
        g.step(kind, x, g.constant(np.array(1, x.dtype)), g.constant(np.array(3, x.dtype)))
    elif kind in ("Mod", "Div"):
        by = g.known(np.array(g.random.choice((2, 3, 5)), x.dtype))
        if kind == "Mod":
            g.step(kind, x, by, fmod=g.random.randint(0, 1))
        else:
            g.step(kind, x, by)
    elif kind == "BitShift":
        if x.dtype != np.uint8:
            raise Rejected
        by = g.known(np.array(g.random.randint(0, 7), np.uint8))
        g.step(kind, x, by, direction=g.random.choice(("LEFT", "RIGHT")))
    else:
        g.step(kind, x, g.partner(x))


def cast_any(g: Graph) -> None:
    x = g.some()
    names = ("float32", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
    target = np.dtype(g.random.choice(names))
    if x.floating and target.kind in "iub":
        info = None if target.kind == "b" else np.iinfo(target)
        if not x.exact or (info and (x.peak > info.max or x.bottom < info.min)):
            raise Rejected
    if x.dtype == np.float64 and target == np.float16:
        raise Rejected  # ONNX Runtime rounds twice
    g.step("Cast", x, to=helper.np_dtype_to_tensor_dtype(target), exact=True)


def reduced_any(g: Graph) -> None:
    """With axes that are empty, negative, or all."""
    x = g.some(lambda v: v.floating or v.dtype in (np.int32, np.int64))
    kind = g.random.choice(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2"))
    if not x.floating and kind in ("ReduceMean", "ReduceL2"):
        raise Rejected
    exact = kind in ("ReduceSum", "ReduceMax", "ReduceMin")
    keep = g.random.randint(0, 1)
    if g.random.random() < 0.3 or not x.rank:
        noop = g.random.randint(0, 1)
        g.step(kind, x, keepdims=keep, noop_with_empty_axes=noop, exact=exact)
        return
    axes = g.random.sample(range(-x.rank, 0), g.random.randint(1, x.rank))
    g.step(kind, x, g.ints(*axes), keepdims=keep, exact=exact)


def equation_any(g: Graph) -> None:
    x = g.floating(1, 4)
    letters = "ijkl"[: x.rank]
    draw = g.random.random()
    if draw < 0.35:
        kept = "".join(g.random.sample(letters, g.random.randint(0, x.rank)))
        g.step("Einsum", x, equation=f"{letters}->{kept}", exact=True)
        return
    width = g.size(2, 3)
    if draw < 0.7:
        y = g.input([g.dim(x.axis(-1)), width], str(x.dtype))
        g.step("Einsum", x, y, equation=f"{letters},{letters[-1]}m->{letters[:-1]}m", exact=True)
        return
    y = g.some(lambda v: v.dtype == x.dtype and v.shapes == x.shapes)
    kept = "".join(sorted(g.random.sample(letters, g.random.randint(0, x.rank))))
    g.step("Einsum", x, y, equation=f"{letters},{letters}->{kept}", exact=True)


def reversed_sequences(g: Graph) -> None:
    x = g.floating(2)
    lengths = numbers(g, 1, least_axis(x, 0) + 1, (fixed(g, x, 1),))
    g.step("ReverseSequence", x, g.constant(lengths), time_axis=0, batch_axis=1, exact=True)


def marked(g: Graph) -> None:
    x = g.floating(1)
    if not x.exact:
        raise Rejected
    g.step("Hardmax", x, axis=g.axis(x), exact=True)


def looped_by_data(g: Graph) -> None:
    """As many times as an input says, or until the state is large; rows are collected."""
    x = g.floating(0, 2, exact=True)
    given = g.input([], "int64")
    (wrapped,) = g.step("Mod", given, g.constant(np.array(4, np.int64)), fmod=0)
    g.pool.remove(wrapped)
    n, go, state, later, still, row = (g.name("l") for _ in range(6))
    one = g.constant(np.array(1, x.dtype))
    nodes = [
        helper.make_node("Add", [state, one], [later]),
        helper.make_node("Identity", [go], [still]),
        helper.make_node("Neg", [later], [row]),
    ]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype("int64")), []),
        helper.make_tensor_value_info(go, helper.np_dtype_to_tensor_dtype(np.dtype("bool")), []),
        helper.make_tensor_value_info(state, kind, [None] * x.rank),
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in (still, later, row)]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    made = g.step("Loop", wrapped, "", x, body=body, outs=2, exact=True)
    g.computed[f"{made[1].name}_0"] = (0, 4)
    if any(a.shape[0] == 0 for a in made[1].arrays):
        g.pool.remove(made[1])  # ONNX Runtime gives rows of no turn a shape of zeros
    not_empty(g, made[:1])


NEW_STEPS: tuple[tuple[Step, int], ...] = (
    (scatter_nd, 6), (scatter_elements, 6), (gather_nd, 4), (unpooled, 8), (resized_any, 10),
    (sampled, 5), (moved, 2), (columns, 1), (transposed_convolution, 5), (wide_convolution, 4),
    (wide_pooling, 4), (padded_any, 5), (normalized_any, 3), (recurrent_any, 7), (unique, 3),
    (compressed_any, 3), (suppressed, 3), (counted_by_data, 3), (largest_by_data, 3),
    (cut_by_data, 3), (spread_by_data, 2), (integers, 4), (cast_any, 4), (reduced_any, 5),
    (equation_any, 4), (reversed_sequences, 2), (marked, 1), (looped_by_data, 4),
)  # fmt: skip
WIDE_STEPS = STEPS + NEW_STEPS


def special(g: Graph) -> None:
    """What NaN, infinities and -0 are asked for."""
    x = g.floating()
    kind = g.random.choice(("IsNaN", "IsInf", "Sign", "Floor", "Ceil", "Round", "Reciprocal"))
    if not x.exact and kind not in ("IsNaN", "IsInf"):
        raise Rejected  # a small error of x may change the result entirely
    g.step(kind, x)


WILD = (
    "unary", "binary", "twice", "compared", "chosen", "transposed", "concatenated", "sliced",
    "split", "reshaped", "squeezed", "tiled", "padded", "gathered", "gathered_elements",
    "triangle", "like", "product", "reduced", "pooled", "convolved", "scatter_nd", "softmax",
    "scatter_elements", "gather_nd", "unpooled", "padded_any", "compressed_any", "branched",
    "looped", "scanned", "equation_any", "clipped", "smooth", "cumulated", "integers", "logic",
    "reversed_sequences", "wide_pooling",
)  # fmt: skip
WILD_STEPS = tuple((f, weight) for f, weight in WIDE_STEPS if f.__name__ in WILD) + ((special, 6),)
"""Steps for which ONNX, or every runtime, says what special values give."""
