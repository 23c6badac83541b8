# SPDX-License-Identifier: Apache-2.0
"""Attention in row blocks: encoders keep the bits of plain loops, ordered and in partial sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.ir.graph import Module
from relax_aot.ir.parse import parse
from relax_aot.scheduling.passes import fma, partial_sums, row_blocks
from relax_aot.scheduling.targets import Target, find
from relax_aot.verify.host import host_model
from tests.models.encoder import Variant, encoder

VARIANTS = [Variant(), Variant(norm="post", mask=True, causal=True)]


def plain_loops(module: Module, target: Target, _: str, numerics: str, **__: object) -> Module:
    """Without tiles and blocks."""
    module = fma.run(module, target)
    return module if numerics == "ordered" else partial_sums.run(module, target)


@pytest.mark.slow
@pytest.mark.parametrize("numerics", [one for one in driver.NUMERICS if one != "tf32"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_encoders_keep_their_bits(
    variant: Variant, numerics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = encoder(24, 3, 2, 40, 5, variant)
    bounds = {"n": 21, "batch": 2}
    options = driver.Options(bounds={name: (1, high) for name, high in bounds.items()})
    options = replace(options, numerics=numerics)
    fast = host_model(driver.compile_model(model, "host", options))
    monkeypatch.setattr("relax_aot.scheduling.schedule", plain_loops)
    plain = host_model(driver.compile_model(model, "host", options))
    for batch, n in ((1, 1), (2, 5), (1, 6), (2, 7), (1, 18), (2, 21)):
        rng = np.random.default_rng(n)
        feeds = {"x": rng.normal(size=(batch, n, 24)).astype(np.float32)}
        if variant.mask:
            feeds["mask"] = np.zeros((batch, n), np.float32)
        assert fast(feeds)["y"].tobytes() == plain(feeds)["y"].tobytes(), (batch, n)


CARRIED = """
module "carried"
symbol n in 1..9  # input x, axis 0
func @main(%x: f32[n, 8], %w: f32[8, 8]) {
  %y: f32[n, 8], %y.s: f32[8] = call_kernel(%x, %w) {kernel=@k}  # k
  return %y
}

kernel @k(%x: f32[n, 8], %w: f32[8, 8]) -> (%y: f32[n, 8]) scratch (%s: f32[8]) {
  for i in 0..n {
    for j in 0..8 {
      %s[j] = START
    }
    for j in 0..8 {
      local total: f32 = 0.0:f32
      for k in 0..8 {
        total = fma(%s[k], %w[k, j], total)
      }
      %y[i, j] = total
    }
  }
}
"""


def blocks_of(rows: int) -> Target:
    return replace(find("", ["fpu"]), rows=rows)


@pytest.mark.parametrize(
    ("start", "strips"),
    [("%x[i, j]", True), ("(%x[i, j] + %s[j])", False), ("(%x[i, j] + %s[(7 - j)])", False)],
)
def test_rows_that_need_each_other_stay_as_they_are(start: str, strips: bool) -> None:
    """What a row reads before it has written it may come from the row before."""
    module = parse(CARRIED.replace("START", start), {})
    assert (row_blocks.run(module, blocks_of(4)) != module) is strips


SHARED = """
module "shared"
symbol n in 1..9  # input x, axis 0
func @main(%x: f32[n, 8], %w: f32[8, 8]) {
  %y: f32[2, n, 8], %y.s: f32[2] = call_kernel(%x, %w) {kernel=@k}  # k
  return %y
}

kernel @k(%x: f32[n, 8], %w: f32[8, 8]) -> (%y: f32[2, n, 8]) scratch (%s: f32[2]) {
  for b in 0..2 {
    for i in 0..n {
      %s[0] = %x[i, 0]
      %s[1] = READ
      for j in 0..8 {
        local total: f32 = %s[1]
        for k in 0..8 {
          total = fma(%x[i, k], %w[k, j], total)
        }
        %y[b, i, j] = total
      }
    }
  }
}
"""


@pytest.mark.parametrize(
    ("read", "blocks"),
    [
        ("%s[0]", True),
        ("%s[b]", False),
        ("select((index(i) != index(0)), %s[1], %x[i, 1])", False),
        ("select((index(b) != index(0)), %s[1], %x[i, 1])", False),
    ],
)
def test_rows_that_need_earlier_iterations_stay(read: str, blocks: bool) -> None:
    """Loop variables decide which elements of scratch are read, or whether there is a load."""
    module = parse(SHARED.replace("READ", read), {})
    assert (row_blocks.run(module, blocks_of(4)) != module) is blocks


@pytest.mark.parametrize(
    ("rows", "highest"), [("4", 4), ("9", 6), ("n", 6), ("n - n//2", 5), ("1", 1)]
)
def test_scratch_holds_the_rows_that_there_are(rows: str, highest: int) -> None:
    """Strips of six rows: fewer where there are fewer, as many for each size as it needs."""
    text = CARRIED.replace("START", "%x[i, j]").replace("[n, 8]", f"[{rows}, 8]")
    module = row_blocks.run(parse(text.replace("0..n {", f"0..{rows} {{"), {}), blocks_of(6))
    (buffer,) = module.kernels[0].scratch
    assert buffer.shape[0].evaluate({"n": 9}) == highest
    (call,) = module.main.body
    assert call.outs[-1].type.shape == buffer.shape
