# SPDX-License-Identifier: Apache-2.0
"""The permission to write a result over an operand is proven by other means than it is given."""

from __future__ import annotations

import pytest

import relax_aot as rx
from relax_aot import fusion
from relax_aot.fusion import in_place
from relax_aot.fusion.check import FusionError
from relax_aot.ir.graph import Module

RIGHT = {
    "elements": "%y[i, j] = exp(%x[i, j])",
    "an element more than once": "%y[i, j] = (%x[i, j] * %x[i, j])",
    "what is stored is read": "%y[i, j] = %x[i, j]\n %y[i, j] = (%y[i, j] + %y[i, j])",
}
WRONG = {
    "backwards": "%y[i, j] = %x[i, n - 1 - j]",
    "transposed": "%y[i, j] = %x[j, i]",
    "first element": "%y[i, j] = (%x[i, 0] + %x[i, j])",
    "first row": "%y[i, j] = (%x[0, j] + %x[i, j])",
    "read after it is written": "%y[i, j] = exp(%x[i, j])\n %y[i, j] = (%y[i, j] + %x[i, j])",
}


def module(body: str) -> Module:
    return rx.parse(
        f"""
        symbol n in 1..9

        func @main(%x: f32[n, n]) {{
          %y: f32[n, n] = call_kernel(%x) {{kernel=@work}}
          return %y
        }}

        kernel @work(%x: f32[n, n]) -> (%y: f32[n, n]) {{
          for i in 0..n {{
            for j in 0..n {{
              {body}
            }}
          }}
        }}
        """
    )


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_right_permissions_are_proven(body: str) -> None:
    (kernel,) = fusion.fuse(module(body)).module.kernels
    assert kernel.in_place == (("x", "y"),)


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_wrong_permissions_are_refused(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel,) = fusion.fuse(module(body)).module.kernels
    assert kernel.in_place == ()
    monkeypatch.setattr(in_place, "_may_share", lambda *_: True)
    with pytest.raises(FusionError, match="%y is not proven to fit the memory of %x"):
        fusion.fuse(module(body))
    (kernel,) = fusion.fuse(module(body), lenient=True).module.kernels
    assert kernel.in_place == ()
