# SPDX-License-Identifier: Apache-2.0
"""Unused values are not emitted: generated C has no unused name, whatever was fused.

Fused readers of values with axes of size 1 leave indices, lengths and locals behind. Compilers
warn of those, and a strict build (`-Werror`) stops there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.evaluation.interpret import IndexFault, run_kernel
from relax_aot.ir import check
from relax_aot.ir.loops import Kernel
from relax_aot.ir.parse import parse
from relax_aot.ir.text import to_text
from relax_aot.ir.unused import without_unused, without_unused_module
from relax_aot.ops import deduce
from relax_aot.project import Project
from relax_aot.toolchain.compilers import host_compiler, host_flags, run
from relax_aot.verify.host import STRICT_FLAGS
from tests.fuzz.graphs import random_graph
from tests.models.onnx_text import Array, model_of

BOUNDS = {"n": (1, 3), "m": (1, 9), "h": (1, 6), "w": (1, 7), "p": (1, 4), "q": (1, 4), "r": (1, 4)}
TAPS = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
LAST = {"axes": np.array([-1])}
PLANE = {"axes": np.array([0, 1])}
TRANSPOSED = "t = Transpose <perm = [1, 0]> (x)\nu = Unsqueeze(t, axes)\n"
GRID = "(float[1, w] x, float[1, p, q, 2] g) => (float[1, 1, p, q] y)"
ROIS = "(float[1, w] x, float[r, 4] g, int64[r] b) => (float[r, 1, 2, 2] y)"
WHERE = 't = Where(c, a, b)\ny = Resize <mode = "cubic"> (t, , scales)'
ALIGNED = "<output_height = 2, output_width = 2, sampling_ratio = 2>"


def _graph(signature: str, body: str, **data: Array) -> tuple[str, str, dict[str, Array]]:
    return f"graph {signature}", body, data


GRAPHS = {
    "pad": _graph(
        "(float[1, m] x) => (float[6, k] y)", "t = Neg(x)\ny = Pad(t, pads)",
        pads=np.array([2, 0, 3, 1]),
    ),
    "cubic": _graph(
        "(bool[1, 1, 1, w] c, float[1, 1, h, 1] a, float[1] b) => (float[1, 1, h, k] y)", WHERE,
        scales=np.array([1, 1, 1, 2], np.float32),
    ),
    **{
        f"grid_{mode}": _graph(
            GRID,
            f'{TRANSPOSED}y = GridSample <mode = "{mode}", padding_mode = "{padding}"> (u, g)',
            **PLANE,
        )
        for mode, padding in (("bilinear", "border"), ("bicubic", "reflection"))
    },
    "roi_align": _graph(ROIS, f"{TRANSPOSED}y = RoiAlign {ALIGNED} (u, g, b)", **PLANE),
    "transposed_sum": _graph(
        "(float[n, 3, 4] x) => (float[n, 4] y)",
        "t = ConvTranspose(x, taps)\ny = ReduceSum <keepdims = 0> (t, axes)", taps=TAPS, **LAST,
    ),
    "extremum": _graph(
        "(float[1, 4] x) => (bool[1, 1] y)", "t = ArgMin <axis = 1> (x)\ny = Less(t, t)"
    ),
    "extrema": _graph(
        "(float[n, 4] x) => (bool[n, 1] y)", "t = ArgMin <axis = 1> (x)\ny = Less(t, t)"
    ),
}  # fmt: skip
WARNED = (271, 680, 757)
"""Random graphs whose C had an unused name."""
GATE, LONG, PART = 5, 1200, 50


def compiled(name: str, optimize: str) -> Project:
    signature, body, data = GRAPHS[name]
    bounds = {s: b for s, b in BOUNDS.items() if f"[{s}" in signature or f" {s}" in signature}
    model = model_of(signature, body, data)
    options = Options(bounds=bounds, name=f"{name}_{optimize}", optimize=optimize, check=True)
    return driver.compile_model(model, options=options)


def strict(projects: Iterable[Project], folder: Path) -> str:
    """What the compiler says of all of them."""
    units = []
    for project in projects:
        at = project.write(folder / project.name)
        units += [str(at / unit) for unit in project.units]
    compiler = host_compiler()
    flags = [*host_flags(compiler), *STRICT_FLAGS, "-std=c11", "-fsyntax-only"]
    return run(compiler, [*flags, *units], folder).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimize", ["speed", "memory", pytest.param("size", marks=pytest.mark.long)]
)
def test_no_name_is_unused(optimize: str, tmp_path: Path) -> None:
    assert strict((compiled(name, optimize) for name in GRAPHS), tmp_path) == ""


def random_project(seed: int) -> Project:
    made = random_graph(seed)
    optimize = ("speed", "memory", "size")[seed // 3 % 3]
    options = Options(bounds=made.bounds, name=f"m{seed}", optimize=optimize)
    return driver.compile_model(made.model, options=options)


@pytest.mark.long
def test_random_graphs_build_without_a_warning(tmp_path: Path) -> None:
    seeds = (*WARNED, *range(5000, 5000 + GATE))
    assert strict(map(random_project, seeds), tmp_path) == ""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("start", range(0, LONG, PART))
def test_random_graphs_build_without_a_warning_at_length(start: int, tmp_path: Path) -> None:
    assert strict(map(random_project, range(start, start + PART)), tmp_path) == ""


# The pass itself, on kernels in the text form

IDLE = """
module "idle"
symbol n in 1..9  # input x, axis 0
func @main(%x: f32[n], %at: i64[n]) {
  %y: f32[n], %y.s: f32[n], %y.kept: f32[2] = call_kernel(%x, %at) {kernel=@k}  # k
  return %y
}

kernel @k(%x: f32[n], %at: i64[n]) -> (%y: f32[n]) scratch (%s: f32[n], %kept: f32[2]) {
  let unread = n + 1
  let twice = 2*unread
  local total: f32 = 0.0:f32
  for i in 0..n {
    local again: f32 = %x[i]
    total = (total + again)
    %s[i] = %x[i]
    %s[i] = (%s[i] + total)
  }
  for i in 0..n {
    bind checked in 0..n - 1 = %at[i]
    if ((%x[i] < %x[i])) {
      local never: f32 = %x[i]
    } else {
      local one: f32 = 1.0:f32
      %kept[0] = one
    }
    local again: f32 = 1.0:f32
    again = (again * %kept[0])
    %y[i] = again
  }
}
"""


def test_what_nobody_reads_is_gone() -> None:
    module = parse(IDLE, {})
    swept = without_unused_module(module)
    check.check(swept, deduce)
    text = to_text(swept)
    for gone in ("unread", "twice", "%s", "never", "= %x[i]\n    total"):
        assert gone not in text, gone
    (kernel,) = swept.kernels
    assert [buffer.name for buffer in kernel.scratch] == ["kept"]
    (call,) = swept.functions[0].body
    assert [out.name for out in call.outs] == ["y", "y.kept"]
    assert without_unused_module(swept) == swept


@pytest.mark.parametrize("at", [[0, 1, 2], [0, 3, 1]])
def test_a_check_of_an_index_stays(at: list[int]) -> None:
    """Nothing reads at the index, and the call still fails where it is out of range."""
    (kernel,) = parse(IDLE, {}).kernels
    inputs = [np.ones(3, np.float32), np.array(at)]
    outcomes = [_outcome(k, inputs) for k in (kernel, without_unused(kernel))]
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0] is None) == (3 in at)


def _outcome(kernel: Kernel, inputs: list[Array]) -> bytes | None:
    try:
        return run_kernel(kernel, inputs, {"n": 3})[0].tobytes()
    except IndexFault:
        return None
