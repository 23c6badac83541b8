# SPDX-License-Identifier: Apache-2.0
"""Products by cuBLASLt, on the fake library of the fake driver: results, statuses, absence."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.project import Project
from relax_aot.verify.cuda import fake_driver, host_files
from relax_aot.verify.host import build_shared, library_files
from tests.conftest import ROOT
from tests.cuda.emulated import Emulated
from tests.cuda.test_host import DEVICE, OK, parsed

pytestmark = pytest.mark.slow
BOARD = "jetson-orin-nano"
WIDTH = 32
BOUNDS = {"a": (1, 3), "m": (1, 24), "j": (1, 17)}
TABLE = """
[[product]]
library = "cublaslt"
types = ["f16", "bf16", "f32"]
requires = ["rows >= 4", "batch * rows * columns * steps >= 20000"]
absent = "{absent}"
workspace = 1024
"""
TYPES = {
    "f32": (TensorProto.FLOAT, np.float32, 1e-5),
    "f16": (TensorProto.FLOAT16, np.float16, 3e-3),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 2e-2),
}
HEADER = ROOT / "runtime_c" / "include" / "raot" / "cuda_blas_driver.h"
SYMBOLS = re.findall(r'^    "(cu\w+)",$', HEADER.read_text(), re.M)
Array = NDArray[Any]


def weights(name: str) -> Array:
    shapes = {"w": (WIDTH, WIDTH), "b": (WIDTH,), "v": (WIDTH, WIDTH)}
    return np.random.default_rng(len(name) + ord(name)).standard_normal(shapes[name])


def model(kind: str) -> onnx.ModelProto:
    """s = x w + b; r = s v' as Gemm has it, y = r t for each matrix of a batch."""
    element, dtype, _ = TYPES[kind]
    initializers = [
        helper.make_tensor(name, element, one.shape, one.astype(dtype).tobytes(), raw=True)
        for name in ("w", "b", "v")
        if (one := weights(name)) is not None
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Transpose", ["v"], ["u"], perm=[1, 0]),
        helper.make_node("MatMul", ["s", "u"], ["r"]),
        helper.make_node("MatMul", ["r", "t"], ["y"]),
    ]
    ends: dict[str, list[str | int | None]] = {
        "x": ["a", "m", WIDTH],
        "t": ["a", WIDTH, "j"],
        "y": ["a", "m", "j"],
    }
    x, t, y = (helper.make_tensor_value_info(n, element, s) for n, s in ends.items())
    graph = helper.make_graph(nodes, "g", [x, t], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def wanted(kind: str, x: Array, t: Array) -> Array:
    """By NumPy in 64 bits, rounded between products as the model says."""
    dtype = TYPES[kind][1]
    w, b, v = (weights(name).astype(dtype).astype(np.float64) for name in ("w", "b", "v"))
    s = (x.astype(np.float64) @ w + b).astype(dtype).astype(np.float64)
    r = (s @ v.T).astype(dtype).astype(np.float64)
    return np.asarray(r @ t.astype(np.float64))


def arrays(kind: str, a: int, m: int, j: int) -> tuple[Array, Array, Array]:
    generator, dtype = np.random.default_rng(a + m + j), TYPES[kind][1]
    x = generator.standard_normal((a, m, WIDTH)).astype(dtype)
    t = generator.standard_normal((a, WIDTH, j)).astype(dtype)
    return x, t, np.full((a, m, j), 7, dtype)


def compiled(folder: Path, kind: str = "f32", absent: str = "own", **options: Any) -> Project:
    table = folder / "products.toml"
    table.write_text(TABLE.format(absent=absent))
    given = {"bounds": BOUNDS, "emit": "cuda-source", "name": f"lt_{kind}", **options}
    return driver.compile_model(model(kind), BOARD, Options(libraries=(str(table),), **given))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return compiled(tmp_path_factory.mktemp("table"))


@pytest.fixture
def opened(project: Project) -> Iterator[Emulated]:
    found = Emulated(project)
    yield found
    found.driver.fake_reset()
    found.close()
    assert found.live == 0


def check(found: Emulated, kind: str, a: int, m: int, j: int) -> int:
    """A run that succeeds; the number of products of the library."""
    x, t, y = arrays(kind, a, m, j)
    before = found.calls("cublasLtMatmul")
    assert found.run([x, t], [y], a=a, m=m, j=j) == OK
    real = wanted(kind, x, t)
    assert np.abs(y.astype(np.float64) - real).max() <= TYPES[kind][2] * np.abs(real).max()
    return found.calls("cublasLtMatmul") - before


@pytest.mark.long
@pytest.mark.parametrize("kind", TYPES)
def test_products_of_each_type_and_size(kind: str, tmp_path: Path) -> None:
    found = Emulated(compiled(tmp_path, kind))
    assert found.init(a=1, m=1, j=1) == OK
    made = found.made + found.calls("cublasLtMatmulAlgoGetHeuristic")
    counts = [check(found, kind, *sizes) for sizes in ((3, 24, 17), (1, 1, 1), (3, 23, 17))]
    # m = 23 of one matrix is 23552 multiplications for each of two products, but not for the third
    counts += [check(found, kind, 1, 23, 17)] + [check(found, kind, 3, 24, 17)]
    assert counts == [3, 0, 3, 2, 3]
    # no algorithm was asked for whose rows are aligned: kernels of the project compute it
    assert check(found, kind, 3, 24, 16) == 2
    assert found.made + found.calls("cublasLtMatmulAlgoGetHeuristic") == made
    found.close()
    assert found.live == 0


@pytest.mark.long
def test_the_host_part_without_a_library_is_unchanged(tmp_path: Path, project: Project) -> None:
    plain = driver.compile_model(
        model("f32"), BOARD, Options(bounds=BOUNDS, emit="cuda-source", name="lt_f32")
    )
    assert b"blas" not in plain.files["lt_f32.c"] and "raot/cuda_blas.h" not in plain.files
    one, other = (
        re.sub(rb"/\*.*?\*/", b"", p.files["lt_f32.cu"], flags=re.S) for p in (plain, project)
    )
    assert one == other
    assert project.plan.arena_bytes - plain.plan.arena_bytes in range(1, 2048)


@pytest.mark.long
def test_rounded_factors_are_asked_for(tmp_path: Path, project: Project) -> None:
    """CUBLAS_COMPUTE_32F_FAST_TF32 where the option allows it, else CUBLAS_COMPUTE_32F."""
    short = compiled(tmp_path, numerics="tf32", name="lt_short")
    kinds = [
        re.findall(r"^    {(\d+), 0, 0, ", made.files[f"{made.name}.c"].decode(), re.M)
        for made in (short, project)
    ]
    assert kinds == [["77"] * 3, ["68"] * 3]
    found = Emulated(short)
    assert found.init(a=1, m=1, j=1) == OK and check(found, "f32", 3, 24, 17) == 3
    found.close()


@pytest.mark.long
def test_the_workspace_is_memory_of_the_arena(project: Project) -> None:
    slots = [slot for slot in project.plan.slots if slot.var.name.endswith("workspace")]
    assert [slot.greatest_bytes for slot in slots] == [1024] * 3


def built(project: Project, library: str) -> Emulated:
    """With another file in the place of cuBLASLt."""
    place = [f'-DRAOT_CUDA_LIBRARY="{fake_driver(project)}"', "-ldl"]
    files = host_files(project, library_files(project))
    found = Emulated(project)
    flags = ["-O1", *place, f"-DRAOT_CUBLASLT_LIBRARY={library}"]
    found.library = ctypes.CDLL(str(build_shared(files, flags)))
    return found


def test_where_the_library_is_absent_kernels_compute(project: Project) -> None:
    found = built(project, '"/no/libcublasLt.so"')
    assert (found.init(a=1, m=1, j=1), found.message) == (OK, "")
    assert [check(found, "f32", *sizes) for sizes in ((3, 24, 17), (1, 1, 1))] == [0, 0]
    found.close()
    assert found.live == 0


def test_a_library_that_is_required_and_absent_is_an_error(tmp_path: Path) -> None:
    found = built(compiled(tmp_path, absent="fail"), '"/no/libcublasLt.so"')
    x, t, y = arrays("f32", 1, 1, 1)
    assert found.init(a=1, m=1, j=1) == DEVICE
    assert found.message == "/no/libcublasLt.so: neither this library nor a later one works here"
    assert found.run([x, t], [y], a=1, m=1, j=1) != OK and np.all(y == 7)
    assert found.live == 0


def test_a_library_that_lacks_a_function_is_absent(project: Project, tmp_path: Path) -> None:
    """The last function that is asked for; its name is changed in a copy of the library."""
    whole = fake_driver(project).read_bytes()
    name = b"\0cublasLtMatmul\0"
    assert name in whole and len(SYMBOLS) == 18
    changed = tmp_path / "libcublasLt.so"
    changed.write_bytes(whole.replace(name, b"\0noblasLtMatmul\0"))
    found = built(project, f'"{changed}"')
    assert found.init(a=1, m=1, j=1) == OK
    assert check(found, "f32", 3, 24, 17) == 0
    found.close()


ABSENT = ("cublasLtCreate", "cublasLtMatmulAlgoGetHeuristic")
"""Where these fail in init, kernels of the project compute products."""
RELEASES = ("cuEventDestroy_v2", *(name for name in SYMBOLS if "Destroy" in name and "Lt" in name))
CHOICES = ("cublasLtMatmulAlgoCheck",)
STARTS = (
    "cuStreamWaitEvent",
    "cuEventRecord",
    "cublasLtMatmul",
    "cublasLtMatrixLayoutSetAttribute",
)
INITS = sorted({*SYMBOLS} - {*RELEASES, *ABSENT, *CHOICES, "cuStreamWaitEvent", "cuEventRecord"})


@pytest.mark.parametrize("name", INITS)
def test_each_function_fails_in_init(opened: Emulated, name: str) -> None:
    assert opened.init(a=1, m=1, j=1) == OK
    count = opened.calls(name)
    opened.close()
    for nth in sorted({1, max(count // 2, 1), count}):
        opened.driver.fake_reset()
        opened.fail(name, nth, 13)
        assert opened.init(a=1, m=1, j=1) == DEVICE
        assert opened.message.startswith(name) and opened.live == 0


@pytest.mark.parametrize("name", ABSENT)
def test_what_the_library_does_not_give_kernels_compute(opened: Emulated, name: str) -> None:
    """The first product is large enough in the greatest class of sizes alone."""
    opened.fail(name, 1, 15)
    assert opened.init(a=1, m=1, j=1) == OK
    assert check(opened, "f32", 3, 24, 17) == (0 if name == "cublasLtCreate" else 2)
    opened.close()


def test_without_algorithms_kernels_compute(
    opened: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAOT_FAKE_ALGORITHMS", "0")
    assert opened.init(a=1, m=1, j=1) == OK
    assert check(opened, "f32", 3, 24, 17) == 0


@pytest.mark.parametrize("name", STARTS)
def test_each_function_fails_in_a_run(opened: Emulated, name: str) -> None:
    for nth in (1, 3):
        assert opened.init(a=1, m=1, j=1) == OK
        check(opened, "f32", 3, 24, 17)
        x, t, y = arrays("f32", 3, 23, 17)
        before = opened.calls(name)
        opened.fail(name, nth, 13)
        status = opened.run([x, t], [y], a=3, m=23, j=17)
        if opened.calls(name) - before < nth:
            assert (nth, status) == (3, OK)
            break
        assert status == DEVICE and opened.message.startswith(name) and np.all(y == 7)
        opened.driver.fake_reset()
        assert check(opened, "f32", 3, 23, 17) == 3  # the next run is whole


def test_a_check_that_fails_leaves_a_product_to_kernels(opened: Emulated) -> None:
    assert opened.init(a=1, m=1, j=1) == OK
    check(opened, "f32", 3, 24, 17)
    opened.fail("cublasLtMatmulAlgoCheck", 2, 15)
    assert check(opened, "f32", 3, 23, 17) == 2


@pytest.mark.parametrize("name", RELEASES)
def test_a_close_goes_on_where_something_is_not_released(opened: Emulated, name: str) -> None:
    assert opened.init(a=1, m=1, j=1) == OK
    opened.fail(name, 1, 13)
    opened.close()
    assert opened.message.startswith(name.removesuffix("_v2")) and opened.live == 1
    opened.driver.fake_end_context()


MIXED = parsed("""
agraph (float[m, 32] x, float[32, 32] w) => (float[m, 32] y)
{
    p = MatMul (x, w)
    q = Softmax <axis = 0> (p)
    y = MatMul (q, w)
}
""")
"""A product, a graph, a product."""


@pytest.mark.long
def test_runs_in_several_streams_wait_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(TABLE.format(absent="own"))
    options = Options(
        bounds={"m": (1, 24)}, libraries=(str(tmp_path / "all.toml"),), emit="cuda-source",
        name="mixed",
    )  # fmt: skip
    found = Emulated(driver.compile_model(MIXED, BOARD, options))
    assert found.init(m=1) == OK
    generator, runs = np.random.default_rng(1), []
    for stream in (1, 2):
        x, w, y = (found.alloc(shape, np.float32) for shape in ((24, 32), (32, 32), (24, 32)))
        x[:], w[:] = (generator.standard_normal(one.shape) for one in (x, w))
        assert found.run([x, w], [y], stream=stream, m=24) == OK
        runs.append((x, w, y))
    assert (found.wait(2), found.wait(1)) == (OK, OK)
    assert found.calls("cublasLtMatmul") == 2 * 3  # each product once in init
    for x, w, y in runs:
        p = np.exp(x.astype(np.float64) @ w)
        np.testing.assert_allclose(y, p / p.sum(0) @ w, rtol=1e-4, atol=1e-4)
    found.close()
    assert found.live == 0


FALLIBLE = parsed("""
agraph (float[m, 64] x, float[64, 64] w, int64[1] row) => (float[1, 64] z, float[m, 64] y)
{
    p = MatMul (x, w)
    z = Gather (p, row)
    y = MatMul (p, w)
}
""")


@pytest.mark.long
def test_a_result_of_a_run_that_can_fail_is_no_output(tmp_path: Path) -> None:
    """The library does not know of a failure: it must not overwrite what a caller has."""
    (tmp_path / "all.toml").write_text(TABLE.format(absent="own"))
    options = Options(
        bounds={"m": (8, 9)}, libraries=(str(tmp_path / "all.toml"),), emit="cuda-source",
        name="fallible",
    )  # fmt: skip
    text = driver.compile_model(FALLIBLE, BOARD, options).files["fallible.c"].decode()
    assert re.findall(r"where cuBLASLt computes it: (\w+)", text) == ["p"]


@pytest.mark.long
def test_entries_share_the_library(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(TABLE.format(absent="own"))
    models = {"one": model("f32"), "two": model("f32")}
    project = rx.compile(
        models, bounds=BOUNDS, name="both", board=BOARD, emit="cuda-source",
        libraries=[str(tmp_path / "all.toml")],
    ).built  # fmt: skip
    found = Emulated(project)
    assert found.init() == OK
    for entry in ("two", "one"):
        x, t, y = arrays("f32", 3, 24, 17)
        before = found.calls("cublasLtMatmul")
        assert found.run([x, t], [y], entry=entry, a=3, m=24, j=17) == OK
        np.testing.assert_allclose(y, wanted("f32", x, t), rtol=1e-3, atol=1e-3)
        assert found.calls("cublasLtMatmul") - before == 3
    assert found.calls("cublasLtCreate") == 1
    found.close()
    assert found.live == 0


REFUSED = {
    "host": ("blocked", "--library cublaslt is for boards with a GPU; host has none"),
    BOARD: ("ordered", "does not keep the order of sums"),
}


@pytest.mark.parametrize("board", REFUSED)
def test_where_the_library_is_refused(board: str) -> None:
    numerics, message = REFUSED[board]
    options = Options(bounds=BOUNDS, libraries=("cublaslt",), numerics=numerics)
    with pytest.raises(RelaxAotError, match=message):
        driver.compile_model(model("f32"), board, options)


@pytest.mark.long
def test_small_products_are_left_to_kernels() -> None:
    """By the table that comes with the compiler."""
    options = Options(bounds=BOUNDS, libraries=("cublaslt",), emit="cuda-source", name="few")
    assert b"blas" not in driver.compile_model(model("f32"), BOARD, options).files["few.c"]


WRONG = {
    "expected one of cublaslt; got 'other'": ('"cublaslt"', '"other"'),
    "expected some of f32, f16, bf16; got 'f64'": ('"f16"', '"f64"'),
    "nothing has the size 'lines'": ("rows >= 4", "lines >= 4"),
    "expected one of own, fail; got 'maybe'": ('"own"', '"maybe"'),
    "workspace: expected bytes from 0": ("1024", "-1"),
    "unknown key; did you mean 'requires'": ("requires", "require"),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_with_a_table(message: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(TABLE.format(absent="own").replace(*WRONG[message]))
    options = Options(bounds=BOUNDS, libraries=(str(tmp_path / "wrong.toml"),))
    with pytest.raises(RelaxAotError, match=message):
        driver.compile_model(model("f32"), BOARD, options)
