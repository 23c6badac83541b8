# SPDX-License-Identifier: Apache-2.0
"""The machine code of element-wise kernels and reductions: vectors of 16 bytes, no memory for
spilled registers, and enough warps on each multiprocessor."""

from __future__ import annotations

import re
from functools import cache

import pytest

from relax_aot.binaries.cubin import read_cubin
from relax_aot.emit.cuda_module import device_source
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.targets.cuda import TARGET
from relax_aot.toolchain.nvdisasm import disassembled
from relax_aot.toolchain.nvrtc import cubin
from tests.cuda.test_figures import CHIPS, Figures
from tests.cuda.toolkits import needs_compilers, needs_disassembler
from tests.scheduling.devices.subjects import KERNELS
from tests.transforms.examples import example_module

pytestmark = [needs_compilers, needs_disassembler]
SYMBOLS = "symbol n in 1..9000\nsymbol m in 1..1000\n"
HALVES = KERNELS["elements"].replace("f32", "f16")
PERMUTED = """
    symbol h in 1..32
    symbol w in 1..32
    kernel @k(%x: f16[n, 2, 2, 16, h, w]) -> (%y: f16[n, 16, h, 2, w, 2]) {
      for i in 0..n {
        for c in 0..16 {
          for a in 0..h {
            for p in 0..2 {
              for b in 0..w {
                for q in 0..2 {
                  %y[i, c, a, p, b, q] = %x[i, p, q, c, a, b]
                }
              }
            }
          }
        }
      }
    }"""
"""Divisions by sizes, for which compilers take 70 registers where they may."""
LONG_ROWS = re.sub(r"\bm\b", "3000", KERNELS["scratch of rows"])
"""Each has more scratch than a warp may have, so that half of them fit."""
TEXTS = {**KERNELS, "halves": HALVES, "permuted": PERMUTED, "long rows": LONG_ROWS}
VECTORS = {"elements": 2, "halves": 2, "quantized elements": 5, "parts of rows": 3}
"""Accesses of 16 bytes: loads and stores."""
NAMES = (*VECTORS, "transposed", "softmax", "columns", "recurrence", "a whole tensor",
         "long rows", "permuted", "scratch of rows")  # fmt: skip


@cache
def figures(name: str, chip: int) -> tuple[tuple[Figures, bool], ...]:
    """Of each launch, and whether it has more than one block."""
    module = schedule_device(example_module(SYMBOLS + TEXTS[name]), TARGET)
    (kernel,) = module.kernels
    source = device_source("model", [kernel], module.bounds)
    binary = cubin(source.text, "model", chip, CHIPS[chip])
    codes, functions = disassembled(binary), read_cubin(binary)
    return tuple(
        (
            Figures(
                functions.function(one.c_name),
                codes[one.c_name],
                one.threads,
                one.dynamic_bytes,
                chip,
            ),
            one.grid != 1,
        )
        for one in source.launches[kernel.name]
    )


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", NAMES)
def test_registers_are_few_and_none_is_spilled(name: str, chip: int) -> None:
    """A block that is alone occupies no more of a processor, whatever its registers."""
    for one, several in figures(name, chip):
        assert one.function.local_bytes == 0
        assert one.occupancy >= 0.5 or not several


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", VECTORS)
def test_contiguous_elements_are_copied_as_vectors(name: str, chip: int) -> None:
    ((one, _),) = figures(name, chip)
    assert len(one.code.with_part("128")) == VECTORS[name]
