# SPDX-License-Identifier: Apache-2.0
"""Tiles of float sums by products of integers (raot/multiply_integers.h) differ from double
precision by no more than float sums may."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from numpy.typing import NDArray

from relax_aot.microkernels.integers import TALL, words
from tests.conftest import ROOT

INCLUDE = ROOT / "runtime_c" / "include"
COLUMNS = 32
PART = 32
"""Steps of a sum that are rounded once."""
UNIT = 2.0**-24
SIZES = (
    "rows", "columns", "lines", "taps", "depth", "left_row", "left_line", "left_tap", "left_step",
    "right_line", "right_tap", "right_step",
)  # fmt: skip
Array = NDArray[np.float32]
Fill = Callable[[np.random.Generator, int], Array]


def library(folder: Path, *flags: str) -> tuple[Any, Any]:
    (folder / "tile.c").write_text(
        '#include "raot/multiply_integers.h"\n'
        "void tile(float *s, const float *l, const float *r, int32_t *p, const int32_t *is)\n"
        "{ raot_multiply_integers_f32(s, l, r, p, (const struct raot_multiply_integers *)is); }\n"
    )
    command = ["gcc", "-O1", "-fPIC", "-shared", "-fno-strict-aliasing", "-fsanitize=undefined"]
    command += ["-fno-sanitize-recover", "-DRAOT_FLOAT_CALLS=1", *flags, f"-I{INCLUDE}"]
    subprocess.run([*command, "tile.c", "-o", "tile.so"], cwd=folder, check=True)
    ffi = cffi.FFI()
    ffi.cdef("void tile(float *, const float *, const float *, int32_t *, const int32_t *);")
    return ffi, ffi.dlopen(str(folder / "tile.so"))


def normal(rng: np.random.Generator, count: int) -> Array:
    return rng.standard_normal(count).astype(np.float32)


def positive(rng: np.random.Generator, count: int) -> Array:
    return np.asarray(np.maximum(normal(rng, count), 0), np.float32)


def wide(rng: np.random.Generator, count: int) -> Array:
    """Magnitudes of all sizes."""
    return np.ldexp(normal(rng, count), rng.integers(-60, 60, count)).astype(np.float32)


def outliers(rng: np.random.Generator, count: int) -> Array:
    """Some elements are large, and many of the others zero, so that products of small ones are
    whole sums."""
    values = normal(rng, count) * rng.choice([0, 1], count)
    return np.asarray(np.where(rng.random(count) < 0.1, values * 1e6, values), np.float32)


def one(rng: np.random.Generator, count: int) -> Array:
    """All digits set, of one sign: the largest sums."""
    return np.full(count, rng.choice([-1, 1]) * np.nextafter(np.float32(2), np.float32(0)), "f4")


def tiny(rng: np.random.Generator, count: int) -> Array:
    """Some of them subnormal, or with subnormal products."""
    least = int(rng.integers(-149, -50))
    return np.ldexp(normal(rng, count), rng.integers(least, least + 30, count)).astype(np.float32)


def roots(rng: np.random.Generator, count: int) -> Array:
    """Their products are next to subnormal numbers."""
    return np.ldexp(normal(rng, count), -63).astype(np.float32)


def special(rng: np.random.Generator, count: int) -> Array:
    values = normal(rng, count)
    some = rng.random(count) < 0.02
    return np.asarray(np.where(some, rng.choice([np.inf, -np.inf, np.nan, 0], count), values), "f4")


FILLS: tuple[Fill, ...] = (normal, positive, wide, outliers, one, tiny, roots, special)


def sizes_of(rng: np.random.Generator) -> dict[str, int]:
    """A tile: a matrix, or windows of lines whose columns share elements."""
    rows, columns = int(rng.integers(1, TALL + 1)), int(rng.integers(1, COLUMNS + 1))
    lines, taps, depth = (int(rng.integers(1, most)) for most in (4, 4, 45))
    if rng.random() < 0.3:
        rows, depth, lines, taps, pitch = 1, 1, 3, int(rng.integers(2, 6)), columns + 6
        given = (rows, columns, lines, taps, 1, 0, taps, 1, 0, pitch, 1, 0)
    else:
        steps = lines * taps * depth
        given = (rows, columns, lines, taps, depth, steps, taps * depth, depth, 1,
                 taps * depth * columns, depth * columns, columns)  # fmt: skip
    return dict(zip(SIZES, given, strict=True))


def places(sizes: dict[str, int], side: str) -> NDArray[np.int64]:
    steps = np.indices([sizes[name] for name in ("lines", "taps", "depth")]).reshape(3, -1)
    far = [sizes[f"{side}_{name}"] for name in ("line", "tap", "step")]
    return np.asarray(np.tensordot(far, steps, 1))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("flags", [(), ("-DRAOT_INTEGER_HALVES=1",)], ids=["words", "halves"])
def test_errors_are_those_of_float_sums(flags: tuple[str, ...], tmp_path: Path) -> None:
    ffi, lib = library(tmp_path, *flags)
    rng = np.random.default_rng(0)
    nearest: list[np.floating[Any]] = []
    for _ in range(2000):
        sizes = sizes_of(rng)
        rows, columns = sizes["rows"], sizes["columns"]
        at_left = places(sizes, "left")[None] + np.arange(rows)[:, None] * sizes["left_row"]
        at_right = places(sizes, "right")[:, None] + np.arange(columns)
        fills = rng.choice(len(FILLS), 3) if rng.random() < 0.9 else np.zeros(3, int)
        left = FILLS[fills[0]](rng, int(at_left.max()) + 1)
        right = FILLS[fills[1]](rng, int(at_right.max()) + 1)
        start = FILLS[fills[2]](rng, rows * columns).reshape(rows, columns)
        if rng.random() < 0.1:  # most digits of the sum cancel
            left[at_left[:, 1::2]] = left[at_left[:, : at_left.shape[1] // 2 * 2 : 2]]
            right[at_right[1::2]] = -right[at_right[: len(at_right) // 2 * 2 : 2]]
            right[at_right[-1]] *= np.float32(1 - UNIT)
        sums = np.zeros((rows, COLUMNS), np.float32)
        sums[:, :columns] = start
        parts, given = (
            rng.integers(-(2**31), 2**31, words(rows), np.int32),
            np.array(list(sizes.values()), np.int32),
        )
        arrays = (sums, left, right, parts, given)
        kinds = ("float *", "float *", "float *", "int32_t *", "int32_t *")
        lib.tile(*(ffi.cast(k, a.ctypes.data) for k, a in zip(kinds, arrays, strict=True)))
        with np.errstate(all="ignore"):
            products = left[at_left].astype(np.float64)[:, :, None] * right[at_right][None]
            exact = start + products.sum(1)
            size = np.abs(start.astype(np.float64)) + np.abs(products).sum(1)
            rounded, largest = exact.astype(np.float32), size.astype(np.float32)
        found, finite = sums[:, :columns], np.isfinite(rounded) & np.isfinite(largest)
        error = np.abs(found[finite] - exact[finite])
        allowed = (len(at_right) + 2) * (UNIT * size[finite] + 2.0**-149)
        assert (error <= allowed).all(), (sizes, fills)
        if wide not in [FILLS[fill] for fill in fills]:  # no product of floats is too large
            np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
            np.testing.assert_array_equal(np.isinf(found), np.isinf(rounded))
        assert not sums[:, columns:].any()
        if set(fills) == {0} and len(at_right) <= PART:
            nearest.append(np.mean(found == rounded))
    assert nearest
    assert np.mean(nearest) > 0.75
