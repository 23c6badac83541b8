# SPDX-License-Identifier: Apache-2.0
"""Synthetic recordings of a hand-held motion sensor: what gestures look like to an IMU.

A gesture is a path of the hand (meters to the right, forward, up) and its rotation about those
axes. From them follow what an accelerometer (in units of g, gravity included) and a gyroscope
(rad/s) measure in the frame of a device held at a slight, random angle. Trembling of the hand,
slow drift of the posture, offsets, noise, saturation and quantization are added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

RATE_HZ = 50.0
GRAVITY = 9.81
SHORTEST, LONGEST = 32, 256
"""Lengths of recordings: the slowest gestures need 0.6 s to be told apart."""

ACCEL_RANGE, GYRO_RANGE = 4.0, 17.5
"""Full scale of the sensor: 4 g and about 1000 degrees per second, in 16-bit steps."""


@dataclass(frozen=True, slots=True)
class Recordings:
    """Recordings of one length, with the label of each and of each of their samples."""

    motion: npt.NDArray[np.float32]
    """[recordings, n, 6]: accelerometer x, y, z, then gyroscope x, y, z."""
    labels: Labels
    moments: Labels
    """[recordings, n]: the label while the gesture lasts, else that of `still`."""


@dataclass(frozen=True, slots=True)
class Movement:
    """How the hand moves at given times: [recordings, n, 3] each."""

    position: Array
    rotation: Array


@dataclass(frozen=True, slots=True)
class Gesture:
    name: str
    seconds: tuple[float, float]
    """Shortest and longest duration."""
    path: Callable[[Array, Array, np.random.Generator], Movement]
    """(progress, seconds, generator) -> movement. Progress runs from 0 to 1, and beyond where the
    gesture has not begun or is over."""


def _between(low: float, high: float, like: Array, rng: np.random.Generator) -> Array:
    """One random number for each recording."""
    return rng.uniform(low, high, (len(like), 1))


def _sign(like: Array, rng: np.random.Generator) -> Array:
    return rng.choice([-1.0, 1.0], (len(like), 1))


def _ease(progress: Array) -> Array:
    """From 0 to 1 with the least jerk: how hands reach for things."""
    u = progress.clip(0.0, 1.0)
    return u**3 * (10.0 - 15.0 * u + 6.0 * u**2)


def _swell(progress: Array) -> Array:
    """From 0 to 1 and back, smoothly."""
    return np.sin(np.pi * progress.clip(0.0, 1.0)) ** 4


def _vector(like: Array, x: Array | float, y: Array | float, z: Array | float) -> Array:
    return np.stack([np.broadcast_to(part, like.shape) for part in (x, y, z)], axis=-1)


def _still(u: Array, seconds: Array, rng: np.random.Generator) -> Movement:
    return Movement(_vector(u, 0.0, 0.0, 0.0), _vector(u, 0.0, 0.0, 0.0))


def _swipe(direction: float) -> Callable[[Array, Array, np.random.Generator], Movement]:
    def path(u: Array, seconds: Array, rng: np.random.Generator) -> Movement:
        """The forearm turns about the elbow, so the hand turns as it travels."""
        travel, turn = _between(0.2, 0.5, u, rng), _between(0.2, 0.9, u, rng)
        rise = _between(-0.05, 0.05, u, rng) * _swell(u)
        there = direction * _ease(u)
        return Movement(_vector(u, travel * there, 0.0, rise), _vector(u, 0.0, 0.0, -turn * there))

    return path


def _lift(u: Array, seconds: Array, rng: np.random.Generator) -> Movement:
    rise, tilt = _between(0.15, 0.45, u, rng), _between(0.0, 0.4, u, rng)
    sway = _between(-0.04, 0.04, u, rng)
    there = _ease(u)
    return Movement(_vector(u, sway * there, 0.0, rise * there), _vector(u, tilt * there, 0.0, 0.0))


def _circle(u: Array, seconds: Array, rng: np.random.Generator) -> Movement:
    """An upright circle, either way round."""
    radius, squeeze = _between(0.07, 0.16, u, rng), _between(0.7, 1.2, u, rng)
    angle = _sign(u, rng) * 2.0 * np.pi * _ease(u)
    return Movement(
        _vector(u, radius * np.sin(angle), 0.0, squeeze * radius * (1.0 - np.cos(angle))),
        _vector(u, 0.0, 0.0, -0.8 * radius * np.sin(angle)),
    )


def _shake(u: Array, seconds: Array, rng: np.random.Generator) -> Movement:
    hertz, reach = _between(3.0, 6.0, u, rng), _between(0.02, 0.05, u, rng)
    swing = np.sin(2.0 * np.pi * hertz * seconds * u + _between(0.0, 6.0, u, rng)) * _swell(u)
    return Movement(
        _vector(u, reach * swing, 0.3 * reach * swing, 0.0),
        _vector(u, 0.0, 4.0 * reach * swing, 0.0),
    )


def _tap(u: Array, seconds: Array, rng: np.random.Generator) -> Movement:
    """A finger of the other hand pushes the device down for a moment."""
    push = _between(0.003, 0.008, u, rng) * np.exp(-(((u - 0.5) / 0.14) ** 2))
    lean, nod = _between(-0.4, 0.4, u, rng), _between(-4.0, 4.0, u, rng)
    return Movement(_vector(u, lean * push, 0.0, -push), _vector(u, nod * push, 0.0, 0.0))


def _twist(u: Array, seconds: Array, rng: np.random.Generator) -> Movement:
    """The wrist rolls over and back."""
    roll = _sign(u, rng) * _between(0.7, 1.6, u, rng) * _swell(u)
    return Movement(_vector(u, 0.02 * roll, 0.0, 0.0), _vector(u, 0.0, roll, 0.0))


GESTURES = (
    Gesture("still", (0.3, 1.0), _still),
    Gesture("swipe_left", (0.35, 0.9), _swipe(-1.0)),
    Gesture("swipe_right", (0.35, 0.9), _swipe(1.0)),
    Gesture("lift", (0.35, 0.9), _lift),
    Gesture("circle", (0.55, 1.4), _circle),
    Gesture("shake", (0.5, 1.4), _shake),
    Gesture("tap", (0.15, 0.25), _tap),
    Gesture("twist", (0.4, 1.0), _twist),
)
CLASSES = tuple(gesture.name for gesture in GESTURES)
STILL = CLASSES.index("still")


def record(labels: Labels, n: int, rng: np.random.Generator) -> Recordings:
    """Recordings of `n` samples, one for each label."""
    motion = np.zeros((len(labels), n, 6), np.float32)
    moments = np.full((len(labels), n), STILL, np.int64)
    for label, gesture in enumerate(GESTURES):
        (mine,) = np.nonzero(labels == label)
        if len(mine):
            motion[mine], lasting = _perform(gesture, len(mine), n, rng)
            moments[mine] = np.where(lasting, label, STILL)
    return Recordings(motion, labels, moments)


def record_any(count: int, n: int, rng: np.random.Generator) -> Recordings:
    """As many recordings of each gesture, as far as `count` allows, in random order."""
    return record(rng.permutation(np.arange(count) % len(GESTURES)), n, rng)


def _perform(
    gesture: Gesture, count: int, n: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """What the sensor measures, and at which samples the gesture lasts."""
    window = n / RATE_HZ
    shortest, longest = gesture.seconds
    longest = max(min(longest, 0.92 * window), 0.1)
    seconds = rng.uniform(min(shortest, longest), longest, (count, 1))
    start = rng.uniform(0.02, 0.98, (count, 1)) * np.maximum(window - seconds, 0.0)
    posture = _rotation(rng.uniform(-0.3, 0.3, (count, 1, 3)))
    drift = rng.uniform(-0.15, 0.15, (count, 1, 3))
    tremor = rng.uniform(5e-5, 3e-4, (count, 1, 3))
    tremor_hertz = rng.uniform(7.0, 11.0, (count, 1, 3))

    # Each moment thrice, a little apart: differences give acceleration and rate of turn.
    step = 0.25 / RATE_HZ
    now = np.arange(n) / RATE_HZ
    times = np.tile(np.concatenate([now - step, now, now + step]), (count, 1))
    moved = gesture.path((times - start) / seconds, seconds, rng)
    shiver = tremor * np.sin(2.0 * np.pi * tremor_hertz * times[..., None])
    lean = drift * np.sin(times[..., None] / max(window, 1.0) * np.pi)
    before, here, after = np.split(moved.position + shiver, 3, axis=1)
    turned_before, turned, turned_after = np.split(
        _rotation(moved.rotation + lean) @ posture, 3, axis=1
    )

    pull = (after - 2.0 * here + before) / step**2 + np.array([0.0, 0.0, GRAVITY])
    accel = np.einsum("bnji,bnj->bni", turned, pull) / GRAVITY
    spin = np.swapaxes(turned_before, -1, -2) @ turned_after / (2.0 * step)
    gyro = np.stack([spin[..., 2, 1], spin[..., 0, 2], spin[..., 1, 0]], axis=-1)
    measured = [
        _sense(accel, ACCEL_RANGE, 0.03, 0.012, rng),
        _sense(gyro, GYRO_RANGE, 0.03, 0.02, rng),
    ]
    return np.concatenate(measured, axis=-1), (now >= start) & (now <= start + seconds)


def _sense(
    truth: Array, full_scale: float, offset: float, noise: float, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """The readings of a sensor with these defects, as multiples of its 16-bit step."""
    step = full_scale / 32768.0
    wrong = rng.uniform(-offset, offset, (len(truth), 1, truth.shape[-1]))
    counts = np.rint((truth + wrong + rng.normal(0.0, noise, truth.shape)) / step)
    return (counts.clip(-32768, 32767) * step).astype(np.float32)


def _rotation(angles: Array) -> Array:
    """Matrices that turn about x, then y, then z: [..., 3] -> [..., 3, 3]."""
    (sx, sy, sz), (cx, cy, cz) = (
        np.moveaxis(np.sin(angles), -1, 0),
        np.moveaxis(np.cos(angles), -1, 0),
    )
    rows = [
        [cy * cz, sx * sy * cz - cx * sz, cx * sy * cz + sx * sz],
        [cy * sz, sx * sy * sz + cx * cz, cx * sy * sz - sx * cz],
        [-sy, sx * cy, cx * cy],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
