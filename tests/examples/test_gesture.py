# SPDX-License-Identifier: Apache-2.0
"""The committed gesture model is what its scripts say, and does what its README says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime import InferenceSession

from examples.gesture import layers
from examples.gesture.export import to_onnx
from examples.gesture.layers import Array, Backward
from examples.gesture.model import GRU_WEIGHTS, SHAPES, Weights, classify, forward, fresh
from examples.gesture.motion import (
    CLASSES,
    GRAVITY,
    LONGEST,
    RATE_HZ,
    SHORTEST,
    STILL,
    record,
    record_any,
)
from examples.gesture.train import Training, accuracy, recordings, train

FOLDER = Path(__file__).parents[2] / "examples" / "gesture"


@pytest.fixture(scope="module")
def session() -> InferenceSession:
    return InferenceSession(FOLDER / "gesture.onnx", providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def weights() -> Weights:
    """The weights in the committed model, as the training code names them."""
    model = onnx.load(FOLDER / "gesture.onnx")
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    found = {name: stored[name] for name in SHAPES if name in stored}
    found["gru.weight"] = stored["gru.weight"][0]
    found["gru.recurrence"] = stored["gru.recurrence"][0]
    found["gru.bias"], found["gru.recurrence_bias"] = np.split(stored["gru.bias"][0], 2)
    found["frames.weight"] = found["frames.weight"].T
    found["norm.mean"] = stored["norm.running_mean"]
    found["norm.variance"] = stored["norm.running_var"]
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 17, 64, 77, 255, 256])
def test_onnx_runtime_agrees_with_the_training_code(
    session: InferenceSession, weights: Weights, n: int
) -> None:
    motion = record_any(1, n, np.random.default_rng(n)).motion
    scores, frames = session.run(["scores", "frames"], {"motion": motion[0]})
    precise = {name: value.astype(np.float64) for name, value in weights.items()}
    expected_scores, expected_frames = classify(precise, motion.astype(np.float64))
    assert frames.shape == ((n + 3) // 4, len(CLASSES))
    np.testing.assert_allclose(scores, expected_scores[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(frames, expected_frames[0], rtol=1e-4, atol=1e-5)


def test_the_committed_model_is_what_export_writes(weights: Weights) -> None:
    assert to_onnx(weights) == onnx.load(FOLDER / "gesture.onnx")


def test_accuracy_on_new_recordings(weights: Weights) -> None:
    fresh_batches = recordings(12, LONGEST, np.random.default_rng(991))
    reached = accuracy(weights, fresh_batches)
    assert reached.scores >= 0.95
    assert reached.frames >= 0.95


def test_the_committed_samples_are_recognized(session: InferenceSession) -> None:
    samples = np.load(FOLDER / "gesture_samples.npz")
    assert set(samples) == set(CLASSES)
    for name, motion in samples.items():
        (scores,) = session.run(["scores"], {"motion": motion})
        assert CLASSES[scores.argmax()] == name
    assert len({len(motion) for motion in samples.values()}) == len(CLASSES)


def test_the_committed_files_are_small() -> None:
    assert (FOLDER / "gesture.onnx").stat().st_size < 60_000
    assert (FOLDER / "gesture_samples.npz").stat().st_size < 60_000


@pytest.mark.slow
def test_a_short_training_is_repeatable() -> None:
    short = Training(seed=5, batches=4, epochs=2)
    first, second = train(short), train(short)
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    other = train(Training(seed=6, batches=4, epochs=2))
    assert not np.array_equal(first["stem.weight"], other["stem.weight"])


@pytest.mark.slow
def test_training_learns() -> None:
    batches = recordings(4, 100, np.random.default_rng(3))
    untrained = train(Training(seed=5, batches=8, epochs=1, rate=0.0))
    trained = train(Training(seed=5, batches=8, epochs=12))
    assert accuracy(untrained, batches).scores < 0.5 < accuracy(trained, batches).scores


def test_a_still_hand_measures_gravity_alone() -> None:
    still = record(np.full(50, STILL), 200, np.random.default_rng(0)).motion.mean(axis=1)
    np.testing.assert_allclose(np.linalg.norm(still[:, :3], axis=1), 1.0, atol=0.06)
    np.testing.assert_allclose(still[:, 3:], 0.0, atol=0.1)


def test_a_swipe_speeds_up_towards_its_side_and_slows_down() -> None:
    """The integral of the acceleration is a speed that is greatest on the way and ends near 0."""
    for name, side in (("swipe_left", -1.0), ("swipe_right", 1.0)):
        made = record(np.full(40, CLASSES.index(name)), 60, np.random.default_rng(1)).motion
        sideways = side * (made[..., 0] - made[:, :1, 0])
        speed = np.cumsum(sideways, axis=1) * GRAVITY / RATE_HZ
        assert np.median(speed.max(axis=1)) > 0.5
        assert abs(np.median(speed[:, -1])) < 0.25


# Gradients against finite differences, in double precision

Layer = Callable[..., tuple[Array, Backward]]


def check_gradients(layer: Layer, *arguments: Array) -> None:
    """The slope along one random direction of all arguments, by the layer and by differences."""
    rng = np.random.default_rng(0)
    y, backward = layer(*arguments)
    weigh = rng.normal(size=y.shape)
    directions = [rng.normal(size=a.shape) for a in arguments]
    gradients = backward(weigh)
    assert [g.shape for g in gradients] == [a.shape for a in arguments]
    h = 1e-6
    for index, direction in enumerate(directions):

        def value(by: float, index: int = index, direction: Array = direction) -> float:
            moved = list(arguments)
            moved[index] = moved[index] + by * direction
            return float((layer(*moved)[0] * weigh).sum())

        slope = (value(h) - value(-h)) / (2 * h)
        assert (gradients[index] * direction).sum() == pytest.approx(slope, rel=1e-6, abs=1e-7)


def random(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(42)
    return [rng.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("steps", [1, 2, 7, 8])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_gradient_of_conv(steps: int, stride: int) -> None:
    def layer(x: Array, w: Array, b: Array) -> tuple[Array, Backward]:
        return layers.conv(x, w, b, stride=stride)

    check_gradients(layer, *random((2, steps, 3), (4, 3, 5), (4,)))


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_gradient_of_depthwise(stride: int, dilation: int) -> None:
    def layer(x: Array, w: Array, b: Array) -> tuple[Array, Backward]:
        return layers.depthwise(x, w, b, stride=stride, dilation=dilation)

    check_gradients(layer, *random((2, 9, 3), (3, 1, 3), (3,)))


def test_gradients_of_the_other_layers() -> None:
    check_gradients(layers.linear, *random((2, 5, 3), (4, 3), (4,)))
    check_gradients(layers.relu, *random((2, 5, 3)))
    check_gradients(layers.mean_and_peak, *random((2, 5, 3)))
    check_gradients(layers.gru, *random((2, 6, 3), (12, 3), (12, 4), (12,), (12,)))


def test_gradient_of_cross_entropy() -> None:
    labels = np.array([[0, 3], [2, 2]])

    def layer(x: Array) -> tuple[Array, Backward]:
        loss, gradient = layers.cross_entropy(x, labels)
        return np.array(loss), lambda dy: (dy * gradient,)

    check_gradients(layer, *random((2, 2, 4)))


def test_gradient_of_the_whole_classifier() -> None:
    rng = np.random.default_rng(8)
    batch = record_any(3, 22, rng)
    motion = batch.motion.astype(np.float64)
    start = fresh(motion, rng)
    # Biases of zero would put the ReLUs of a padded border on their kink.
    start |= {n: rng.normal(0.0, 0.1, start[n].shape) for n in SHAPES if n.endswith("bias")}
    names = [*SHAPES]

    def layer(*values: Array) -> tuple[Array, Backward]:
        trained = dict(zip(names, values, strict=True))
        scores, frames, backward = forward(start | trained, motion)

        def back(dy: Array) -> tuple[Array, ...]:
            split = np.split(dy, [scores.size])
            gradients = backward(split[0].reshape(scores.shape), split[1].reshape(frames.shape))
            return tuple(gradients[name] for name in names)

        return np.concatenate([scores.ravel(), frames.ravel()]), back

    assert set(GRU_WEIGHTS) < set(names)
    check_gradients(layer, *(start[name] for name in names))


@pytest.mark.slow
def test_lengths_cover_the_stated_range() -> None:
    lengths = [b.motion.shape[1] for b in recordings(60, LONGEST, np.random.default_rng(4))]
    assert SHORTEST <= min(lengths) < 48
    assert 180 < max(lengths) <= LONGEST
