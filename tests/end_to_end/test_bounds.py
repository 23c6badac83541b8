# SPDX-License-Identifier: Apache-2.0
"""One generated project serves every bound: sizes follow, and nothing mixes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.planning import Plan
from relax_aot.project import Project
from relax_aot.verify.host import (
    OPTIMISE_FLAGS,
    STRICT_FLAGS,
    HostModel,
    StatusError,
    build_shared,
    library_files,
)
from relax_aot.verify.library import Library
from tests.conftest import QUICK_FLAGS
from tests.end_to_end.subjects import project_of, small_encoder
from tests.models.catalog import CATALOGUE, expected_of
from tests.models.encoder import encoder
from tests.models.onnx_text import model_of as onnx_model

BOUNDS = (32, 256, 1024)
SMALL, WHOLE = "small", "whole"


@cache
def model_of(size: str) -> Any:
    return small_encoder() if size == SMALL else encoder()


@cache
def generated(size: str) -> Project:
    """Made once, for n up to 256; the tests change the bound when they compile it."""
    options = Options(bounds={"n": (1, 256), "batch": (1, 1)}, name="enc")
    return driver.compile_model(model_of(size), "host", options)


@cache
def library_at(size: str, bound: int) -> Library:
    fast = QUICK_FLAGS if size == SMALL else OPTIMISE_FLAGS
    flags = (*STRICT_FLAGS, *fast, f"-DENC_N_MAX={bound}")
    return Library(build_shared(library_files(generated(size)), flags))


@cache
def runtime(size: str) -> Any:
    return onnxruntime.InferenceSession(
        model_of(size).SerializeToString(), providers=["CPUExecutionProvider"]
    )


def frames(size: str, n: int) -> Any:
    width = generated(size).interface.inputs[0].type.shape[-1].constant
    return np.random.default_rng(n).normal(size=(1, n, width)).astype(np.float32)


def evaluated(plan: Plan, bound: int) -> int:
    """The arena of the plan's orientation where n goes from 1 to `bound`, the other sizes
    being 1: each slot is as large as it is for any n, and lies on those below it."""
    other = {s.name: 1 for s in plan.module.symbols if s.name != "n"}
    ends: dict[str, int] = {}
    for slot in plan.slots:
        greatest = max(slot.bytes.evaluate({**other, "n": n}) for n in range(1, bound + 1))
        ends[slot.var.name] = greatest + max((ends[u] for u in slot.below), default=0)
    return max(ends.values())


@pytest.mark.parametrize(
    ("size", "bound"),
    [
        *((SMALL, bound) for bound in BOUNDS),
        pytest.param(WHOLE, 1024, marks=pytest.mark.slow),
        pytest.param(WHOLE, 32, marks=pytest.mark.long),
        pytest.param(WHOLE, 256, marks=pytest.mark.long),
    ],
)
def test_one_project_is_right_for_every_bound(size: str, bound: int) -> None:
    library = library_at(size, bound)
    assert library.arena_bytes == evaluated(generated(size).plan, bound)
    model = HostModel(generated(size).interface, library)
    for n in sorted({1, 2, 31, bound // 2 + 1, bound - 1, bound}):
        x = frames(size, n)
        (expected,) = runtime(size).run(None, {"x": x})
        np.testing.assert_allclose(model(x=x)["y"], expected, rtol=1e-3, atol=2e-4)
        assert library.arena_need([n]) <= library.arena_bytes
    assert library.arena_need([bound]) == library.arena_bytes


@pytest.mark.parametrize("bound", BOUNDS)
def test_sizes_above_the_chosen_bound_are_refused(bound: int) -> None:
    model = HostModel(generated(SMALL).interface, library_at(SMALL, bound))
    with pytest.raises(StatusError, match="RAOT_ERR_SIZE"):
        model(x=frames(SMALL, bound + 1))


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_small_model_is_right_for_raised_bounds(name: str) -> None:
    """Nothing in the code rests on a bound that may be raised when it is compiled."""
    project = project_of(name)
    right_at(name, project, {f.source: 2 * f.symbol.high + 3 for f in project.interface.dims})


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_small_model_made_for_few_is_right_for_many(name: str) -> None:
    """Made for no more than one tile of rows: a count of tiles that is 1 there is not kept."""
    bounds = CATALOGUE[name].bounds
    few = {n: (low, min(low + 1, high)) for n, (low, high) in bounds.items()}
    project = driver.compile_model(CATALOGUE[name].make(), options=Options(bounds=few, name=name))
    many = {n: max(2 * high + 3, 61) for n, (_, high) in bounds.items()}
    right_at(name, project, {f.source: many[f.source] for f in project.interface.dims})


def right_at(name: str, project: Project, highs: dict[str, int]) -> None:
    """A project that is built for these highs, at these and one below."""
    entry = CATALOGUE[name]
    defines = [f"-D{f.macro}={highs[f.source]}" for f in project.interface.dims]
    flags = (*STRICT_FLAGS, *QUICK_FLAGS, *defines)
    model = HostModel(project.interface, Library(build_shared(library_files(project), flags)))
    for sizes in (highs, {n: high - 1 for n, high in highs.items()}):
        inputs = entry.inputs(np.random.default_rng(0), sizes)
        expected = expected_of(entry, entry.make(), inputs)
        ours = model(inputs)
        for output, array in expected.items():
            np.testing.assert_allclose(ours[output], array, rtol=1e-3, atol=1e-4)


def clipped(bound: int) -> Project:
    """x[0:20] + table[0:n]: a slice beyond the bound, and a table that the bound fits."""
    table = np.arange(24, dtype=np.float32).reshape(24, 1)
    signature = "clipped (float[n, 2] x) => (float[k, 2] y, float[n, 2] z)"
    text = """
        zero = Constant <value = int64[1] {0}> ()
        twenty = Constant <value = int64[1] {20}> ()
        axis = Constant <value = int64[1] {0}> ()
        y = Slice(x, zero, twenty, axis)
        size = Shape <start = 0, end = 1> (x)
        rows = Slice(table, zero, size, axis)
        z = Add(x, rows)"""
    model = onnx_model(signature, text, {"table": table})
    return driver.compile_model(model, "host", Options(bounds={"n": (1, bound)}, name="clip"))


def test_a_slice_past_the_bound_is_still_a_slice() -> None:
    project = clipped(16)
    flags = (*STRICT_FLAGS, *QUICK_FLAGS, "-DCLIP_N_MAX=30")
    model = HostModel(project.interface, Library(build_shared(library_files(project), flags)))
    for n in (1, 16, 20, 21, 24):
        x = np.random.default_rng(n).normal(size=(n, 2)).astype(np.float32)
        outputs = model(x=x)
        np.testing.assert_array_equal(outputs["y"], x[:20])
        np.testing.assert_allclose(
            outputs["z"], x + np.arange(n, dtype=np.float32)[:, None], rtol=1e-6
        )
    with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
        model(x=np.zeros((25, 2), np.float32))


# What compilers and linkers say


def need(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not installed")
    return found


def attempt(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def succeed(folder: Path, *command: str) -> None:
    done = attempt(folder, *command)
    assert done.returncode == 0, done.stderr[:3000]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return generated(SMALL).write(tmp_path / "enc")


C11 = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-I.")
CPP17 = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-I.")
USES = """
#include "enc.h"
size_t (*entry)(const struct enc_dims *dims) = enc_arena_bytes;
"""


@pytest.mark.parametrize(
    ("compiler", "flags", "unit"),
    [
        ("gcc", C11, "unit.c"),
        ("clang", C11, "unit.c"),
        ("g++", CPP17, "unit.cpp"),
        ("clang++", CPP17, "unit.cpp"),
    ],
)
def test_header_follows_the_bound(
    compiler: str, flags: Sequence[str], unit: str, folder: Path
) -> None:
    """Sizes in a file of the user's own, in C and in C++, are those of the library."""
    for bound in BOUNDS:
        expected = evaluated(generated(SMALL).plan, bound)
        text = f'{USES}RAOT_STATIC_ASSERT(ENC_ARENA_BYTES == {expected}, "");\n'
        (folder / unit).write_text(text)
        succeed(folder, need(compiler), *flags, f"-DENC_N_MAX={bound}", "-c", unit)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_files_with_different_bounds_do_not_link(compiler: str, folder: Path) -> None:
    tool = need(compiler)
    for bound in (64, 128):
        for source in ("enc.c", "enc_weights.c", "main.c"):
            target = f"{Path(source).stem}.{bound}.o"
            succeed(folder, tool, *C11, f"-DENC_N_MAX={bound}", "-c", source, "-o", target)
    parts = ("enc.64.o", "enc_weights.64.o")
    succeed(folder, tool, "main.64.o", *parts, "-o", "same")
    succeed(folder, str(folder / "same"))
    mixed = attempt(folder, tool, "main.128.o", *parts, "-o", "mixed")
    assert mixed.returncode != 0
    assert "undefined reference to `enc_run_" in mixed.stderr
    assert "_n128" in mixed.stderr


def test_projects_made_for_different_bounds_do_not_link(tmp_path: Path) -> None:
    """Neither does one project's main with another project's model."""
    options = Options(bounds={"n": (1, 100), "batch": (1, 1)}, name="enc")
    other = driver.compile_model(small_encoder(), "host", options).write(tmp_path / "other")
    ours = generated(SMALL).write(tmp_path / "ours")
    succeed(ours, need("gcc"), *C11, "-c", "main.c")
    succeed(other, need("gcc"), *C11, "-c", "enc.c", "enc_weights.c")
    parts = [str(other / "enc.o"), str(other / "enc_weights.o")]
    mixed = attempt(ours, need("gcc"), "main.o", *parts)
    assert mixed.returncode != 0
    assert "_n256" in mixed.stderr


def test_a_shared_library_has_the_plain_names(folder: Path) -> None:
    """For callers that see no header: `dlsym` and the like."""
    for bound in (64, 256):
        name = f"enc{bound}.so"
        sources = ("enc.c", "enc_weights.c")
        flags = (*C11, "-fPIC", "-shared", f"-DENC_N_MAX={bound}")
        succeed(folder, need("gcc"), *flags, *sources, "-o", name)
        library = ctypes.CDLL(str(folder / name))
        library.enc_arena_bytes.restype = ctypes.c_size_t
        assert library.enc_arena_bytes(None) == evaluated(generated(SMALL).plan, bound)
        assert library.enc_run(None, None, None, None) == -1


@pytest.mark.parametrize(
    ("compiler", "flags", "unit"), [("gcc", C11, "enc.c"), ("g++", CPP17, "unit.cpp")]
)
@pytest.mark.parametrize("bound", [20_000_000, 2**31 - 1, 2**31, 2**62, 0])
def test_a_bound_that_cannot_be_is_refused_when_compiling(
    compiler: str, flags: Sequence[str], unit: str, bound: int, folder: Path
) -> None:
    (folder / "unit.cpp").write_text(USES)
    done = attempt(folder, need(compiler), *flags, f"-DENC_N_MAX={bound}", "-c", unit)
    assert done.returncode != 0
    assert "static assertion failed" in done.stderr


def test_the_highest_bound_that_fits_is_accepted(folder: Path) -> None:
    """The first bound for which a size does not fit is the first that is refused."""
    plan = generated(SMALL).plan
    assert evaluated(plan, 1024) < 2**31

    def arena(n: int) -> int:
        ends: dict[str, int] = {}
        for slot in plan.slots:
            size = slot.bytes.evaluate({"n": n, "batch": 1})
            ends[slot.var.name] = size + max((ends[u] for u in slot.below), default=0)
        return max(ends.values())

    low, high = 1024, 2**24
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if arena(middle) < 2**31 else (low, middle)
    succeed(folder, need("gcc"), *C11, f"-DENC_N_MAX={low}", "-c", "enc.c")
    above = attempt(folder, need("gcc"), *C11, f"-DENC_N_MAX={high}", "-c", "enc.c")
    assert "static assertion failed" in above.stderr


def test_a_size_fixed_when_generating_stays(tmp_path: Path) -> None:
    folder = project_of("silero").write(tmp_path / "silero")
    done = attempt(folder, need("gcc"), *C11, "-DSILERO_SEQUENCE_MAX=9", "-c", "silero.c")
    assert "is fixed in the generated code" in done.stderr
