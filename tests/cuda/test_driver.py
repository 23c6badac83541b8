# SPDX-License-Identifier: Apache-2.0
"""A driver that fails while it releases, lacks a function, or has a context already."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.verify.cuda import fake_driver, host_files
from relax_aot.verify.host import build_shared, library_files
from tests.conftest import ROOT
from tests.cuda.emulated import RELEASES, Emulated
from tests.cuda.test_host import COUNTED, DEVICE, OK, STATE

pytestmark = pytest.mark.slow
HEADER = ROOT / "runtime_c" / "include" / "raot" / "cuda_driver.h"
TABLE = HEADER.read_text().partition("raot_driver_symbols[] = {")[2].partition("}")[0]
SYMBOLS = re.findall(r'"(\w+)"', TABLE)
X = np.array([1, 2, 3], np.float32)


@pytest.fixture(scope="module")
def counted() -> Project:
    options = Options(bounds={"n": (1, 9)}, state={"s": "t"}, emit="cuda-source", name="counted")
    return driver.compile_model(COUNTED, "jetson-orin-nano", options)


@pytest.fixture
def model(counted: Project) -> Iterator[Emulated]:
    found = Emulated(counted)
    yield found
    found.driver.fake_reset()
    found.driver.fake_end_context()


def opened(model: Emulated) -> None:
    assert model.live == 0 and model.init(n=3) == OK
    y = np.zeros(3, np.float32)
    assert model.run([X], [y], n=3) == OK
    np.testing.assert_array_equal(y, X * X)
    model.alloc((2,), np.float32)


@pytest.mark.parametrize("name", RELEASES)
def test_a_close_goes_on_where_something_is_not_released(model: Emulated, name: str) -> None:
    for nth in (1, 2):
        opened(model)
        before = model.calls(name)
        model.fail(name, nth)
        model.close()
        if model.calls(name) - before < nth:
            break
        assert model.message == f"{name.removesuffix('_v2')}: an error of the fake driver"
        assert model.live == (name not in {"cuStreamSynchronize", "cuStreamDestroy_v2"})
        assert model.run([X], [X.copy()], n=3) == STATE
        model.driver.fake_end_context()
    model.driver.fake_reset()
    opened(model)  # it begins again
    model.close()
    assert model.live == 0 and model.message == ""


@pytest.mark.parametrize("name", ["cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"])
def test_a_close_without_its_context_ends(model: Emulated, name: str) -> None:
    opened(model)
    model.fail(name)
    model.close()
    assert model.message == f"{name.removesuffix('_v2')}: an error of the fake driver"
    assert model.run([X], [X.copy()], n=3) == STATE


@pytest.mark.parametrize("name", RELEASES)
def test_the_first_failure_of_an_init_is_told(model: Emulated, name: str) -> None:
    model.fail("cuGraphInstantiate")
    model.fail(name, 2 if name == "cuStreamSynchronize" else 1)
    assert model.init(n=3) == DEVICE
    assert model.message == "cuGraphInstantiate: an error of the fake driver"
    assert model.live <= 1


def test_memory_that_is_not_freed_is_freed_by_close(model: Emulated) -> None:
    opened(model)
    held = model.live
    array = model.alloc((5,), np.float32)
    model.fail("cuMemFreeHost")
    model.free(array)
    assert model.live == held + 1 and model.message.startswith("cuMemFreeHost: ")
    model.close()
    assert model.live == 0


def test_an_error_without_a_text(model: Emulated) -> None:
    model.fail("cuMemAlloc_v2")
    model.fail("cuGetErrorString")
    assert model.init(n=3) == DEVICE
    assert model.message.startswith("cuMemAlloc: unknown error")


@pytest.mark.parametrize("fails", [False, True])
def test_the_context_of_the_caller_is_used(model: Emulated, fails: bool) -> None:
    context = ctypes.c_void_p()
    assert model.driver.cuInit(0) == OK
    assert model.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == OK
    assert model.driver.cuCtxPushCurrent_v2(context) == OK
    held = model.live
    if fails:
        model.fail("cuCtxGetDevice")
        assert model.init(n=3) == DEVICE
        assert model.message == "cuCtxGetDevice: an error of the fake driver"
    else:
        assert model.init(n=3) == OK
        assert model.calls("cuDevicePrimaryCtxRetain") == 1
        model.close()
    assert model.live == held
    current = ctypes.c_void_p()
    assert model.driver.cuCtxGetCurrent(ctypes.byref(current)) == OK
    assert current.value == context.value


def test_an_init_that_fails_leaves_the_state_unknown(model: Emulated) -> None:
    assert model.init(n=3) == OK
    y = X.copy()
    assert model.run([X], [y], n=3) == OK
    model.fail("cuStreamSynchronize")
    assert model.init(n=3) == DEVICE
    assert model.run([X], [y], n=3) == STATE
    assert (model.init(n=3), model.run([X], [y], n=3)) == (OK, OK)
    np.testing.assert_array_equal(y, X * X)


def test_a_wait_that_fails_leaves_the_state_unknown(model: Emulated) -> None:
    assert model.init(n=3) == OK
    x, y = model.alloc((3,), np.float32), model.alloc((3,), np.float32)
    x[:] = X
    assert model.run([x], [y], stream=1, n=3) == OK
    model.fail("cuStreamSynchronize")
    assert model.wait(1) == DEVICE
    assert model.run([X], [X.copy()], n=3) == STATE
    assert model.init(n=3) == OK
    model.close()
    assert model.live == 0


def test_a_driver_that_lacks_a_function(
    counted: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in turn; its name is changed in a copy of the driver."""
    whole = fake_driver(counted).read_bytes()
    files = host_files(counted, library_files(counted))
    place = '-DRAOT_CUDA_LIBRARY=getenv("RAOT_TEST_DRIVER")'
    library = build_shared(files, ["-O1", "-include", "stdlib.h", place, "-ldl"])
    model = Emulated(counted)
    model.library = ctypes.CDLL(str(library))
    assert len(SYMBOLS) > 30
    for symbol in SYMBOLS:
        name = b"\0" + symbol.encode() + b"\0"
        assert name in whole
        changed = tmp_path / symbol
        changed.write_bytes(whole.replace(name, name.replace(b"cu", b"no", 1)))
        monkeypatch.setenv("RAOT_TEST_DRIVER", str(changed))
        y = np.full(3, 7, np.float32)
        assert model.init(n=3) == DEVICE
        assert model.message == f"{symbol}: the driver has no such function; it is too old"
        assert model.run([X], [y], n=3) == STATE and np.all(y == 7)
    whole_driver = tmp_path / "whole"
    whole_driver.write_bytes(whole)
    monkeypatch.setenv("RAOT_TEST_DRIVER", str(whole_driver))
    assert model.init(n=3) == OK
    model.close()
