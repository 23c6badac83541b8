# SPDX-License-Identifier: Apache-2.0
"""A value that a kernel stores, and changes before it stores the next, is the stored one."""

from __future__ import annotations

import numpy as np

from relax_aot import fusion
from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Function, Module, Symbol, Var, attrs_of
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import DType, Ref, TensorType
from tests.fusion.run_module import run_module

N = Dim.of("n")


def value(name: str) -> Var:
    return Var(name, TensorType(DType.F32, (N,)))


def test_a_scalar_that_changes_between_two_stores_is_kept() -> None:
    x, a, b, y = (Buffer(name, DType.F32, (N,)) for name in "xaby")
    writer = KernelBuilder("writer", [x], [a, b])
    with writer.loops(N) as at:
        total = writer.local("total", DType.F32, x[at])
        writer.store(a[at], total)
        writer.assign(total, total + total)
        writer.store(b[at], total)
    reader = KernelBuilder("reader", [a, b], [y])
    with reader.loops(N) as at:
        reader.store(y[at], a[at] - b[at])
    body = (
        Call((value("a"), value("b")), "call_kernel", (value("x"),),
             attrs_of({"kernel": Ref("writer")})),
        Call((value("y"),), "call_kernel", (value("a"), value("b")),
             attrs_of({"kernel": Ref("reader")})),
    )  # fmt: skip
    module = Module(
        functions=(Function("main", (value("x"),), body, (value("y"),)),),
        kernels=(writer.finish(), reader.finish()),
        symbols=(Symbol("n", 1, 8),),
    )
    fused = fusion.fuse(module).module
    assert len(fused.main.body) == 1
    inputs = {"x": np.array([1, 2, 5], np.float32)}
    np.testing.assert_array_equal(run_module(fused, inputs, {"n": 3})["y"], -inputs["x"])
