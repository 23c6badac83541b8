# SPDX-License-Identifier: Apache-2.0
"""A U-Net for images of any height and width: transposed convolutions, cut to what they join."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.onnx_text import Weights, model_of, random_weights

WIDTH, CLASSES = 6, 3


def u_net(seed: int = 0) -> onnx.ModelProto:
    """image: float[batch, 1, height, width] -> classes: float[batch, 3, height, width].

    Pools round up, so that a transposed convolution gives at least as many rows and columns as its
    skip has.
    """
    return model_of(
        "u_net (float[batch, 1, height, width] image)"
        f" => (float[batch, {CLASSES}, height, width] classes)",
        f"""
        first = Constant <value = int64[2] {{0, 0}}> ()
        axes = Constant <value = int64[2] {{2, 3}}> ()
        {_double("down0", "image")}
        {_half("down0")}
        {_double("down1", "down0_half")}
        {_half("down1")}
        {_double("middle", "down1_half")}
        {_joined("up1", "middle", "down1", "kernel_shape = [2, 2]")}
        {_joined("up0", "up1", "down0", "kernel_shape = [4, 4], pads = [1, 1, 1, 1]")}
        logits = Conv <kernel_shape = [1, 1]> (up0, head)
        classes = Softmax <axis = 1> (logits)
        """,
        _weights(seed),
    )


def _double(name: str, x: str) -> str:
    return f"""
        {name}_sum1 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> ({x}, {name}_w1, {name}_b1)
        {name}_on1 = Relu({name}_sum1)
        {name}_sum2 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>
            ({name}_on1, {name}_w2, {name}_b2)
        {name} = Relu({name}_sum2)"""


def _half(name: str) -> str:
    return f"""
        {name}_half = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> ({name})"""


def _joined(name: str, x: str, skip: str, attributes: str) -> str:
    """Twice the height and width of `x`, cut to those of `skip`, and both through convolutions."""
    return f"""
        {name}_twice = ConvTranspose <strides = [2, 2], {attributes}> ({x}, {name}_up)
        {name}_shape = Shape <start = 2> ({skip})
        {name}_cut = Slice({name}_twice, first, {name}_shape, axes)
        {name}_both = Concat <axis = 1> ({skip}, {name}_cut)
        {_double(name, f"{name}_both")}"""


def _weights(seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"head": (CLASSES, WIDTH, 1, 1)}
    for name, inner, outer in (
        ("down0", 1, WIDTH), ("down1", WIDTH, 2 * WIDTH), ("middle", 2 * WIDTH, 4 * WIDTH),
        ("up1", 4 * WIDTH, 2 * WIDTH), ("up0", 2 * WIDTH, WIDTH),
    ):  # fmt: skip
        shapes |= {f"{name}_w1": (outer, inner, 3, 3), f"{name}_b1": (outer,)}
        shapes |= {f"{name}_w2": (outer, outer, 3, 3), f"{name}_b2": (outer,)}
    shapes |= {"up1_up": (4 * WIDTH, 2 * WIDTH, 2, 2), "up0_up": (2 * WIDTH, WIDTH, 4, 4)}
    weights = random_weights(rng, **shapes)
    return {
        name: w / np.sqrt(np.float32(w.shape[1] / 2)) if w.ndim > 1 else w
        for name, w in weights.items()
    }
