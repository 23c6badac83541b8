# SPDX-License-Identifier: Apache-2.0
"""What is known of results of every op's kernel is what the interpreter computes."""

from __future__ import annotations

import numpy as np
import pytest

from relax_aot import parse
from relax_aot.evaluation.interpret import IndexFault, run_kernel
from relax_aot.ir.types import DType
from relax_aot.ops import all_ops
from relax_aot.ops._op import is_float
from relax_aot.pruning.knowledge import Known, exactly, where
from relax_aot.pruning.plain import plain
from relax_aot.pruning.values import evaluate
from relax_aot.verify.op_cases import Case, cases_of
from tests.models.onnx_text import Array

PARTS = 8


def partly(rng: np.random.Generator, array: Array, dtype: object) -> tuple[Array, Array]:
    """An array with zeros at some places of one axis, and which of its places are told."""
    told: Array = np.zeros((1,) * array.ndim, np.bool_)
    if array.ndim == 0 or rng.random() < 0.4:
        return array, np.asarray(told | (rng.random() < 0.7))
    axis = int(rng.integers(array.ndim))
    which = np.asarray(rng.random(array.shape[axis]) < 0.5)
    shape = [-1 if a == axis else 1 for a in range(array.ndim)]
    array = array.copy()
    if rng.random() < 0.8:
        array[(slice(None),) * axis + (which,)] = 0
    return array, which.reshape(shape)


def compare(case: Case, seed: int) -> int:
    """How many elements of results are known."""
    kernel = plain(case.kernel)
    if kernel is None:
        return 0
    rng = np.random.default_rng(seed)
    given: list[Array] = []
    known: dict[str, Known] = {}
    for buffer, array in zip(case.kernel.inputs, case.inputs, strict=True):
        array, told = partly(rng, array, buffer.dtype)
        given.append(array)
        whole = exactly(array, buffer.dtype)
        known[buffer.name] = where(told, whole, buffer.dtype)
    found = evaluate(kernel, known, case.bounds)
    try:
        results = run_kernel(
            case.kernel, given, case.sizes, partial=[b.name for b in case.kernel.outputs]
        )
    except IndexFault:
        return 0  # zeros in the place of indices or lengths
    if any(is_float(a) and not np.isfinite(a.astype(np.float64)).all() for a in results):
        return 0  # what is not known is taken for finite
    count = 0
    for buffer, result in zip(case.kernel.outputs, results, strict=True):
        if buffer.name not in found.outputs:
            continue
        output = found.outputs[buffer.name]
        mask = np.broadcast_to(output.known, result.shape)
        low, high = (np.broadcast_to(end, result.shape) for end in (output.low, output.high))
        with np.errstate(invalid="ignore"):
            real = result.astype(low.dtype)
        inside = ((low <= real) & (real <= high)) | ((real != real) & (low != low))
        inside |= (low == -np.inf) & (high == np.inf)  # whatever it is
        assert inside.all(), (case.name, seed, buffer.name)
        count += int(mask.sum())
    return count


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(p, marks=pytest.mark.long) for p in range(1, PARTS))]
)
def test_what_is_known_is_what_is_computed(part: int) -> None:
    cases = [case for op in all_ops().values() if not op.view for case in cases_of([op])]
    known, seeds = 0, 2 if part == 0 else 6
    for case in cases[part::PARTS]:
        for seed in range(seeds):
            known += compare(case, seed)
    assert known > 200 * seeds


def test_a_scalar_is_stored_in_a_loop() -> None:
    """All iterations store to the one element of its buffer."""
    module = parse("""
        func @main(%x: f32[2], %w: f32[2]) {
          %same: f32[], %last: f32[], %sum: f32[] = call_kernel(%x, %w) {kernel=@k}
          return %same, %last, %sum
        }

        kernel @k(%x: f32[2], %w: f32[2]) -> (%same: f32[], %last: f32[], %sum: f32[]) {
          %sum[] = -1.0:f32
          for i in 0..2 {
            %same[] = 3.0:f32
            %last[] = %w[i]
            %sum[] = (%sum[] + %x[i])
          }
        }""")
    kernel = plain(module.kernel_table["k"])
    assert kernel is not None
    weights = exactly(np.array([1, 2], np.float32), DType.F32)
    found = evaluate(kernel, {"w": weights}, module.bounds).outputs
    assert found["same"].shape == () and found["same"].known and found["same"].value == 3
    assert found["last"].low <= 1 and found["last"].high >= 2 and not found["sum"].known
