# SPDX-License-Identifier: Apache-2.0
"""`--assume`: relations are facts for the compiler and checks in the C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.bounds import WrongBound
from relax_aot.project import Project
from relax_aot.verify.host import StatusError, host_model
from relax_aot.verify.program import to_bytes
from tests.models.onnx_text import model_of

BOUNDS = {"n": (1, 64), "m": (1, 64)}


def project_of(model: Any, assume: Sequence[str]) -> Project:
    return driver.compile_model(model, "host", Options(BOUNDS, assume=tuple(assume), name="a"))


def added() -> Any:
    return model_of("a (float[n] x, float[m] y) => (float[n] z)", "z = Add(x, y)", {})


def vector(size: int) -> Any:
    return np.random.default_rng(size).normal(size=size).astype(np.float32)


def test_equal_symbols_are_one_and_are_compared_on_entry() -> None:
    project = project_of(added(), ["n == m"])
    text = [str(c) for c in project.source_module.conditions]
    assert len(text) == 1, text
    assert project.source_module.main.params[0].type == project.source_module.main.params[1].type
    model = host_model(project)
    x, y = vector(9), vector(9)
    np.testing.assert_array_equal(model(x=x, y=y)["z"], x + y)
    with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
        model.run_at({"n": 9, "m": 8}, [vector(8), vector(8)])


def rows() -> Any:
    """x as rows of 8, each summed."""
    text = """
        shape = Constant <value = int64[2] {-1, 8}> ()
        last = Constant <value = int64[1] {1}> ()
        wide = Reshape(x, shape)
        z = ReduceSum <keepdims = 0> (wide, last)"""
    return model_of("a (float[n] x) => (float[k] z)", text, {})


def test_a_congruence_proves_a_reshape_and_is_checked() -> None:
    options = Options({"n": (1, 64)}, assume=("n % 8 == 0",), name="a")
    project = driver.compile_model(rows(), "host", options)
    conditions = [str(c) for c in project.source_module.conditions]
    assert conditions == ["n % 8 == 0"]
    model = host_model(project)
    for n in (8, 24, 64):
        x = vector(n)
        expected = x.astype(np.float64).reshape(-1, 8).sum(1)
        np.testing.assert_allclose(model(x=x)["z"], expected, rtol=1e-5, atol=1e-5)
    for n in (1, 7, 9, 63):
        with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
            model(x=vector(n))


def taken() -> Any:
    """The first n of y twice over."""
    text = """
        zero = Constant <value = int64[1] {0}> ()
        size = Shape <start = 0, end = 1> (x)
        twice = Concat <axis = 0> (y, y)
        part = Slice(twice, zero, size)
        z = Add(x, part)"""
    return model_of("a (float[n] x, float[m] y) => (float[n] z)", text, {})


def test_an_inequality_proves_a_slice_and_is_checked() -> None:
    free = project_of(taken(), [])
    project = project_of(taken(), ["n <= 2*m"])
    assert "min" in str(free.source_module)
    assert "min" not in str(project.source_module)
    assert [c.origin for c in project.source_module.conditions] == ["assumed: n <= 2*m"]
    model = host_model(project, sanitize=True)
    for n, m in ((1, 1), (2, 1), (9, 5), (64, 32), (64, 64)):
        x, y = vector(n), vector(m)
        np.testing.assert_array_equal(model(x=x, y=y)["z"], x + np.tile(y, 2)[:n])
    for n, m in ((3, 1), (64, 31)):
        with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
            model(x=vector(n), y=vector(m))


def test_nothing_changes_where_a_relation_does_not_hold() -> None:
    model = host_model(project_of(taken(), ["n <= 2*m"]))
    result = model.runner.run([64, 3], [to_bytes(vector(64)), to_bytes(vector(3))])
    assert (result.status, result.untouched, result.guards_ok) == (-5, True, True)


@pytest.mark.parametrize(
    "assume",
    [
        ["n < m", "m < n"],
        ["n == m", "n == m + 1"],
        ["n % 2 == 0", "n % 4 == 1"],
        ["n + m >= 129"],
        ["n * m == 0"],
    ],
    ids=str,
)
def test_a_contradiction_is_one_clear_error(assume: list[str]) -> None:
    with pytest.raises(WrongBound, match="no size fulfills --assume") as caught:
        project_of(added(), assume)
    assert "n in 1..64" in str(caught.value)


@pytest.mark.parametrize(
    ("assume", "said"),
    [("n <= q", "the model has no such symbol"), ("n", "expected one of"), ("n <= ", "column")],
)
def test_an_assumption_that_cannot_be_read(assume: str, said: str) -> None:
    with pytest.raises(RelaxAotError, match=said):
        project_of(added(), [assume])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"optimize": "fast"}, "optimize is one of speed, size, memory, not 'fast'"),
        ({"quantize": "int9"}, "quantize is one of int8, int8w, int4w, int8d, int4d, q8_0"),
        ({"weights": "text"}, "weights are one of"),
        ({"bounds": {"n": "9", "m": 9}}, "the bound of n is a number or a pair"),
        ({"bounds": {"n": (1, 2, 3), "m": 9}}, "the bound of n is a number or a pair"),
    ],
)
def test_a_choice_that_there_is_not_is_said(wrong: dict[str, Any], said: str) -> None:
    chosen: dict[str, Any] = {"bounds": {"n": 9, "m": np.int64(9)}, "assume": ["n == m"]} | wrong
    with pytest.raises(RelaxAotError, match=said):
        rx.compile(added(), **chosen)


def test_a_project_is_short_to_look_at() -> None:
    project = rx.compile(added(), bounds={"n": 9, "m": 9}, name="sum")
    assert repr(project) == "<relax_aot.Project sum for host>"
