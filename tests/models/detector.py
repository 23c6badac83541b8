# SPDX-License-Identifier: Apache-2.0
"""A detector for images of any height and width that keeps the boxes that do not overlap."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.onnx_text import Weights, model_of, random_weights, sizes

WIDTH, CLASSES = 12, 3


def detector(seed: int = 0) -> onnx.ModelProto:
    """image: float[1, 3, height, width] -> boxes: float[k, 4], scores: float[k], kinds: int64[k].

    A box for each 4 x 4 pixels, around its place; NonMaxSuppression decides k.
    """
    return model_of(
        "detector (float[1, 3, height, width] image)"
        " => (float[k, 4] boxes, float[k] scores, int64[k] kinds)",
        f"""
        low = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (image, w1, b1)
        low_on = LeakyRelu <alpha = 0.1> (low)
        high = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (low_on, w2, b2)
        high_on = LeakyRelu <alpha = 0.1> (high)
        found = Conv <kernel_shape = [1, 1]> (high_on, w3, b3)
        sides, logits = Split <axis = 1> (found, parts)
        {_centers()}
        flat_sides = Reshape(sides, side_shape)
        side_rows = Transpose <perm = [0, 2, 1]> (flat_sides)
        lengths = Softplus(side_rows)
        reach = Mul(lengths, stride)
        before, behind = Split <axis = 2> (reach, halves)
        near = Sub(centers, before)
        far = Add(centers, behind)
        all_boxes = Concat <axis = 2> (near, far)
        flat_logits = Reshape(logits, kind_shape)
        chances = Sigmoid(flat_logits)
        picked = NonMaxSuppression(all_boxes, chances, most, overlap, least)
        kinds = Gather <axis = 1> (picked, one)
        places = Gather <axis = 1> (picked, two)
        rows = Squeeze(all_boxes, first)
        boxes = Gather <axis = 0> (rows, places)
        scores = GatherND(chances, picked)
        """,
        _weights(seed),
    )


def _centers() -> str:
    """`centers`: float[1, rows * columns, 2], the places of the boxes in pixels."""
    return f"""
        {sizes("found", 2, 3)}
        grid_shape = Concat <axis = 0> (found_size2, found_size3)
        down = Range(zero, found_scalar2, one)
        down_column = Unsqueeze(down, last)
        down_grid = Expand(down_column, grid_shape)
        across = Range(zero, found_scalar3, one)
        across_grid = Expand(across, grid_shape)
        down_pairs = Unsqueeze(down_grid, last)
        across_pairs = Unsqueeze(across_grid, last)
        pairs = Concat <axis = -1> (down_pairs, across_pairs)
        flat_pairs = Reshape(pairs, pair_shape)
        numbers = Cast <to = 1> (flat_pairs)
        starts = Mul(numbers, stride)
        centers = Add(starts, half)"""


def _weights(seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    outer = 4 + CLASSES
    weights = random_weights(
        rng,
        w1=(WIDTH, 3, 3, 3), b1=(WIDTH,), w2=(2 * WIDTH, WIDTH, 3, 3), b2=(2 * WIDTH,),
        w3=(outer, 2 * WIDTH, 1, 1), b3=(outer,),
    )  # fmt: skip
    weights["w2"] /= 4
    weights["w3"] /= 8
    lists = {
        "parts": [4, CLASSES], "halves": [2, 2], "side_shape": [1, 4, -1],
        "kind_shape": [1, CLASSES, -1], "pair_shape": [1, -1, 2], "first": [0], "last": [-1],
        "most": [20],
    }  # fmt: skip
    weights |= {name: np.array(values, np.int64) for name, values in lists.items()}
    weights |= {f: np.array(v, np.int64) for f, v in (("zero", 0), ("one", 1), ("two", 2))}
    floats = {"stride": 4, "half": 2, "overlap": 0.3, "least": 0.4}
    return weights | {name: np.array(value, np.float32) for name, value in floats.items()}
