# SPDX-License-Identifier: Apache-2.0
"""The samples of every op in the device form: the results of their references, and no races."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.check import check
from relax_aot.ir.graph import Call, Function, Module, Symbol, Var, attrs_of
from relax_aot.ir.loops import Buffer, Kernel, Stmt, walk
from relax_aot.ir.types import Ref
from relax_aot.ops import all_ops, deduce
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.devices.launches import launches
from relax_aot.scheduling.targets import find
from relax_aot.verify.compare import Tolerance, compare
from relax_aot.verify.op_cases import Case, cases_of

SMALL = replace(find("cuda", ()), threads=32, team=2)
FEW, MANY = 2, 1000
"""Samples of one op whose loops differ."""
OPS = sorted(name for name, op in all_ops().items() if not op.view)
REORDERED = 4.0
"""Sums in another order may differ by more than the references of the ops allow."""


def module_of(case: Case) -> Module:
    """One call of the op's kernel."""
    kernel = case.kernel

    def value(buffer: Buffer) -> Var:
        return Var(buffer.name, buffer.type)

    outs = tuple(map(value, (*kernel.outputs, *kernel.scratch)))
    args = tuple(map(value, kernel.inputs))
    call = Call(outs, "call_kernel", args, attrs_of({"kernel": Ref(kernel.name)}))
    main = Function("main", args, (call,), outs[: len(kernel.outputs)])
    symbols = tuple(Symbol(name, size, 2 * size) for name, size in case.sizes.items())
    return Module((main,), (kernel,), symbols=symbols)


def on_device(case: Case) -> Kernel:
    module = schedule_device(module_of(case), SMALL)
    check(module, deduce)
    (kernel,) = module.kernels
    return kernel


def shape_of(body: tuple[Stmt, ...]) -> str:
    return " ".join(type(stmt).__name__ for stmt in walk(body))


def wrong(op: str, most: int) -> Iterator[str]:
    seen = set[str]()
    for case in cases_of([all_ops()[op]]):
        shape = shape_of(case.kernel.body)
        if len(seen) >= most or (most < MANY and shape in seen):
            continue
        seen.add(shape)
        kernel = on_device(case)
        assert all(launch.threads % 32 == 0 for launch in launches(kernel))
        found = run_kernel(kernel, case.inputs, case.sizes, seed=case.number)
        tolerance = Tolerance(REORDERED * case.sample.rtol, REORDERED * case.sample.atol)
        for number, (ours, expected) in enumerate(zip(found, case.expected, strict=True)):
            difference = compare(f"y{number}", ours, expected, tolerance)
            if not difference.ok:
                yield f"{case.name}: result {number}: {difference.mismatches} elements differ"


@pytest.mark.parametrize("op", OPS)
def test_samples_have_the_results_of_the_reference(op: str) -> None:
    assert not list(wrong(op, FEW))


@pytest.mark.long
@pytest.mark.parametrize("op", OPS)
def test_all_samples_have_the_results_of_the_reference(op: str) -> None:
    assert not list(wrong(op, MANY))
