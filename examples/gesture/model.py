# SPDX-License-Identifier: Apache-2.0
"""The classifier: which layers, in which order, with which weights.

motion [n, 6] -> normalized -> conv (every 2nd sample) -> residual dilated block
  -> depthwise (every 2nd) -> pointwise -> GRU, one state per 4 samples
  -> scores [classes]: from the mean and the peak of all states
  -> frames [(n+3)//4, classes]: from each state
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from examples.gesture import layers
from examples.gesture.layers import Array, Backward
from examples.gesture.motion import CLASSES

CHANNELS, HIDDEN = 16, 24
EPSILON = 1e-5
"""Added to the variance of the normalization, as ONNX's BatchNormalization does."""

Weights = dict[str, Array]

SHAPES: dict[str, tuple[int, ...]] = {
    "stem.weight": (CHANNELS, 6, 5),
    "stem.bias": (CHANNELS,),
    "wide.weight": (CHANNELS, 1, 5),
    "wide.bias": (CHANNELS,),
    "mix.weight": (CHANNELS, CHANNELS, 1),
    "mix.bias": (CHANNELS,),
    "narrow.weight": (CHANNELS, 1, 3),
    "narrow.bias": (CHANNELS,),
    "grow.weight": (HIDDEN, CHANNELS, 1),
    "grow.bias": (HIDDEN,),
    "gru.weight": (3 * HIDDEN, HIDDEN),
    "gru.recurrence": (3 * HIDDEN, HIDDEN),
    "gru.bias": (3 * HIDDEN,),
    "gru.recurrence_bias": (3 * HIDDEN,),
    "frames.weight": (len(CLASSES), HIDDEN),
    "frames.bias": (len(CLASSES),),
    "scores.weight": (len(CLASSES), 2 * HIDDEN),
    "scores.bias": (len(CLASSES),),
}
"""What is trained. The normalization's mean and variance come from the recordings."""
GRU_WEIGHTS = ("gru.weight", "gru.recurrence", "gru.bias", "gru.recurrence_bias")


def fresh(motion: Array, rng: np.random.Generator) -> Weights:
    """Untrained weights of the precision of `motion`, whose statistics they take on."""
    weights: Weights = {
        "norm.mean": motion.mean(axis=(0, 1)),
        "norm.variance": motion.var(axis=(0, 1)),
    }
    for name, shape in SHAPES.items():
        if name.endswith("bias"):
            weights[name] = np.zeros(shape, motion.dtype)
        else:
            inputs = float(np.prod(shape[1:]))
            gain = 1.0 if name.startswith("gru") else 2.0
            weights[name] = rng.normal(0.0, np.sqrt(gain / inputs), shape).astype(motion.dtype)
    return weights


def forward(
    weights: Weights, motion: Array
) -> tuple[Array, Array, Callable[[Array, Array], Weights]]:
    """Logits of scores [batch, classes] and of frames [batch, steps, classes].

    The third result takes the gradients of the two to the gradients of what is trained.
    """
    backwards: dict[str, Backward] = {}
    deviation = np.sqrt(weights["norm.variance"] + motion.dtype.type(EPSILON))
    normal = (motion - weights["norm.mean"]) / deviation

    def parameters(name: str) -> tuple[Array, Array]:
        return weights[f"{name}.weight"], weights[f"{name}.bias"]

    stem, backwards["stem"] = layers.conv(normal, *parameters("stem"), stride=2)
    stem_on, backwards["stem_on"] = layers.relu(stem)
    wide, backwards["wide"] = layers.depthwise(stem_on, *parameters("wide"), dilation=2)
    wide_on, backwards["wide_on"] = layers.relu(wide)
    mix, backwards["mix"] = layers.conv(wide_on, *parameters("mix"))
    mix_on, backwards["mix_on"] = layers.relu(mix + stem_on)
    narrow, backwards["narrow"] = layers.depthwise(mix_on, *parameters("narrow"), stride=2)
    grow, backwards["grow"] = layers.conv(narrow, *parameters("grow"))
    grow_on, backwards["grow_on"] = layers.relu(grow)
    states, backwards["gru"] = layers.gru(grow_on, *(weights[name] for name in GRU_WEIGHTS))
    frames, backwards["frames"] = layers.linear(states, *parameters("frames"))
    pooled, backwards["pooled"] = layers.mean_and_peak(states)
    scores, backwards["scores"] = layers.linear(pooled, *parameters("scores"))

    def backward(dscores: Array, dframes: Array) -> Weights:
        gradients: Weights = {}

        def back(name: str, dy: Array) -> Array:
            """Through a layer with a weight and a bias."""
            dx, gradients[f"{name}.weight"], gradients[f"{name}.bias"] = backwards[name](dy)
            return dx

        (dpooled,) = backwards["pooled"](back("scores", dscores))
        dgrow_on, *dgru = backwards["gru"](dpooled + back("frames", dframes))
        gradients.update(zip(GRU_WEIGHTS, dgru, strict=True))
        (dgrow,) = backwards["grow_on"](dgrow_on)
        (dsum,) = backwards["mix_on"](back("narrow", back("grow", dgrow)))
        (dwide,) = backwards["wide_on"](back("mix", dsum))
        (dstem,) = backwards["stem_on"](dsum + back("wide", dwide))
        back("stem", dstem)
        return gradients

    return scores, frames, backward


def classify(weights: Weights, motion: Array) -> tuple[Array, Array]:
    """Probabilities: scores [batch, classes] and frames [batch, steps, classes]."""
    scores, frames, _ = forward(weights, motion)
    return layers.softmax(scores), layers.softmax(frames)
