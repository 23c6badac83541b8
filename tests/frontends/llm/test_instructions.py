# SPDX-License-Identifier: Apache-2.0
"""Instructions of a decoded token of 15 million weights on emulated boards of 64-bit Arm."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import relax_aot as rx
from tests.frontends.llm.test_memory import LARGE

HELD = 16
"""Tokens in the caches."""
TOKENS = np.random.default_rng(0).integers(0, LARGE.words, HELD).astype(np.int32)


def instructions(folder: Path, board: str, quantize: str) -> int:
    """Of one token behind others."""
    model = rx.load_llm(folder, context=64, chunk=HELD)
    project = rx.compile(model, board=board, quantize=quantize, name="lm")
    calls = [("prefill", {"tokens": TOKENS}), ("decode", {"token": np.array(77, np.int32)})]
    *_, last = project.emulate(calls)
    assert last.status == 0 and last.instructions is not None
    return int(last.instructions)


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("board", "most"), [("raspberry-pi-4b", 12_000_000), ("jetson-orin-nano-cpu", 4_400_000)]
)
def test_a_decoded_token(board: str, most: int, tmp_path: Path) -> None:
    """Weights of four bits take little more than those of eight."""
    for tool in ("aarch64-linux-gnu-gcc", "qemu-aarch64"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = LARGE.write(tmp_path / "lm")
    bytes_, halves = (instructions(folder, board, kind) for kind in ("q8_0", "q4_0"))
    assert bytes_ <= most
    assert halves <= 1.3 * bytes_
