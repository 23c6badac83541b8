# SPDX-License-Identifier: Apache-2.0
"""Products of few rows: the values of the plain loops. Inputs are small integers, whose sums are
exact in any order."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.evaluation.scalars import array_of
from relax_aot.ir.loops import Kernel, Micro, walk
from relax_aot.ops._op import Array
from relax_aot.scheduling.devices.launches import launches
from relax_aot.scheduling.devices.matrix_units import matrix_product
from relax_aot.scheduling.devices.products import product
from relax_aot.scheduling.targets.cuda import TARGET
from tests.scheduling.devices import test_matrix_units as units
from tests.scheduling.devices.kernels import device_form, inputs, without_barriers
from tests.scheduling.devices.test_products import BATCH, DECODED, matmul

PACKED_STEPS = """
    symbol n in 1..9
    kernel @dot(%x: f32[n, 64], %packed: u8[5, 32], %scales: f32[5]) -> (%y: f32[n, 5]) {
      for i in 0..n {
        for j in 0..5 {
          local sum: f32 = 0.0:f32
          for k in 0..64 {
            sum = fma(%x[i, k], ((cast(((%packed[j, k // 2] >> cast(index(4*(k % 2)), u8, wrap))
              & 15:u8), f32, wrap) - 8.0:f32) * %scales[j]), sum)
          }
          %y[i, j] = sum
        }
      }
    }"""
CASES: dict[str, tuple[str, str, int]] = {
    "neighbors along columns": (matmul(9, 24), "f32", 1),
    "neighbors along steps": (matmul(24, 9, steps=False), "f32", 2),
    "transposed rows": (matmul(24, 9, rows=False, steps=False), "f32", 1),
    "odd sizes": (matmul(7, 9), "f32", 0),
    "odd steps": (matmul(7, 9, steps=False, start="%b[j]", value="sum"), "f32", 0),
    "a batch of dynamic depth": (BATCH.replace("5", "3"), "f32", 0),
    "one row": (matmul(9, 24).replace("n in 0..40", "n in 1..1"), "f32", 1),
    "four bits along columns": (DECODED.replace("12", "32"), "f32", 2),
    "four bits along steps": (PACKED_STEPS, "f32", 2),
    "half precision": (units.matmul(16, 24), "f16", 1),
    "half precision along steps": (units.matmul(16, 9, w="j, k"), "bf16", 2),
    "bytes": (units.BYTES.replace("24", "32"), "i8", 1),
}
"""Text, type, and how many factors are loaded as vectors."""


@cache
def both(case: str) -> tuple[Kernel, Kernel]:
    """The plain kernel and its device form."""
    text, kind, _ = CASES[case]
    strategy = product if kind == "f32" else matrix_product
    name = f"few_{[*CASES].index(case)}"
    plain, device, _ = device_form(
        text.replace("f16", kind) if kind == "bf16" else text, strategy, name, target=TARGET
    )
    assert device is not None
    return plain, device


def integers(kernel: Kernel, sizes: dict[str, int]) -> list[Array]:
    rng, made = np.random.default_rng(5), list[Array]()
    for array, buffer in zip(inputs(kernel, sizes), kernel.inputs, strict=True):
        if not buffer.dtype.is_int:
            values = rng.integers(-3, 4, array.shape).astype(np.float32)
            array = array_of(values.ravel().tolist(), buffer.dtype).reshape(array.shape)
        made.append(array)
    return made


@pytest.mark.parametrize("case", CASES)
def test_few_rows_have_the_values_of_the_plain_loops(case: str) -> None:
    plain, device = both(case)
    for n in (1,) if case == "one row" else (1, 3):
        sizes = {"n": n, "k": 5}
        data = integers(plain, sizes)
        (expected,) = run_kernel(plain, data, sizes)
        (found,) = run_kernel(device, data, sizes, seed=n)
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_four_rows_are_a_tile() -> None:
    _, device = both("neighbors along columns")
    for n, used in ((0, [0, 0]), (3, [0, 1]), (4, [1, 0])):
        grids = [launch.grid.evaluate({"n": n}) for launch in launches(device)]
        assert [any(grids[:-1]), grids[-1] > 0] == used, n


@pytest.mark.parametrize("case", CASES)
def test_neighbors_are_loaded_as_vectors(case: str) -> None:
    *_, few = launches(both(case)[1])
    loads = [s for s in walk(few.kernel.body) if isinstance(s, Micro) and "_load" in s.name]
    assert len({load.operands[1].buffer.name for load in loads}) == CASES[case][2]


def test_one_row_has_no_tiles() -> None:
    assert len(launches(both("one row")[1])) == 1


def test_a_missing_barrier_is_found() -> None:
    """As a race, or a read of what is not written yet."""
    plain, device = both("neighbors along steps")
    with pytest.raises(AssertionError):
        run_kernel(without_barriers(device), integers(plain, {"n": 3}), {"n": 3})
