# SPDX-License-Identifier: Apache-2.0
"""The machine code of products with weights that are inputs, next to kernels of rows: fusion leaves
them to matrix units, or to tiles."""

from __future__ import annotations

import pytest

from relax_aot import lowering, transforms
from relax_aot.binaries.cubin import read_cubin
from relax_aot.emit.cuda_module import device_source
from relax_aot.fusion import fuse
from relax_aot.ir.parse import parse
from relax_aot.scheduling import fusion_policy, schedule_device
from relax_aot.scheduling.targets.cuda_mma import TARGET
from relax_aot.toolchain.nvdisasm import disassembled
from relax_aot.toolchain.nvrtc import cubin
from tests.cuda.test_figures import CHIPS, Figures, mostly_ffma, mostly_hmma
from tests.cuda.toolkits import needs_compilers, needs_disassembler

pytestmark = [needs_compilers, needs_disassembler]
ENOUGH = {"f16": mostly_hmma, "f32": mostly_ffma}
TEXTS = {
    "scaled before": ("%y", """
        symbol n in 1..4096
        func @main(%x: T[n, 768], %g: T[768], %w: T[768, 768]) {
          %a: T[n, 768] = mul(%x, %g)
          %y: T[n, 768] = matmul(%a, %w)
          return %y
        }"""),
    "normalized before": ("%y", """
        symbol n in 1..4096
        func @main(%x: T[n, 768], %g: T[768], %b: T[768], %w: T[768, 768]) {
          %a: T[n, 768] = layer_norm(%x, %g, %b) {axis=1, epsilon=1e-05}
          %y: T[n, 768] = matmul(%a, %w)
          return %y
        }"""),
    "a softmax behind": ("%a", """
        symbol n in 1..4096
        func @main(%x: T[n, 768], %w: T[768, 1024]) {
          %a: T[n, 1024] = matmul(%x, %w)
          %y: T[n, 1024] = softmax(%a) {axis=1}
          return %y
        }"""),
    "a chain": ("%b %y", """
        symbol n in 1..4096
        func @main(%x: T[n, 768], %w: T[768, 3072], %v: T[3072, 768]) {
          %a: T[n, 3072] = matmul(%x, %w)
          %b: T[n, 3072] = relu(%a)
          %y: T[n, 768] = matmul(%b, %v)
          return %y
        }"""),
}  # fmt: skip
"""The results of products, and a function of the type T."""


def figures(name: str, kind: str, chip: int) -> list[tuple[Figures, ...]]:
    """Of the launches of each product."""
    results, text = TEXTS[name]
    module = lowering.lower(transforms.run(parse(text.replace("T[", f"{kind}["))))
    module = schedule_device(fuse(module, fusion_policy(TARGET)).module, TARGET)
    source = device_source("model", list(module.kernels), module.bounds)
    binary = cubin(source.text, "model", chip, CHIPS[chip])
    codes, functions = disassembled(binary), read_cubin(binary)
    return [
        tuple(
            Figures(
                functions.function(one.c_name), codes[one.c_name], one.threads, one.dynamic_bytes,
                chip,
            )
            for one in source.launches[kernel.name]
        )
        for kernel in module.kernels
        if f"%{kernel.outputs[0].name}" in results.split()
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ENOUGH)
@pytest.mark.parametrize("name", TEXTS)
def test_products_next_to_rows_have_the_loops_of_products(name: str, kind: str, chip: int) -> None:
    made = figures(name, kind, chip)
    assert len(made) == len(TEXTS[name][0].split())
    for large, *others in made:
        assert all(map(ENOUGH[kind], large.hot)), large.text
        for one in (large, *others):
            assert one.function.local_bytes == 0 and one.occupancy >= 0.25
