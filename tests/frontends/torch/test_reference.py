# SPDX-License-Identifier: Apache-2.0
"""`--reference torch`: PyTorch runs the program that was compiled."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.frontends.torch import traced
from relax_aot.verify.job import Job, run_job
from tests.conftest import NO_TORCH


def test_verify_runs_the_program_itself() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip(NO_TORCH)
    import torch

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = torch.nn.Linear(6, 5)

        def forward(self, x: Any, y: Any) -> Any:
            return torch.tanh(self.mix(x)) + y, x.mean(-1)

    size = torch.export.Dim("n", min=1, max=9)
    shapes = {"x": {0: size}, "y": {0: size}}
    program = traced(Small().eval(), (torch.randn(3, 6), torch.randn(3, 5)), shapes)
    project = driver.compile_model(program, "host", Options(name="small"))
    result = run_job(Job(program, (project,), reference="torch"))
    assert result.ok and len(result.targets[0].runs) == 5
    assert len(result.targets[0].runs[0].outputs) == 2
