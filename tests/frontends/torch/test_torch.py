# SPDX-License-Identifier: Apache-2.0
"""Programs of PyTorch. What these compute is compared with PyTorch itself."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.bounds import MissingBound, WrongBound
from relax_aot.frontends.torch import program
from tests.conftest import NO_TORCH, ROOT


@pytest.fixture(scope="module")
def torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        pytest.skip(NO_TORCH)
    import torch

    return torch


def small(torch: Any) -> Any:
    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = torch.nn.Conv1d(2, 3, 3, padding=1)

        def forward(self, x: Any, y: Any) -> Any:
            return torch.relu(self.mix(x)) + y, x.mean(-1)

    torch.manual_seed(0)
    return Small().eval()


def examples(torch: Any, batch: int = 2, n: int = 6) -> tuple[Any, Any]:
    return torch.randn(batch, 2, n), torch.randn(n)


def shapes(torch: Any, **wide: int) -> dict[str, Any]:
    batch = torch.export.Dim("batch", min=1, max=4)
    n = torch.export.Dim("n", min=2, **wide)
    return {"x": {0: batch, 2: n}, "y": {0: n}}


def bounds_of(module: Any) -> dict[str, tuple[int, int]]:
    return {symbol.name: (symbol.low, symbol.high) for symbol in module.symbols}


def test_a_module_computes_what_pytorch_does_at_every_size(torch: Any) -> None:
    module = small(torch)
    loaded = rx.load(module, examples(torch), dynamic_shapes=shapes(torch, max=9))
    assert bounds_of(loaded) == {"batch": (1, 4), "n": (2, 9)}
    host = rx.compile(loaded, name="small").host()
    for batch, n in ((1, 2), (3, 5), (4, 9)):
        x, y = examples(torch, batch, n)
        with torch.no_grad():
            wanted = [tensor.numpy() for tensor in module(x, y)]
        for got, want in zip(host(x=x.numpy(), y=y.numpy()).values(), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_program_brings_its_ranges(torch: Any) -> None:
    exported = torch.export.export(
        small(torch), examples(torch), dynamic_shapes=shapes(torch, max=9)
    )
    assert sorted(bounds_of(rx.load(exported)).values()) == [(1, 4), (2, 9)]
    named = rx.load(exported, dynamic_shapes=shapes(torch, max=9), bounds={"n": 5})
    assert bounds_of(named) == {"batch": (1, 4), "n": (2, 5)}
    assert len(rx.compile(exported).files) > 1


def test_derived_sizes_bound_their_symbol(torch: Any) -> None:
    n = torch.export.Dim("n", min=2, max=7)
    loaded = rx.load(torch.nn.ReLU().eval(), torch.randn(12), dynamic_shapes={"input": {0: 4 * n}})
    assert bounds_of(loaded) == {"n": (2, 7)}
    assert str(loaded.functions[0].params[0].type.shape[0]) == "4*n"


def test_sizes_keep_their_names_beside_numbers_and_absent_inputs(torch: Any) -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: Any, mask: Any = None, scale: int = 2) -> Any:
            return x * scale if mask is None else x * mask

    n = torch.export.Dim("n", min=1, max=7)
    shapes = {"x": {0: n}, "mask": None, "scale": None}
    loaded = rx.load(Scaled().eval(), (torch.randn(4), None, 3), dynamic_shapes=shapes)
    assert bounds_of(loaded) == {"n": (1, 7)}


def test_an_input_that_is_an_output_has_its_range(torch: Any) -> None:
    class Passing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x, x + 1

    n = torch.export.Dim("n", min=1, max=7)
    loaded = rx.load(Passing().eval(), torch.randn(4), dynamic_shapes={"x": {0: n}})
    assert bounds_of(loaded) == {"n": (1, 7)}


def test_an_open_range_needs_a_bound(torch: Any) -> None:
    arguments = (small(torch), examples(torch))
    with pytest.raises(MissingBound, match="--bound n="):
        rx.load(*arguments, dynamic_shapes=shapes(torch))
    loaded = rx.load(*arguments, dynamic_shapes=shapes(torch), bounds={"n": 64})
    assert bounds_of(loaded)["n"] == (2, 64)


def test_a_bound_beyond_the_range_is_refused(torch: Any) -> None:
    with pytest.raises(WrongBound, match=r"n=10 is outside 2\.\.9"):
        rx.load(
            small(torch),
            examples(torch),
            dynamic_shapes=shapes(torch, max=9),
            bounds={"n": 10},
        )


def test_what_is_missing_is_said(torch: Any) -> None:
    with pytest.raises(ModelError, match="give examples"):
        rx.load(small(torch))
    with pytest.raises(ModelError, match="eval"):
        rx.load(small(torch).train(), examples(torch))
    with pytest.raises(ModelError, match="needs example inputs"):
        rx.load(small(torch), dynamic_shapes=shapes(torch))


def test_a_program_that_changes_its_buffers_is_refused(torch: Any) -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.seen += x
            return self.seen * 2

    with pytest.raises(UnsupportedError, match="changes seen"):
        rx.load(Counter().eval(), torch.randn(3))


def test_code_that_cannot_be_traced_is_an_error_of_ours(torch: Any) -> None:
    class Choosing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(ModelError, match=r"torch\.export cannot trace"):
        rx.load(Choosing().eval(), torch.randn(3))


def test_without_pytorch_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "NEEDED", ("torch_that_is_absent",))
    with pytest.raises(ModelError, match=r"pip install 'relax-aot\[torch\]'"):
        rx.load(object(), (1,))


@pytest.mark.slow
def test_pytorch_is_not_imported_for_other_models() -> None:
    code = (
        "import sys, relax_aot as rx\n"
        "rx.load('examples/gesture/gesture.onnx', bounds={'n': 8})\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
