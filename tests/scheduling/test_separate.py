# SPDX-License-Identifier: Apache-2.0
"""Products of tiles are rounded before they are added where the board's core is faster so, and
panels grow where other kernels need more of the arena."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.evaluation import scalars
from relax_aot.ir.loops import Multiply, walk
from relax_aot.ir.parse import parse
from relax_aot.ir.text import to_text
from relax_aot.project import Project
from relax_aot.scheduling.room import room_of
from tests.models.onnx_text import model_of, random_weights

SIGNATURE = "product (float[n, 20] x) => (float[n, 70] y)"
DEFINE = b"#define RAOT_SEPARATE\n"


def compiled(board: str, **options: Any) -> Project:
    weights = random_weights(np.random.default_rng(0), w=(20, 70))
    model = model_of(SIGNATURE, "y = MatMul(x, w)", weights)
    return driver.compile_model(model, board, driver.Options(bounds={"n": (1, 9)}, **options))


def separates(project: Project) -> bool:
    kernels = project.plan.module.kernels
    tiles = [s for kernel in kernels for s in walk(kernel.body) if isinstance(s, Multiply)]
    assert len({tile.separate for tile in tiles}) <= 1
    return any(tile.separate for tile in tiles)


@pytest.mark.parametrize(
    ("board", "numerics", "optimize", "separate"),
    [
        ("nucleo-l4r5zi", "blocked", "speed", True),
        ("nucleo-l4r5zi", "ordered", "speed", False),
        ("nucleo-l4r5zi", "blocked", "size", False),
        ("mps2-an386", "blocked", "speed", False),  # states no timing
        ("host", "blocked", "speed", False),
    ],
)
def test_the_board_decides(board: str, numerics: str, optimize: str, separate: bool) -> None:
    project = compiled(board, numerics=numerics, optimize=optimize)
    assert separates(project) == separate
    assert (DEFINE in project.files[f"{project.name}.c"]) == separate


def test_the_text_form_keeps_it() -> None:
    module = compiled("nucleo-l4r5zi").plan.module
    text = to_text(module)
    assert "multiply separate %sums[" in text
    assert to_text(parse(text)) == text


def test_the_interpreter_rounds_twice() -> None:
    a, c = np.float32(1 + 2**-12), np.float32(-1 - 2**-11)
    assert scalars.separate(a, a, c) == 0  # the product's last bit is lost
    assert scalars.fused(a, a, c) == np.float32(2**-24)


def test_room_is_what_another_kernel_needs_more() -> None:
    module = parse(
        """
        kernel @widen(%x: f32[8]) -> (%y: f32[64]) {
          for i in 0..64 {
            %y[i] = %x[i // 8]
          }
        }
        kernel @fold(%x: f32[64]) -> (%y: f32[32]) {
          for i in 0..32 {
            %y[i] = (%x[i] + %x[i + 32])
          }
        }
        kernel @ends(%x: f32[32]) -> (%y: f32[2]) {
          for i in 0..2 {
            %y[i] = %x[i * 31]
          }
        }
        kernel @sum(%x: f32[2], %y: f32[32]) -> (%z: f32[2]) {
          for i in 0..2 {
            %z[i] = (%x[i] + %y[i])
          }
        }
        func @main(%in: f32[8]) {
          %a: f32[64] = call_kernel(%in) {kernel=@widen}
          %b: f32[32] = call_kernel(%a) {kernel=@fold}
          %c: f32[2] = call_kernel(%b) {kernel=@ends}
          %out: f32[2] = call_kernel(%c, %b) {kernel=@sum}
          return %out
        }"""
    )
    # The arena holds 64 + 32 floats at @fold; %in and %out are the caller's.
    assert room_of(module) == {"widen": 4 * 32, "fold": 0, "ends": 4 * 62, "sum": 4 * 62}
