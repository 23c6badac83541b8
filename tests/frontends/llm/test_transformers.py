# SPDX-License-Identifier: Apache-2.0
"""Logits are those of `transformers` in float32, at prompts of 1, 7 and 64 tokens and after 100
decoding steps, whose bits are those of prefills of all tokens."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import relax_aot as rx
from tests.conftest import NO_TRANSFORMERS
from tests.frontends.llm.checkpoints import Array, Llama
from tests.frontends.llm.models import MODELS
from tests.frontends.llm.test_llama import text

PROMPTS, STEPS = (1, 7, 64), 100
LARGER = Llama(words=512, width=64, hidden=172, queries=8, keys=4)


def expected(folder: Path, tokens: Array) -> Array:
    """The logits of all tokens."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        found = model(torch.tensor(tokens[None].astype(np.int64))).logits
    return np.asarray(found[0].numpy())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*MODELS, "larger"])
def test_logits(name: str, tmp_path: Path) -> None:
    if not all(importlib.util.find_spec(one) for one in ("torch", "transformers")):
        pytest.skip(NO_TRANSFORMERS)
    folder = MODELS.get(name, LARGER).write(tmp_path / "tiny")
    tokens = text(PROMPTS[-1] + STEPS)
    wanted = expected(folder, tokens)
    host = rx.compile(rx.load_llm(folder, context=len(tokens)), name="tiny").host()

    def compare(found: Array, place: int) -> None:
        error = np.abs(found - wanted[place]).max() / np.abs(wanted[place]).max()
        assert error < 1e-5, f"{error} at {place}"

    for prompt in PROMPTS:
        host.reset()
        compare(host.prefill(tokens=tokens[:prompt])["logits"], prompt - 1)
    for place in range(PROMPTS[-1], len(tokens)):
        compare(host.decode(token=tokens[place])["logits"], place)
