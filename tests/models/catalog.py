# SPDX-License-Identifier: Apache-2.0
"""All small models, with bounds, inputs and what they compute, for tests that hold for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from tests.models import branches, image_net, perceptron, taggers, windows
from tests.models.onnx_text import Array

Sizes = dict[str, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """A model for all sizes within its bounds."""

    make: Callable[[], onnx.ModelProto]
    bounds: dict[str, tuple[int, int]]
    """Lowest and highest value of each symbol."""
    inputs: Callable[[np.random.Generator, Sizes], dict[str, Array]]
    """Random inputs of these sizes, by name."""
    forward: Callable[..., dict[str, Array]]
    """(weights, inputs by name) -> outputs by name, in NumPy."""
    state: tuple[tuple[str, str], ...] = ()
    """Inputs and outputs that may be declared as state."""


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


CATALOGUE: dict[str, Entry] = {
    "perceptron": Entry(
        perceptron.perceptron,
        {"batch": (1, 9)},
        lambda rng, s: {"x": _normal(rng, s["batch"], 12)},
        perceptron.perceptron_forward,
    ),
    "image_net": Entry(
        image_net.image_net,
        {"batch": (1, 2), "height": (1, 19), "width": (3, 22)},
        lambda rng, s: {"image": _normal(rng, s["batch"], 3, s["height"], s["width"])},
        image_net.image_net_forward,
    ),
    "lstm_tagger": Entry(
        taggers.lstm_tagger,
        {"batch": (1, 3), "n": (1, 20)},
        lambda rng, s: {"words": rng.integers(-taggers.WORDS, taggers.WORDS, (s["batch"], s["n"]))},
        taggers.lstm_tagger_forward,
    ),
    "gru_tagger": Entry(
        taggers.gru_tagger,
        {"n": (1, 20), "batch": (1, 3)},
        lambda rng, s: {
            "frames": _normal(rng, s["n"], s["batch"], taggers.FEATURES),
            "state": _normal(rng, 1, s["batch"], taggers.HIDDEN),
        },
        taggers.gru_tagger_forward,
        (("state", "stateN"),),
    ),
    "branch_equal": Entry(
        branches.branch_equal,
        {"n": (1, 12)},
        lambda rng, s: {"x": _normal(rng, s["n"], 4), "mode": rng.integers(-1, 2, ())},
        branches.branch_equal_forward,
    ),
    "branch_sizes": Entry(
        branches.branch_sizes,
        {"n": (1, 12)},
        lambda rng, s: {"x": _normal(rng, s["n"], 4), "twice": np.array(rng.random() < 0.5)},
        branches.branch_sizes_forward,
    ),
    "branch_decided": Entry(
        branches.branch_decided,
        {"n": (1, 12)},
        lambda rng, s: {"x": _normal(rng, s["n"], 1, 4)},
        branches.branch_decided_forward,
    ),
    "windows": Entry(
        windows.windows,
        {"n": (1, 23)},
        lambda rng, s: {"x": _normal(rng, s["n"], windows.CHANNELS)},
        windows.windows_forward,
    ),
}


def sizes_to_try(entry: Entry, rng: np.random.Generator, count: int = 4) -> list[Sizes]:
    """The lowest sizes, the highest, and some in between."""
    low = {name: bound[0] for name, bound in entry.bounds.items()}
    high = {name: bound[1] for name, bound in entry.bounds.items()}
    between = [
        {name: int(rng.integers(a, b + 1)) for name, (a, b) in entry.bounds.items()}
        for _ in range(count)
    ]
    return [low, high, *between]


def expected_of(entry: Entry, model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs in double precision."""
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    return entry.forward(_doubles(stored), **_doubles(inputs))


def _doubles(arrays: dict[str, Array]) -> dict[str, Array]:
    return {
        name: array.astype(np.float64) if array.dtype == np.float32 else array
        for name, array in arrays.items()
    }
