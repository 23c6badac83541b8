# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network over images of any height and width."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.onnx_text import Array, Weights, model_of, random_weights, sizes


def image_net(seed: int = 0) -> onnx.ModelProto:
    """image: float[batch, 3, height, width] -> logits: float[batch, 6], heat: a map of 8 channels.

    Strided, depthwise and pointwise convolutions, a batch norm, a residual sum, both kinds of pool;
    flattened at the end through the size of the batch.
    """
    return model_of(
        "image_net (float[batch, 3, height, width] image)"
        " => (float[batch, 6] logits, float[batch, 8, rows, columns] heat)",
        f"""
        stem = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (image, w1)
        normal = BatchNormalization <epsilon = 0.001> (stem, scale, bias, mean, variance)
        six = Constant <value = float {{6.0}}> ()
        zero = Constant <value = float {{0.0}}> ()
        stem_on = Clip(normal, zero, six)
        pooled = MaxPool <kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]> (stem_on)
        depth = Conv <kernel_shape = [3, 3], dilations = [2, 1], pads = [2, 1, 2, 1], group = 8>
            (pooled, w2, b2)
        depth_on = HardSwish(depth)
        point = Conv <kernel_shape = [1, 1]> (depth_on, w3, b3)
        heat = Add(point, pooled)
        smooth = AveragePool <kernel_shape = [2, 2], pads = [0, 0, 1, 1], count_include_pad = 0>
            (heat)
        mean_heat = GlobalAveragePool(smooth)
        {sizes("mean_heat", 0)}
        rest = Constant <value = int64[1] {{-1}}> ()
        flat_shape = Concat <axis = 0> (mean_heat_size0, rest)
        flat = Reshape(mean_heat, flat_shape)
        logits = Gemm <transB = 1> (flat, w4, b4)
        """,
        _weights(seed),
    )


def _weights(seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    spread = {"variance": rng.uniform(0.5, 2.0, 8), "scale": rng.uniform(0.5, 1.5, 8)}
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 1, 3, 3), "w3": (8, 8, 1, 1), "w4": (6, 8)}
    vectors = {"bias": (8,), "mean": (8,), "b2": (8,), "b3": (8,), "b4": (6,)}
    return random_weights(rng, **shapes, **vectors) | {
        name: value.astype(np.float32) for name, value in spread.items()
    }


def image_net_forward(w: Weights, image: Array) -> dict[str, Array]:
    stem = _conv(image, w["w1"], (2, 2), (1, 1), (1, 1))
    deviation = np.sqrt(w["variance"] + 0.001)
    normal = (stem - _wide(w["mean"])) / _wide(deviation) * _wide(w["scale"]) + _wide(w["bias"])
    edged = np.pad(normal.clip(0, 6), ((0, 0), (0, 0), (1, 1), (0, 1)), constant_values=-np.inf)
    pooled = _windows(edged, (3, 2), (2, 1), (1, 1)).max(axis=(-2, -1))
    depth = _conv(pooled, w["w2"], (1, 1), (2, 1), (2, 1), groups=8) + _wide(w["b2"])
    depth_on = depth * (depth / 6.0 + 0.5).clip(0, 1)
    heat = _conv(depth_on, w["w3"], (1, 1), (0, 0), (1, 1)) + _wide(w["b3"]) + pooled
    edge = np.pad(heat, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    smooth = np.nanmean(_windows(edge, (2, 2), (1, 1), (1, 1)), axis=(-2, -1))
    return {"logits": smooth.mean(axis=(2, 3)) @ w["w4"].T + w["b4"], "heat": heat}


def _wide(vector: Array) -> Array:
    return vector[:, None, None]


def _conv(
    x: Array,
    w: Array,
    strides: tuple[int, int],
    pads: tuple[int, int],
    dilations: tuple[int, int],
    groups: int = 1,
) -> Array:
    """A convolution by its definition; `pads` are the same on both sides."""
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in pads)))
    taps = _windows(padded, w.shape[2:], strides, dilations)
    batch, _, rows, columns = taps.shape[:4]
    split = taps.reshape(batch, groups, -1, *taps.shape[2:])
    kernels = w.reshape(groups, -1, *w.shape[1:])
    y = np.einsum("bgcrsij,gocij->bgors", split, kernels)
    return np.asarray(y.reshape(batch, -1, rows, columns))


def _windows(
    x: Array, kernel: tuple[int, ...], strides: tuple[int, int], dilations: tuple[int, int]
) -> Array:
    """[batch, channels, rows, columns] -> the same with a kernel's taps as two more axes."""
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    views = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(2, 3))
    return views[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
