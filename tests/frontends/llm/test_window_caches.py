# SPDX-License-Identifier: Apache-2.0
"""Caches of layers with a window keep the tokens that it sees."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.api import EntriesProject
from relax_aot.verify.host import HostEntries
from tests.frontends.llm.checkpoints import Array, Llama
from tests.frontends.llm.meaning import logits
from tests.frontends.llm.models import MODELS

CONTEXT, CHUNK = 100, 8
CALLS = (3, 1, 1, 8, 8, 2, 1, 1, 1, 1, 8, 8, 1, 1, 1, 8, 8, 8, *(1,) * 20)
TOKENS = np.random.default_rng(0).integers(0, Llama().words, CONTEXT + CHUNK).astype(np.int32)


@cache
def compiled(name: str, folder: Path, kind: str, speculate: int = 0) -> EntriesProject:
    path = MODELS[name].write(folder / "tiny")
    model = rx.load_llm(path, context=CONTEXT, chunk=CHUNK, cache=kind, speculate=speculate)
    return rx.compile(model, name="tiny")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def called(host: HostEntries, start: int, rows: int) -> Array:
    tokens = TOKENS[start : start + rows]
    found = host.prefill(tokens=tokens) if rows > 1 else host.decode(token=tokens[0])
    return found["logits"]


def follow(name: str, folder: Path) -> None:
    """The logits of a window in double precision, and the bits of whole caches as long as these
    hold no other tokens."""
    kept, whole = (compiled(name, folder / name, kind).host() for kind in ("window", "whole"))
    wanted = logits(MODELS[name], TOKENS[: sum(CALLS)].tolist())
    start, rows = 0, window_of(name) - 1
    for count in CALLS:
        found, same = (called(host, start, count) for host in (kept, whole))
        start += count
        np.testing.assert_allclose(
            found, wanted[start - 1], rtol=1e-4, atol=1e-5 * np.abs(wanted[start - 1]).max()
        )
        if start <= rows:
            assert found.tobytes() == same.tobytes()
        assert (kept.length("m"), kept.length("w")) == (start, min(start, rows))
    for host in (kept, whole):
        for place in range(start, CONTEXT):
            host.decode(token=TOKENS[place])
        with pytest.raises(rx.RelaxAotError, match="ended with RAOT_ERR_CAPACITY"):
            host.decode(token=TOKENS[0])
        assert host.length("m") == CONTEXT


def window_of(name: str) -> int:
    return next(window for window in MODELS[name].style.windows if window is not None)


@pytest.mark.long
def test_all_layers(folder: Path) -> None:
    follow("mistral", folder)


@pytest.mark.long
@pytest.mark.parametrize("name", ["late windows", "smollm3 with windows", "gemma2", "gemma3"])
def test_some_layers(name: str, folder: Path) -> None:
    follow(name, folder)


@pytest.mark.slow
def test_memory(folder: Path) -> None:
    """The rows of a window and of one call, and a slack of an eighth."""
    model, rows = MODELS["mistral"], 5 + CHUNK + 1
    state = compiled("mistral", folder / "mistral", "window").built.state_bytes
    held = 2 * model.layers * 4 * model.keys * model.size * rows
    assert held <= state <= held + 64
    assert state < compiled("mistral", folder / "mistral", "whole").built.state_bytes / 7


@pytest.mark.long
def test_rejected_proposals(folder: Path) -> None:
    """A window has the tokens that it sees also when proposals were removed again."""
    host = compiled("mistral", folder / "speculating", "window", 3).host()
    wanted = logits(MODELS["mistral"], TOKENS[:60].tolist())
    called(host, 0, 7)
    place, rng = 7, np.random.default_rng(5)
    while place < 50:
        right = int(rng.integers(0, 4))
        tokens = TOKENS[place : place + 4].copy()
        tokens[right + 1 :] = 3
        found = host.verify(tokens=tokens)["logits"][: right + 1]
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted[place : place + right + 1], 1e-4, 1e-5 * scale)
        place += right + 1
        host.truncate(m=place, w=host.length("w") - (3 - right))


def test_without_windows_caches_are_whole(folder: Path) -> None:
    path = MODELS["tied"].write(folder / "tied")
    with pytest.raises(rx.RelaxAotError, match="no layer has a window that is smaller"):
        rx.load_llm(path, context=CONTEXT, cache="window")
    with pytest.raises(rx.RelaxAotError, match="one of whole, window, not 'ring'"):
        rx.load_llm(path, cache="ring")
