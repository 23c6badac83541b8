# SPDX-License-Identifier: Apache-2.0
"""Kernels in the device form: the results of the plain loops at every size, no races, and the
form that each kind of loops should have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from relax_aot.evaluation.interpret import IndexFault, RaceError, run_kernel
from relax_aot.ir.loops import BODIES, Barrier, For, If, Kernel, Micro, Reserve, Stmt, mapped, walk
from relax_aot.ops._op import Array
from relax_aot.scheduling.devices.launches import launches
from relax_aot.scheduling.passes import fma
from tests.scheduling.devices.subjects import KERNELS, SMALL, VARIANTS, on_device, source

SIZES = ((1, 1), (7, 32), (37, 33))
ROUNDINGS = 200
"""Roundings of sums and of what follows them, at the sizes above."""


@cache
def device(name: str, variant: str = "usual") -> Kernel:
    (kernel,) = on_device(source(name), variant).kernels
    return kernel


def inputs_of(kernel: Kernel, sizes: dict[str, int]) -> list[Array]:
    rng = np.random.default_rng(sum(sizes.values()))
    arrays = []
    for buffer in kernel.inputs:
        shape = tuple(size.evaluate(sizes) for size in buffer.shape)
        if buffer.dtype.is_int:
            arrays.append(rng.integers(0, sizes["n"], shape).astype(buffer.dtype.numpy))
        else:
            arrays.append(rng.uniform(0.2, 1.8, shape).astype(np.float32))
    return arrays


def assert_equal(kernel: Kernel, ours: list[Array], plain: list[Array]) -> None:
    """The same bits, or results of sums in another order: all terms have one sign or decide
    nothing."""
    split = any(isinstance(stmt, Micro | Barrier | Reserve) for stmt in walk(kernel.body))
    for found, wanted in zip(ours, plain, strict=True):
        if split and found.dtype == np.float32:
            scale = np.abs(wanted) + 1.0
            assert (np.abs(found - wanted) <= ROUNDINGS * 2.0**-24 * scale).all()
        else:
            assert found.tobytes() == wanted.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", KERNELS)
def test_results_are_those_of_the_plain_loops(name: str, variant: str) -> None:
    (plain,) = fma.run(source(name), SMALL).kernels
    kernel = device(name, variant)
    if variant != "usual" and kernel == device(name):
        return
    for seed, (n, m) in enumerate(SIZES):
        sizes = {"n": n, "m": m}
        arrays = inputs_of(plain, sizes)
        wanted = run_kernel(plain, arrays, sizes)
        assert_equal(kernel, run_kernel(kernel, arrays, sizes, seed=seed), wanted)
        if kernel.in_place:
            shared = {written: read for read, written in kernel.in_place}
            assert_equal(kernel, run_kernel(kernel, arrays, sizes, shared, seed), wanted)


def form(kernel: Kernel) -> list[str]:
    """Each launch by its axes, and `barrier` where its block has some."""
    return [
        " ".join(sorted({axis for stmt in walk(launch.kernel.body) if (axis := _axis(stmt))}))
        for launch in launches(kernel)
    ]


def _axis(stmt: Stmt) -> str:
    if isinstance(stmt, Barrier):
        return "barrier"
    return stmt.axis if isinstance(stmt, For) else ""


WARPS = "block lane warp"
THREADS = "block thread"
FORMS = {
    "elements": [THREADS], "transposed": [THREADS], "softmax": [WARPS], "columns": [THREADS],
    "scratch of rows": [WARPS], "recurrence": [THREADS, f"barrier {WARPS}"],
    "steps of data": [THREADS, f"barrier {WARPS}"], "running sums": [THREADS],
    "the place of the largest": [WARPS], "loops under a condition": [THREADS, THREADS, WARPS],
    "sums of quantized values": [WARPS],
    "scattered sums": [THREADS, f"barrier {WARPS}"], "gathered rows": [THREADS],
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_loops_get_the_form_of_their_kind(name: str) -> None:
    assert form(device(name)) == FORMS[name]


def test_long_reductions_are_several_launches() -> None:
    made = launches(device("a whole tensor", "parts"))
    assert form(device("a whole tensor", "parts"))[0] == WARPS
    grids = [str(launch.grid) for launch in made if launch.grid != 1]
    assert grids == ["(n + 1) // 2", "(m*n + 127) // 128"]


def test_rows_of_several_warps_share_memory() -> None:
    kernel = device("scratch of rows", "blocks for rows")
    assert form(kernel) == [f"barrier {WARPS}"]
    assert kernel.scratch == ()
    (copied,) = device("scratch of rows", "copies of scratch").scratch
    assert (copied.name, copied.scope) == ("s", "core")


def test_recurrences_of_a_batch_are_apart() -> None:
    _, steps = launches(device("recurrences of a batch"))
    assert (str(steps.grid), form(steps.kernel)) == ("2", [WARPS])


def test_copies_of_scratch_have_an_axis_in_the_call() -> None:
    module = on_device(source("scratch of rows"), "copies of scratch")
    (call,) = module.main.body
    assert [str(out.type) for out in call.outs] == ["f32[n, m]", "f32[3, m]"]


def test_contiguous_elements_are_loaded_as_vectors() -> None:
    used = [stmt.name for stmt in walk(device("elements").body) if isinstance(stmt, Micro)]
    assert used == ["raot_load4_f32", "raot_store4_f32"]
    mixed = walk(device("quantized elements").body)
    used = [stmt.name for stmt in mixed if isinstance(stmt, Micro)]
    assert used == ["raot_load4_f32"] * 4 + ["raot_store16_i8"]


def test_an_index_outside_ends_the_run() -> None:
    kernel = device("gathered rows")
    x = np.zeros((3, 5), np.float32)
    with pytest.raises(IndexFault):
        run_kernel(kernel, [x, np.array([0, 3, 1], np.int32)], {"n": 3, "m": 5})


def test_buffers_that_are_connected_count_as_one() -> None:
    (kernel,) = source("elements").kernels
    pairs = (("x", "y"), ("x", "z"), ("v", "z"), ("a", "b"))
    same = replace(kernel, in_place=pairs).same_memory
    assert len({same[name] for name in "vxyz"}) == 1
    assert same["a"] == same["b"] != same["x"]


# Planted errors


def without(kernel: Kernel, number: int) -> Kernel:
    """Without one of its barriers."""
    gone = [stmt for stmt in walk(kernel.body) if isinstance(stmt, Barrier)][number]

    def kept(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
        for stmt in body:
            if stmt is not gone:
                if isinstance(stmt, For):
                    stmt = replace(stmt, body=tuple(kept(stmt.body)))
                elif isinstance(stmt, If):
                    stmt = replace(stmt, then=tuple(kept(stmt.then)))
                yield stmt

    return replace(kernel, body=tuple(kept(kernel.body)))


def doubled(kernel: Kernel) -> Kernel:
    """With one more iteration of each loop over warps, or threads: two write one element."""

    def rule(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.axis in ("warp", "thread"):
            stmt = replace(stmt, stop=stmt.stop + 1)
        return mapped(stmt, BODIES, rule)

    return replace(kernel, body=tuple(map(rule, kernel.body)))


def races(kernel: Kernel) -> bool:
    sizes = {"n": 37, "m": 33}
    try:
        run_kernel(kernel, inputs_of(kernel, sizes), sizes)
    except RaceError:
        return True
    except AssertionError as error:
        return "outside" in str(error) or "before it is written" in str(error)
    return False


BARRIERS = {("recurrence", "usual"): 2, ("steps of data", "usual"): 1,
            ("softmax", "blocks for rows"): 2, ("scratch of rows", "blocks for rows"): 1,
            ("scratch of rows", "copies of scratch"): 2,
            ("a whole tensor", "usual"): 2}  # fmt: skip


@pytest.mark.parametrize(("name", "variant"), BARRIERS)
def test_a_missing_barrier_is_found(name: str, variant: str) -> None:
    kernel = device(name, variant)
    count = sum(isinstance(stmt, Barrier) for stmt in walk(kernel.body))
    assert count == BARRIERS[name, variant]
    assert [races(without(kernel, number)) for number in range(count)] == [True] * count


@pytest.mark.parametrize("name", ["elements", "softmax", "columns", "recurrence"])
def test_a_wrong_bound_is_found(name: str) -> None:
    assert races(doubled(device(name)))
