# SPDX-License-Identifier: Apache-2.0
"""Frequencies of rotary positions, and their scaling for longer contexts (`rope_scaling`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.llm.config import GREATEST_NUMBER, LEAST_NUMBER, Config
from relax_aot.ops._op import Array


def frequencies(config: Config, size: int) -> Array:
    """The angle of each pair of a head for one position, in float32."""
    if size % 2:
        raise ModelError(f"{config.file}: heads of {size} numbers; rotary positions rotate pairs")
    # Since version 5 of transformers, both are in `rope_parameters`.
    given = config.part("rope_parameters") or config.part("rope_scaling")
    at = given if given is not None and "rope_theta" in given else config
    theta = at.number("rope_theta", 10000.0)
    plain = np.array([theta ** (-number / size) for number in range(0, size, 2)])
    if given is None:
        return _finite(plain, at)
    given.only("partial_rotary_factor", 1, 1.0)
    kind = given.fields.get("rope_type", given.fields.get("type", "default"))
    scaling = {**SCALINGS, **FACTORS}.get(kind) if isinstance(kind, str) else None
    if scaling is None:
        raise UnsupportedError(
            f"{given.file}: rope_type={printable(str(kind))} is not supported, only "
            + ", ".join(sorted(SCALINGS))
        )
    return _finite(scaling(plain, given), given)


def _finite(values: Array, given: Config) -> Array:
    """In float32, which a tiny factor may exceed."""
    if not values.max() <= GREATEST_NUMBER:
        raise ModelError(f"{given.file}: its rotary positions are beyond float32")
    return values.astype(np.float32)


def _default(plain: Array, _: Config) -> Array:
    return plain


def _linear(plain: Array, given: Config) -> Array:
    """Positions are divided by a factor (Chen et al., arXiv:2306.15595)."""
    return plain / given.number("factor")


def _llama3(plain: Array, given: Config) -> Array:
    """Long wavelengths are divided by a factor, short ones stay, with a ramp between them."""
    factor, original = given.number("factor"), given.size("original_max_position_embeddings")
    low, high = given.number("low_freq_factor"), given.number("high_freq_factor")
    if not low < high:
        raise given.wrong("high_freq_factor", "a number above low_freq_factor")
    cycles = original * plain / (2 * math.pi)
    share = np.clip((cycles - low) / (high - low), 0, 1)
    return (1 - share) * plain / factor + share * plain


def _factors(plain: Array, given: Config) -> Array:
    """Each frequency is divided by a number of a GGUF file."""
    factors = given.fields.get("factors")
    listed = factors if isinstance(factors, list) else []
    fits = len(listed) == len(plain)
    if not fits or not all(isinstance(f, float) and f >= LEAST_NUMBER for f in listed):
        raise given.wrong("factors", f"{len(plain)} positive numbers")
    return np.asarray(plain / np.array(listed))


SCALINGS: Mapping[str, Callable[[Array, Config], Array]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
}
FACTORS = {"factors": _factors}
"""Of GGUF files alone."""
