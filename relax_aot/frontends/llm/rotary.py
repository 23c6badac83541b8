# SPDX-License-Identifier: Apache-2.0
"""Frequencies of rotary positions, and their scaling for longer contexts (`rope_scaling`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.llm.config import GREATEST_NUMBER, LEAST_NUMBER, Config
from relax_aot.ops._op import Array

FULL, SLIDING = "full_attention", "sliding_attention"
"""The types of layers by their names in `layer_types`."""
ORIGINAL, WHOLE = "original_max_position_embeddings", "max_position_embeddings"
"""The context before it grew, and behind."""
FIELDS = (
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", ORIGINAL, WHOLE,
    "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
    "attention_factor", "truncate", "short_factor", "long_factor", "factors",
    "finetuned", "short_mscale", "long_mscale",
)  # fmt: skip
"""What may be said of positions; the last line is not read, as in transformers."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """How positions rotate the first numbers of a head: as many pairs as there are frequencies."""

    frequencies: Array
    """The angle of each pair for one position, in float32."""
    factor: float = 1.0
    """Of cosines and sines."""
    longest: int | None = None
    """The tokens of a text, behind which other frequencies apply; None: any number."""


def rotation(config: Config, size: int) -> Rotation:
    """The rotation of the first `size` numbers of each head."""
    given = parameters(config)
    at = given if given is not None and "rope_theta" in given else config
    return scaled(config, size, at.number("rope_theta", 10000.0), given)


def parameters(config: Config) -> Config | None:
    """What the configuration says of the scaling of positions, with the original context, which may
    be a field of its own."""
    # Since version 5 of transformers, the base is there, too.
    parts = [config.part(name) for name in ("rope_scaling", "rope_parameters")]
    given = next((part for part in parts if part is not None and part.fields), None)
    if given is None or ORIGINAL not in config:
        return given
    return Config(given.file, {**given.fields, ORIGINAL: config.size(ORIGINAL)})


def share(config: Config, default: float) -> float:
    """The part of each head that is rotated."""
    given = parameters(config)
    name = "partial_rotary_factor"
    at = given if given is not None and name in given else config
    value = at.number(name, default)
    if value > 1:
        raise at.wrong(name, "a number up to 1")
    return value


def scaled(config: Config, size: int, theta: float, given: Config | None) -> Rotation:
    """The rotation with this base and what `given` says of its scaling."""
    if size < 2 or size % 2:
        raise ModelError(f"{config.file}: heads of {size} numbers; rotary positions rotate pairs")
    plain = np.array([theta ** (-number / size) for number in range(0, size, 2)])
    if given is None:
        return Rotation(_finite(plain, config))
    strange = sorted(name for name in given.fields if name not in FIELDS and name in given)
    if strange:
        raise UnsupportedError(f"{given.file}: the field {printable(strange[0])} is not supported")
    whole = config.size(WHOLE)
    given, kind = given.filled(**{ORIGINAL: whole, WHOLE: whole}), kind_of(given)
    if kind == "yarn":
        return Rotation(_finite(_yarn(plain, given, theta), given), _yarn_factor(given))
    if kind == "longrope":
        frequencies = _finite(_divided(plain, given, "short_factor"), given)
        return Rotation(frequencies, _long_factor(given), given.size(ORIGINAL))
    scaling = {**SCALINGS, **FACTORS}.get(kind) if isinstance(kind, str) else None
    if scaling is None:
        raise UnsupportedError(
            f"{given.file}: rope_type={printable(str(kind))} is not supported, only "
            + ", ".join([*sorted(SCALINGS), "longrope", "yarn"])
        )
    return Rotation(_finite(scaling(plain, given), given))


def by_windows(config: Config, size: int, whole: float, local: float) -> tuple[Rotation, Rotation]:
    """The rotations of layers without and with windows, by what `rope_parameters` says of each, or
    with these bases."""
    both = config.part("rope_parameters") or Config(config.file, {})
    parts = [both.part(name) or Config(both.file, {}) for name in (FULL, SLIDING)]
    scaling = config.part("rope_scaling")
    if scaling is not None:
        parts[0] = Config(scaling.file, {**parts[0].fields, **scaling.fields})
    for part in parts:
        part.only("partial_rotary_factor", 1, 1.0)
    first, second = (
        scaled(config, size, part.number("rope_theta", theta), part)
        for part, theta in zip(parts, (whole, local), strict=True)
    )
    return first, second


def kind_of(given: Config) -> object:
    """The type of scaling."""
    return given.fields.get("rope_type", given.fields.get("type", "default"))


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
    factor, original = given.number("factor"), given.size(ORIGINAL)
    low, high = given.number("low_freq_factor"), given.number("high_freq_factor")
    if not low < high:
        raise given.wrong("high_freq_factor", "a number above low_freq_factor")
    cycles = original * plain / (2 * math.pi)
    share = np.clip((cycles - low) / (high - low), 0, 1)
    return (1 - share) * plain / factor + share * plain


def _yarn(plain: Array, given: Config, theta: float) -> Array:
    """Wavelengths near the original context are divided by a factor, short ones stay, with a ramp
    over the pairs between them (Peng et al., arXiv:2309.00071)."""
    factor, original = _grown(given), given.size(ORIGINAL)
    if theta <= 1:
        raise ModelError(f"{given.file}: yarn needs a rope_theta above 1, not {theta}")

    def pair(cycles: float) -> float:
        """The pair that has so many cycles in the original context."""
        return len(plain) * math.log(original / (cycles * 2 * math.pi)) / math.log(theta)

    low, high = pair(given.number("beta_fast", 32.0)), pair(given.number("beta_slow", 1.0))
    if given.flag("truncate", default=True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * len(plain) - 1)
    ramp = (np.arange(len(plain)) - low) / (high - low or 0.001)
    share = np.clip(ramp, 0, 1)
    return np.asarray(share * plain / factor + (1 - share) * plain)


def _yarn_factor(given: Config) -> float:
    """What sharpens attention over a longer context."""

    def grown(by: float) -> float:
        factor = _grown(given)
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    if "attention_factor" in given:
        return given.number("attention_factor")
    if "mscale" in given and "mscale_all_dim" in given:
        return grown(given.number("mscale")) / grown(given.number("mscale_all_dim"))
    return grown(1.0)


def _long_factor(given: Config) -> float:
    """What sharpens attention of LongRoPE (Ding et al., arXiv:2402.13753)."""
    if "attention_factor" in given:
        return given.number("attention_factor")
    original, factor = given.size(ORIGINAL), _grown(given)
    if factor <= 1 or original < 2:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))


def _grown(given: Config) -> float:
    """How many times the original context the context is."""
    return given.number("factor", given.size(WHOLE) / given.size(ORIGINAL))


def _factors(plain: Array, given: Config) -> Array:
    """Each frequency is divided by a number of a GGUF file."""
    return _divided(plain, given, "factors")


def _divided(plain: Array, given: Config, name: str) -> Array:
    factors = given.fields.get(name)
    listed = factors if isinstance(factors, list) else []
    if len(listed) != len(plain) or not all(map(_is_factor, listed)):
        raise given.wrong(name, f"{len(plain)} positive numbers")
    return np.asarray(plain / np.array(listed, np.float64))


def _is_factor(value: object) -> bool:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and LEAST_NUMBER <= value <= GREATEST_NUMBER  # type: ignore[operator]


SCALINGS: Mapping[str, Callable[[Array, Config], Array]] = {
    "default": _default,
    "dynamic": _default,  # angles change behind the context of the model, where texts end
    "linear": _linear,
    "llama3": _llama3,
}
FACTORS = {"factors": _factors}
"""Of GGUF files alone."""
