# SPDX-License-Identifier: Apache-2.0
"""Whether an op is a good one: what its author runs, and what our tests run for every op."""

from __future__ import annotations

from collections.abc import Iterator

from relax_aot.ops._op import Op
from relax_aot.verify.compare import Tolerance, compare
from relax_aot.verify.op_cases import Case, Executor, Run, cases_of, interpreter


def problems_of(op: Op, executor: Executor = interpreter) -> list[str]:
    """What is wrong with an op on its own samples, with sizes known and unknown: types that
    the reference does not have, conditions that its samples break, values that differ."""
    cases = tuple(cases_of([op]))
    if not cases:
        return [f"op {op.name} has no samples"]
    run = executor([case for case in cases if not case.op.view])
    return [f"{case.name}: {problem}" for case in cases for problem in _problems(case, run)]


def _problems(case: Case, run: Run) -> Iterator[str]:
    deduced = [
        (type_.dtype.numpy, tuple(size.evaluate(case.sizes) for size in type_.shape))
        for type_ in case.results
    ]
    actual = [(array.dtype, array.shape) for array in case.expected]
    if deduced != actual:
        yield f"deduce returns {deduced}, the reference {actual}"
        return
    for condition in case.conditions:
        left, right = condition.left.evaluate(case.sizes), condition.right.evaluate(case.sizes)
        if not {"==": left == right, "<=": left <= right, "!=": left != right}[condition.relation]:
            yield f"its sample breaks its condition {condition}"
    if case.op.view:
        if case.expected[0].tobytes() != case.inputs[0].tobytes():
            yield "it is a view, but its reference changes bytes"
        return
    tolerance = Tolerance(case.sample.rtol, case.sample.atol)
    for number, (ours, expected) in enumerate(zip(run(case), case.expected, strict=True)):
        difference = compare(f"y{number}", ours, expected, tolerance)
        if not difference.ok:
            yield f"result {number}: {difference.mismatches} elements differ {difference.note}"
