# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose part of the image is in shared memory once: the values of the plain loops, and
planted faults that are found."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from relax_aot.evaluation.interpret import RaceError, run_kernel
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Barrier, Kernel, walk
from relax_aot.ops._op import Array
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.devices import patch_forms
from relax_aot.scheduling.targets import cuda_mma
from tests.scheduling.devices.kernels import inputs, without_barriers, without_conditions
from tests.transforms.examples import example_module

pytestmark = pytest.mark.slow
SIZES = ({"h": 3, "w": 3}, {"h": 9, "w": 10})


def convolution(channels: int, filters: int, kind: str) -> str:
    """In planes."""
    total, start = ("i32", "0:i32") if kind == "i8" else (kind, f"0.0:{kind}")
    value = "(%x[d, i + k - 1, j + l - 1] * %w[c, d, k, l])"
    if kind == "i8":
        value = """((cast(%x[d, i + k - 1, j + l - 1], i32, wrap) - 3:i32)
          * cast(%w[c, d, k, l], i32, wrap))"""
    weights = f"{kind}[{filters}, {channels}, 3, 3]"
    return f"""
    symbol h in 3..40
    symbol w in 3..40
    const %w: {weights} = splat 2{".0" * (kind != "i8")}
    kernel @conv(%x: {kind}[{channels}, h, w], %w: {weights}) -> (%y: {total}[{filters}, h, w]) {{
      for c in 0..{filters} {{
        for i in 0..h {{
          for j in 0..w {{
            local sum: {total} = {start}
            for d in 0..{channels} {{
              for k in max(-i + 1, 0)..min(h - i + 1, 3) {{
                for l in max(-j + 1, 0)..min(w - j + 1, 3) {{
                  sum = (sum + {value})
                }}
              }}
            }}
            %y[c, i, j] = sum
          }}
        }}
      }}
    }}"""


@cache
def pair(channels: int, filters: int = 5, kind: str = "f16") -> tuple[Kernel, Kernel, Module]:
    """The kernel, and its device form with its module."""
    module = example_module(convolution(channels, filters, kind))
    made = schedule_device(module, cuda_mma.TARGET)
    assert any(".patches" in one.name for one in made.kernels[0].inputs)
    return module.kernels[0], made.kernels[0], made


def results(kernel: Kernel, made: Module, x: Array, sizes: dict[str, int]) -> list[Array]:
    """Of the device form."""
    (call,) = (one for f in made.functions for one in f.body if one.op == "call_kernel")
    table = {one.name: one.data for one in made.constants}
    given = [table.get(var.name, x) for var in call.inputs]
    return run_kernel(kernel, given, sizes)


@pytest.mark.parametrize(("channels", "kind"), [(5, "f16"), (9, "i8")])
def test_results_are_those_of_the_plain_loops(channels: int, kind: str) -> None:
    kernel, device, made = pair(channels, kind=kind)
    for sizes in SIZES:
        x, w = inputs(kernel, sizes)
        w = np.full_like(w, 2)
        (wanted,) = run_kernel(kernel, [x, w], sizes)
        (found,) = results(device, made, x, sizes)
        if kind == "i8":
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found.astype(float), wanted.astype(float), 2e-2, 2e-1)


def test_channels_that_are_copied_behind_others_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_forms, "MOST", 10 << 10)
    kernel, device, made = pair.__wrapped__(20)
    assert sum(isinstance(one, Barrier) for one in walk(device.body)) > 2, "parts of channels"
    for sizes in SIZES:
        x, w = inputs(kernel, sizes)
        w = np.full_like(w, 2)
        (wanted,) = run_kernel(kernel, [x, w], sizes)
        (found,) = results(device, made, x, sizes)
        np.testing.assert_allclose(found.astype(float), wanted.astype(float), 2e-2, 4e-1)


def test_missing_barriers_are_found() -> None:
    """Between warps, of which 64 filters have two."""
    kernel, device, made = pair(1, 64)
    x, _ = inputs(kernel, SIZES[0])
    with pytest.raises(RaceError):
        results(without_barriers(device), made, x, SIZES[0])


def test_missing_conditions_are_found() -> None:
    """Those that say which pixels and filters exist."""
    kernel, device, made = pair(5)
    x, _ = inputs(kernel, SIZES[0])
    for word in ("line", "column", "filter"):
        with pytest.raises(AssertionError, match="outside"):
            results(without_conditions(device, word), made, x, SIZES[0])
