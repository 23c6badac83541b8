# SPDX-License-Identifier: Apache-2.0
"""What must hold for every op, run on the samples that each op brings along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops import all_ops
from relax_aot.ops._op import Array, ShapeError
from relax_aot.verify.compare import Tolerance, compare
from relax_aot.verify.op_cases import Case, Executor, Run, cases_of, interpreter
from relax_aot.verify.op_check import problems_of
from tests.ops.c_executor import c_library

CASES = tuple(cases_of(all_ops().values()))
KERNELS = tuple(case for case in CASES if not case.op.view)
FIXED = tuple(case for case in CASES if not case.symbolic)
BY_OP = {name: tuple(cases) for name, cases in groupby(CASES, key=lambda case: case.op.name)}

DTYPES = (DType.F64, DType.F32, DType.F16, DType.I32, DType.I64, DType.BOOL, DType.I8, DType.U8)

EXECUTORS: dict[str, Executor] = {"interpreter": interpreter, "c": c_library}


@cache
def ready(executor: str, op: str) -> Run:
    """One library for each op: a worker builds those that it runs, and no other."""
    return EXECUTORS[executor]([case for case in KERNELS if case.op.name == op])


def name_of(case: Case) -> str:
    return case.name


def holds(condition: Condition, sizes: dict[str, int]) -> bool:
    left, right = condition.left.evaluate(sizes), condition.right.evaluate(sizes)
    return {"==": left == right, "<=": left <= right, "!=": left != right}[condition.relation]


@pytest.mark.parametrize("op", BY_OP)
def test_deduced_types_are_those_of_the_reference(op: str) -> None:
    for case in BY_OP[op]:
        dtypes = [type_.dtype.numpy for type_ in case.results]
        assert dtypes == [a.dtype for a in case.expected], case.name
        shapes = [tuple(size.evaluate(case.sizes) for size in t.shape) for t in case.results]
        assert shapes == [array.shape for array in case.expected], case.name


def test_a_deduced_size_that_is_a_number_is_refused() -> None:
    relu = all_ops()["relu"]
    shape: Any = (3,)
    wrong = replace(relu, name="mine", deduce=lambda x: TensorType(x.dtype, shape))
    with pytest.raises(ShapeError, match=r"mine: deduce returns the size 3: write Dim\.of\(3\)"):
        problems_of(wrong)


def emptied(case: Case) -> Iterator[Case]:
    """A case with all axes of one size of the first operand without elements, for each size."""
    arrays = [None if a is None else np.asarray(a) for a in case.sample.args]
    for size in dict.fromkeys(arrays[0].shape if arrays and arrays[0] is not None else ()):
        args = tuple(
            a if a is None else np.zeros([n * (n != size) for n in a.shape], a.dtype)
            if size in a.shape else a
            for a in arrays
        )  # fmt: skip
        yield replace(case, sample=replace(case.sample, args=args))


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
@pytest.mark.parametrize("op", [op for op in BY_OP if op != "dft"])  # NumPy: 1 at least
def test_references_take_arrays_without_elements(op: str) -> None:
    """Where the op has such results; attributes that are sizes of these arrays do not change."""
    for case in (case for case in BY_OP[op] if not case.symbolic and not case.sample.sizes):
        for empty in emptied(case):
            try:
                shapes = [tuple(n.constant for n in t.shape) for t in empty.results]
                holding = all(holds(condition, {}) for condition in empty.conditions)
            except (RelaxAotError, ArithmeticError, IndexError):
                continue
            if not holding or min((n for shape in shapes for n in shape), default=0) < 0:
                continue
            try:
                assert [a.shape for a in empty.expected] == shapes, empty.name
            except IndexError:  # an index of the sample is outside an axis now
                continue


@pytest.mark.parametrize("op", BY_OP)
def test_conditions_hold_for_what_the_reference_accepts(op: str) -> None:
    for case in BY_OP[op]:
        broken = [str(c) for c in case.conditions if not holds(c, case.sizes)]
        assert not broken, (case.name, broken)


def others(type_: TensorType) -> Iterator[TensorType]:
    """Other element types, and an axis less or more."""
    yield from (replace(type_, dtype=dtype) for dtype in DTYPES)
    shapes = ((), type_.shape[1:], (Dim.of(1), *type_.shape), (*type_.shape, Dim.of(1)))
    yield from (replace(type_, shape=shape) for shape in shapes)


@pytest.mark.parametrize("op", BY_OP)
def test_types_are_refused_or_have_a_kernel(op: str) -> None:
    forms = {tuple(t and (t.dtype, t.rank) for t in case.types): case for case in BY_OP[op]}
    for case in forms.values():
        for at, type_ in enumerate(case.types):
            for changed in others(type_) if type_ is not None else ():
                other = replace(case)
                other.__dict__["types"] = (*case.types[:at], changed, *case.types[at + 1 :])
                try:
                    assert other.results and isinstance(other.conditions, tuple)
                    assert other.op.view or other.kernel
                except RelaxAotError as error:
                    assert str(error)


def numbers(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that are an integer, or a list of them."""
    lists = {name: v if isinstance(v, tuple) else (v,) for name, v in attrs.items()}
    return {name: attrs[name] for name, v in lists.items() if v and all(type(n) is int for n in v)}


def with_size(value: Any, size: Dim) -> list[Any]:
    """A size of an attribute, or each size of a list of them, replaced."""
    if not isinstance(value, tuple):
        return [size]
    return [(*value[:at], size, *value[at + 1 :]) for at in range(len(value))]


STATIC = {
    ("conv_transpose", "group"), ("conv_transpose_integer", "group"), ("max_roi_pool", "height"),
    ("max_roi_pool", "width"), ("roi_align", "height"), ("roi_align", "width"),
}  # fmt: skip
"""Attributes that no format takes from shape arithmetic."""
AT_LEAST_ZERO = {("slice", "lengths"), ("dft", "shape")}
"""Those that frontends make of starts and ends, and of sizes that exist."""


@pytest.mark.parametrize("op", BY_OP)
def test_conditions_refuse_negative_sizes(op: str) -> None:
    """Shape arithmetic may give -1 or less, whatever attribute takes the number."""
    record = all_ops()[op]
    fixed = {name for other, name in STATIC | AT_LEAST_ZERO if other == op}
    for sample in record.samples(np.random.default_rng(0)):
        shapes = [a if a is None else tuple(map(Dim.of, a.shape)) for a in sample.args]
        types = [
            None if a is None or shape is None else TensorType(DType.of(a.dtype), shape)
            for a, shape in zip(sample.args, shapes, strict=True)
        ]
        for name in numbers(sample.attrs).keys() - fixed:
            for value in with_size(sample.attrs[name], Dim.of("d")):
                attrs = {**sample.attrs, name: value}
                try:
                    deduced = record.deduce(*types, **attrs)
                    results = deduced if isinstance(deduced, tuple) else (deduced,)
                    found = list(record.conditions(*types, **attrs))
                except (ShapeError, TypeError, ValueError, AssertionError, AttributeError):
                    continue  # no size
                for d in (-1, -20):
                    sizes = [s for t in results for s in t.shape if s.evaluate({"d": d}) < 0]
                    assert not sizes or not all(holds(c, {"d": d}) for c in found), (attrs, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("op", dict.fromkeys(case.op.name for case in KERNELS))
def test_kernels_equal_the_reference(op: str, executor: str) -> None:
    wrong = []
    for case in (case for case in KERNELS if case.op.name == op):
        tolerance = Tolerance(case.sample.rtol, case.sample.atol)
        actual = ready(executor, op)(case)
        for position, (ours, expected) in enumerate(zip(actual, case.expected, strict=True)):
            difference = compare(f"y{position}", ours, expected, tolerance)
            if not difference.ok:
                wrong.append((case.name, difference, ours, expected))
    assert not wrong, wrong


@pytest.mark.parametrize("case", [c for c in FIXED if c.op.view], ids=name_of)
def test_a_view_keeps_the_bytes_of_its_first_argument(case: Case) -> None:
    (expected,) = case.expected
    assert expected.tobytes() == case.inputs[0].tobytes()


def exact(case: Case) -> bool:
    """Nothing but wide integers and booleans go in and come out: shape arithmetic sees it."""
    arrays = (*case.inputs, *case.expected)
    return all(array.dtype in (np.int32, np.int64, np.bool_) for array in arrays)


def solved(value: object, sizes: dict[str, int]) -> object:
    if isinstance(value, Condition):
        return holds(value, sizes)
    return value.evaluate(sizes) if isinstance(value, Dim) else value


@pytest.mark.parametrize("unknown", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize(
    "case", [c for c in FIXED if c.op.symbolic is not None and exact(c)], ids=name_of
)
def test_shape_arithmetic_agrees_with_the_reference(case: Case, unknown: bool) -> None:
    """Where the symbolic rule gives an answer, it is the reference's at these values."""
    assert case.op.symbolic is not None
    sizes: dict[str, int] = {}

    def lift(array: Array | None) -> Array | None:
        if array is None:
            return None
        values = []
        for value in np.asarray(array).flat:
            if unknown and value.dtype.kind != "b":
                name = f"v{len(sizes)}"
                sizes[name] = int(value)
                values.append(Dim.of(name))
            else:
                values.append(value.item())
        return np.array([*values, None], object)[:-1].reshape(np.shape(array))

    lifted = [lift(array) for array in case.sample.args]
    bounds = Bounds.of({name: (value - 2, value + 3) for name, value in sizes.items()})
    found = case.op.symbolic(bounds, *lifted, **case.sample.attrs)
    if found is None:
        return
    (expected,) = case.expected
    actual = [solved(value, sizes) for value in np.asarray(found, object).flat]
    assert actual == expected.ravel().tolist()


def test_the_groups_of_no_rows_are_none() -> None:
    """The size of a group does not follow from a count of zero elements."""
    x, scale = np.zeros((0, 6, 5), np.float32), np.ones(6, np.float32)
    group_norm = all_ops()["group_norm"]
    found = group_norm.reference(x, scale, scale, groups=3, epsilon=1e-5)
    assert np.shape(found) == x.shape
