# SPDX-License-Identifier: Apache-2.0
"""The host part of a model on a GPU, on the fake driver: statuses, memory, graphs, streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from tests.cuda.emulated import FUNCTIONS, Emulated

pytestmark = pytest.mark.slow
OK, ARENA, ALIGN, SIZE, INDEX, CAPACITY, STATE, DEVICE = 0, -2, -3, -4, -6, -7, -10, -13
MOST = 40


def parsed(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')


CHOSEN = parsed("""
agraph (float[n, 4] x, int64[m] rows) => (float[m, 4] y, float[n, 4] z)
{
    w = Constant <value = float[4] {1.0, 2.0, 3.0, 4.0}> ()
    p = Mul (x, w)
    y = Gather (p, rows)
    z = Relu (p)
}
""")
"""Rows that data choose: a wrong one is an error of the GPU."""
COUNTED = parsed("""
agraph (float[n] x, float[n] s) => (float[n] y, float[n] t)
{
    t = Add (x, s)
    y = Mul (t, t)
}
""")


GROWING = parsed("""
agraph (int64[1] at, float[m, 4] past) => (float[4] y, float[k, 4] present)
{
    table = Constant <value = float[3, 4] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0,
                                           12.0}> ()
    row = Gather (table, at)
    present = Concat <axis = 0> (past, row)
    axes = Constant <value = int64[1] {0}> ()
    y = ReduceSum <keepdims = 0> (present, axes)
}
""")
"""A row that data choose is appended to a state."""


@pytest.fixture(scope="module")
def chosen() -> Project:
    options = Options(bounds={"n": (1, MOST), "m": (1, MOST)}, emit="cuda-source", name="chosen")
    return driver.compile_model(CHOSEN, "jetson-orin-nano", options)


@pytest.fixture(scope="module")
def counted() -> Project:
    options = Options(bounds={"n": (1, MOST)}, state={"s": "t"}, emit="cuda-source", name="counted")
    return driver.compile_model(COUNTED, "jetson-orin-nano", options)


@pytest.fixture
def model(chosen: Project) -> Iterator[Emulated]:
    found = Emulated(chosen)
    yield found
    found.driver.fake_reset()
    found.close()
    assert found.live == 0


def inputs(n: int, m: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(n + 100 * m)
    x = rng.standard_normal((n, 4)).astype(np.float32)
    return x, rng.integers(-n, n, m)


def expected(x: Any, rows: Any) -> tuple[Any, Any]:
    product = x * np.array([1, 2, 3, 4], np.float32)
    return product[rows], np.maximum(product, 0)


def check(model: Emulated, n: int, m: int) -> None:
    x, rows = inputs(n, m)
    y, z = np.full((m, 4), 7, np.float32), np.full((n, 4), 7, np.float32)
    assert model.run([x, rows], [y, z], n=n, m=m) == OK, model.message
    for found, truth in zip((y, z), expected(x, rows), strict=True):
        np.testing.assert_array_equal(found, truth)


@pytest.mark.parametrize("integrated", [0, 1])
def test_sizes_of_every_call(
    model: Emulated, integrated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAOT_FAKE_INTEGRATED", str(integrated))
    assert model.init(n=1, m=1) == OK
    for n, m in ((1, 1), (MOST, MOST), (7, 31), (33, 2)):
        check(model, n, m)
    assert (model.calls("cuMemcpyHtoDAsync_v2") > 1) == (integrated == 0)


def test_a_run_allocates_nothing_and_keeps_its_graph(model: Emulated) -> None:
    assert model.init(n=1, m=1) == OK
    made = model.made
    check(model, 3, 5)
    changed = model.calls("cuGraphExecKernelNodeSetParams")
    assert changed > 0
    check(model, 3, 5)
    assert model.calls("cuGraphExecKernelNodeSetParams") == changed  # nothing is different
    check(model, 20, 5)
    assert model.calls("cuGraphExecKernelNodeSetParams") > changed
    assert model.made == made
    assert model.calls("cuGraphLaunch") == 3 and model.calls("cuGraphInstantiate") == 1


def test_wrong_calls_change_nothing(model: Emulated) -> None:
    x, rows = inputs(3, 2)
    y, z = np.full((2, 4), 7, np.float32), np.full((3, 4), 7, np.float32)
    before = y.copy(), z.copy()
    assert model.run([x, rows], [y, z], n=3, m=2) == STATE  # not initialized
    assert model.init(n=0, m=2) == SIZE
    assert model.init(n=3, m=2) == OK
    assert model.run([x, rows], [y, z], n=MOST + 1, m=2) == SIZE
    assert model.run([x, rows], [y, z], n=3, m=0) == SIZE
    rows[1] = 3
    assert model.run([x, rows], [y, z], n=3, m=2) == INDEX
    assert np.array_equal(y, before[0]) and np.array_equal(z, before[1])
    check(model, 3, 2)  # the failure is over
    model.memory.device_bytes -= 1
    assert model.run([x, rows], [y, z], n=3, m=2) == ARENA
    model.memory.device_bytes += 1


def test_mapped_memory_is_not_copied(model: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAOT_FAKE_INTEGRATED", "0")
    assert model.init(n=1, m=1) == OK
    copies = model.calls("cuMemcpyHtoDAsync_v2")
    x, rows = inputs(9, 4)
    held = [model.alloc(a.shape, a.dtype) for a in (x, rows)]
    held[0][:], held[1][:] = x, rows
    out = [model.alloc((4, 4), np.float32), model.alloc((9, 4), np.float32)]
    assert model.run(held, out, n=9, m=4) == OK, model.message
    assert model.calls("cuMemcpyHtoDAsync_v2") == copies
    for found, truth in zip(out, expected(x, rows), strict=True):
        np.testing.assert_array_equal(found, truth)
    for array in (held[0], out[1], held[1]):
        model.free(array)


def test_runs_in_a_stream_report_when_they_are_waited_for(model: Emulated) -> None:
    assert model.init(n=1, m=1) == OK
    x, rows = inputs(9, 4)
    held = [model.alloc(a.shape, a.dtype) for a in (x, rows)]
    held[0][:], held[1][:] = x, rows
    out = [model.alloc((4, 4), np.float32), model.alloc((9, 4), np.float32)]
    out[0][:] = 7
    assert model.run(held, out, stream=1, n=9, m=4) == OK
    assert np.all(out[0] == 7)  # nobody has waited
    assert model.wait(1) == OK
    np.testing.assert_array_equal(out[0], expected(x, rows)[0])
    out[0][:] = 7
    held[1][0] = 9
    assert model.run(held, out, stream=1, n=9, m=4) == OK
    assert model.run(held, out, stream=1, n=9, m=4) == OK
    assert (model.wait(1), model.wait(1)) == (INDEX, OK)
    assert np.all(out[0] == 7)
    assert model.run([held[0].ctypes.data + 4, held[1]], out, stream=1, n=8, m=4) == ALIGN


def test_a_cleared_state_starts_again(counted: Project) -> None:
    model = Emulated(counted)
    assert model.init(n=3) == OK
    x, y = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
    for total in (x, 2 * x, 3 * x):
        assert model.run([x], [y], n=3) == OK
        np.testing.assert_array_equal(y, total * total)
    assert model.init(n=2) == OK
    assert model.run([x], [y], n=3) == -5  # the state has another size
    assert model.run([x], [y], n=2) == OK
    np.testing.assert_array_equal(y[:2], (x * x)[:2])
    model.close()
    assert model.live == 0 and model.run([x], [y], n=2) == STATE


def test_lengths_are_those_before_the_first_run_that_failed() -> None:
    options = Options(
        bounds={"m": (0, 8)}, state={"past": "present"}, emit="cuda-source", name="growing"
    )
    model = Emulated(driver.compile_model(GROWING, "jetson-orin-nano", options))
    assert model.init() == OK
    table = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    at, y = np.zeros(1, np.int64), np.zeros(4, np.float32)
    for row in (2, 0):
        at[0] = row
        assert model.run([at], [y]) == OK, model.message
    np.testing.assert_array_equal(y, table[2] + table[0])
    chosen = [model.alloc((1,), np.int64) for _ in range(3)]
    sums = model.alloc((4,), np.float32)
    for array, row in zip(chosen, (1, 3, 1), strict=True):
        array[0] = row
        assert model.run([array], [sums], stream=1) == OK
    assert model.length("m") == 5  # the runs are not over
    assert model.wait(1) == INDEX and model.length("m") == 3
    assert model.run([chosen[0]], [sums], stream=1) == OK and model.wait(1) == OK
    np.testing.assert_array_equal(sums, table[2] + table[0] + 2 * table[1])
    at[0] = 5
    assert model.run([at], [y]) == INDEX and model.length("m") == 4
    chosen[1][0], chosen[2][0] = 7, 2
    for array in chosen[1:]:
        assert model.run([array], [sums], stream=1) == OK
    assert model.run([chosen[0]], [sums]) == INDEX and model.length("m") == 4
    for _ in range(4):
        assert model.run([chosen[0]], [sums]) == OK
    assert model.run([chosen[0]], [sums]) == CAPACITY and model.length("m") == 8
    model.close()
    assert model.live == 0


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("integrated", ["0", "1"])
def test_every_function_of_the_driver_may_fail(
    counted: Project, name: str, integrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails, and at whichever call: a status, a message, nothing written, nothing lost."""
    monkeypatch.setenv("RAOT_FAKE_INTEGRATED", integrated)
    x, failed, survived = np.array([1, 2, 3], np.float32), 0, 0
    for nth in range(1, 40):
        model = Emulated(counted)
        model.fail(name, nth)
        y = np.full(3, 7, np.float32)
        status = model.init(n=3)
        if status == OK:
            for _ in range(2):
                status = status or model.run([x], [y], n=3)
                assert status == OK or np.all(np.isin(y, [7, *(x * x)]))
        if status == OK:
            np.testing.assert_array_equal(y, 4 * x * x)
        else:
            failed += 1
            assert status == DEVICE and "an error of the fake driver" in model.message
            runs = 0 if y[0] == 7 else 1
            again = model.run([x], [y], n=3)
            if again == OK:  # nothing had started: the state is that before the run
                np.testing.assert_array_equal(y, (runs + 1) ** 2 * x * x)
                survived += 1
            assert again in (STATE, OK)
        missed = model.calls(name) < nth
        model.driver.fake_reset()
        model.close()
        assert model.live == 0
        if missed:
            break
    else:
        raise AssertionError(f"{name} is called more than 40 times")
    unused = {"cuGraphExecKernelNodeSetParams", "cuCtxPopCurrent_v2"}
    unused |= {"cuMemcpyHtoDAsync_v2"} if integrated == "1" else set()
    assert failed or name in unused
    assert survived or name not in {"cuCtxPushCurrent_v2", "cuGraphLaunch"}


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_launch_that_could_not_be_changed_is_changed_by_the_next_run(
    model: Emulated, nth: int
) -> None:
    assert model.init(n=1, m=1) == OK
    x, rows = inputs(5, 3)
    y, z = np.full((3, 4), 7, np.float32), np.full((5, 4), 7, np.float32)
    model.fail("cuGraphExecKernelNodeSetParams", nth)
    assert model.run([x, rows], [y, z], n=5, m=3) == DEVICE
    assert np.all(y == 7) and np.all(z == 7)
    check(model, 5, 3)


def test_the_header_lists_what_the_gpu_and_its_driver_answer(
    chosen: Project, counted: Project
) -> None:
    found = chosen.files["chosen.h"].decode()
    assert " *   RAOT_ERR_INDEX " in found and " *   RAOT_ERR_DEVICE " in found
    found = counted.files["counted.h"].decode()
    assert " *   RAOT_ERR_INDEX " not in found and " *   RAOT_ERR_DEVICE " in found


def test_what_is_wrong_is_said(model: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAOT_FAKE_SM", "72")
    assert model.init(n=1, m=1) == DEVICE
    assert model.message == (
        "the GPU has compute capability 7.2; the kernels are machine code for 8.7"
    )
    monkeypatch.setenv("RAOT_FAKE_SM", "110")  # nvcc may have compiled for it too
    assert model.init(n=1, m=1) == OK
    model.close()
    monkeypatch.setenv("RAOT_FAKE_SM", "87")
    model.fail("cuMemAlloc_v2", error=2)
    assert model.init(n=1, m=1) == DEVICE
    assert model.message.startswith("cuMemAlloc: out of memory, bytes: ")
    assert model.live == 0
    check_after = model.init(n=1, m=1)
    assert check_after == OK


def test_a_state_may_be_all_that_a_run_gives() -> None:
    """No warning of a size that nothing reads, with -Werror."""
    alone = parsed("agraph (float[n] x, float[n] s) => (float[n] t) { t = Add (x, s) }")
    options = Options(bounds={"n": (1, MOST)}, state={"s": "t"}, emit="cuda-source", name="alone")
    opened = Emulated(driver.compile_model(alone, "jetson-orin-nano", options))
    assert opened.init(n=3) == OK, opened.message
    assert opened.run([np.ones(3, np.float32)], [], n=3) == OK, opened.message
    opened.close()


def test_empty_arrays_in_a_stream_need_no_address() -> None:
    options = Options(bounds={"n": (0, MOST), "m": (0, MOST)}, emit="cuda-source", name="empty")
    opened = Emulated(driver.compile_model(CHOSEN, "jetson-orin-nano", options))
    assert opened.init(n=1, m=1) == OK, opened.message
    assert opened.run([0, 0], [0, 0], stream=1, n=0, m=0) == OK, opened.message
    assert opened.wait(1) == OK, opened.message
    opened.close()
