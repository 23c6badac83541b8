# SPDX-License-Identifier: Apache-2.0
"""Functions with products of half-precision values, such as layers of PyTorch: matrix units compute
them, at every size as exactly as their types allow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relax_aot.fusion import fuse
from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Kernel, Micro, walk
from relax_aot.ir.parse import parse
from relax_aot.ir.types import DType
from relax_aot.lowering import lower
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.devices.matrix_tiles import Tiles
from relax_aot.scheduling.devices.matrix_units import matrix_product
from relax_aot.scheduling.targets.cuda_mma import TARGET
from tests.cuda.shim import Job, Shim
from tests.scheduling.devices.kernels import device_form

Array = NDArray[Any]
LINEAR = """
symbol n in 1..70
func @main(%x: f16[n, 40], %w: f16[24, 40], %b: f16[24]) {{
  %y: f16[n, 24] = gemm(%x, %w, %b) {{trans_b=true, alpha={alpha}, beta={beta}}}
  return %y
}}"""
RESIDUAL = """
symbol n in 1..70
func @main(%x: f16[n, 40], %w: f16[24, 40], %b: f16[24], %r: f16[n, 24]) {
  %s: f16[n, 24] = gemm(%x, %w, %b) {trans_b=true}
  %a: f16[n, 24] = add(%s, %r)
  %y: f16[n, 24] = relu(%a)
  return %y
}"""
SEQUENCES = """
symbol n in 1..70
func @main(%x: f16[2, n, 40], %w: f16[40, 24], %b: f16[24]) {
  %s: f16[2, n, 24] = matmul(%x, %w)
  %y: f16[2, n, 24] = add(%b, %s)
  return %y
}"""
TEXTS = {
    "a linear layer": LINEAR.format(alpha="1.0", beta="1.0"),
    "scales": LINEAR.format(alpha="0.5", beta="-3.0"),
    "bfloat16": LINEAR.format(alpha="1.0", beta="1.0").replace("f16", "bf16"),
    "a residual": RESIDUAL,
    "sequences": SEQUENCES,
}


def device(text: str) -> tuple[Kernel, Bounds]:
    """The device form of a function that is one kernel."""
    module = schedule_device(fuse(lower(parse(text))).module, TARGET)
    (kernel,) = module.kernels
    return kernel, module.bounds


def exact(name: str, given: list[Array]) -> tuple[Array, Array]:
    """In double precision; and what is rounded on the way, in all."""
    x, w, b, *rest = (one.astype(np.float64) for one in given)
    if name == "sequences":
        return x @ w + b, np.abs(x @ w)
    alpha, beta = (0.5, -3.0) if name == "scales" else (1.0, 1.0)
    value: Array = alpha * (x @ w.T) + beta * b
    if name == "a residual":
        return np.maximum(value + rest[0], 0), np.abs(value) + np.abs(value + rest[0])
    return value, np.zeros_like(value)


@pytest.mark.parametrize("name", TEXTS)
def test_matrix_units_compute_it(name: str) -> None:
    kernel, _ = device(TEXTS[name])
    assert any("mma" in one.name for one in walk(kernel.body) if isinstance(one, Micro))


@pytest.mark.parametrize(
    "names",
    [["scales"], pytest.param([*TEXTS], marks=pytest.mark.long)],
    ids=["one", "all"],
)
def test_results_are_as_exact_as_the_type(names: list[str], tmp_path: Path) -> None:
    kernels: dict[str, Kernel] = {}
    jobs: list[Job] = []
    origins: list[str] = []
    rng = np.random.default_rng(0)
    for number, name in enumerate(names):
        kernel, bounds = device(TEXTS[name])
        kernels[name] = replace(kernel, name=f"kernel_{number}")
        for n in (1, 64, 70):
            shapes = [[size.evaluate({"n": n}) for size in one.shape] for one in kernel.inputs]
            kinds = [one.dtype.numpy for one in kernel.inputs]
            pairs = zip(shapes, kinds, strict=True)
            given = tuple(rng.normal(size=shape).astype(kind) for shape, kind in pairs)
            origins.append(name)
            jobs.append(Job(f"kernel_{number}", given, {"n": n}, seed=n))
    answers = Shim([*kernels.values()], bounds, tmp_path).run(jobs)
    for name, job, answer in zip(origins, jobs, answers, strict=True):
        value, rounded = exact(name, [*job.inputs])
        unit = 2.0 ** (-8 if name == "bfloat16" else -11)
        error = np.abs(answer.outputs[0].astype(np.float64) - value)
        assert (error <= unit * 1.01 * (np.abs(value) + rounded) + 1e-5).all(), (name, job.sizes)


WEIGHTS = """
symbol n in 1..300
kernel @dot_KIND_AXES(
    %x: f16[n, 88], %w: KIND[SHAPE], %s: f16[11, 48], %z: KIND[11, 48]
  ) -> (%y: f16[n, 48]) {
  for i in 0..n {
    for j in 0..48 {
      local sum: f16 = 0.0:f16
      for k in 0..88 {
        sum = (sum + (%x[i, k] * cast((cast((cast(%w[INDEX], i32, wrap)
          - cast(%z[k // 8, j], i32, wrap)), f32, wrap) * cast(%s[k // 8, j], f32, wrap)),
          f16, wrap)))
      }
      %y[i, j] = sum
    }
  }
}"""


@pytest.mark.parametrize(
    ("kind", "axes"),
    [("i8", "jk"), ("u8", "kj")],
)
@pytest.mark.long
def test_decoded_weights_are_those_of_half_precision(kind: str, axes: str, tmp_path: Path) -> None:
    """In tiles of 512 rows. Every byte and zero point is there, and scales that are subnormal."""
    random, sizes = np.random.default_rng(3), {"j": 48, "k": 88}
    shape = [sizes[axis] for axis in axes]
    text = WEIGHTS.replace("KIND", kind).replace("AXES", axes)
    text = text.replace("INDEX", ", ".join(axes)).replace("SHAPE", ", ".join(map(str, shape)))
    _, device, bounds = device_form(
        text, partial(matrix_product, tiles=Tiles(enough=1)), target=TARGET
    )
    assert device is not None
    w = np.resize(np.arange(256), shape).astype(DType(kind).numpy)
    s = (random.normal(size=(11, 48)) * 2.0 ** random.integers(-20, 0, (11, 48))).astype(np.float16)
    z = random.integers(0, 256, (11, 48)).astype(w.dtype)
    x = random.normal(size=(300, 88)).astype(np.float16)
    job = Job(device.name, (x, w, s, z), {"n": 300}, seed=1)
    (answer,) = Shim([device], bounds, tmp_path).run([job])
    numbers = (w.T if axes == "jk" else w).astype(np.float32)
    groups = [np.repeat(one.astype(np.float32), 8, axis=0) for one in (z, s)]
    decoded = ((numbers - groups[0]) * groups[1]).astype(np.float16).astype(np.float64)
    value, size = x.astype(np.float64) @ decoded, np.abs(x.astype(np.float64)) @ np.abs(decoded)
    error = np.abs(answer.outputs[0].astype(np.float64) - value)
    assert (error <= 2.0**-11 * np.abs(value) + 2.0**-19 * size + 2.0**-25).all()


GROUPED = """
symbol n in 1..300
func @main(
    %x: f16[n, 320], %w: i8[72, 10, 32], %s: f16[72, 10, 1], %z: i8[72, 10, 1], %b: f16[72]
  ) {
  %f: f16[72, 10, 32] = cast(%w) {to=f16}
  %g: f16[72, 10, 1] = cast(%z) {to=f16}
  %h: f16[72, 10, 32] = sub(%f, %g)
  %d: f16[72, 10, 32] = mul(%h, %s)
  %r: f16[72, 320] = reshape(%d) {shape=[72, 320]}
  %y: f16[n, 72] = gemm(%x, %r, %b) {trans_b=true}
  return %y
}"""


@pytest.mark.long
def test_groups_are_an_axis_of_their_own(tmp_path: Path) -> None:
    """In tiles of 512 rows, and small ones: sums over two axes in pairs of parts."""
    strategy = partial(matrix_product, tiles=Tiles(enough=1))
    module = fuse(lower(parse(GROUPED))).module
    made = schedule_device(module, replace(TARGET, nests=(strategy,)))
    (kernel,), random = made.kernels, np.random.default_rng(6)
    w = random.integers(-128, 128, (72, 10, 32)).astype(np.int8)
    z = random.integers(-128, 128, (72, 10, 1)).astype(np.int8)
    s = random.uniform(0.001, 0.1, (72, 10, 1)).astype(np.float16)
    jobs = []
    for n in (70, 300):
        x = random.normal(size=(n, 320)).astype(np.float16)
        given: dict[str, Array] = {"x": x, "w": w, "s": s, "z": z, "b": np.zeros(72, np.float16)}
        inputs = tuple(given[value.name] for value in made.main.body[0].inputs)
        jobs.append(Job(kernel.name, inputs, {"n": n}, seed=n))
    decoded = (w.astype(np.float32) - z) * s.astype(np.float32)
    weights = decoded.astype(np.float16).astype(np.float64).reshape(72, 320).T
    for job, answer in zip(jobs, Shim([kernel], made.bounds, tmp_path).run(jobs), strict=True):
        wide = next(one for one in job.inputs if one.ndim == 2).astype(np.float64)
        value, size = wide @ weights, np.abs(wide) @ np.abs(weights)
        error = np.abs(answer.outputs[0].astype(np.float64) - value)
        assert (error <= 2.0**-11 * np.abs(value) + 2.0**-19 * size + 2.0**-25).all(), job.sizes


DEPTHS = """
symbol n in 1..70
symbol m in 1..80
kernel @dot_NAME(%x: f16[n, DEPTH], %w: f16[SHAPE]) -> (%y: f16[n, COLUMNS]) {
  for i in 0..n {
    for j in 0..COLUMNS {
      local sum: f16 = 0.0:f16
      for k in 0..DEPTH {
        sum = (sum + (%x[i, k] * %w[INDEX]))
      }
      %y[i, j] = sum
    }
  }
}"""


PARTS = {
    "4*m": (44, (1, 8, 9, 16, 17, 24, 25, 32, 41)),
    "2*m": (42, (1, 16, 17, 48, 49, 65, 80)),
    "8*m": (50, (1, 4, 5, 80)),
    "260": (40, (0,)),
    "316": (44, (0,)),
    "262": (42, (0,)),
    "326": (40, (0,)),
}
"""The length of a sum: the number of columns, and each m."""


@pytest.mark.parametrize("axes", ["j, k", "k, j"])
@pytest.mark.long
def test_sums_of_any_number_of_parts(axes: str, tmp_path: Path) -> None:
    """Known and dynamic, of one to five or of nine to eleven parts, of which the last one is whole
    or not, in small tiles and in large ones; of columns that end within a vector."""
    random, kernels, jobs = np.random.default_rng(5), list[Kernel](), list[Job]()
    for number, (depth, (columns, sizes)) in enumerate(PARTS.items()):
        shape = axes.replace("j", str(columns)).replace("k", depth)
        text = DEPTHS.replace("NAME", str(number)).replace("DEPTH", depth)
        text = text.replace("SHAPE", shape).replace("INDEX", axes)
        tiles = Tiles(enough=1 if number % 2 else 16)
        _, kernel, bounds = device_form(
            text.replace("COLUMNS", str(columns)), partial(matrix_product, tiles=tiles)
        )
        assert kernel is not None
        kernels.append(kernel)
        for m in sizes:
            steps = m * int(depth[0]) or int(depth)
            x = random.normal(size=(3 if m else 70, steps)).astype(np.float16)
            w = random.normal(size=(columns, steps) if axes == "j, k" else (steps, columns))
            given = (x, w.astype(np.float16))
            jobs.append(Job(kernel.name, given, {"n": len(x), "m": m or 1}, seed=m))
    for job, answer in zip(jobs, Shim(kernels, bounds, tmp_path).run(jobs), strict=True):
        left, right = (one.astype(np.float64) for one in job.inputs)
        right = right.T if axes == "j, k" else right
        exact, whole = left @ right, np.abs(left) @ np.abs(right)
        error = np.abs(answer.outputs[0].astype(np.float64) - exact)
        most = 2.0**-11 * np.abs(exact) + 2.0**-19 * whole + 2.0**-25
        assert (error <= most).all(), (job.kernel, job.sizes)


BYTE_DEPTHS = """
symbol n in 1..70
kernel @dot_DEPTH(%x: i8[n, DEPTH], %w: i8[40, DEPTH]) -> (%y: i32[n, 40]) {
  for i in 0..n {
    for j in 0..40 {
      local sum: i32 = 0:i32
      for k in 0..DEPTH {
        sum = (sum + (cast(%x[i, k], i32, wrap) * cast(%w[j, k], i32, wrap)))
      }
      %y[i, j] = sum
    }
  }
}"""


@pytest.mark.long
def test_sums_of_bytes_have_any_known_number_of_parts(tmp_path: Path) -> None:
    """Of one to six parts, of which the last one is whole or not, in small tiles."""
    random, kernels, jobs = np.random.default_rng(9), list[Kernel](), list[Job]()
    for depth in (48, 128, 144, 256, 272, 384):
        text = BYTE_DEPTHS.replace("DEPTH", str(depth))
        _, kernel, bounds = device_form(text, matrix_product)
        assert kernel is not None
        kernels.append(kernel)
        given = tuple(
            random.integers(-128, 128, (size, depth)).astype(np.int8) for size in (70, 40)
        )
        jobs.append(Job(kernel.name, given, {"n": 70}, seed=depth))
    for job, answer in zip(jobs, Shim(kernels, bounds, tmp_path).run(jobs), strict=True):
        x, w = (one.astype(np.int32) for one in job.inputs)
        assert (answer.outputs[0] == x @ w.T).all(), job.kernel


LENGTHS = """
symbol b in 1..2
symbol n in 1..150
symbol k in 1..70
symbol m in 1..150
func @main(%x: f16[LEFT], %w: f16[RIGHT], %c: f16[m]) {
  %s: f16[b, n, k] = transpose(%x) {perm=[FIRST]}
  %t: f16[b, k, m] = transpose(%w) {perm=[SECOND]}
  %p: f16[b, n, m] = matmul(%s, %t)
  %y: f16[b, n, m] = add(%p, %c)
  return %y
}"""
AXES = {"n, k": "0, 1, 2", "k, n": "0, 2, 1", "k, m": "0, 1, 2", "m, k": "0, 2, 1"}
"""Those of a factor, and how they are moved."""


def any_lengths(left: str, right: str, kind: str) -> str:
    text = LENGTHS.replace("LEFT", f"b, {left}").replace("RIGHT", f"b, {right}")
    text = text.replace("FIRST", AXES[left]).replace("SECOND", AXES[right])
    return text.replace("f16", kind)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        ("n, k", "k, m", "f16"),
        ("n, k", "m, k", "bf16"),
        pytest.param("k, n", "k, m", "f16", marks=pytest.mark.long),
        pytest.param("k, n", "m, k", "f16", marks=pytest.mark.long),
    ],
)
def test_rows_have_any_lengths(left: str, right: str, kind: str, tmp_path: Path) -> None:
    """The lowest and the highest sizes, odd ones, multiples of 2, 4 and 8, and random ones, in
    large and in small tiles."""
    strategy = partial(matrix_product, tiles=Tiles(enough=3))
    module = fuse(lower(parse(any_lengths(left, right, kind)))).module
    module = schedule_device(module, replace(TARGET, nests=(strategy,)))
    (kernel,), bounds = module.kernels, module.bounds
    assert len(kernel.scratch) == 2, "both factors have aligned rows"
    random, jobs = np.random.default_rng(8), list[Job]()
    sizes: list[tuple[int, ...]] = [
        (1, 1, 1, 1),
        (2, 150, 70, 150),
        (1, 149, 37, 133),
        (1, 30, 34, 134),
    ]
    sizes += [(1, 12, 36, 132), (1, 40, 64, 136), (2, 5, 1, 3), (1, 137, 7, 8)]
    sizes += [tuple(map(int, random.integers(1, (3, 100, 71, 151)))) for _ in range(3)]
    for one in sizes:
        at = dict(zip("bnkm", one, strict=True))
        shapes = [[size.evaluate(at) for size in buffer.shape] for buffer in kernel.inputs]
        given = (random.normal(size=shape).astype(DType(kind).numpy) for shape in shapes)
        jobs.append(Job(kernel.name, tuple(given), at, seed=sum(one)))
    unit = 2.0 ** (-8 if kind == "bf16" else -11)
    for job, answer in zip(jobs, Shim([kernel], bounds, tmp_path).run(jobs), strict=True):
        names = [buffer.name for buffer in kernel.inputs]
        x, w, c = (job.inputs[names.index(name)].astype(np.float64) for name in ("x", "w", "c"))
        x = x.swapaxes(1, 2) if left == "k, n" else x
        w = w.swapaxes(1, 2) if right == "m, k" else w
        product, size = x @ w, np.abs(x) @ np.abs(w)
        error = np.abs(answer.outputs[0].astype(np.float64) - (product + c))
        most = unit * 1.01 * (np.abs(product) + np.abs(product + c)) + 2.0**-19 * size + 2.0**-24
        assert (error <= most).all(), job.sizes


ODD = """
symbol n in 1..150
kernel @dot_NAME(%x: KIND[n, 99], %w: i8[37, 99], %s: f16[37]) -> (%y: f16[n, 37]) {
  for i in 0..n {
    for j in 0..37 {
      local sum: f16 = 0.0:f16
      for k in 0..99 {
        sum = (sum + (LEFT * cast((cast(cast(%w[j, k], i32, wrap), f32, wrap)
          * cast(%s[j], f32, wrap)), f16, wrap)))
      }
      %y[i, j] = sum
    }
  }
}"""


@pytest.mark.slow
def test_odd_rows_are_computed_before_a_product(tmp_path: Path) -> None:
    """Decoded weights, and floats that are cast, or values that one tile reads."""
    random, jobs, kernels = np.random.default_rng(4), list[Job](), list[Kernel]()
    w = random.integers(-128, 128, (37, 99)).astype(np.int8)
    s = random.uniform(0.001, 0.1, 37).astype(np.float16)
    for kind, left in (("f16", "%x[i, k]"), ("f32", "cast(%x[i, k], f16, wrap)")):
        text = ODD.replace("NAME", kind).replace("KIND", kind).replace("LEFT", left)
        _, kernel, bounds = device_form(text, matrix_product)
        assert kernel is not None and len(kernel.scratch) == 2, "both factors have aligned rows"
        kernels.append(kernel)
        for n in (1, 75, 150):
            x = random.normal(size=(n, 99)).astype(DType(kind).numpy)
            jobs.append(Job(kernel.name, (x, w, s), {"n": n}, seed=n))
    weights = (w * s.astype(np.float32)[:, None]).astype(np.float16).astype(np.float64).T
    for job, answer in zip(jobs, Shim(kernels, bounds, tmp_path).run(jobs), strict=True):
        x = job.inputs[0].astype(np.float16).astype(np.float64)
        error = np.abs(answer.outputs[0].astype(np.float64) - x @ weights)
        size = np.abs(x) @ np.abs(weights)
        most = 2.0**-11 * np.abs(x @ weights) + 2.0**-19 * size + 2.0**-24
        assert (error <= most).all(), (job.kernel, job.sizes)
