# SPDX-License-Identifier: Apache-2.0
"""The places of extremes, by all lanes: those of the plain loops, also of equal elements and of
elements that are not a number."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.fusion import fuse
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, Kernel, walk
from relax_aot.ir.parse import parse
from relax_aot.lowering import lower
from relax_aot.ops._op import Array
from relax_aot.scheduling.devices.launches import launches
from tests.scheduling.devices.subjects import on_device

TEXT = """
symbol n in 1..5
symbol m in 1..300
func @main(%x: KIND[n, m]) {
  %y: i64[n] = OP(%x) {axis=1, keepdims=false, select_last=LAST}
  return %y
}"""
OPS = [(op, last) for op in ("arg_max", "arg_min") for last in (False, True)]
VARIANTS = ("usual", "blocks for rows")


@cache
def module(op: str, kind: str, *, last: bool) -> Module:
    filled = {"OP": op, "KIND": kind, "LAST": str(last).lower()}
    text = TEXT
    for name, value in filled.items():
        text = text.replace(name, value)
    return fuse(lower(parse(text))).module


@cache
def device(op: str, kind: str, variant: str, *, last: bool) -> Kernel:
    (kernel,) = on_device(module(op, kind, last=last), variant).kernels
    return kernel


def data(kind: str, n: int, m: int) -> Array:
    rng = np.random.default_rng(n * 1000 + m)
    x = rng.integers(-2, 3, (n, m))
    if kind == "i32":
        return x.astype(np.int32)
    values = x.astype(np.float32)
    values[0, :] = -np.inf
    values[-1, rng.random(m) < 0.05] = np.nan
    return values


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["f32", "i32"])
@pytest.mark.parametrize(("op", "last"), OPS)
def test_places_are_those_of_the_plain_loops(
    op: str, kind: str, variant: str, *, last: bool
) -> None:
    (plain,) = module(op, kind, last=last).kernels
    kernel = device(op, kind, variant, last=last)
    assert any(isinstance(stmt, For) and stmt.axis == "lane" for stmt in walk(kernel.body))
    for n, m in ((1, 1), (3, 7), (5, 150)):
        sizes, x = {"n": n, "m": m}, data(kind, n, m)
        (expected,) = run_kernel(plain, [x], sizes)
        (found,) = run_kernel(kernel, [x], sizes, seed=m)
        np.testing.assert_array_equal(found, expected)


def test_a_vector_is_shared_by_the_warps_of_a_block() -> None:
    text = (
        TEXT.replace("KIND[n, m]", "f32[m]").replace("i64[n]", "i64[]").replace("axis=1", "axis=0")
    )
    whole = fuse(lower(parse(text.replace("OP", "arg_max").replace("LAST", "false")))).module
    (plain,), (kernel,) = whole.kernels, on_device(whole).kernels
    (launch,) = launches(kernel)
    assert launch.threads == 2 * 32
    x = data("f32", 2, 300)[1]
    (expected,) = run_kernel(plain, [x], {"n": 1, "m": 300})
    (found,) = run_kernel(kernel, [x], {"n": 1, "m": 300}, seed=1)
    assert found == expected
