# SPDX-License-Identifier: Apache-2.0
"""What language models of common shapes take of RAM, with contexts of 256 tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

import relax_aot as rx
from tests.frontends.llm.checkpoints import Llama

SMALL = Llama(words=512, width=64, hidden=172, layers=5, queries=8, keys=4, size=8)
LARGE = Llama(words=32000, width=288, hidden=768, layers=6, queries=6, keys=6, size=48)
STACK = 16 << 10
"""What board files reserve."""


def ram(model: Llama, folder: Path, board: str, quantize: str, chunk: int) -> int:
    """Arena, state and logits. The caches alone are keys and values of each layer, in float32."""
    model.write(folder)
    source = rx.load_llm(folder, context=256, chunk=chunk)
    project = rx.compile(source, board=board, quantize=quantize, name="lm")
    caches = 2 * model.layers * 256 * model.keys * model.size * 4
    assert caches <= project.memory.state_bytes < caches + 64
    return project.memory.arena_bytes + project.memory.state_bytes + 4 * model.words


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("quantize", ["int8d", "int8w", "q8_0"])
def test_a_small_model_fits_512_kilobytes(quantize: str, tmp_path: Path) -> None:
    assert ram(SMALL, tmp_path, "mps2-an500", quantize, 64) + STACK <= 512 << 10


@pytest.mark.slow
@pytest.mark.long
def test_fifteen_million_weights_take_little_more_than_their_caches(tmp_path: Path) -> None:
    """Caches take 3.375 MiB, logits 0.122."""
    assert ram(LARGE, tmp_path, "host", "q4_0", 64) <= int(3.6 * 2**20)
