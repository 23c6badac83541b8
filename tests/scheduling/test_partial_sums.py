# SPDX-License-Identifier: Apache-2.0
"""Reductions in lanes: the C has the bits of the interpreted schedule, the schedule is as close to
the plain loops as their rounding allows, and a row has the same bits wherever it is computed."""

from __future__ import annotations

import re
from functools import cache
from math import log2

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Kernel, Reserve, walk
from relax_aot.ops._op import Array
from relax_aot.scheduling.passes.partial_sums import split_kernel
from relax_aot.scheduling.targets import find
from tests.ops.c_executor import Call, c_kernels
from tests.transforms.examples import example_module

LANES = (16, 32)
LENGTHS = (0, 1, 3, 8, 15, 16, 17, 31, 32, 33, 64, 65, 129)
SUM = """
    symbol n in 0..999
    kernel @k(%x: f32[n]) -> (%y: f32[]) {
      local total: f32 = START
      for i in 0..n {
        total = TERM
      }
      %y[] = total
    }"""
ROWS = """
    symbol n in 0..999
    kernel @k(%x: f32[3, n]) -> (%y: f32[3]) {
      for r in 0..3 {
        local total: f32 = 0.0:f32
        for i in 0..n {
          total = (total + %x[r, i])
        }
        local mean: f32 = (total / 3.0:f32)
        local spread: f32 = 0.0:f32
        local peak: f32 = -inf:f32
        for i in 0..n {
          local apart: f32 = (%x[r, i] - mean)
          spread = fma(apart, apart, spread)
          peak = max(peak, %x[r, i])
        }
        %y[r] = (spread + peak)
      }
    }"""
ALL = """
    symbol n in 0..999
    kernel @k(%x: f32[3, n]) -> (%y: f32[]) {
      local total: f32 = 0.0:f32
      for r in 0..3 {
        for i in 0..n {
          total = (%x[r, i] + total)
        }
      }
      %y[] = total
    }"""
ADDED = "(total + %x[i])"
KERNELS = {
    "sum": SUM.replace("START", "0.0:f32").replace("TERM", ADDED),
    "sum from -0": SUM.replace("START", "-0.0:f32").replace("TERM", ADDED),
    "squares": SUM.replace("START", "1.5:f32").replace("TERM", "fma(%x[i], %x[i], total)"),
    "largest": SUM.replace("START", "-inf:f32").replace("TERM", "max(total, %x[i])"),
    "smallest": SUM.replace("START", "inf:f32").replace("TERM", "min(%x[i], total)"),
    "double": SUM.replace("f32", "f64").replace("START", "0.0:f64").replace("TERM", ADDED),
    "rows": ROWS,
    "all": ALL,
}  # fmt: skip


@cache
def plain(name: str) -> Kernel:
    (kernel,) = example_module(KERNELS[name]).kernels
    return kernel


@cache
def split(name: str, lanes: int) -> Kernel:
    kernel = split_kernel(plain(name), Bounds.of({"n": (0, 999)}), lanes)
    assert any(isinstance(stmt, Reserve) for stmt in walk(kernel.body))
    return kernel


def samples(name: str, n: int) -> list[Array]:
    """Numbers of one sign, of any magnitude, that cancel, zeros, infinities and NaN."""
    (buffer,) = plain(name).inputs
    rng = np.random.default_rng(n)
    shape = [size.evaluate({"n": n}) for size in buffer.shape]
    even = rng.uniform(0.5, 1.0, shape)
    wild = rng.normal(size=shape) * np.exp2(rng.integers(-30, 30, shape))
    special = rng.choice([1.0, -0.0, np.inf, 1e-42], shape)
    mixed = rng.choice([1.0, -np.inf, np.inf, np.nan], shape, p=[0.94, 0.02, 0.02, 0.02])
    kinds = (even, wild, np.full(shape, -0.0), special, mixed)
    return [array.astype(buffer.dtype.numpy) for array in kinds]


@pytest.fixture(scope="module")
def compiled() -> Call:
    kernels = {f"k{n}_{lanes}": split(k, lanes) for n, k in enumerate(KERNELS) for lanes in LANES}
    return c_kernels(kernels, ("-O3", "-march=native", "-fno-trapping-math"))


@pytest.mark.slow
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", KERNELS)
def test_c_has_the_bits_of_the_interpreted_schedule(name: str, lanes: int, compiled: Call) -> None:
    number = [*KERNELS].index(name)
    for n in LENGTHS:
        for x in samples(name, n):
            with np.errstate(all="ignore"):
                (wanted,) = run_kernel(split(name, lanes), [x], {"n": n})
            (found,) = compiled(f"k{number}_{lanes}", [x], {"n": n})
            np.testing.assert_array_equal(found, wanted, err_msg=f"{n}")
            numbers = ~np.isnan(wanted)
            assert np.array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers]), n


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ["sum", "sum from -0", "squares", "double", "all"])
def test_sums_are_within_the_bound_of_reordering(name: str, lanes: int) -> None:
    """|sum - exact| <= roundings * unit roundoff * sum of absolute values, for both orders, where
    the sum in lanes has n / lanes + log2(lanes) + 2 roundings."""
    for n in LENGTHS:
        for x in samples(name, n):
            with np.errstate(all="ignore"):
                (found,) = run_kernel(split(name, lanes), [x], {"n": n})
                (before,) = run_kernel(plain(name), [x], {"n": n})
                terms = x.astype(np.longdouble)
                terms = terms * terms if name == "squares" else terms
                start = 1.5 if name == "squares" else 0.0
                exact, magnitude = start + terms.sum(), start + np.abs(terms).sum()
            if not np.isfinite(magnitude):
                np.testing.assert_array_equal(found, before)
                continue
            count = x.size // max(n, 1) * -(-n // lanes) + log2(lanes) + 2
            unit = np.finfo(x.dtype).eps / 2
            smallest = x.size * np.finfo(x.dtype).smallest_subnormal  # products may underflow
            assert abs(found - exact) <= 1.01 * count * unit * magnitude + smallest, n
            if exact == 0 and n == 0:
                assert np.signbit(found) == np.signbit(before)


def test_extremes_are_those_of_the_plain_loops() -> None:
    for name in ("largest", "smallest"):
        for n in LENGTHS:
            for x in samples(name, n):
                found, wanted = (
                    run_kernel(kernel, [x], {"n": n})[0]
                    for kernel in (split(name, 32), plain(name))
                )
                np.testing.assert_array_equal(found, wanted)


def test_zeros_behind_a_row_change_no_bit() -> None:
    """Keys that a mask excludes: prefill and decode agree."""
    rng = np.random.default_rng(0)
    for n in (1, 5, 31, 32, 33, 64, 70):
        row = rng.normal(size=n).astype(np.float32)
        sums = {
            run_kernel(split("sum", 32), [np.pad(row, (0, more))], {"n": n + more})[0].tobytes()
            for more in (0, 1, 7, 32, 59)
        }
        assert len(sums) == 1, n


NORM = """
symbol n in 1..9  # input x, axis 0
symbol k in 1..99  # input x, axis 1
func @main(%x: f32[n, k]) {
  %m: f32[n, 1] = reduce(%x) {kind="mean", axes=[1], keepdims=true}  # mean
  %d: f32[n, k] = sub(%x, %m)  # apart
  %y: f32[n, k] = softmax(%d) {axis=1}  # softmax
  return %y
}
"""


def norm(rows: str, columns: str) -> str:
    """With numbers in the place of symbols."""
    kept = [line for line in NORM.splitlines() if not line.startswith("symbol")]
    symbols = [line for line in NORM.splitlines() if line.startswith("symbol")]
    symbols = [s for s in symbols if f" {rows} in" in s or f" {columns} in" in s]
    text = (
        "\n".join(kept).replace("[n, k]", f"[{rows}, {columns}]").replace("[n, 1]", f"[{rows}, 1]")
    )
    return "\n".join([*symbols, text, ""])


@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 5, 32, 47, 99])
def test_a_row_has_its_bits_whatever_is_computed_with_it(k: int) -> None:
    """Alone, among others, in another place, with sizes that are symbols or numbers."""
    x = np.random.default_rng(k).normal(size=(9, k)).astype(np.float32)
    whole = rx.compile(rx.parse(norm("n", "k"))).host()
    fixed = rx.compile(rx.parse(norm("n", str(k)))).host()
    one = rx.compile(rx.parse(norm("1", str(k)))).host()
    wanted = whole(x=x)["y"]
    for first, last in ((0, 1), (3, 4), (2, 9), (0, 9)):
        rows = np.ascontiguousarray(x[first:last])
        assert whole(x=rows)["y"].tobytes() == wanted[first:last].tobytes()
        assert fixed(x=rows)["y"].tobytes() == wanted[first:last].tobytes()
    assert one(x=x[5:6])["y"].tobytes() == wanted[5:6].tobytes()


BOTH = ("blocked", "ordered")


def test_ordered_keeps_the_order_of_the_plain_loops() -> None:
    """In Python, in the header, and in the C; a target without lanes has one order anyway, and
    fewer functions."""
    module = rx.parse(norm("n", "k"))
    blocked, ordered = (rx.compile(module, numerics=n, name="m") for n in BOTH)
    assert b"#define M_NUMERICS_ORDERED 0" in blocked.files["m.h"]
    assert b"#define M_NUMERICS_ORDERED 1" in ordered.files["m.h"]
    assert b"raot_add_lanes_f32" in blocked.files["m.c"]
    assert b"lanes" not in ordered.files["m.c"]
    m4 = [rx.compile(module, numerics=n, name="m", board="mps2-an386") for n in BOTH]
    define = b"#define RAOT_NUMERICS_ORDERED\n"
    assert define not in m4[0].files["m.c"]
    power = re.compile(rb"raot_exp_belowf\((.*?), (\w+)\)")
    plain, count = power.subn(rb"raot_expf(\1 - \2)", m4[0].files["m.c"])
    assert count == 1
    assert plain == m4[1].files["m.c"].replace(define, b"", 1)
    x = np.random.default_rng(0).normal(size=(1, 99)).astype(np.float32)
    (kernel,) = example_module(KERNELS["sum"]).kernels
    assert find("host", ()).partial_sums == 32
    found = rx.compile(rx.parse(MEAN), numerics="ordered").host()(x=x)["y"]
    (wanted,) = run_kernel(kernel, [x[0]], {"n": 99})
    assert found[0] == wanted / np.float32(99)


MEAN = """
func @main(%x: f32[1, 99]) {
  %y: f32[1] = reduce(%x) {kind="mean", axes=[1], keepdims=false}  # mean
  return %y
}
"""


def test_other_numerics_are_refused() -> None:
    with pytest.raises(
        RelaxAotError, match="numerics is one of blocked, ordered, tf32, not 'fast'"
    ):
        rx.compile(rx.parse(MEAN), numerics="fast")
