# SPDX-License-Identifier: Apache-2.0
"""Arrays for samples of ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relax_aot.ops._op import Array


def normals(rng: np.random.Generator, scale: float = 1.0) -> Callable[..., Array]:
    """`normal(*shape)`: normally distributed numbers of f32."""
    return lambda *shape: np.asarray(rng.normal(size=shape) * scale).astype(np.float32)


def integers(rng: np.random.Generator) -> Callable[..., Array]:
    """`random(kind, *shape)`: any integers of a NumPy type."""

    def random(kind: Any, *shape: int) -> Array:
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max + 1, shape).astype(kind)

    return random
