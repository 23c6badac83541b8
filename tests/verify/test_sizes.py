# SPDX-License-Identifier: Apache-2.0
"""C is never called with arrays that the sizes of the call do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot.emit.interface import ArenaPort, DimField, Interface, Port
from relax_aot.ir.dims import Dim, dim_max, dim_min
from relax_aot.ir.graph import Condition, Symbol
from relax_aot.ir.types import DType, TensorType
from relax_aot.verify.host import HostModel
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.library import RawResult
from relax_aot.verify.samples import cases_of
from relax_aot.verify.sizes import InputError

Array = NDArray[Any]
SYMBOLS = ("n", "m", "k")
NAMES = st.sampled_from(SYMBOLS).map(Dim.of)
NUMBERS = st.integers(1, 3).map(Dim.of)
SHAPES = st.recursive(
    NAMES | NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, NUMBERS).map(lambda pair: pair[0] // pair[1]),
        st.tuples(inner, NAMES).map(lambda pair: pair[0] // pair[1]),
        st.tuples(inner, NUMBERS).map(lambda pair: pair[0] - pair[1]),
        st.tuples(inner, inner).map(lambda pair: dim_min(*pair)),
        st.tuples(inner, inner).map(lambda pair: dim_max(*pair)),
    ),
    max_leaves=4,
)


def interface_of(
    shapes: Sequence[Sequence[Dim]],
    ranges: Sequence[tuple[int, int]],
    conditions: Sequence[Condition] = (),
) -> Interface:
    dims = tuple(
        DimField(Symbol(name, *ends), name, name, name.upper())
        for name, ends in zip(SYMBOLS, ranges, strict=True)
    )
    ports = tuple(
        Port(f"x{i}", f"x{i}", f"x{i}", f"X{i}", TensorType(DType.I16, tuple(shape)))
        for i, shape in enumerate(shapes)
    )
    arena = ArenaPort("arena", "A", "a")
    return Interface("a", "A", (arena,), dims, (), ports, (), (), tuple(conditions))


class Witness:
    """Stands where the C does, and reads every element that these sizes make it read."""

    def __init__(self, interface: Interface) -> None:
        self.interface = interface
        self.calls: list[dict[str, int]] = []

    def init(self, dims: Sequence[int]) -> int:
        raise AssertionError(dims)

    def arena_need(self, dims: Sequence[int]) -> int:
        raise AssertionError(dims)

    def run(
        self,
        dims: Sequence[int],
        inputs: Sequence[NDArray[np.uint8]],
        arena_bytes: int | None = None,
        arena_shift: int = 0,
    ) -> RawResult:
        sizes = dict(zip(SYMBOLS, dims, strict=True))
        for port, data in zip(self.interface.inputs, inputs, strict=True):
            shape = self.interface.shape(port, sizes)
            assert min(shape, default=1) >= 0 and len(data) == 2 * prod(shape), (sizes, port)
        self.calls.append(sizes)
        return RawResult(0, (), (), guards_ok=True, untouched=False)


def solutions(interface: Interface, shapes: Sequence[tuple[int, ...]]) -> list[dict[str, int]]:
    ranges = [range(f.symbol.low, f.symbol.high + 1) for f in interface.dims]
    found = []
    for values in product(*ranges):
        sizes = dict(zip(SYMBOLS, values, strict=True))
        try:
            fits = all(
                interface.shape(port, sizes) == shape
                for port, shape in zip(interface.inputs, shapes, strict=True)
            ) and all(
                (c.left - c.right).evaluate(sizes) == 0
                if c.relation == "=="
                else (c.right - c.left).evaluate(sizes) >= 0
                for c in interface.conditions
            )
        except ZeroDivisionError:
            continue
        if fits:
            found.append(sizes)
    return found


def called(interface: Interface, arrays: Mapping[str, Array], **sizes: int) -> dict[str, int]:
    witness = Witness(interface)
    host = HostModel(interface, witness)
    host.at(sizes)(arrays)
    (call,) = witness.calls
    return call


RANGES = st.tuples(st.integers(0, 3), st.integers(0, 4)).map(lambda p: (p[0], p[0] + p[1]))
CONDITIONS = st.builds(Condition, st.sampled_from(["==", "<="]), SHAPES, SHAPES)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    shapes=st.lists(st.lists(SHAPES, min_size=1, max_size=2), min_size=1, max_size=3),
    ranges=st.tuples(RANGES, RANGES, RANGES),
    conditions=st.lists(CONDITIONS, max_size=1),
    picks=st.tuples(*[st.integers(0, 7)] * 3),
    changes=st.lists(st.integers(-1, 1), min_size=6, max_size=6),
)
def test_calls_of_random_shapes(
    shapes: list[list[Dim]],
    ranges: tuple[tuple[int, int], ...],
    conditions: list[Condition],
    picks: tuple[int, ...],
    changes: list[int],
) -> None:
    """Arrays of sizes within the bounds, and the same with axes that are longer or shorter."""
    interface = interface_of(shapes, ranges, conditions)
    sizes = {
        name: low + pick % (high - low + 1)
        for name, (low, high), pick in zip(SYMBOLS, ranges, picks, strict=True)
    }
    try:
        right = [interface.shape(port, sizes) for port in interface.inputs]
    except ZeroDivisionError:
        return
    change = iter(changes)
    wrong = [tuple(max(size + next(change), 0) for size in shape) for shape in right]
    for case in (right, wrong):
        if any(size < 0 for shape in case for size in shape):
            continue
        arrays = {f"x{i}": np.zeros(shape, np.int16) for i, shape in enumerate(case)}
        every = solutions(interface, case)
        if len(every) == 1:
            assert called(interface, arrays) == every[0]
        elif every:
            with pytest.raises(InputError, match=r"do not determine.*\.at\("):
                called(interface, arrays)
            for one in every[:2]:
                assert called(interface, arrays, **one) == one
        else:
            # Sizes outside of the bounds may fit the shapes: the C refuses these itself.
            with pytest.raises(InputError):
                outside = called(interface, arrays)
                raise InputError(f"refused by the C: {outside}")


@pytest.mark.parametrize(
    "wanted", [{"q": 1}, {"n": 1.5}, {"n": "1"}, {"n": True}, {"n": None}, {3: 1}]
)
def test_sizes_that_are_none(wanted: dict[Any, Any]) -> None:
    interface = interface_of([[Dim.of("n")]], [(1, 8)] * 3)
    with pytest.raises(InputError):
        HostModel(interface, Witness(interface)).at(wanted)


SUM = """symbol n in 5..16
symbol p in 4..8

func @main(%x: f32[n + p]) {
  %y: f32[n] = call_kernel(%x) {kernel=@take}
  return %y
}
kernel @take(%x: f32[a]) -> (%y: f32[b]) {
  for i in 0..b {
    %y[i] = %x[i + p]
  }
}
"""
HIDDEN = """symbol n in 1..64
symbol m in 1..8
func @main(%x: f32[n]) {
  %y = reshape(%x) {shape=[m, n // m]}
  %s = softmax(%y) {axis=0}
  return %s
}
"""


def row(count: int) -> Array:
    return np.arange(count, dtype=np.float32)


def test_a_sum_of_sizes_is_solved_or_refused() -> None:
    host = rx.compile(rx.parse(SUM)).host(sanitize=True)
    np.testing.assert_array_equal(host(x=row(9))["y"], row(9)[4:])
    with pytest.raises(InputError, match=r"no sizes n in 5\.\.16, p in 4\.\.8 fit"):
        host(x=row(1))
    with pytest.raises(InputError, match="sizes n and p"):
        host(x=row(12))
    np.testing.assert_array_equal(host.at(n=7)(x=row(12))["y"], row(12)[5:])
    np.testing.assert_array_equal(host.at({"p": 4})(x=row(12))["y"], row(12)[4:])
    with pytest.raises(InputError, match="axis 0 of input 'x' is 12; n \\+ p is 13 here"):
        host.at(n=8, p=5)(x=row(12))
    with pytest.raises(InputError, match="whole number"):
        host.run_at({"n": 8}, [row(12)])
    with pytest.raises(rx.StatusError, match="RAOT_ERR_SIZE"):
        host.at(n=3)(x=row(12))


def test_an_input_may_be_called_like_the_way_to_give_sizes() -> None:
    text = HIDDEN.replace("%x", "%at")
    host = rx.compile(rx.parse(text)).host()
    assert host.at(m=4)(at=row(12))["s"].shape == (4, 3)
    with pytest.raises(InputError, match="size m"):
        host(at=row(12))


@pytest.mark.parametrize(("text", "at"), [(SUM, {"n": 8, "p": 5}), (HIDDEN, {"n": 12, "m": 4})])
def test_verify_runs_at_sizes_that_no_shape_determines(text: str, at: dict[str, int]) -> None:
    project = rx.compile(rx.parse(text)).built
    given = {"x": row(sum(at.values()) if text == SUM else at["n"])}
    for sizes, inputs in (((), {}), ((at,), {}), ((at,), given)):
        job = Job("a.raot", (project,), at=sizes, inputs=inputs, reference="numpy")
        result = run_job(job)
        assert result.ok
        assert len(result.targets[0].runs) == (1 if sizes else 5)
    with pytest.raises(InputError, match="do not determine"):
        run_job(Job("a.raot", (project,), inputs=given, reference="numpy"))


STATE = """symbol n in 1..8
symbol m in 1..64

func @main(%x: f32[n], %s: f32[m]) {
  %y: f32[n] = add(%x, %x)
  %t: f32[m] = add(%s, %s)
  return %y, %t
}
"""


@pytest.mark.parametrize(
    ("condition", "ends"),
    [
        (Condition("<=", Dim.of(3), Dim.of("n")), [(3, 3), (20, 9)]),
        (Condition("<=", 2 * Dim.of("m"), Dim.of("n")), [(2, 1), (20, 9)]),
        (Condition("==", Dim.of("n"), Dim.of("m") + 1), [(2, 1), (10, 9)]),
    ],
)
def test_verify_begins_with_the_smallest_and_the_largest_allowed_sizes(
    condition: Condition, ends: list[tuple[int, int]]
) -> None:
    interface = interface_of([(Dim.of("n"), Dim.of("m"))], [(1, 20), (1, 9), (1, 1)], [condition])
    sizes = [(case.sizes["n"], case.sizes["m"]) for case in cases_of(interface, (), {})]
    assert sizes[:2] == ends


def test_sizes_that_are_not_given_are_as_high_as_the_model_allows() -> None:
    condition = Condition("==", Dim.of("n"), Dim.of("m") + 1)
    interface = interface_of([(Dim.of("n"), Dim.of("m"))], [(1, 20), (1, 9), (1, 1)], [condition])
    assert [case.sizes["n"] for case in cases_of(interface, ({}, {"m": 4}), {})] == [10, 5]
    # The C says that these do not fit.
    (case,) = cases_of(interface, ({"m": 4, "n": 4},), {})
    assert case.sizes["n"] == 4


def test_a_size_of_the_state_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "held.raot"
    path.write_text(STATE)
    host = rx.compile(path, state={"s": "t"}).host()
    with pytest.raises(InputError, match="size m"):
        host(x=row(3))
    assert host.at(m=7)(x=row(3))["y"].shape == (3,)
    assert host(x=row(3))["y"].shape == (3,)
    with pytest.raises(rx.StatusError, match="RAOT_ERR_MISMATCH"):
        host.at(m=8)(x=row(3))
    host.reset()
    with pytest.raises(InputError, match="size m"):
        host(x=row(3))
    assert host.at(m=8)(x=row(3))["y"].shape == (3,)
