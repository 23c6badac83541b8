# SPDX-License-Identifier: Apache-2.0
"""Random indices lie inside the axes into which a model indexes with them."""

from __future__ import annotations

import pytest

import relax_aot as rx
from relax_aot.ir.dims import Dim
from relax_aot.verify.index_draws import drawn_inside, indexed_axes
from relax_aot.verify.samples import cases_of

SIZES = "symbol n in 1..9\nsymbol k in 1..5\n"
BODIES = {
    "gather": "%y: f32[k, 3] = gather(%x, %i) {axis=0}",
    "converted": "%j: i32[k] = cast(%i) {to=i32}\n  %y: f32[k, 3] = gather(%x, %j) {axis=0}",
    "moved": "%j: i64[k, 1] = reshape(%i) {shape=[k, 1]}\n"
    "  %y: f32[k, 3] = gather_nd(%x, %j) {batch_dims=0}",
    "smaller axis": "%a: f32[k, 3] = gather(%x, %i) {axis=0}\n"
    "  %y: f32[n, k] = gather(%x, %i) {axis=1}",
    "computed": "%j: i64[k] = add(%i, %i)\n  %y: f32[k, 3] = gather(%x, %j) {axis=0}",
}
AXES = {
    "gather": [Dim.of("n")],
    "converted": [Dim.of("n")],
    "moved": [Dim.of("n")],
    "smaller axis": [Dim.of("n"), Dim.of(3)],
}


def module_of(name: str) -> rx.Module:
    params = "%x: f32[n, 3], %i: i64[k]"
    return rx.parse(f"{SIZES}func @main({params}) {{\n  {BODIES[name]}\n  return %y\n}}")


@pytest.mark.parametrize("name", BODIES)
def test_indices_are_traced_to_their_inputs(name: str) -> None:
    assert indexed_axes(module_of(name)) == ({"i": AXES[name]} if name in AXES else {})


def test_indices_are_drawn_from_the_smallest_axis_at_each_size() -> None:
    project = rx.compile(module_of("smaller axis")).built
    drawn = drawn_inside(project, cases_of(project.interface, (), {}), set())
    most = {case.sizes["n"]: int(case.inputs[1].max()) for case in drawn}
    assert most[1] == 0
    assert all(found < min(n, 3) for n, found in most.items())
    assert max(most.values()) == 2


def test_given_indices_stay() -> None:
    project = rx.compile(module_of("gather")).built
    cases = cases_of(project.interface, (), {})
    assert drawn_inside(project, cases, {"i"}) == cases
