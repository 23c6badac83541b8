# SPDX-License-Identifier: Apache-2.0
"""Packed weights of bytes and of floats: the sums of the plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.graph import Module
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.packing import round_up
from relax_aot.scheduling.passes import byte_lines
from relax_aot.scheduling.targets.cuda_mma import TARGET
from tests.transforms.examples import example_module

FIRST = byte_lines.EXAMPLES[0].before
PLANES = byte_lines.EXAMPLES[1].before
HALVES = byte_lines.EXAMPLES[2].before
FLOATS = byte_lines.EXAMPLES[3].before
CASES = {
    "both zero points": (FIRST, 20),
    "weights that keep their zero point": (FIRST.replace("128:i32", "77:i32"), 20),
    "signed weights": (FIRST.replace("u8[", "i8[").replace("128:i32", "0:i32"), 20),
    "weights with a great zero point": (
        FIRST.replace("u8[", "i8[").replace("128:i32", "-128:i32"),
        20,
    ),
    "weights on the left": (
        FIRST.replace("%y[i, j]", "%y[j, i]").replace("i32[n, 24]", "i32[24, n]"),
        20,
    ),
    "clipped windows": (PLANES, 48),
    "windows with weights of a zero point": (
        PLANES.replace("cast(%w[c, d, l], i32, wrap)", "(cast(%w[c, d, l], i32, wrap) + 9:i32)"),
        48,
    ),
    "whole windows": (
        PLANES.replace("max(-j + 1, 0)..min(-j + 10, 3)", "0..3")
        .replace("j + l - 1", "j + l")
        .replace("16, 9]", "16, 11]"),
        48,
    ),
    "windows of half precision": (HALVES, 48),
    "windows of floats": (FLOATS.replace("4, ", "16, ").replace("0..4", "0..16"), 48),
    "half precision, lines of no vectors": (
        HALVES.replace("max(-j + 1, 0)..min(-j + 10, 3)", "0..3")
        .replace("j + l - 1", "l")
        .replace("w[c, d, l]", "w[l, d, c]")
        .replace("f16[6, 16, 3]", "f16[3, 16, 6]"),
        48,
    ),
    "half precision, rows of an odd length": (byte_lines.EXAMPLES[-1].before, 21),
}
"""Texts, and how many steps a line of weights has."""


def limits(kind: DType) -> tuple[int, int]:
    """Of whole numbers whose sums are exact."""
    return (-8, 8) if kind.is_float else kind.limits


def random_weights(module: Module) -> Module:
    rng = np.random.default_rng(3)
    constants = tuple(
        replace(c, data=rng.integers(*limits(c.type.dtype), c.data.shape).astype(c.data.dtype))
        for c in module.constants
    )
    return replace(module, constants=constants)


def result(module: Module, n: int) -> Array:
    """For random inputs, by their names."""
    rng, (kernel,) = np.random.default_rng(n), module.kernels
    (call,) = module.kernel_calls[kernel.name]
    made: dict[str, Array] = {}
    for buffer, var in sorted(
        zip(kernel.inputs, call.inputs, strict=True), key=lambda pair: pair[1].name
    ):
        if var.name in module.constant_table:
            made[buffer.name] = module.constant_table[var.name].data
        else:
            shape = [size.evaluate({"n": n}) for size in buffer.shape]
            values = rng.integers(*limits(buffer.dtype), shape, endpoint=True)
            made[buffer.name] = values.astype(buffer.dtype.numpy)
    return run_kernel(kernel, [made[b.name] for b in kernel.inputs], {"n": n})[0]


@pytest.mark.parametrize("case", CASES)
def test_packed_weights_have_the_sums_of_the_plain_loops(case: str) -> None:
    text, depth = CASES[case]
    plain = random_weights(example_module(text))
    packed = byte_lines.run(plain, TARGET)
    (lines,) = (c for c in packed.constants if ".packed" in c.name)
    assert lines.data.shape[-1] == round_up(depth, 16 // lines.type.dtype.bytes)
    assert not lines.data[..., depth:].any()
    np.testing.assert_array_equal(result(packed, 5), result(plain, 5))
    np.testing.assert_array_equal(result(schedule_device(plain, TARGET), 5), result(plain, 5))


def test_sums_of_a_zero_point_wrap_around() -> None:
    """Where those of the plain loops do."""
    text = FIRST.replace("3:i32", "2147483647:i32")
    plain = random_weights(example_module(text))
    np.testing.assert_array_equal(result(byte_lines.run(plain, TARGET), 2), result(plain, 2))


def test_ordered_sums_of_floats_keep_their_steps() -> None:
    module = example_module(FLOATS)
    assert byte_lines.run(module, TARGET) != module
    assert byte_lines.run(module, replace(TARGET, partial_sums=1)) == module
