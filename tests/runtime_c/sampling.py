# SPDX-License-Identifier: Apache-2.0
"""What `raot/sample.h` computes, in double precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
NEAR = 1e-5
"""Relative to all probabilities: closer decisions may differ from those in double precision."""


def pcg(seed: int, sequence: int) -> Callable[[], int]:
    """PCG-XSH-RR 64/32 as its paper defines it."""
    increment = sequence << 1 | 1
    state = [0]

    def next_value() -> int:
        old = state[0]
        state[0] = (old * 6364136223846793005 + increment) % 2**64
        mixed = ((old >> 18 ^ old) >> 27) % 2**32
        return (mixed >> (old >> 59) | mixed << (-(old >> 59) % 32)) % 2**32

    next_value()
    state[0] = (state[0] + seed) % 2**64
    next_value()
    return next_value


def expected(
    logits: Logits, seed: int, seen: tuple[int, ...], how: dict[str, float], skipped: int = 0
) -> tuple[int, bool]:
    """The token, and whether a decision was near. `skipped`: choices before this one."""
    x = np.array(logits, np.float64)
    penalty = how.get("repetition_penalty") or 1.0
    for token in set(seen):
        x[token] = x[token] * penalty if x[token] < 0 else x[token] / penalty
    if how.get("temperature", 0) == 0:
        return int(x.argmax()), False
    order = np.argsort(-x, kind="stable")
    kept = np.ones(len(x), bool)
    if 0 < how.get("top_k", 0) < len(x):
        kept = x >= x[order[int(how["top_k"]) - 1]]
    p = np.where(kept, np.exp((x - x.max()) / how["temperature"]), 0.0)
    near = False
    if how.get("top_p"):
        sums = np.cumsum(p[order]) / p.sum()
        end = int(np.searchsorted(sums, how["top_p"]))
        near |= bool(np.abs(sums - how["top_p"]).min() < NEAR)
        p = np.where(p >= p[order[min(end, len(x) - 1)]], p, 0.0)
    least = how.get("min_p", 0)
    near |= bool((np.abs(p - least) < NEAR * (least > 0)).any())
    p = np.where(p >= least, p, 0.0)
    random = pcg(seed, 0)
    for _ in range(2 * skipped):
        random()
    point = (random() * 2**32 + random()) / 2**64 * p.sum()
    sums = np.cumsum(p)
    near |= bool(np.abs(sums - point).min() < NEAR * p.sum())
    return int(np.searchsorted(sums, point, side="right")), near
