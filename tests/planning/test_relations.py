# SPDX-License-Identifier: Apache-2.0
"""Conditions on sizes bound the plan: no memory is kept for sizes that a run refuses."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.ir.dims import Dim, parse_dim
from relax_aot.ir.graph import Condition, Module, Symbol
from relax_aot.planning import Plan
from relax_aot.planning.allowed import most_allowed
from relax_aot.planning.check import PlanError, check
from relax_aot.project import Project
from relax_aot.verify.host import (
    STRICT_FLAGS,
    build_shared,
    library_files,
)
from relax_aot.verify.library import Library
from relax_aot.verify.program import to_bytes
from tests.conftest import QUICK_FLAGS

OK, ERR_ARENA, ERR_MISMATCH = 0, -2, -5
BOTH = "require n + m <= 256"
"""Bounds both sizes, however highs are raised."""
RATIO = "require n <= 3*m\nrequire m <= 300 - n"

CROSSING = """
symbol n in 1..256
symbol m in 1..256
{relations}
func @main(%x: f32[n, 24], %z: f32[24, m], %wq: f32[24, 64], %wk: f32[64, 24]) {{
  %h: f32[n, 24] = cum_sum(%x) {{axis=0, exclusive=false, reverse=false}}
  %q0: f32[n, 64] = matmul(%h, %wq)
  %q: f32[n, 64] = cum_sum(%q0) {{axis=0, exclusive=false, reverse=false}}
  %k0: f32[64, m] = matmul(%wk, %z)
  %k: f32[64, m] = cum_sum(%k0) {{axis=0, exclusive=false, reverse=false}}
  %s0: f32[n, m] = matmul(%q, %k)
  %s: f32[n, m] = cum_sum(%s0) {{axis=1, exclusive=false, reverse=false}}
  %o: f32[n, m] = matmul(%q, %k)
  %y: f32[n, m] = add(%o, %s)
  %r: f32[n, 1] = reduce(%y) {{kind="sum", axes=[1], keepdims=true}}
  %v: f32[n, 24] = mul(%h, %r)
  %w: f32[24, n] = transpose(%v) {{perm=[1, 0]}}
  return %y, %w
}}
"""


@cache
def crossing(relations: str = BOTH, offsets: str = "static") -> Project:
    module = rx.parse(CROSSING.format(relations=relations))
    return rx.compile(module, name="kws", offsets=offsets).built


@cache
def library(relations: str, n_max: int = 256, offsets: str = "static") -> Library:
    flags = (*STRICT_FLAGS, *QUICK_FLAGS, f"-DKWS_N_MAX={n_max}")
    return Library(build_shared(library_files(crossing(relations, offsets)), flags))


def allowed(module: Module) -> Iterator[dict[str, int]]:
    """All sizes that a run accepts."""
    names = [s.name for s in module.symbols]
    for values in product(*(range(s.low, s.high + 1) for s in module.symbols)):
        sizes = dict(zip(names, values, strict=True))
        sides = [(c, c.left.evaluate(sizes), c.right.evaluate(sizes)) for c in module.conditions]
        if all(a == b if c.relation == "==" else a <= b for c, a, b in sides):
            yield sizes


def arrays(n: int, m: int) -> dict[str, Any]:
    numbers = np.random.default_rng(n)
    shapes = {"x": (n, 24), "z": (24, m), "wq": (24, 64), "wk": (64, 24)}
    return {k: numbers.uniform(-0.1, 0.1, s).astype(np.float32) for k, s in shapes.items()}


def expected(x: Any, z: Any, wq: Any, wk: Any) -> tuple[Any, Any]:
    x, z, wq, wk = (a.astype(np.float64) for a in (x, z, wq, wk))
    h = x.cumsum(0)
    scores = (h @ wq).cumsum(0) @ (wk @ z).cumsum(0)
    y = scores + scores.cumsum(1)
    return y, (h * y.sum(1, keepdims=True)).T


def computes(one: Library, n: int, m: int) -> None:
    """With exactly the bytes that it asks for, between guards, and not with one byte less."""
    inputs = arrays(n, m)
    need = one.arena_need([n, m])
    assert need <= one.arena_bytes
    done = one.run([n, m], [to_bytes(a) for a in inputs.values()], arena_bytes=need)
    assert (done.status, done.guards_ok) == (OK, True)
    for data, wanted in zip(done.outputs, expected(**inputs), strict=True):
        found = data.view(np.float32)[: wanted.size].reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6 * np.abs(wanted).max())
    less = one.run([n, m], [to_bytes(a) for a in inputs.values()], arena_bytes=need - 1)
    assert (less.status, less.untouched) == (ERR_ARENA, True)


@pytest.mark.slow
def test_slots_are_as_large_as_the_relations_allow() -> None:
    """180,224 bytes where n and m may both be 256."""
    plan = crossing().plan
    sizes = list(allowed(plan.module))
    for slot in plan.slots:
        assert slot.greatest_bytes == max(slot.bytes.evaluate(at) for at in sizes)
    assert plan.arena_bytes == 177_312


def longest_path(plan: Plan, sizes: dict[str, int]) -> int:
    ends: dict[str, int] = {}
    for slot in plan.slots:
        ends[slot.var.name] = slot.bytes.evaluate(sizes) + max(
            (ends[u] for u in slot.below), default=0
        )
    return max(ends.values())


@pytest.mark.slow
def test_dynamic_offsets_need_what_allowed_sizes_need_at_once() -> None:
    plan = crossing(offsets="dynamic").plan
    sizes = list(allowed(plan.module))
    assert plan.arena_bytes == max(longest_path(plan, at) for at in sizes) == 90_112
    one = library(BOTH, offsets="dynamic")
    for at in random.Random(0).sample(sizes, 200):
        assert one.arena_need([at["n"], at["m"]]) == longest_path(plan, at)


@pytest.mark.slow
@pytest.mark.parametrize("offsets", ["static", "dynamic"])
@pytest.mark.parametrize("n_max", [200, 256, 1000])
@pytest.mark.parametrize("relations", [BOTH, RATIO])
def test_c_runs_in_the_bytes_that_it_asks_for(relations: str, n_max: int, offsets: str) -> None:
    """Also where the bound of n is lowered or raised when the C is compiled."""
    one = library(relations, n_max, offsets)
    if n_max == 256:
        assert one.arena_bytes == crossing(relations, offsets).plan.arena_bytes
    for n, m in ((1, 1), (1, 255), (77, 31), (128, 128), (140, 116), (200, 56)):
        if n <= 3 * m:
            computes(one, n, m)
    if n_max > 200 and relations == RATIO:
        computes(one, 225, 75)
    if n_max > 200 and relations == BOTH:
        computes(one, 255, 1)


@pytest.mark.parametrize("offsets", ["static", "dynamic"])
def test_excluded_sizes_are_refused_and_ask_for_no_more(offsets: str) -> None:
    one = library(BOTH, offsets=offsets)
    assert one.arena_need([256, 256]) == one.arena_bytes
    inputs = [to_bytes(a) for a in arrays(256, 256).values()]
    done = one.run([256, 256], inputs, arena_bytes=one.arena_bytes)
    assert (done.status, done.untouched, done.guards_ok) == (ERR_MISMATCH, True, True)


def test_sizes_of_inputs_and_outputs_follow_the_relations() -> None:
    project = crossing()
    header = project.files["kws.h"].decode()
    assert re.search(r"KWS_Y_BYTES +65536 ", header) and re.search(r"KWS_W_BYTES +24480 ", header)
    assert library(BOTH).model.output_bytes[0] == 65536
    assert library(BOTH, 1000).model.output_bytes[0] == 65536


@pytest.mark.parametrize(("relations", "names"), [(BOTH, "qkh"), (RATIO, "k")])
def test_the_checker_refuses_offsets_and_sizes_that_are_too_small(
    relations: str, names: str
) -> None:
    plan = crossing(relations).plan
    edge = [slot for slot in plan.slots if slot.var.name in names]
    for slot in edge:
        less = replace(slot, greatest_bytes=slot.greatest_bytes - 16)
        smaller = tuple(less if one is slot else one for one in plan.slots)
        with pytest.raises(PlanError, match="bytes at"):
            check(replace(plan, slots=smaller))
    for index, slot in enumerate(plan.slots):
        slots = list(plan.slots)
        slots[index] = replace(slot, offset=max(slot.offset - 16, 0))
        if slot.offset:
            with pytest.raises(PlanError, match="overlap"):
                check(replace(plan, slots=tuple(slots)))


@pytest.mark.parametrize("seed", range(12))
def test_the_greatest_allowed_value_is_that_of_all_sizes(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    symbols = tuple(Symbol(name, 1, int(numbers.integers(5, 40))) for name in "nmk")
    texts = ["n*m + 7*k", "16*((4*n*m + 15)//16)", "n*k + 3*m", "min(24, n)*m*k", "n + m + k"]
    limits = ["n + m <= {}", "n*m <= {}", "n == m", "2*n + k <= {}", "n % 4 == 0", "m - n <= 3"]
    chosen = numbers.choice(limits, 2, replace=False)
    conditions = tuple(condition(text.format(numbers.integers(8, 40))) for text in chosen)
    module = Module((), symbols=symbols, conditions=conditions)
    dims = [parse_dim(text) for text in numbers.choice(texts, 2, replace=False)]

    def top(values: Any) -> Any:
        return np.maximum(values[0] + values[1], 2 * values[0])

    found = most_allowed(dims, top, module)
    highest = {s.name: s.high for s in symbols}
    whole = top([dim.evaluate(highest) for dim in dims])
    most = max((top([dim.evaluate(at) for dim in dims]) for at in allowed(module)), default=whole)
    assert (whole if found is None else found) == most


def condition(text: str) -> Condition:
    relation = "==" if "==" in text else "<="
    left, right = text.split(relation)
    return Condition(relation, parse_dim(left), Dim.of(parse_dim(right)))
