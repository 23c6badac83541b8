# SPDX-License-Identifier: Apache-2.0
"""Indices checked by minima and maxima of vectors: one bad element at every place is found, and
good ones are accepted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.ir.loops import Micro, walk
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array
from relax_aot.scheduling import schedule
from relax_aot.scheduling.passes import index_scans
from relax_aot.scheduling.targets import find
from relax_aot.verify.emulate import emulate
from tests.transforms.examples import example_module

GATHER = """
symbol n in 0..70
func @main(%x: f32[9, 2], %i: $T[n]) {
  %y: f32[n, 2] = gather(%x, %i) {axis=0}
  return %y
}"""
BAD = {"i32": (9, -10, 2**31 - 1, -(2**31)), "i64": (9, -10, 2**32, 2**32 + 3, -(2**32), -(2**63))}


def samples(dtype: str) -> Iterator[tuple[Array, bool]]:
    """Indices of every size around that of a vector, good ones and with one that is bad."""
    kind = DType(dtype).numpy
    rng = np.random.default_rng(0)
    for n in (0, 1, 3, 4, 5, 7, 8, 9, 69, 70):
        good = rng.integers(-9, 9, n).astype(kind)
        good[: 2 if n > 1 else 0] = (-9, 8)[: n if n < 2 else 2]
        yield good, True
        for at in sorted({0, n // 2, n - 1} if n else ()):
            for value in BAD[dtype]:
                bad = good.copy()
                bad[at] = value
                yield bad, False


@pytest.mark.qemu
@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_one_bad_index_is_found_on_helium(dtype: str) -> None:
    project = rx.compile(rx.parse(GATHER.replace("$T", dtype)), board="mps3-an547")
    assert f"raot_outside_{dtype}(" in project.files["model.c"].decode()
    table = np.arange(18, dtype=np.float32).reshape(9, 2)
    cases = [*samples(dtype)]
    runs = emulate(project.built, [{"x": table, "i": indices} for indices, _ in cases])
    for (indices, is_good), run in zip(cases, runs, strict=True):
        assert (run.status == 0) == is_good, indices
        if is_good:
            np.testing.assert_array_equal(run.outputs["y"], table[indices])


KEPT = {
    "a column": "for b in 0..n {\n local at: i64 = cast(%i[b, a], i64, wrap)",
    "bytes": "for b in 0..3 {\n local at: i64 = cast(%s[a, b], i64, wrap)",
    "a sum": "for b in 0..3 {\n local at: i64 = (cast(%i[a, b], i64, wrap) + 1:i64)",
}


@pytest.mark.parametrize("name", KEPT)
def test_other_loops_stay(name: str) -> None:
    module = example_module(f"""
symbol n in 1..3
kernel @check(%i: i32[n, 3], %s: i8[n, 3]) -> () {{
  local outside: i32 = 0:i32
  for a in 0..3 {{
    {KEPT[name]}
      if ((at < index(0)) || (index(63) < at)) {{
        outside = 1:i32
      }}
    }}
  }}
  bind none in 0..0 = outside
}}""")
    target = find("cortex_m", ("dsp", "fpu", "mve_float"))
    assert index_scans.run(module, target).kernels == module.kernels
    small = schedule(module, target, "size").kernels
    assert not any(isinstance(stmt, Micro) for stmt in walk(small[0].body))
