# SPDX-License-Identifier: Apache-2.0
"""Writes a small keyword spotter and the words that it knows, without downloads.

    python -m examples.keyword.make_model build/keyword

The words are whistled: tones that rise, fall, stay high, stay low or warble, of any length, with
noise. The network has the usual shape: power in bands of each 10 ms frame, convolutions over
time, mean and peak, one dense layer. Filters are random; the dense layer, the only one that
learns, is the solution of a linear system, so that training takes a second.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import parser

Array = NDArray[np.float32]

RATE, FRAME = 16_000, 160
BANDS, CHANNELS = 20, 48
WORDS = ("noise", "rise", "fall", "high", "low", "warble")
SHORTEST, LONGEST = 25, 80
"""Frames of the words; the model takes any number."""

GRAPH = f"""
<ir_version: 8, opset_import: ["" : 17]>
keyword (float[n, {FRAME}] audio) => (float[1, {len(WORDS)}] scores)
<float[{FRAME}, {BANDS}] cosines, float[{FRAME}, {BANDS}] sines,
 float[{CHANNELS}, {BANDS}, 9] local_weight, float[{CHANNELS}] local_bias,
 float[{CHANNELS}, 1, 5] wide_weight, float[{CHANNELS}, {CHANNELS}, 1] mix_weight,
 float[{CHANNELS}] mix_bias, float[{2 * CHANNELS}, {len(WORDS)}] dense_weight,
 float[{len(WORDS)}] dense_bias>
{{
    real = MatMul(audio, cosines)
    imaginary = MatMul(audio, sines)
    real_power = Mul(real, real)
    imaginary_power = Mul(imaginary, imaginary)
    power = Add(real_power, imaginary_power)
    floor = Constant <value_float = 0.0001> ()
    lifted = Add(power, floor)
    loudness = Log(lifted)
    turned = Transpose <perm = [1, 0]> (loudness)
    front = Constant <value_ints = [0]> ()
    bands = Unsqueeze(turned, front)
    local = Conv <kernel_shape = [9], strides = [2], pads = [4, 4]>
        (bands, local_weight, local_bias)
    local_on = Relu(local)
    wide = Conv <kernel_shape = [5], pads = [2, 2], group = {CHANNELS}> (local_on, wide_weight)
    mix = Conv <kernel_shape = [1]> (wide, mix_weight, mix_bias)
    mix_on = Relu(mix)
    mean = ReduceMean <axes = [2], keepdims = 0> (mix_on)
    peak = ReduceMax <axes = [2], keepdims = 0> (mix_on)
    pooled = Concat <axis = 1> (mean, peak)
    logits = Gemm(pooled, dense_weight, dense_bias)
    scores = Softmax <axis = 1> (logits)
}}
"""


def filters(rng: np.random.Generator) -> dict[str, Array]:
    """What does not learn: windowed tones from 200 Hz to 4 kHz, and random convolutions."""
    time = np.arange(FRAME) / RATE
    window = np.hanning(FRAME) * np.sqrt(2 / FRAME)
    angles = 2 * np.pi * time[:, None] * np.geomspace(200, 4000, BANDS)
    wide = rng.normal(1, 0.5, (CHANNELS, 1, 5)) / 5
    local = rng.normal(0, 1, (CHANNELS, BANDS, 9))
    # Loudness itself says nothing: each filter compares bands and moments.
    local -= local.mean(axis=(1, 2), keepdims=True)
    made = {
        "cosines": window[:, None] * np.cos(angles),
        "sines": window[:, None] * np.sin(angles),
        "local_weight": local / np.sqrt(9 * BANDS),
        "local_bias": rng.normal(0, 0.5, CHANNELS),
        "wide_weight": wide,
        "mix_weight": rng.normal(0, 1, (CHANNELS, CHANNELS, 1)) / np.sqrt(CHANNELS),
        "mix_bias": rng.normal(0, 0.5, CHANNELS),
    }
    return {name: array.astype(np.float32) for name, array in made.items()}


def spoken(word: str, frames: int, rng: np.random.Generator) -> Array:
    """`frames` frames of audio; the word fills most of them."""
    count = frames * FRAME
    part = np.linspace(0, 1, count)
    low, high = rng.uniform(350, 600), rng.uniform(1600, 2600)
    pitch = {
        "noise": np.zeros(count),
        "rise": low * (high / low) ** part,
        "fall": high * (low / high) ** part,
        "high": np.full(count, high),
        "low": np.full(count, low),
        "warble": 900 + 500 * np.sin(2 * np.pi * rng.uniform(4, 7) * np.arange(count) / RATE),
    }[word]
    volume = 0.0 if word == "noise" else rng.uniform(0.2, 0.8)
    tone = volume * np.sin(2 * np.pi * np.cumsum(pitch) / RATE + rng.uniform(0, 6))
    audio = tone * np.minimum(1, 12 * np.minimum(part, 1 - part))
    audio = audio + rng.normal(0, rng.uniform(0.005, 0.03), count)
    rows: Array = audio.reshape(frames, FRAME).astype(np.float32)
    return rows


def pooled(weights: dict[str, Array], audio: Array) -> Array:
    """All layers but the last."""
    power = (audio @ weights["cosines"]) ** 2 + (audio @ weights["sines"]) ** 2
    bands = np.pad(np.log(power + np.float32(1e-4)), ((4, 4), (0, 0)))
    patches = np.lib.stride_tricks.sliding_window_view(bands, 9, axis=0)[::2]
    local = np.einsum("tbk,cbk->tc", patches, weights["local_weight"]) + weights["local_bias"]
    padded = np.pad(np.maximum(local, 0), ((2, 2), (0, 0)))
    moments = np.lib.stride_tricks.sliding_window_view(padded, 5, axis=0)
    wide = np.einsum("tck,ck->tc", moments, weights["wide_weight"][:, 0])
    mix = np.maximum(wide @ weights["mix_weight"][:, :, 0].T + weights["mix_bias"], 0)
    means_and_peaks: Array = np.concatenate([mix.mean(axis=0), mix.max(axis=0)])
    return means_and_peaks.astype(np.float32)


def trained(rng: np.random.Generator, words: int = 600) -> dict[str, Array]:
    weights = filters(rng)
    labels = rng.integers(0, len(WORDS), words)
    lengths = rng.integers(SHORTEST, LONGEST + 1, words)
    rows = np.stack(
        [
            pooled(weights, spoken(WORDS[label], int(frames), rng))
            for label, frames in zip(labels, lengths, strict=True)
        ]
    ).astype(np.float64)
    center, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    normal = (rows - center) / spread
    wanted = np.eye(len(WORDS))[labels] - 1 / len(WORDS)
    system = normal.T @ normal + 3.0 * np.eye(2 * CHANNELS)
    solved = 12 * np.linalg.solve(system, normal.T @ wanted) / spread[:, None]
    weights["dense_weight"] = solved.astype(np.float32)
    weights["dense_bias"] = (-center @ solved).astype(np.float32)
    return weights


def model(weights: dict[str, Array]) -> onnx.ModelProto:
    made = parser.parse_model(GRAPH)
    del made.graph.initializer[:]
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    for node in made.graph.node:
        node.name = f"/{node.output[0]}"
    onnx.checker.check_model(made, full_check=True)
    return made


def main(folder: Path) -> None:
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model(trained(rng)), folder / "keyword.onnx")
    words = {word: spoken(word, int(rng.integers(SHORTEST, LONGEST)), rng) for word in WORDS}
    np.savez(folder / "words.npz", **words)  # type: ignore[arg-type]  # it takes any names
    # Calibration stacks its samples, so they have one length.
    calibration = [spoken(WORDS[i % len(WORDS)], 60, rng) for i in range(48)]
    np.savez(folder / "calibration.npz", audio=np.stack(calibration))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
