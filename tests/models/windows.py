# SPDX-License-Identifier: Apache-2.0
"""Mostly arithmetic on shapes: a sequence cut into windows and put together again."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.onnx_text import Array, Weights, model_of, sizes

WINDOW, CHANNELS = 4, 6


def windows() -> onnx.ModelProto:
    """x: float[n, 6] -> y: float[n, 6], means: float[(n+3)//4, 6], pairs: float[2*n - n//2, 6].

    y is x without the mean of its window of 4 rows; the last window is filled up with zeros.
    `pairs` is every second row of x followed by all rows backwards. The padding, the cut and the
    expansion all come from n by Shape, Gather, Add, Div, Mod, Sub, Concat and Slice.
    """
    return model_of(
        f"windows (float[n, {CHANNELS}] x) => (float[n, {CHANNELS}] y,"
        f" float[groups, {CHANNELS}] means, float[rows, {CHANNELS}] pairs)",
        f"""
        {sizes("x", 0, 1)}
        window = Constant <value = int64[1] {{{WINDOW}}}> ()
        nothing = Constant <value = int64[1] {{0}}> ()
        one = Constant <value = int64[1] {{1}}> ()
        two = Constant <value = int64[1] {{2}}> ()
        left_over = Mod(x_size0, window)
        missing = Sub(window, left_over)
        padding = Mod(missing, window)
        pads = Concat <axis = 0> (nothing, nothing, padding, nothing)
        padded = Pad <mode = "constant"> (x, pads)
        full = Add(x_size0, padding)
        groups = Div(full, window)
        split_shape = Concat <axis = 0> (groups, window, x_size1)
        split = Reshape(padded, split_shape)
        mean3 = ReduceMean <axes = [1], keepdims = 1> (split)
        means = Squeeze(mean3, one)
        split_sizes = Shape(split)
        spread = Expand(mean3, split_sizes)
        rest = Constant <value = int64[1] {{-1}}> ()
        joined_shape = Concat <axis = 0> (rest, x_size1)
        joined = Reshape(spread, joined_shape)
        cut = Slice(joined, nothing, x_size0, nothing)
        y = Sub(x, cut)

        shape = Shape(x)
        rows = Slice(shape, nothing, one, nothing)
        end = Mul(rows, two)
        even = Slice(x, nothing, end, nothing, two)
        past = Constant <value = int64[1] {{-9223372036854775807}}> ()
        backwards = Slice(x, rest, past, nothing, rest)
        pairs = Concat <axis = 0> (even, backwards)
        """,
        {},
    )


def windows_forward(w: Weights, x: Array) -> dict[str, Array]:
    padded = np.pad(x, ((0, -len(x) % WINDOW), (0, 0)))
    means = padded.reshape(-1, WINDOW, CHANNELS).mean(axis=1)
    y = x - np.repeat(means, WINDOW, axis=0)[: len(x)]
    return {"y": y, "means": means, "pairs": np.concatenate([x[::2], x[::-1]])}
