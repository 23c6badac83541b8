# SPDX-License-Identifier: Apache-2.0
"""Train the gesture classifier and write all files of this folder that are not scripts.

    python -m examples.gesture.train

NumPy alone, one seed, half a minute on one core. On one machine the same bytes come out;
on another the last digits of the weights may differ, because sums are ordered differently.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from examples.gesture.export import to_onnx
from examples.gesture.layers import Array, cross_entropy
from examples.gesture.model import Weights, classify, forward, fresh
from examples.gesture.motion import CLASSES, LONGEST, SHORTEST, Recordings, record, record_any
from examples.gesture.sample_header import sample_header

HERE = Path(__file__).parent
BATCH = 64
TRAINING_LONGEST = 160
"""Longer recordings bring nothing new but idle time: the GRU carries over."""
FRAMES_SHARE = 0.5
"""Weight of the loss of the frames relative to that of the scores."""
SAMPLE_LENGTHS = (40, 48, 61, 33, 64, 96, 57, 250)
"""Lengths of the committed samples, one for each class."""
EMBEDDED = "swipe_right"


@dataclass(frozen=True, slots=True)
class Training:
    seed: int = 2024
    batches: int = 220
    """Different batches; all recordings of one batch have the same length."""
    epochs: int = 12
    rate: float = 4e-3


@dataclass(frozen=True, slots=True)
class Accuracy:
    scores: float
    frames: float


def recordings(count: int, longest: int, rng: np.random.Generator) -> list[Recordings]:
    """Batches of random lengths; short ones are as likely as long ones, by octave."""
    lengths = np.exp2(rng.uniform(np.log2(SHORTEST), np.log2(longest), count)).astype(int)
    return [record_any(BATCH, int(n), rng) for n in lengths]


def train(training: Training) -> Weights:
    """Adam with a rate that falls to nothing along a cosine."""
    rng = np.random.default_rng(training.seed)
    batches = recordings(training.batches, TRAINING_LONGEST, rng)
    seen = np.concatenate([batch.motion.reshape(1, -1, 6) for batch in batches], axis=1)
    weights = fresh(seen, rng)
    first = {name: np.zeros_like(value) for name, value in weights.items()}
    second = {name: np.zeros_like(value) for name, value in weights.items()}
    total = training.batches * training.epochs
    order = np.concatenate([rng.permutation(training.batches) for _ in range(training.epochs)])
    for step, index in enumerate(order, start=1):
        gradients = _gradients(weights, batches[index])
        rate = training.rate * 0.5 * (1.0 + np.cos(np.pi * step / total))
        for name, gradient in gradients.items():
            first[name] += 0.1 * (gradient - first[name])
            second[name] += 0.01 * (gradient**2 - second[name])
            towards = first[name] / (1.0 - 0.9**step)
            spread = np.sqrt(second[name] / (1.0 - 0.99**step)) + 1e-8
            weights[name] = (weights[name] - rate * towards / spread).astype(np.float32)
    return weights


def _gradients(weights: Weights, batch: Recordings) -> Weights:
    scores, frames, backward = forward(weights, batch.motion)
    _, dscores = cross_entropy(scores, batch.labels)
    _, dframes = cross_entropy(frames, batch.moments[:, ::4])
    return backward(dscores, np.float32(FRAMES_SHARE) * dframes)


def accuracy(weights: Weights, batches: list[Recordings]) -> Accuracy:
    """The share of recordings, and of frames, whose likeliest class is the right one."""
    right = np.zeros(2)
    count = np.zeros(2)
    for batch in batches:
        scores, frames = classify(weights, batch.motion)
        right += (
            (scores.argmax(-1) == batch.labels).sum(),
            (frames.argmax(-1) == batch.moments[:, ::4]).sum(),
        )
        count += batch.labels.size, frames[..., 0].size
    return Accuracy(*(right / count))


def samples() -> dict[str, Array]:
    """One recording of each gesture that training never saw, by its name."""
    rng = np.random.default_rng(7)
    return {
        name: record(np.array([label]), n, rng).motion[0]
        for (label, name), n in zip(enumerate(CLASSES), SAMPLE_LENGTHS, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=HERE, help="folder to write to")
    output: Path = parser.parse_args().output

    weights = train(Training())
    onnx.save(to_onnx(weights), output / "gesture.onnx")
    kept = samples()
    np.savez_compressed(output / "gesture_samples.npz", allow_pickle=False, **kept)
    (output / "gesture_sample.h").write_text(sample_header(EMBEDDED, kept[EMBEDDED]))

    reached = accuracy(weights, recordings(40, LONGEST, np.random.default_rng(1)))
    right = sum(CLASSES[classify(weights, x[None])[0].argmax()] == name for name, x in kept.items())
    print(f"scores: {reached.scores:.2%} right, frames: {reached.frames:.2%} right")
    print(f"samples: {right} of {len(kept)} right")


if __name__ == "__main__":
    main()
