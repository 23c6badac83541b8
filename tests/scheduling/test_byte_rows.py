# SPDX-License-Identifier: Apache-2.0
"""Products of bytes that are both computed, compared with NumPy at every kind of size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.project import Project
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import host_model
from tests.models.onnx_text import Array, model_of

MOST = {"n": 70, "m": 33}
SIZES = ((1, 1), (2, 3), (7, 9), (70, 33))
TEXT = """
    columns = Transpose <perm = [0, 2, 1]> (b)
    y = MatMulInteger (a, columns, az, bz)
    rows = Transpose <perm = [0, 2, 1]> (s)
    z = MatMulInteger (rows, v, sz, vz)
"""
SHAPES: dict[str, tuple[int | str, ...]] = {
    "a": (2, "n", 24),
    "b": (2, "m", 24),
    "s": (2, "m", "n"),
    "v": (2, "m", 44),
}
SIGNED = {"a": False, "b": True, "s": True, "v": False}
ZEROS = {
    "int8": {"a": 5, "b": -7, "s": -128, "v": 3},
    "uint8": {"a": 131, "b": 9, "s": 255, "v": 3},
}


def kinds_of(swapped: bool) -> dict[str, str]:
    return {name: "int8" if one != swapped else "uint8" for name, one in SIGNED.items()}


def inputs(kinds: dict[str, str], n: int, m: int) -> dict[str, Array]:
    rng, sizes = np.random.default_rng(n), {"n": n, "m": m}
    made = {}
    for name, shape in SHAPES.items():
        kind = np.dtype(kinds[name])
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        known = [sizes[size] if isinstance(size, str) else size for size in shape]
        made[name] = rng.integers(low, high + 1, known).astype(kind)
    return made


def compiled(board: str, *, swapped: bool) -> tuple[Project, dict[str, int]]:
    """The products of all types, and the zero points."""
    kinds = kinds_of(swapped)
    zeros = {name: ZEROS[kind][name] for name, kind in kinds.items()}
    data = {f"{name}z": np.array(zero, kinds[name]) for name, zero in zeros.items()}
    asked = ", ".join(
        f"{kinds[name]}[{', '.join(map(str, shape))}] {name}" for name, shape in SHAPES.items()
    )
    signature = f"m ({asked}) => (int32[2, n, m] y, int32[2, n, 44] z)"
    options = driver.Options(bounds={name: (1, most) for name, most in MOST.items()})
    return driver.compile_model(model_of(signature, TEXT, data), board, options), zeros


def assert_exact(
    sample: Mapping[str, Array], zeros: Mapping[str, int], outputs: Mapping[str, Array]
) -> None:
    a, b, s, v = (sample[name].astype(np.int64) - zeros[name] for name in "absv")
    assert np.array_equal(outputs["y"], a @ b.swapaxes(1, 2))
    assert np.array_equal(outputs["z"], s.swapaxes(1, 2) @ v)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "swapped"),
    [
        ("mps2-an386", False),
        pytest.param("mps3-an547", False, marks=pytest.mark.slow),
        pytest.param("raspberry-pi-4b", False, marks=pytest.mark.slow),
        pytest.param("raspberry-pi-4b", True, marks=pytest.mark.slow),
    ],
)
def test_products_are_exact(board: str, swapped: bool) -> None:
    project, zeros = compiled(board, swapped=swapped)
    text = b"".join(project.files.values())
    suffix = "_u8(" if swapped else "_s8("
    assert b"raot_dot_rows_" in text and f"raot_add_rows{suffix}".encode() in text
    samples = [inputs(kinds_of(swapped), *sizes) for sizes in SIZES]
    for sample, run in zip(samples, emulate(project, samples), strict=True):
        assert run.status == 0
        assert_exact(sample, zeros, run.outputs)


@pytest.mark.parametrize("swapped", [False, True])
def test_products_are_exact_on_this_machine(*, swapped: bool) -> None:
    project, zeros = compiled("host", swapped=swapped)
    text = b"".join(project.files.values())
    assert b"raot_dot_rows_" in text and b"raot_add_rows_" in text
    host = host_model(project)
    for sizes in SIZES:
        sample = inputs(kinds_of(swapped), *sizes)
        assert_exact(sample, zeros, host(**sample))
